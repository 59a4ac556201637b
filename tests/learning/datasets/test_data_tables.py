"""Damaged tables: every mistake is named with its organisation, file, line and column."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.errors import FileError
from fedegoists.install_hints import install_command
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load_own
from tests.learning.datasets.tables import (
    AGES,
    BINARY,
    DEFAULTS,
    FILLED,
    INCOMES,
    NUMBER,
    ROWS,
    by_age,
    changed,
    csv,
    in_order,
    names_or_accepts,
)


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
            (csv(header="age,age,default"), ", line 1: 2 columns are called 'age'; rename"),
            (changed(7, "35,3500"), ", line 7: 2 values for 3 columns; is the fi"),
            (changed(7, "35,3,500,no"), ", line 7: 4 values for 3 columns"),
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
                ", column 'default': 2 different rows of the class 'yes' are too few to divide",
            ),
            (
                csv(ROWS[:9]),
                ": 9 different rows are too few to divide into training, validation and test; a",
            ),
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
        data = load_own(folder, BINARY)
        assert "south: columns not used: id" in data.notes
        assert not any("north: columns" in note for note in data.notes)

    def test_all_problems_are_told_at_once(self, folder: Path) -> None:
        (folder / "north.csv").write_text(changed(7, "many,much,no"))
        (folder / "south.csv").write_text(changed(5, "33,?,perhaps"))
        with pytest.raises(DataError) as caught:
            load_own(folder, BINARY)
        first, *lines = str(caught.value).split("\n")
        assert first == "4 problems:"
        for line, part in zip(
            lines,
            (
                r"north.csv, line 7, column 'age': 'many' is not",
                r"north.csv, line 7, column 'income': 'much' is not",
                r"south.csv, line 5, column 'income': '?' is not a number; if it stands for a miss",
                r"south.csv, line 5, column 'default': the class 'perhaps' is not declared",
            ),
            strict=True,
        ):
            assert part in line
        (folder / "north.csv").write_text("age\n1\n")
        (folder / "south.csv").unlink()
        with pytest.raises(DataError, match=r"(?s)2 problems:.*'income' is mis.*'default' is mis"):
            load_own(folder, BINARY)

    def test_semicolons_and_decimal_commas(self, folder: Path) -> None:
        expected = in_order(load_own(folder, BINARY), "south").inputs[0]
        for separator, header in ((";", "age;income;default"), ("\t", "age\tincome\tdefault")):
            rows = [row.replace(",", separator) for row in ROWS * 2]
            if separator == ";":
                rows = [row.replace(".0", ",0") for row in rows]
            (folder / "south.csv").write_text(csv(rows, header))
            assert np.array_equal(in_order(load_own(folder, BINARY), "south").inputs[0], expected)

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
        with pytest.raises(DataError, match=r"2 columns are called 'age'"):
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
            load_own(tmp_path, by_age("0", "1"))

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
            "try: load_own(sys.argv[1], Schema(features=('a',), target='b', task='regression'))\n"
            "except MissingDependencyError as error: print(error)\n"
        )
        result = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert "needs pyarrow, which is not installed; run: " + install_command("train") in (
            result.stdout
        )
