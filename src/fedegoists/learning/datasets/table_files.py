"""Tables of one organisation, from CSV, Parquet or NPZ files, with the place of every cell.

A reader turns a file into columns and knows how to say where a cell stands. Nothing is guessed: a
cell is a number, missing, or an error that names it.
"""

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.errors import FileError, MissingDependencyError
from fedegoists.files import read_text
from fedegoists.graphs.participants import shown
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.npz import opened_npz

__all__ = ["READERS", "Table", "read_table"]

MISSING_WORDS = frozenset({"", "na", "nan", "null"})
"""What pandas, R, NumPy and databases write for a number that is not there."""

LARGEST = float(np.finfo(np.float32).max)
Cells = Sequence[object]


@dataclass(frozen=True)
class Table:
    """The columns of one file that were asked for, and the names of all it has."""

    organisation: str
    path: Path
    names: tuple[str, ...]
    columns: dict[str, Cells]
    line_of: Callable[[int], str]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def where(self) -> str:
        """The organisation and its file, as errors begin."""
        return f"organisation {self.organisation!r}, {self.path}"

    def place(self, row: int, column: str) -> str:
        """Return the organisation, file, line and column of a cell, as errors begin."""
        return f"{self.where}, {self.line_of(row)}, column {column!r}"

    def numbers(self, column: str) -> npt.NDArray[np.float64]:
        """Return a column of numbers, with NaN for what is missing.

        Raises
        ------
        DataError
            If a cell holds text, or a number that is infinite or too large to compute with.
        """
        cells = self.columns[column]
        if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
            values = cells.astype(np.float64)
        else:
            values = np.array([self._number(cell, k, column) for k, cell in enumerate(cells)])
        bad = np.flatnonzero(np.abs(values) > LARGEST)
        if len(bad):
            raise DataError(
                f"{self.place(int(bad[0]), column)}: {cells[bad[0]]} is not a finite number; "
                f"numbers up to {LARGEST:.1g} can be used"
            )
        return values

    def _number(self, cell: object, row: int, column: str) -> float:
        if cell is None:
            return math.nan
        if isinstance(cell, str):
            text = cell.strip()
            if text.casefold() in MISSING_WORDS:
                return math.nan
            # Python reads 1_000 and １ as numbers; nobody else does.
            if "_" not in text and text.isascii():
                try:
                    return float(text)
                except ValueError:
                    pass
            hint = " (a decimal point, not a comma)" if "," in text else ""
            raise DataError(
                f"{self.place(row, column)}: {shown(text)} is not a number; write numbers like "
                f"0.25{hint}, or leave the cell empty where there is none"
            )
        try:
            return float(cell)  # type: ignore[arg-type]  # decimals, fractions
        except (TypeError, ValueError, OverflowError):
            raise DataError(
                f"{self.place(row, column)}: {shown(cell)} is not a number; store this column as "
                "numbers"
            ) from None

    def texts(self, column: str) -> list[str]:
        """Return a column as text, with the empty text for what is missing.

        Whole numbers are written without a point, and truth values as True and False.
        """
        return [_text(cell) for cell in self.columns[column]]


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bytes):
        return cell.decode(errors="replace").strip()
    if isinstance(cell, float | np.floating):
        if math.isnan(cell):
            return ""
        return str(int(cell)) if float(cell).is_integer() else str(float(cell))
    return str(cell).strip()


