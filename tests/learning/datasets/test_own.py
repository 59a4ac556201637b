"""A user's own files: what is read from them, and what every mistake is called."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.errors import FedEgoistsError, FileError, GraphError, SettingsError
from fedegoists.learning.data import DataError, SiloedData
from fedegoists.learning.datasets import Schema, load_own

BINARY = Schema(("age", "income"), "default", "binary", ("no", "yes"), standardise=False)
FILLED = Schema(("age", "income"), "default", "binary", ("no", "yes"), "mean", standardise=False)
NUMBER = Schema(("age",), "income", "regression", standardise=False)
MANY = Schema(("age",), "default", "classification", ("no", "yes", "maybe"), standardise=False)

AGES = list(range(30, 50))
INCOMES = [100.0 * age for age in AGES]
DEFAULTS = ["yes" if age % 4 == 0 else "no" for age in AGES]
ROWS = [f"{a},{i},{d}" for a, i, d in zip(AGES, INCOMES, DEFAULTS, strict=True)]


def csv(rows: list[str] = ROWS, header: str = "age,income,default") -> str:
    return "\n".join([header, *rows]) + "\n"


def changed(line: int, row: str) -> str:
    """Return the table with another line 2, 3 and so on; line 1 is the header."""
    rows = list(ROWS)
    rows[line - 2] = row
    return csv(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "north.csv").write_text(csv())
    (tmp_path / "south.csv").write_text(csv(ROWS * 2))
    return tmp_path


def in_order(data: SiloedData, name: str) -> Any:
    """Return an organisation's inputs and targets in the order of its rows."""
    return data.samples.take(np.sort(data.silo(name).all))


def names_or_accepts(path: Path) -> bool:
    """Tell whether a file is read to finite numbers, or refused with its name."""
    try:
        data = load_own({"a": path}, FILLED)
    except FedEgoistsError as error:
        return path.name in str(error)
    return bool(np.isfinite(data.samples.inputs[0]).all())


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
        assert data.sizes() == {"north": (14, 3, 3), "south": (28, 6, 6)}
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
        assert data.sizes()["north"] == (14, 3, 3)
        assert data.notes == ("features: age", "columns not used: default")

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
        data = load_own(tmp_path, Schema(("age",), "default", "binary", classes))
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
        schema = Schema(("age",), "default", "classification", ("no", "yes", "0", "1"))
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
        schema = Schema(
            ("small", "exact", "large"), "default", "binary", ("no", "yes"), standardise=False
        )
        found = in_order(load_own(tmp_path, schema), "a").inputs[0]
        assert found[:2].tolist() == [[1.0, 7.5, 2.0**60], [0.0, 7.75, 2.0**60]]

    @pytest.mark.parametrize("text", ["1.0", "1", " 1 ", "1.00"])
    def test_whole_numbers_as_classes(self, tmp_path: Path, text: str) -> None:
        rows = [f"{a},{text if a % 2 else '0'}" for a in AGES]
        (tmp_path / "a.csv").write_text(csv(rows, "age,default"))
        data = load_own(tmp_path, Schema(("age",), "default", "binary", ("0", "1")))
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
        assert "1 missing cells are the organisation's training mean" in data.notes

    def test_scaled_by_training_rows(self, folder: Path) -> None:
        data = load_own(folder, Schema(BINARY.features, "default", "binary", BINARY.classes))
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


