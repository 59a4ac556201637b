"""The profile of a hospital's file, and the schema that it leads to."""

from pathlib import Path

import numpy as np
import pytest

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import Schema, load_own
from fedegoists.learning.datasets.column_checks import looks_like_identifier, missing_code
from fedegoists.learning.datasets.table_profile import profiled, proposed_schema

HEADER = "patient_id;age;smokes;ward;seen;crp;gl;empty;note;ill"


def row(k: int, ward: str) -> str:
    crp = -999 if k % 10 == 0 else k % 37 / 2
    glucose = "?" if k % 15 == 0 else f"{4 + k % 9},5"
    date = f"{k % 28 + 1:02}.03.2024"
    ill = "yes" if k % 3 else "no"
    return f"{1000 + k};{20 + k % 50};{k % 2 == 0};{ward};{date};{crp};{glucose};;text {k};{ill}"


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    for name, own in (("Aachen", "east wing"), ("Bonn", "west wing")):
        rows = [row(k, ("icu", "surgery", own)[k % 3]) for k in range(60)]
        rows += [rows[7], row(61, "isolation")]
        (tmp_path / f"{name}.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return tmp_path


def test_every_column(hospitals: Path) -> None:
    found = profiled("organisation 'Aachen'", hospitals / "Aachen.csv")
    assert (found.rows, found.copies) == (62, 1)
    about = {one.name: one for one in found.columns}
    kinds = {name: one.kind for name, one in about.items()}
    assert kinds == {
        "patient_id": "number",
        "age": "number",
        "smokes": "boolean",
        "ward": "category",
        "seen": "date",
        "crp": "number",
        "gl": "number",
        "empty": "nothing",
        "note": "text",
        "ill": "boolean",
    }
    assert about["patient_id"].remarks == ("identifier?",)
    assert about["crp"].remarks == ("-999 for missing? (6)",)
    assert about["crp"].content == "0 to 18"
    assert about["gl"].remarks == ("'?' for missing? (4)",)
    assert about["gl"].missing == 4
    assert about["gl"].content == "4.5 to 12.5"
    assert about["empty"].missing == 62
    assert about["ward"].counts == {"icu": 20, "surgery": 21, "east wing": 20, "isolation": 1}


def test_the_proposed_schema_loads_and_shows_no_rare_value(hospitals: Path) -> None:
    profiles = {name: profiled(name, hospitals / f"{name}.csv") for name in ("Aachen", "Bonn")}
    text = proposed_schema(profiles)
    # Not what one hospital alone has, nor what one patient has.
    assert 'categories = ["icu", "surgery"]' in text
    assert "isolation" not in text
    (hospitals / "schema.toml").write_text(text)
    schema = Schema.from_toml(hospitals / "schema.toml")
    assert schema.features == ("age", "smokes", "ward", "seen", "crp", "gl")
    assert (schema.group, schema.task, schema.classes) == ("patient_id", "binary", ("no", "yes"))
    assert schema.codes("crp") == (-999,)
    data = load_own(hospitals)
    assert sum(data.sizes()["Bonn"]) == 62
    assert data.preparation[0].columns[-6:] == tuple(f"{name} missing" for name in schema.features)


def test_a_column_that_one_lacks_is_proposed_as_optional(tmp_path: Path) -> None:
    for name, header in (("a", "age,crp,ill"), ("b", "age,other,ill")):
        rows = [f"{1.5 * k},{k % 7 + 0.5},{k % 2}" for k in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    profiles = {name: profiled(name, tmp_path / f"{name}.csv") for name in ("a", "b")}
    (tmp_path / "schema.toml").write_text(proposed_schema(profiles))
    assert Schema.from_toml(tmp_path / "schema.toml").column("crp").optional
    assert load_own(tmp_path).participants == ("a", "b")


def test_what_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,age\n1,2\n")
    with pytest.raises(DataError, match=r"2 columns are called 'age'"):
        profiled("a", tmp_path / "a.csv")


def test_a_large_file_has_the_same_profile(
    hospitals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hospitals / "Bonn.csv"
    careful = profiled("Bonn", path)
    monkeypatch.setattr("fedegoists.learning.datasets.csv_tables.QUICK_BYTES", 0)
    quick = profiled("Bonn", path)
    assert [one.name for one in quick.columns] == [one.name for one in careful.columns]
    for one, other in zip(quick.columns, careful.columns, strict=True):
        assert (one.missing, one.remarks) == (other.missing, other.remarks)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([1, 2, 3, 99], 99.0),
        ([50, 60, 99], None),  # not farther away than the others from one another
        ([0, 1, 0, 1, 9], None),  # too few different values to tell
        ([5, 6, 7, -9, -999], -999.0),
        ([5, 6, 7, float("nan")], None),
        ([-999], None),
    ],
)
def test_codes_for_missing_values(values: list[float], code: float | None) -> None:
    assert missing_code(np.array(values, dtype=float)) == code


def test_identifiers() -> None:
    assert looks_like_identifier("age", np.arange(100, 140)[::-1])
    assert not looks_like_identifier("age", np.arange(10))
    assert not looks_like_identifier("age", np.append(np.arange(39), 5))
    assert looks_like_identifier("Patient_ID", np.arange(40) // 2)
    assert not looks_like_identifier("bed nr", np.arange(40) % 4)
    assert not looks_like_identifier("humidity", np.random.default_rng(0).normal(size=40))
