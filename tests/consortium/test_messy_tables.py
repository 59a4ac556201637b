"""Tables as hospitals have them, through ``consortium.toml``: the right result, or a clear refusal.

The tests of single readers are in ``tests/learning/datasets``; here everything goes the way of a
user, from the file to the models of a run.
"""

import csv
import html
import re
from pathlib import Path

import numpy as np
import pytest

from fedegoists.consortium import Consortium
from fedegoists.consortium.export import export
from fedegoists.consortium.prediction import predict
from fedegoists.errors import FedEgoistsError
from fedegoists.learning.data import DataError

TOML = """
[data]
source = "data"
[benefit]
estimator = "everybody"
[training]
methods = ["local", "fedavg+ft"]
seeds = 1
steps = 40
weight_decay = 0.1
"""
SCHEMA = """
features = ["age", "crp"]
target = "ill"
task = "binary"
classes = ["no", "yes"]
"""
HEADER = ("age", "crp", "ill")
Rows = list[dict[str, object]]


def patients(count: int, seed: int, rate: float | None = None) -> Rows:
    """Patients whose illness depends on age and CRP; with a rate, the worst of them are ill."""
    rng = np.random.default_rng(seed)
    age, crp = rng.integers(20, 90, count), np.round(rng.lognormal(1, 1, count), 3)
    risk = (age - 55) / 15 + np.log(crp) - 1 + rng.logistic(size=count)
    limit = 0.0 if rate is None else np.sort(risk)[-round(rate * count)]
    return [
        {"age": int(a), "crp": float(c), "ill": "yes" if r >= limit else "no"}
        for a, c, r in zip(age, crp, risk, strict=True)
    ]


def written(folder: Path, schema: str = SCHEMA, toml: str = TOML, **tables: Rows) -> Path:
    """Write a consortium's files; return its consortium.toml."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "schema.toml").write_text(schema, encoding="utf-8")
    for name, rows in tables.items():
        with (folder / "data" / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else HEADER)
            writer.writeheader()
            writer.writerows(rows)
    (folder / "consortium.toml").write_text(toml, encoding="utf-8")
    return folder / "consortium.toml"


def text_of(page: Path) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page.read_text("utf-8"))))


def changed(rows: Rows, row: int, **values: object) -> Rows:
    return [{**one, **(values if k == row else {})} for k, one in enumerate(rows)]


NORTH, SOUTH = patients(60, 0), patients(60, 1)
CRP = "\n[columns.crp]\n"


@pytest.mark.parametrize(
    ("north", "schema", "message"),
    [
        pytest.param(
            [{**row, "ill": "no"} for row in NORTH],
            SCHEMA,
            "all 60 rows are of the class 'no'; with one class there is nothing to learn, so leave "
            "this organisation out",
            id="one class",
        ),
        pytest.param(
            NORTH[:8],
            SCHEMA,
            "8 different rows are too few to divide into training, validation and test; at least "
            "10 are needed, so leave this organisation out",
            id="8 rows",
        ),
        pytest.param([], SCHEMA, "the file has no rows", id="no rows"),
        pytest.param(
            changed(NORTH, 5, crp="inf"),
            SCHEMA,
            "line 7, column 'crp': inf is not a finite number",
            id="infinity",
        ),
        pytest.param(
            [{**row, "crp": row["crp"] if k % 9 else -999} for k, row in enumerate(NORTH)],
            SCHEMA,
            "line 2, column 'crp': -999 looks like a code for a missing value (7 in this file",
            id="-999",
        ),
        pytest.param(
            changed(NORTH, 3, crp="?"),
            SCHEMA,
            "'?' is not a number; if it stands for a missing value, add missing_values = ['?']",
            id="question mark",
        ),
        pytest.param(
            [{**row, "crp": "2024-03-01"} for row in NORTH],
            SCHEMA,
            "'2024-03-01' is not a number; if it is a date, declare the column with kind = 'date'",
            id="dates",
        ),
        pytest.param(
            [{"age": row["age"], "ill": row["ill"]} for row in NORTH],
            SCHEMA,
            "column 'crp' is missing; it has 'age', 'ill'",
            id="a column that one lacks",
        ),
        pytest.param(
            [{"age": r["age"], "crp [mg/dl]": r["crp"], "ill": r["ill"]} for r in NORTH],
            SCHEMA + CRP + 'unit = "mg/l"\n',
            "column 'crp [mg/dl]' is in mg/dl, but the schema says mg/l; convert its numbers",
            id="another unit",
        ),
        pytest.param(
            changed(NORTH, 0, ill="perhaps"),
            SCHEMA,
            "the class 'perhaps' is not declared; the schema has 'no', 'yes'",
            id="another class",
        ),
    ],
)
def test_a_clear_refusal_before_anything_is_trained(north, schema, message, tmp_path):
    path = written(tmp_path, schema, north=north, south=SOUTH)
    with pytest.raises(DataError) as refused:
        Consortium.read(path)
    assert "organisation 'north'" in str(refused.value)
    assert "north.csv" in str(refused.value)
    assert message in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_all_problems_of_all_organisations_at_once(tmp_path):
    path = written(
        tmp_path,
        north=changed(changed(NORTH, 3, crp="?"), 7, age="old"),
        south=changed(SOUTH, 1, crp="1e99"),
    )
    with pytest.raises(DataError, match="3 problems") as refused:
        Consortium.read(path)
    lines = str(refused.value).splitlines()[1:]
    assert [
        re.findall(r"organisation '(\w+)'.*line (\d+), column '(\w+)'", one) for one in lines
    ] == [
        [("north", "9", "age")],
        [("north", "5", "crp")],
        [("south", "3", "crp")],
    ]


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            TOML.replace('"data"', '"dat"'),
            "unknown data set 'dat'.*there is no folder of this name",
        ),
        (
            TOML + '[competition]\npairs = [["north", "west"]]\n',
            "'west'",
        ),
    ],
)
def test_a_missing_folder_or_file_is_named(toml, message, tmp_path):
    path = written(tmp_path, toml=toml, north=NORTH, south=SOUTH)
    with pytest.raises(FedEgoistsError, match=message):
        Consortium.read(path)


def test_names_orders_separators_and_kinds_of_files_differ(tmp_path):
    """Umlauts and spaces, another order, extra columns, semicolons, Parquet categories, units."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    schema = """
