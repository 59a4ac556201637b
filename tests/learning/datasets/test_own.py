"""A user's own files: what is read from them, and what is said about folders."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedegoists.errors import FileError, GraphError, SettingsError
from fedegoists.learning.data import DataError, Split
from fedegoists.learning.datasets import Schema, load_own
from tests.learning.datasets.tables import (
    AGES,
    BINARY,
    DEFAULTS,
    FILLED,
    INCOMES,
    MANY,
    NUMBER,
    ROWS,
    SCALED,
    by_age,
    changed,
    csv,
    in_order,
)

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


class TestReading:
    def test_a_folder_with_a_schema(self, folder: Path) -> None:
        (folder / "schema.toml").write_text(
            'features = ["income", "age"]\ntarget = "default"\ntask = "binary"\n'
            'classes = ["no", "yes"]\nstandardise = false\n'
        )
        (folder / ".hidden").write_text("not read")
        (folder / "old").mkdir()
        data = load_own(folder)
        assert data.participants == ("north", "south")
        assert data.sizes() == {"north": (13, 3, 4), "south": (26, 6, 8)}
        north = in_order(data, "north")
        assert north.inputs[0].tolist() == [[i, a] for i, a in zip(INCOMES, AGES, strict=True)]
        assert north.targets.tolist() == [int(d == "yes") for d in DEFAULTS]
        assert data.task == "binary"
        assert data.classes == 2

    def test_organisations_in_natural_order(self, tmp_path: Path) -> None:
        for name in ("bank 10", "bank 9", "Zürich"):
            (tmp_path / f"{name}.csv").write_text(csv())
        assert load_own(tmp_path, BINARY).participants == ("bank 9", "bank 10", "Zürich")

    def test_a_mapping(self, folder: Path) -> None:
        data = load_own({"B": folder / "north.csv", "A": str(folder / "south.csv")}, BINARY)
        assert data.participants == ("B", "A")

    def test_a_regression(self, folder: Path) -> None:
        data = load_own(folder, NUMBER)
        assert in_order(data, "north").targets.tolist() == INCOMES
        assert sum(data.sizes()["north"]) == 20
        assert data.notes[:2] == ("features: age", "north: columns not used: default")

    def test_every_class_is_in_every_split(self, folder: Path) -> None:
        for split in ("train", "validation", "test"):
            assert load_own(folder, BINARY).label_counts(split).min() >= 1  # type: ignore[arg-type]

    def test_three_rows_of_a_class_are_one_for_each_split(self, tmp_path: Path) -> None:
        rows = [f"{age},1,{'yes' if age < 3 else 'no'}" for age in range(60)]
        (tmp_path / "a.csv").write_text(csv(rows))
        data = load_own(tmp_path, BINARY)
        for split in ("train", "validation", "test"):
            assert data.label_counts(split)[0, 1] == 1  # type: ignore[arg-type]

    def test_a_class_that_only_one_has(self, folder: Path) -> None:
        (folder / "north.csv").write_text(changed(5, "33,1,maybe"))
        data = load_own(folder, MANY)
        assert data.classes == 3
        counts = sum(data.label_counts(split) for split in ("train", "validation", "test"))
        assert counts[:, 2].tolist() == [1, 0]

    @pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
    def test_the_three_forms_give_the_same(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"a.{suffix}"
        columns = {"age": AGES, "income": [*INCOMES[:-1], np.nan], "default": DEFAULTS}
        if suffix == "csv":
            path.write_text(csv([*ROWS[:-1], "49,,no"]))
        elif suffix == "parquet":
            pq.write_table(pa.table({**columns, "income": [*INCOMES[:-1], None]}), path)
        else:
            np.savez(path, **{name: np.array(values) for name, values in columns.items()})
        found = in_order(load_own({"a": path}, FILLED), "a")
        assert found.inputs[0][:, 0].tolist() == AGES
        assert found.inputs[0][:-1, 1].tolist() == INCOMES[:-1]
        assert found.targets.tolist() == [int(d == "yes") for d in DEFAULTS]

    @pytest.mark.parametrize(
        ("column", "classes"),
        [
            (pa.array([int(d == "yes") for d in DEFAULTS]), ("0", "1")),
            (pa.array([float(d == "yes") for d in DEFAULTS]), ("0", "1")),
            (pa.array([d == "yes" for d in DEFAULTS]), ("False", "True")),
            (pa.array(DEFAULTS).dictionary_encode(), ("no", "yes")),
        ],
    )
    def test_classes_of_other_types_in_parquet(
        self, tmp_path: Path, column: Any, classes: tuple[str, str]
    ) -> None:
        pq.write_table(pa.table({"age": AGES, "default": column}), tmp_path / "a.parquet")
        data = load_own(tmp_path, by_age(*classes))
        assert in_order(data, "a").targets.tolist() == [int(d == "yes") for d in DEFAULTS]

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([None, *DEFAULTS[1:]]),
            pa.array([None, *(float(d == "yes") for d in DEFAULTS[1:])]),
            pa.array([None, *(d.encode() for d in DEFAULTS[1:])]),
        ],
    )
    def test_no_class_in_parquet(self, tmp_path: Path, column: Any) -> None:
        pq.write_table(pa.table({"age": AGES, "default": column}), tmp_path / "a.parquet")
        schema = by_age("no", "yes", "0", "1", task="classification")
        with pytest.raises(
            DataError, match=r"row 1, column 'default': the value to predict is miss"
        ):
            load_own(tmp_path, schema)

    def test_truth_values_that_are_missing_in_parquet(self, tmp_path: Path) -> None:
        flags = pa.array([None, *(age % 2 == 0 for age in AGES[1:])])
        pq.write_table(
            pa.table({"age": AGES, "income": flags, "default": DEFAULTS}), tmp_path / "a.parquet"
        )
        found = in_order(load_own(tmp_path, FILLED), "a").inputs[0][:, 1]
        assert 0 < found[0] < 1
        assert found[1:4].tolist() == [0, 1, 0]

    def test_features_of_other_types_in_parquet(self, tmp_path: Path) -> None:
        columns = {
            "small": pa.array([a % 2 == 0 for a in AGES]),
            "exact": pa.array([Decimal(a) / 4 for a in AGES]),
            "large": pa.array([2**60 + a for a in AGES]),
            "default": pa.array(DEFAULTS),
        }
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        schema = BINARY.model_copy(update={"features": ("small", "exact", "large")})
        found = in_order(load_own(tmp_path, schema), "a").inputs[0]
        assert found[:2].tolist() == [[1.0, 7.5, 2.0**60], [0.0, 7.75, 2.0**60]]

    @pytest.mark.parametrize("text", ["1.0", "1", " 1 ", "1.00"])
    def test_whole_numbers_as_classes(self, tmp_path: Path, text: str) -> None:
        rows = [f"{a},{text if a % 2 else '0'}" for a in AGES]
        (tmp_path / "a.csv").write_text(csv(rows, "age,default"))
        data = load_own(tmp_path, by_age("0", "1"))
        assert data.samples.targets.sum() == 10

    def test_quotes_spaces_line_ends_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        rows = [f' {a} ,"{i}",{d}' for a, i, d in zip(AGES, INCOMES, DEFAULTS, strict=True)]
        text = csv(rows, '\ufeff age,"income", default ').replace("\n", "\r\n") + "\r\n"
        (tmp_path / "a.csv").write_bytes(text.encode())
        assert in_order(load_own(tmp_path, BINARY), "a").inputs[0][:, 0].tolist() == AGES

    def test_missing_values_become_the_mean_of_training_rows(self, folder: Path) -> None:
        (folder / "north.csv").write_text(changed(3, "31,NA,no"))
        data = load_own(folder, FILLED)
        train = data.part("north", "train").inputs[0][:, 1].astype(np.float64)
        filled = in_order(data, "north").inputs[0][1, 1]
        others = [
            i for k, i in enumerate(INCOMES) if k != 1 and k in np.sort(data.silo("north").train)
        ]
        assert filled == pytest.approx(np.mean(others), rel=1e-6)
        assert train.mean() == pytest.approx(filled, rel=1e-6)
        assert any("1 missing inputs are the organisation's" in note for note in data.notes)

    def test_scaled_by_training_rows(self, folder: Path) -> None:
        data = load_own(folder, SCALED)
        for name in data.participants:
            train = data.part(name, "train").inputs[0].astype(np.float64)
            assert train.mean(axis=0) == pytest.approx(0, abs=1e-6)
            assert train.std(axis=0) == pytest.approx(1, abs=1e-5)

    def test_rows_of_one_do_not_change_the_division_of_another(self, folder: Path) -> None:
        before = load_own(folder, BINARY)
        (folder / "north.csv").write_text(csv(ROWS * 3))
        after = load_own(folder, BINARY)
        moved = after.silo("south").test - before.silo("south").test
        assert set(moved) == {40}  # the rows that north has gained stand before them

    def test_the_seed_decides(self, folder: Path) -> None:
        one, again, other = (load_own(folder, BINARY, seed=s).silo("north").test for s in (1, 1, 2))
        assert one.tolist() == again.tolist() != other.tolist()


class TestBadFolders:
    def test_no_folder_or_a_file(self, folder: Path) -> None:
        with pytest.raises(FileError, match=r"none: no such folder; give the folder with one file"):
            load_own(folder / "none", BINARY)
        with pytest.raises(FileError, match=r"north\.csv: is a file, not a folder"):
            load_own(folder / "north.csv", BINARY)

    def test_nobody(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no organisations; put in one file for each, such as"):
            load_own(tmp_path, BINARY)
        with pytest.raises(DataError, match=r"^no organisations; give at least one name"):
            load_own({}, BINARY)

    def test_a_file_of_an_unknown_kind(self, folder: Path) -> None:
        (folder / "west.ods").write_bytes(b"")
        with pytest.raises(DataError, match=r"west\.ods: files that end in '\.ods' cannot be rea"):
            load_own(folder, BINARY)
        with pytest.raises(DataError, match=r"^organisation 'W', .*: files that end in '\.ods' ca"):
            load_own({"W": folder / "west.ods"}, BINARY)

    def test_two_files_of_one_organisation(self, folder: Path) -> None:
        np.savez(folder / "north.npz", a=[1])
        with pytest.raises(
            DataError, match=r"^organisation 'north': it has two files, north\.csv a"
        ):
            load_own(folder, BINARY)

    def test_names_that_are_none(self, folder: Path) -> None:
        with pytest.raises(GraphError, match=r"^organisations: the name ' north' starts or ends"):
            load_own({" north": folder / "north.csv"}, BINARY)

    def test_no_schema(self, folder: Path) -> None:
        with pytest.raises(
            DataError, match=r'schema\.toml: no such file; write .* features = \["age'
        ):
            load_own(folder)
        with pytest.raises(DataError, match=r"^no schema; give one"):
            load_own({"a": folder / "north.csv"})
        (folder / "mine.toml").write_text("features = 3")
        with pytest.raises(SettingsError, match=r"mine\.toml: features is 3: input"):
            load_own({"a": folder / "north.csv"}, folder / "mine.toml")


class TestSplits:
    def for_test(self, folder: Path, schema: Schema) -> set[tuple[float, ...]]:
        """Return the rows for test of north."""
        data = load_own(folder, schema)
        return {tuple(row) for row in data.part("north", "test").inputs[0].tolist()}

    def test_members_order_and_new_rows_move_no_row(self, folder: Path) -> None:
        rows = [f"{age},{age * 7},{'yes' if age % 3 else 'no'}" for age in range(200)]
        (folder / "north.csv").write_text(csv(rows))
        before = self.for_test(folder, BINARY)
        assert 10 < len(before) < 60
        (folder / "aachen.csv").write_text(csv())  # stands before the others
        assert self.for_test(folder, BINARY) == before
        (folder / "south.csv").unlink()
        assert self.for_test(folder, BINARY) == before
        (folder / "north.csv").write_text(csv(rows[::-1]))
        assert self.for_test(folder, BINARY) == before
        more = [f"{age},{age},no" for age in range(300, 400)]
        (folder / "north.csv").write_text(csv(rows + more))
        after = self.for_test(folder, BINARY)
        assert before == {row for row in after if row[0] < 300}

    def test_copies_are_in_one_split_and_reported(self, folder: Path) -> None:
        (folder / "north.csv").write_text(csv(ROWS * 3))  # every patient three times
        data = load_own(folder, BINARY)
        splits = [
            {tuple(row) for row in data.part("north", split).inputs[0].tolist()}
            for split in ("train", "validation", "test")
        ]
        assert sum(map(len, splits)) == len(set.union(*splits)) == 20
        assert (
            "north: 40 rows have the same features as another row; copies are in the same split"
            in data.warnings
        )

    def test_a_patient_with_several_rows_is_in_one_split(self, folder: Path) -> None:
        grouped = BINARY.model_copy(update={"group": "patient"})
        for name in ("north", "south"):
            rows = [f"{row},{k // 2}{'.0' * (k % 2)}" for k, row in enumerate(ROWS * 3)]
            (folder / f"{name}.csv").write_text(csv(rows, "age,income,default,patient"))
        data = load_own(folder, grouped)
        for silo, start in zip(data.silos, (0, 60), strict=True):
            patients = [{(row - start) // 2 for row in silo.of(split)} for split in SPLITS]
            assert sum(map(len, patients)) == len(set.union(*patients)) == 30
        # A patient of two hospitals is for the same purpose at both.
        north, south = data.silos
        assert {row + 60 for row in north.test} == set(south.test.tolist())

    def test_rows_without_a_patient(self, folder: Path) -> None:
        rows = [f"{row},{k}" for k, row in enumerate(ROWS)]
        rows[4] = f"{ROWS[4]},"
        for name in ("north", "south"):
            (folder / f"{name}.csv").write_text(csv(rows, "age,income,default,patient"))
        with pytest.raises(DataError, match=r"line 6, column 'patient': the value is missing, so"):
            load_own(folder, BINARY.model_copy(update={"group": "patient"}))

    def test_too_few_patients(self, folder: Path) -> None:
        for name in ("north", "south"):
            rows = [f"{row},{k % 9}" for k, row in enumerate(ROWS)]
            (folder / f"{name}.csv").write_text(csv(rows, "age,income,default,patient"))
        with pytest.raises(DataError, match=r"9 different values of 'patient' are too few to div"):
            load_own(folder, BINARY.model_copy(update={"group": "patient"}))

    def test_one_in_fifty_is_in_every_split(self, tmp_path: Path) -> None:
        rows = [f"{age},{age},{'yes' if age % 50 == 0 else 'no'}" for age in range(300)]
        (tmp_path / "a.csv").write_text(csv(rows))
        for seed in range(5):
            data = load_own(tmp_path, BINARY, seed=seed)
            assert all(data.label_counts(split)[0].min() >= 1 for split in SPLITS)


def test_a_column_says_how_much_rows_count(tmp_path):
    rows = "\n".join(f"{k},{'yes' if k % 2 else 'no'},{1 + k % 3}" for k in range(30))
    (tmp_path / "north.csv").write_text(f"age,ill,counts\n{rows}\n")
    schema = Schema(
        features=("age",), target="ill", task="binary", classes=("no", "yes"), weight="counts"
    )
    data = load_own({"north": tmp_path / "north.csv"}, schema)
    assert data.samples.weights.tolist() == [1 + k % 3 for k in range(30)]
    assert not any("not used" in note for note in data.notes)
    text = (tmp_path / "north.csv").read_text().replace("7,yes,2", "7,yes,0")
    (tmp_path / "north.csv").write_text(text)
    with pytest.raises(DataError, match="line 9, column 'counts': a weight is a number above 0"):
        load_own({"north": tmp_path / "north.csv"}, schema)
    with pytest.raises(ValueError, match="'age' is the weight, and a feature"):
        Schema(features=("age",), target="ill", task="binary", classes=("a", "b"), weight="age")
