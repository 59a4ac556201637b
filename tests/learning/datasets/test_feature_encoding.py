"""Columns of all kinds: what a model is given, and what is refused with a way on."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedegoists.learning.data import DataError, SiloedData
from fedegoists.learning.datasets import Schema, load_own
from tests.learning.datasets.tables import in_order

WARDS = ["icu", "surgery", "icu", "", "ward 7"] * 6


def schema(*features: str, **more: Any) -> Schema:
    given = {"target": "ill", "task": "binary", "classes": ("0", "1"), "standardise": False}
    return Schema.model_validate({"features": features, **given, **more})


def write(path: Path, columns: dict[str, list[Any]], separator: str = ",") -> Path:
    """Write columns beside ages that tell rows apart, and a class."""
    count = len(next(iter(columns.values())))
    columns = {"age": list(range(count)), **columns, "ill": [k // 2 % 2 for k in range(count)]}
    rows = [
        separator.join(columns),
        *(separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def inputs(data: SiloedData, name: str = "a") -> list[list[float]]:
    return in_order(data, name).inputs[0].tolist()  # type: ignore[no-any-return]


class TestCategories:
    AGREED = schema(
        "age", "ward", missing="indicate", columns={"ward": {"categories": ("icu", "surgery")}}
    )

    def test_each_is_an_input_and_all_others_are_one(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"ward": WARDS})
        data = load_own(tmp_path, self.AGREED)
        names = ("age", "ward=icu", "ward=surgery", "ward=other", "age missing", "ward missing")
        assert data.preparation[0].columns == names
        found = inputs(data)
        assert found[0][1:] == [1, 0, 0, 0, 0]
        assert found[1][1:] == [0, 1, 0, 0, 0]
        assert found[4][1:] == [0, 0, 1, 0, 0]
        assert found[3][5] == 1
        assert sum(found[3][1:4]) == pytest.approx(1)  # how frequent each is in training
        assert "a: 6 values of 'ward' are not declared categories" in data.notes

    def test_parquet_categories_and_numbers_are_read_alike(self, tmp_path: Path) -> None:
        columns = {
            "age": list(range(30)),
            "ward": pa.array(WARDS).dictionary_encode(),
            "grade": [float(k % 3) for k in range(30)],
            "ill": [k // 2 % 2 for k in range(30)],
        }
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        rules = {"ward": {"categories": ("icu", "surgery")}, "grade": {"categories": (0, 1, 2)}}
        agreed = schema("age", "ward", "grade", missing="mean", columns=rules)
        found = inputs(load_own(tmp_path, agreed))
        assert found[1][1:] == [0, 1, 0, 0, 1, 0, 0]

    def test_none_that_is_declared(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"ward": ["ICU"] * 30})
        with pytest.raises(DataError, match=r"no row has a declared category; .*first row 'ICU'"):
            load_own(tmp_path, self.AGREED)


def test_truth_values(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", {"smokes": ["yes", "No", "true", "0", "T"] * 6})
    agreed = schema("age", "smokes", columns={"smokes": {"kind": "boolean"}})
    assert [row[1] for row in inputs(load_own(tmp_path, agreed))[:5]] == [1, 0, 1, 0, 1]
    write(tmp_path / "a.csv", {"smokes": ["yes", "seldom"] * 15})
    with pytest.raises(DataError, match=r"line 3, column 'smokes': 'seldom' is neither true nor"):
        load_own(tmp_path, agreed)


class TestDates:
    DATES = ("2024-03-01", "2024-03-02T12:00:00", "1970-01-01")
    DAYS = (19783.0, 19784.5, 0.0)

    def test_as_days(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"seen": list(self.DATES) * 10})
        agreed = schema("age", "seen", columns={"seen": {"kind": "date"}})
        assert [row[1] for row in inputs(load_own(tmp_path, agreed))[:3]] == list(self.DAYS)

    def test_of_another_form(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"seen": ["01.03.2024", "1.3.2024", ""] * 10})
        rule = {"kind": "date", "format": "%d.%m.%Y", "optional": True}
        found = inputs(load_own(tmp_path, schema("age", "seen", columns={"seen": rule})))
        assert found[0][1:] == found[1][1:] == [19783.0, 0.0]
        assert found[2][1:] == [19783.0, 1.0]

    def test_in_parquet(self, tmp_path: Path) -> None:
        dates = pa.array(range(30), pa.date32())
        columns = {"seen": dates, "ill": [k // 2 % 2 for k in range(30)]}
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        agreed = schema("seen", columns={"seen": {"kind": "date"}})
        assert inputs(load_own(tmp_path, agreed)) == [[float(k)] for k in range(30)]
        with pytest.raises(DataError, match=r"set kind = 'date' in \[columns.seen\]"):
            load_own(tmp_path, schema("seen"))

    def test_that_are_not_declared_or_are_none(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"seen": ["31.12.2024"] * 30})
        with pytest.raises(DataError, match=r"'31\.12\.2024' is not a number; if it is a date, de"):
            load_own(tmp_path, schema("age", "seen"))
        with pytest.raises(DataError, match=r"is not a date like 2024-03-31; .*format = '%d\.%m"):
            load_own(tmp_path, schema("age", "seen", columns={"seen": {"kind": "date"}}))


class TestMissing:
    def test_a_column_that_one_organisation_lacks(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"crp": [float(k) for k in range(30)]})
        write(tmp_path / "b.csv", {"other": [1] * 30})
        with pytest.raises(DataError, match=r"organisation 'b', .* column 'crp' is missing"):
            load_own(tmp_path, schema("age", "crp"))
        data = load_own(tmp_path, schema("age", "crp", columns={"crp": {"optional": True}}))
        assert data.preparation[0].columns == ("age", "crp", "crp missing")
        assert {tuple(row[1:]) for row in inputs(data, "b")} == {(0.0, 1.0)}
        assert [row[1:] for row in inputs(data)] == [[float(k), 0.0] for k in range(30)]
        assert "b: it has no column 'crp'; all its values are marked as missing" in data.notes

    def test_an_optional_column_of_almost_the_name(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"CRP": [1.5] * 30})
        agreed = schema("age", "crp", columns={"crp": {"optional": True}})
        with pytest.raises(DataError, match=r"rename 'CRP', whose letters differ in case"):
            load_own(tmp_path, agreed)

    @pytest.mark.parametrize("code", ["-999", "-999.0", "9999"])
    def test_a_code_is_not_taken_for_a_number(self, tmp_path: Path, code: str) -> None:
        write(tmp_path / "a.csv", {"crp": [3.5, 80, code, 12, 41] * 6})
        with pytest.raises(DataError) as caught:
            load_own(tmp_path, schema("age", "crp"))
        message = str(caught.value)
        assert "line 4, column 'crp'" in message
        assert f"{float(code):g} looks like a code for a missing value (6 in this file; " in message
        assert f"set missing_values = [{float(code):g}] in [columns.crp]" in message
        rule = {"crp": {"missing_values": [float(code)]}}
        found = inputs(load_own(tmp_path, schema("age", "crp", missing="mean", columns=rule)))
        assert 3.5 < found[2][1] < 80
        rule = {"crp": {"range": [-1000, 10_000]}}  # it is a number indeed
        found = inputs(load_own(tmp_path, schema("age", "crp", columns=rule)))
        assert found[2][1] == float(code)

    def test_a_mark_is_named_with_a_way_on(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"crp": [3.5, "?", 80] * 10})
        with pytest.raises(DataError, match=r"line 3, column 'crp': '\?' is .* missing_values = "):
            load_own(tmp_path, schema("age", "crp", missing="mean"))
        agreed = schema("age", "crp", missing="indicate", missing_values=["?"])
        found = inputs(load_own(tmp_path, agreed))
        assert [row[3] for row in found[:3]] == [0, 1, 0]


class TestUnits:
    AGREED = schema("age", "crp", columns={"crp": {"unit": "mg/l", "range": [0, 500]}})

    def test_a_unit_in_the_name_of_a_column_is_compared(self, tmp_path: Path) -> None:
        values = [float(k) for k in range(30)]
        for header in ("crp", "crp [mg/l]", "crp (mg/l)"):
            write(tmp_path / "a.csv", {header: values})
            data = load_own(tmp_path, self.AGREED)
            assert [row[1] for row in inputs(data)] == values
            assert not any("not used" in note for note in data.notes)
        write(tmp_path / "a.csv", {"crp [mg/dl]": values})
        with pytest.raises(DataError, match=r"'crp \[mg/dl\]' is in mg/dl, but .* says mg/l; con"):
            load_own(tmp_path, self.AGREED)
        with pytest.raises(DataError, match=r"has a unit, but the schema declares none; add unit"):
            load_own(tmp_path, schema("age", "crp"))

    def test_numbers_outside_the_range_are_refused(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", {"crp": [1.0, 2.0, 5000.0] * 10})
        with pytest.raises(
            DataError, match=r"line 4, .*5000 is outside .* 0 to 500 mg/l \(10 such values"
        ):
            load_own(tmp_path, self.AGREED)


def test_umlauts_and_spaces_in_names(tmp_path: Path) -> None:
    write(tmp_path / "Köln Süd.csv", {"Größe in cm": [150 + k for k in range(30)]})
    data = load_own(tmp_path, schema("Größe in cm"))
    assert data.participants == ("Köln Süd",)
    assert inputs(data, "Köln Süd")[0] == [150.0]


def test_what_only_looks_odd_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", {"patient_id": [7 * k for k in range(40)], "site": [3] * 40})
    warnings = load_own(tmp_path, schema("age", "patient_id", "site")).warnings
    assert "a: column 'site' has the value 3 only" in warnings
    assert any(
        w.startswith("a: column 'patient_id' looks like an identifier; if") for w in warnings
    )


def test_few_different_rows_are_told_apart_by_a_group(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", {"sex": [k % 2 for k in range(100)]})
    with pytest.raises(DataError, match=r"2 different rows are too few .*name a column that tells"):
        load_own(tmp_path, schema("sex"))
    sizes = load_own(tmp_path, schema("sex", group="age")).sizes()["a"]
    assert sizes.train > 50


def test_data_frames(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "age": range(30),
            "ward": pd.Categorical(["icu", None, "surgery"] * 10),
            "smokes": pd.array([True, False, None] * 10, dtype="boolean"),
            "seen": pd.to_datetime(["2024-03-01"] * 30),
            "ill": [k // 2 % 2 for k in range(30)],
        }
    )
    rules = {
        "ward": {"categories": ("icu", "surgery")},
        "smokes": {"kind": "boolean"},
        "seen": {"kind": "date"},
    }
    agreed = schema("age", "ward", "smokes", "seen", missing="indicate", columns=rules)
    data = load_own({"North": frame, "South": frame}, agreed)
    found = inputs(data, "North")
    assert found[0] == [0, 1, 0, 0, 1, 19783, 0, 0, 0, 0]
    assert found[2][1:4] == [0, 1, 0]
    assert found[1][6:] == [0, 1, 0, 0]
    assert np.isfinite(found).all()
    with pytest.raises(DataError, match=r"organisation 'North', data frame: column 'age' is mis"):
        load_own({"North": frame.drop(columns="age")}, agreed)