features = ["Alter", "crp", "Blut gruppe ß"]
target = "gestorben ü"
task = "binary"
classes = ["nein", "ja"]
[columns.Alter]
unit = "Jahre"
[columns."Blut gruppe ß"]
categories = ["A", "B"]
"""

    def own(seed: int) -> Rows:
        groups = np.random.default_rng(seed).choice(["A", "B", "0 neg"], 80)
        return [
            {
                "Alter (Jahre)": row["age"],
                "crp": row["crp"],
                "Blut gruppe ß": str(group),
                "gestorben ü": "ja" if row["ill"] == "yes" else "nein",
            }
            for row, group in zip(patients(80, seed), groups, strict=True)
        ]

    names = ("Universität Köln", "Spital Zürich 1", "Hôpital Été")
    path = written(tmp_path, schema, **{names[0]: own(0)})
    order = ("gestorben ü", "note", "crp", "Alter (Jahre)", "Blut gruppe ß")
    lines = [";".join(order)]
    for row in own(1):
        cells = {**row, "note": "x,y", "crp": str(row["crp"]).replace(".", ",")}
        lines.append(";".join(str(cells[name]) for name in order))
    (tmp_path / "data" / f"{names[1]}.csv").write_text("\n".join(lines), encoding="utf-8")
    columns = {name: [row[name] for row in own(2)] for name in own(2)[0]}
    for name in ("Blut gruppe ß", "gestorben ü"):
        columns[name] = pa.array(columns[name]).dictionary_encode()
    pq.write_table(pa.table(columns), tmp_path / "data" / f"{names[2]}.parquet")
    run = Consortium.read(path).run()
    assert set(run.data.participants) == set(names)
    assert {file.stem for file in (run.folder / "models").iterdir()} == set(names)
    page = text_of(run.folder / "report.html")
    assert all(name in page for name in names)
    # What was read is the same as from a plain file of the same rows.
    plain = tmp_path / "plain"
    plain.mkdir()
    other = Consortium.read(
        written(plain, schema, **dict(zip(names, map(own, range(3)), strict=True)))
    )
    assert other.data.digest == run.data.digest


def test_what_looks_odd_is_said_and_trained(tmp_path):
    """An identifier among the features, and copies of patients."""
    schema = SCHEMA.replace('"crp"]', '"crp", "patient_id"]')
    north = [{**row, "patient_id": k} for k, row in enumerate(NORTH)]
    tripled = [row for row in north for _ in range(3)]
    path = written(tmp_path, schema, north=tripled, south=north)
    data = Consortium.read(path).engine.samples
    assert (
        "north: 120 rows have the same features as another row; copies are in the same split"
        in (data.warnings)
    )
    assert any(
        one.startswith("south: column 'patient_id' looks like an identifier; if it is one, remove")
        for one in data.warnings
    )
    own = data.silo("north")
    inputs = data.samples.inputs[0]
    seen = {row.tobytes() for row in inputs[own.train]}
    assert not seen & {row.tobytes() for row in inputs[np.r_[own.validation, own.test]]}


def test_a_patient_three_times_is_one_patient_in_every_result(tmp_path):
    """Sixty rows for test are twenty patients; the report counts these."""
    tripled = [row for row in patients(100, 3) for _ in range(3)]
    run = Consortium.read(written(tmp_path, north=tripled, south=SOUTH)).run()
    found = run.evaluations.models["north"]
    assert found.samples == 3 * found.groups
    assert "groups of test samples, fewer than 10 of each" in found.few
    text = f"of {found.groups} groups (patients, or copies)"
    assert text in text_of(run.folder / "members" / "north.html")
    assert "copies count as one" in text_of(run.folder / "report.html")
    card = (run.folder / "cards" / "north.md").read_text()
    assert f"over the {found.groups} groups of test samples" in card
    assert run.evaluations.models["south"].groups is None


def test_one_in_fifty_is_stratified_and_judged_by_what_notices(tmp_path):
    path = written(tmp_path, north=patients(200, 0, 0.02), south=patients(200, 1, 0.5))
    consortium = Consortium.read(path)
    for split in ("train", "validation", "test"):
        ill = consortium.engine.samples.label_counts(split)[:, 1]
        assert ill.min() >= 1
    run = consortium.run()
    page = text_of(run.folder / "members" / "north.html")
    assert "precision-recall" in page
    assert "fewer than 10 of each" in page  # four of the ill are no result


def test_accuracy_does_not_notice_and_that_is_said(tmp_path):
    schema = SCHEMA.replace('"binary"', '"classification"')
    path = written(tmp_path, schema, north=patients(200, 0, 0.02), south=SOUTH)
    warnings = Consortium.read(path).engine.samples.warnings
    assert (
        "north: 98 % of the rows are of the class 'no': who always predicts it has an accuracy of "
        '0.98; set task = "binary", which is judged by AUC, and consider class_weights = '
        '"balanced" under [training]'
    ) in warnings
    assert not any(one.startswith("south") for one in warnings)


def test_a_class_or_a_column_that_one_organisation_lacks(tmp_path):
    schema = (
        SCHEMA.replace('"binary"', '"classification"').replace('"yes"]', '"yes", "unclear"]')
        + CRP
        + "optional = true\n"
    )
    north = [{**row, "ill": "unclear" if row["age"] > 75 else row["ill"]} for row in NORTH]
    south = [{"age": row["age"], "ill": row["ill"]} for row in patients(120, 1)]
    run = Consortium.read(written(tmp_path, schema, north=north, south=south)).run()
    assert not any(outcome.failures for outcome in run.outcomes.values())
    data = Consortium.read(tmp_path / "consortium.toml").engine.samples
    mark = data.schema.inputs.index("crp missing")
    assert data.samples.inputs[0][data.silo("south").all, mark].min() == 1
    assert data.samples.inputs[0][data.silo("north").all, mark].max() == 0
    assert data.label_counts("train")[:, 2].tolist()[1] == 0


def test_a_newcomer_moves_no_patient_of_the_others(tmp_path):
    path = written(tmp_path, north=NORTH, south=SOUTH)
    before = Consortium.read(path).engine.samples
    written(tmp_path, east=patients(60, 2), north=NORTH[::-1])
    after = Consortium.read(path).engine.samples
    assert after.participants == ("east", "north", "south")
    for name in before.participants:
        for split in ("train", "validation", "test"):
            rows = [
                {tuple(row) for row in data.part(name, split).inputs[0].round(5).tolist()}
                for data in (before, after)
            ]
            assert rows[0] == rows[1]


def test_one_hospital_alone_in_its_coalition_has_no_gain(tmp_path):
    rivals = '[competition]\npairs = [["east", "north"], ["east", "south"]]\n'
    path = written(tmp_path, toml=TOML + rivals, north=NORTH, south=SOUTH, east=patients(60, 2))
    run = Consortium.read(path).run()
    assert ("east",) in run.formation.coalitions
    assert {gain.participant for gain in run.gains} == {"north", "south"}
    page = text_of(run.folder / "members" / "east.html")
    assert "alone" in page
    assert "gain of" not in page


def test_an_exported_model_finds_columns_by_name_in_any_order(tmp_path):
    pytest.importorskip("onnxruntime")
    run = Consortium.read(written(tmp_path, north=NORTH, south=SOUTH)).run()
    export(run.folder, "north", tmp_path / "out", onnx=True)
    rows = {"straight": "age,crp\n70,8\n30,1\n", "swapped": "crp,age\n8,70\n1,30\n"}
    found = {}
    for name, content in rows.items():
        (tmp_path / f"{name}.csv").write_text(content)
        found[name] = predict(tmp_path / "out" / "north.onnx", tmp_path / f"{name}.csv").values
    np.testing.assert_array_equal(found["straight"], found["swapped"])
    assert found["straight"][0, 0] > found["straight"][1, 0]
    (tmp_path / "other.csv").write_text("crp,years\n8,70\n")
    with pytest.raises(DataError, match="column 'age' is missing"):
        predict(tmp_path / "out" / "north.onnx", tmp_path / "other.csv")