class TestBadCsv:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", ": the file is empty; its first line names the columns"),
            ("\n\n", ": the file is empty"),
            ("age,income,default\n", ": the file has no rows; remove it, or add its data"),
            (
                csv(header="age,salary,default"),
                ", line 1: column 'income' is missing; it has 'age', 'salary', 'default'",
            ),
            (csv(header="age,Income,default"), ".*; rename 'Income', whose letters differ in case"),
            (
                csv([row.replace(",", ";") for row in ROWS], "age;income;default"),
                ", line 1: column 'age' is missing; .* by commas, not semicolons",
            ),
            (csv(header="age,age,default"), ", line 1: column 'age' stands 2 times; give each"),
            (changed(7, "35,3500"), ", line 7: 2 values where the header has 3 columns; is the fi"),
            (changed(7, "35,3,500,no"), ", line 7: 4 values where the header has 3 columns"),
            (
                changed(7, '35,"3500,no'),
                ", line 7: not valid CSV .*; is a quotation mark not closed",
            ),
            (
                changed(7, "35,much,no"),
                ", line 7, column 'income': 'much' is not a number; write numbers like 0.25, or le",
            ),
            (changed(7, '35,"3,5",no'), ", line 7, column 'income': '3,5' .*point, not a comma"),
            (changed(7, "35,1_000,no"), ", line 7, column 'income': '1_000' is not a number"),
            (changed(7, "35,1e400,no"), ", line 7, column 'income': 1e400 is not a finite number"),
            (changed(7, "35,-inf,no"), ", line 7, column 'income': -inf is not a finite number"),
            (changed(7, "1e39,1,no"), ", line 7, column 'age': 1e39 is not a finite number; numb"),
            (
                changed(7, "35,,no"),
                r", line 7, column 'income': the value is missing \(1 in this file\); fill it in, ",
            ),
            (changed(7, "nan,1,no"), ", line 7, column 'age': the value is missing"),
            (changed(7, ",,no"), ", line 7: no feature has a value; remove the row"),
            (changed(7, ",,"), ", line 7: no feature has a value; remove the row"),
            (changed(7, "35,1,"), ", line 7, column 'default': the value to predict is missing"),
            (
                changed(7, "35,1,maybe"),
                ", line 7, column 'default': the class 'maybe' is not declared; the schema has 'no'"
                ", 'yes'",
            ),
            (
                csv([row.replace("yes", "no") for row in ROWS]),
                ", column 'default': all 20 rows are of the class 'no'; with one class there",
            ),
            (
                csv([*ROWS[:2], *(row.replace("yes", "no") for row in ROWS[2:-6]), *ROWS[-6:]]),
                ", column 'default': 2 rows of the class 'yes' are too few to divide",
            ),
            (csv(ROWS[:9]), ": 9 rows are too few to divide into training, validation and test; a"),
        ],
    )
    def test_the_error_names_organisation_file_line_and_column(
        self, folder: Path, content: str, message: str
    ) -> None:
        path = folder / "south.csv"
        path.write_text(content)
        with pytest.raises(DataError, match=f"^organisation 'south', {path}({message})"):
            load_own(folder, BINARY)

    def test_lines_are_counted_in_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(
            "age,income,default\n\n" + "\n\n".join(ROWS[:3]) + "\n\nx,1,no"
        )
        with pytest.raises(DataError, match=r", line 9, column 'age': 'x' is not a number"):
            load_own(tmp_path, BINARY)

    def test_a_column_that_is_never_filled(self, folder: Path) -> None:
        rows = [f"{a},,{d}" for a, d in zip(AGES, DEFAULTS, strict=True)]
        (folder / "south.csv").write_text(csv(rows))
        with pytest.raises(
            DataError, match=r"^organisation 'south', .*, column 'income': no row has a value, so"
        ):
            load_own(folder, FILLED)

    def test_a_missing_number_to_predict(self, folder: Path) -> None:
        (folder / "south.csv").write_text(changed(7, "35,,no"))
        with pytest.raises(
            DataError, match=r", line 7, column 'income': the value to predict is m"
        ):
            load_own(folder, NUMBER)

    def test_columns_that_only_some_have(self, folder: Path) -> None:
        rows = [f"{row},1" for row in ROWS]
        (folder / "south.csv").write_text(csv(rows, "age,income,default,id"))
        with pytest.raises(
            DataError,
            match=r"^organisation 'south', .*: it has a column 'id' that organisation 'north' "
            r"\(.*\) does not have; give all organisations the same columns$",
        ):
            load_own(folder, BINARY)
        (folder / "north.csv").write_text(csv(rows, "age,income,default,key"))
        with pytest.raises(DataError, match=r"^organisation 'north', .*it has a column 'key'"):
            load_own(folder, BINARY)

    def test_the_same_columns_in_another_order(self, folder: Path) -> None:
        rows = [",".join(reversed(row.split(","))) for row in ROWS]
        (folder / "south.csv").write_text(csv(rows, "default,income,age"))
        data = load_own(folder, BINARY)
        north, south = (in_order(data, name).inputs[0] for name in ("north", "south"))
        assert np.array_equal(north, south)

    def test_not_text(self, folder: Path) -> None:
        (folder / "south.csv").write_bytes(b"\x89PNG\r\n\x1a\n")
        with pytest.raises(FileError, match=r"south\.csv, line 1: byte 0 is not UTF-8 text"):
            load_own(folder, BINARY)

    @settings(max_examples=200, deadline=None)
    @given(st.text('age,income\n0123.yesnoNA"-+inf;', max_size=200))
    def test_any_text_is_read_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, text: str
    ) -> None:
        path = tmp_path_factory.getbasetemp() / "any.csv"
        for content in (text, csv() + text):
            path.write_text(content)
            assert names_or_accepts(path)