def read_table(organisation: str, path: str | os.PathLike[str], columns: Sequence[str]) -> Table:
    """Read some columns of an organisation's file.

    Parameters
    ----------
    organisation : str
        Its name, for errors.
    path : path
        Ends in ``.csv``, ``.parquet`` or ``.npz``; an NPZ file has one array for each column.
    columns : sequence of str
        Those to read.

    Raises
    ------
    DataError
        If the file is empty or damaged, or a column is missing or stands twice.
    FileError
        If it cannot be read.
    MissingDependencyError
        If a Parquet file is given and pyarrow is not installed.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.casefold())
    if reader is None:
        raise DataError(
            f"organisation {organisation!r}, {path}: files that end in "
            f"{path.suffix or 'nothing'!r} cannot be read; save the table as {', '.join(READERS)}"
        )
    return reader(organisation, path, columns)


def _read_csv(organisation: str, path: Path, wanted: Sequence[str]) -> Table:
    where = f"organisation {organisation!r}, {path}"
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    names: tuple[str, ...] | None = None
    chosen: list[int] = []
    lines: list[int] = []
    done = 0
    cells: list[list[str]] = [[] for _ in wanted]
    try:
        for row in reader:
            done = reader.line_num
            if not row:
                continue
            if names is None:
                names = tuple(name.strip() for name in row)
                _check_names(names, wanted, f"{where}, line {reader.line_num}")
                chosen = [names.index(name) for name in wanted]
                continue
            if len(row) != len(names):
                raise DataError(
                    f"{where}, line {reader.line_num}: {len(row)} values where the header has "
                    f"{len(names)} columns; is the file cut off, or a text with a comma not in "
                    "quotes?"
                )
            for column, k in zip(cells, chosen, strict=True):
                column.append(row[k])
            lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(
            f"{where}, line {done + 1}: not valid CSV ({error}); is a quotation mark not closed, "
            "or the file cut off?"
        ) from None
    if names is None:
        raise DataError(f"{where}: the file is empty; its first line names the columns")
    return _filled(
        Table(
            organisation,
            path,
            names,
            dict(zip(wanted, cells, strict=True)),
            lambda k: f"line {lines[k]}",
        )
    )


def _read_parquet(organisation: str, path: Path, wanted: Sequence[str]) -> Table:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError:
        raise MissingDependencyError(
            f"{path}: reading Parquet files needs pyarrow, which is not installed; run: "
            "pip install 'fedegoists[train]'"
        ) from None
    where = f"organisation {organisation!r}, {path}"
    if not path.is_file():
        raise FileError(
            f"{where}: {'is a folder, not a file' if path.is_dir() else 'no such file'}"
        )
    try:
        with pq.ParquetFile(path) as file:
            names = tuple(file.schema_arrow.names)
            _check_names(names, wanted, where)
            table = file.read(columns=list(wanted))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{where}: not a Parquet file that can be read ({error})") from None
    columns: dict[str, Cells] = {}
    for name in wanted:
        column = table.column(name)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            # Also turns what is missing into NaN.
            columns[name] = column.cast(pa.float64(), safe=False).to_numpy()
        else:
            columns[name] = column.to_pylist()
    return _filled(Table(organisation, path, names, columns, lambda k: f"row {k + 1}"))


def _read_npz(organisation: str, path: Path, wanted: Sequence[str]) -> Table:
    where = f"organisation {organisation!r}, {path}"
    columns: dict[str, Cells] = {}
    with opened_npz(path, where) as file:
        names = tuple(file.files)
        _check_names(names, wanted, where)
        for name in wanted:
            columns[name] = _column(file[name], f"{where}, column {name!r}")
    lengths = {name: len(column) for name, column in columns.items()}
    for name, length in lengths.items():
        if length != lengths[wanted[0]]:
            raise DataError(
                f"{where}, column {name!r}: {length} rows, but {lengths[wanted[0]]} in column "
                f"{wanted[0]!r}"
            )
    return _filled(Table(organisation, path, names, columns, lambda k: f"row {k + 1}"))


def _column(array: npt.NDArray[Any], where: str) -> Cells:
    if array.ndim != 1:
        raise DataError(
            f"{where}: an array of the shape {array.shape}; give one array of one axis for each "
            "column"
        )
    if array.dtype.kind == "S":
        return [cell.decode(errors="replace") for cell in array.tolist()]
    if array.dtype.kind in "bU":
        cells: list[object] = array.tolist()
        return cells
    if array.dtype.kind in "iuf":
        return array  # type: ignore[return-value]  # behaves as a sequence here
    raise DataError(f"{where}: an array of {array.dtype}; give numbers or texts")


def _check_names(names: Iterable[str], wanted: Sequence[str], where: str) -> None:
    counts = Counter(names)
    for name, count in counts.items():
        if count > 1:
            raise DataError(
                f"{where}: column {name!r} stands {count} times; give each its own name"
            )
    for name in wanted:
        if name not in counts:
            found = ", ".join(map(repr, list(counts)[:12])) + (" …" if len(counts) > 12 else "")
            hint = ""
            if len(counts) == 1 and ";" in next(iter(counts)):
                hint = "; separate the columns by commas, not semicolons"
            else:
                alike = [other for other in counts if other.casefold() == name.casefold()]
                hint = f"; rename {alike[0]!r}, whose letters differ in case" if alike else ""
            raise DataError(f"{where}: column {name!r} is missing; it has {found}{hint}")


def _filled(table: Table) -> Table:
    if not len(table):
        raise DataError(f"{table.where}: the file has no rows; remove it, or add its data")
    return table


READERS: dict[str, Callable[[str, Path, Sequence[str]], Table]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