class TestBadParquetAndNpz:
    def write(self, path: Path, columns: dict[str, Any]) -> Path:
        if path.suffix == ".parquet":
            pq.write_table(pa.table(columns), path)
        else:
            np.savez(path, **{name: np.array(values) for name, values in columns.items()})
        return path

    @pytest.mark.parametrize("suffix", ["parquet", "npz"])
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"income": [*map(str, INCOMES[:-1]), "much"]}, ", row 20, column 'income': 'much' is"),
            ({"income": [*INCOMES[:-1], np.inf]}, ", row 20, column 'income': inf is not a finite"),
            (
                {"income": [*INCOMES[:-1], np.nan]},
                ", row 20, column 'income': the value is missing",
            ),
            (
                {"default": [*DEFAULTS[:-1], "?"]},
                ", row 20, column 'default': the class '\\?' is n",
            ),
            ({"default": [*DEFAULTS[:-1], ""]}, ", row 20, column 'default': the value to predict"),
            ({"default": ["no"] * 20}, ", column 'default': all 20 rows are of the class 'no'"),
        ],
    )
    def test_the_error_names_the_row(
        self, tmp_path: Path, suffix: str, changes: dict[str, Any], message: str
    ) -> None:
        columns = {"age": AGES, "income": INCOMES, "default": DEFAULTS} | changes
        path = self.write(tmp_path / f"a.{suffix}", columns)
        with pytest.raises(DataError, match=f"^organisation 'a', {path}{message}"):
            load_own(tmp_path, BINARY)

    @pytest.mark.parametrize("suffix", ["parquet", "npz"])
    def test_missing_columns_and_rows(self, tmp_path: Path, suffix: str) -> None:
        path = self.write(tmp_path / f"a.{suffix}", {"age": AGES, "default": DEFAULTS})
        with pytest.raises(
            DataError, match=rf"{path}: column 'income' is missing; it has 'age', 'd"
        ):
            load_own(tmp_path, BINARY)
        self.write(path, {"age": AGES[:0], "income": INCOMES[:0], "default": DEFAULTS[:0]})
        with pytest.raises(DataError, match=rf"{path}: the file has no rows"):
            load_own(tmp_path, BINARY)

    @pytest.mark.parametrize("suffix", ["parquet", "npz"])
    @pytest.mark.parametrize("content", [b"", b"PAR1 but no more", b"PK\x03\x04 cut off"])
    def test_damaged(self, tmp_path: Path, suffix: str, content: bytes) -> None:
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=rf"^organisation 'a', {path}: not an? \w+ file that can"
        ):
            load_own(tmp_path, BINARY)

    @pytest.mark.parametrize("suffix", ["parquet", "npz"])
    def test_no_such_file(self, tmp_path: Path, suffix: str) -> None:
        with pytest.raises(FileError, match=rf"none\.{suffix}: (no such|cannot be read \(No such)"):
            load_own({"a": tmp_path / f"none.{suffix}"}, BINARY)
        (tmp_path / f"dir.{suffix}").mkdir()
        with pytest.raises(FileError, match=r"folder|Is a directory"):
            load_own({"a": tmp_path / f"dir.{suffix}"}, BINARY)

    def test_a_column_twice_in_parquet(self, tmp_path: Path) -> None:
        table = pa.Table.from_arrays([pa.array(AGES)] * 3, names=["age", "age", "income"])
        pq.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(DataError, match=r"column 'age' stands 2 times"):
            load_own(tmp_path, BINARY)

    def test_dates_in_parquet(self, tmp_path: Path) -> None:
        dates = pa.array(range(20), pa.date32())
        self.write(tmp_path / "a.parquet", {"age": AGES, "income": dates, "default": DEFAULTS})
        with pytest.raises(
            DataError, match=r"row 1, column 'income': datetime.date\(1970, 1, 1\) is"
        ):
            load_own(tmp_path, BINARY)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"income": np.zeros((20, 1))},
                r"column 'income': an array of the shape \(20, 1\); giv",
            ),
            ({"income": np.zeros(19)}, "column 'income': 19 rows, but 20 in column 'age'"),
            (
                {"income": np.zeros(20, complex)},
                "column 'income': an array of complex128; give num",
            ),
            ({"income": np.array([None] * 20)}, "not an NPZ file .*allow_pickle=False"),
        ],
    )
    def test_arrays_that_are_no_columns(
        self, tmp_path: Path, changes: dict[str, Any], message: str
    ) -> None:
        np.savez(
            tmp_path / "a.npz", **({"age": np.array(AGES), "default": np.array(DEFAULTS)} | changes)
        )
        with pytest.raises(DataError, match=message):
            load_own(tmp_path, BINARY)

    def test_a_single_array(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros(3))
        (tmp_path / "a.npy").rename(tmp_path / "a.npz")
        with pytest.raises(DataError, match=r"a single array, not an NPZ file; use numpy\.savez"):
            load_own(tmp_path, BINARY)

    @pytest.mark.parametrize("value", [np.inf, 0.5])
    def test_a_number_that_is_no_class(self, tmp_path: Path, value: float) -> None:
        np.savez(
            tmp_path / "a.npz", age=np.array(AGES), default=np.array([0.0, 1.0] * 9 + [value, 0])
        )
        with pytest.raises(
            DataError, match=rf"row 19, column 'default': the class '{value}' is not"
        ):
            load_own(tmp_path, Schema(("age",), "default", "binary", ("0", "1")))

    def test_bytes_as_texts(self, tmp_path: Path) -> None:
        np.savez(
            tmp_path / "a.npz",
            age=np.array(AGES),
            income=np.array(INCOMES),
            default=np.array(DEFAULTS, "S"),
        )
        assert load_own(tmp_path, BINARY).samples.targets.sum() == DEFAULTS.count("yes")

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_npz_files_with_changed_bytes_are_read_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        path = tmp_path_factory.getbasetemp() / "any.npz"
        self.write(path, {"age": AGES, "income": INCOMES, "default": DEFAULTS})
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        assert names_or_accepts(path)

    def test_without_pyarrow_the_extra_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "a.parquet").write_bytes(b"")
        code = (
            "import sys; sys.modules['pyarrow'] = None\n"
            "from fedegoists.errors import MissingDependencyError\n"
            "from fedegoists.learning.datasets import Schema, load_own\n"
            "try: load_own(sys.argv[1], Schema(('a',), 'b', 'regression'))\n"
            "except MissingDependencyError as error: print(error)\n"
        )
        result = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert "needs pyarrow, which is not installed; run: pip install 'fedegoists[train]'" in (
            result.stdout
        )


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
        (folder / "west.xlsx").write_bytes(b"")
        with pytest.raises(
            DataError, match=r"west\.xlsx: files that end in '\.xlsx' cannot be rea"
        ):
            load_own(folder, BINARY)
        with pytest.raises(
            DataError, match=r"^organisation 'W', .*: files that end in '\.xlsx' ca"
        ):
            load_own({"W": folder / "west.xlsx"}, BINARY)

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
        with pytest.raises(
            SettingsError, match=r"mine\.toml: schema: the setting 'target' is missi"
        ):
            load_own({"a": folder / "north.csv"}, folder / "mine.toml")
