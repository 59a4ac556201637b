"""Tables in CSV, Parquet or NPZ files, with the place of every cell for errors.

Nothing is guessed: a cell is a number, missing, or an error that names it.
"""

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedegoists.errors import FileError, MissingDependencyError, shown
from fedegoists.files import read_text
from fedegoists.learning.data import Array, DataError
from fedegoists.learning.datasets.npz import opened_npz

MISSING_WORDS = frozenset({"", "na", "nan", "null"})
"""What pandas, R, NumPy and databases write for a missing number."""

LARGEST = float(np.finfo(np.float32).max)
Cells = Sequence[object] | Array


@dataclass(frozen=True)
class DataTable:
    """Some columns of one file.

    Attributes
    ----------
    owner : str
        Whose file it is, as errors begin.
    names : tuple of str
        All columns of the file, also those that were not read.
    line_of : function
        Returns where a row is, such as ``line 7``.
    missing : collection of str
        Texts, in small letters, that stand for a missing number.
    """

    owner: str
    path: Path
    names: tuple[str, ...]
    columns: dict[str, Cells]
    line_of: Callable[[int], str]
    missing: Collection[str] = MISSING_WORDS

    def __post_init__(self) -> None:
        if not len(self):
            raise DataError(f"{self.where}: the file has no rows; remove it, or add its data")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def where(self) -> str:
        """The owner and the file, as errors begin."""
        return f"{self.owner}, {self.path}"

    def place(self, row: int, column: str) -> str:
        """Return the owner, file, line and column of a cell, as errors begin."""
        return f"{self.where}, {self.line_of(row)}, column {column!r}"

    def numbers(self, column: str) -> npt.NDArray[np.float64]:
        """Return a column of finite numbers, with NaN for missing ones; text is refused."""
        cells = self.columns[column]
        if isinstance(cells, np.ndarray):
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
            if text.casefold() in self.missing:
                return math.nan
            # Python reads 1_000 and １ as numbers; other programs do not.
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
        """Return a column as text, with the empty text for missing values.

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


def read_table(owner: str, path: str | os.PathLike[str], columns: Sequence[str]) -> DataTable:
    """Read some columns of a file that ends in ``.csv``, ``.parquet`` or ``.npz``.

    An NPZ file has one array for each column. Errors begin with the `owner` of the file.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.casefold())
    if reader is None:
        raise DataError(
            f"{owner}, {path}: files that end in {path.suffix or 'nothing'!r} cannot be read; save "
            f"the table as {', '.join(READERS)}"
        )
    return reader(owner, path, columns)


def read_csv(
    owner: str,
    path: Path,
    wanted: Sequence[str],
    *,
    header: tuple[str, ...] | None = None,
    missing: Collection[str] = MISSING_WORDS,
) -> DataTable:
    """Read some columns of a CSV file; its first line names them unless a header is given."""
    where = f"{owner}, {path}"
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    names = header
    lines: list[int] = []
    rows: list[list[str]] = []
    done = 0
    try:
        for row in reader:
            done = reader.line_num
            if not row:
                continue
            if names is None:
                names = tuple(name.strip() for name in row)
                _check_names(names, wanted, f"{where}, line {done}")
                continue
            if len(row) != len(names):
                raise DataError(
                    f"{where}, line {done}: {len(row)} values for {len(names)} columns; is the "
                    "file cut off, or a text with a comma not in quotes?"
                )
            rows.append(row)
            lines.append(done)
    except csv.Error as error:
        raise DataError(
            f"{where}, line {done + 1}: not valid CSV ({error}); is a quotation mark not closed, "
            "or the file cut off?"
        ) from None
    if names is None:
        raise DataError(f"{where}: the file is empty; its first line names the columns")
    columns: dict[str, Cells] = {}
    for name in wanted:
        k = names.index(name)
        columns[name] = [row[k] for row in rows]
    return DataTable(owner, path, names, columns, lambda k: f"line {lines[k]}", missing)


def _read_parquet(owner: str, path: Path, wanted: Sequence[str]) -> DataTable:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError:
        raise MissingDependencyError(
            f"{path}: reading Parquet files needs pyarrow, which is not installed; run: "
            "pip install 'fedegoists[train]'"
        ) from None
    where = f"{owner}, {path}"
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
            # Also turns missing values into NaN.
            columns[name] = column.cast(pa.float64(), safe=False).to_numpy()
        else:
            columns[name] = column.to_pylist()
    return DataTable(owner, path, names, columns, lambda k: f"row {k + 1}")


def _read_npz(owner: str, path: Path, wanted: Sequence[str]) -> DataTable:
    where = f"{owner}, {path}"
    columns: dict[str, Cells] = {}
    with opened_npz(path, where) as file:
        names = tuple(file.files)
        _check_names(names, wanted, where)
        for name in wanted:
            columns[name] = _column(file[name], f"{where}, column {name!r}")
            if len(columns[name]) != len(columns[wanted[0]]):
                raise DataError(
                    f"{where}, column {name!r}: {len(columns[name])} rows, but "
                    f"{len(columns[wanted[0]])} in column {wanted[0]!r}"
                )
    return DataTable(owner, path, names, columns, lambda k: f"row {k + 1}")


def _column(array: Array, where: str) -> Cells:
    if array.ndim != 1:
        raise DataError(
            f"{where}: an array of the shape {array.shape}; give one array of one axis for each "
            "column"
        )
    if array.dtype.kind in "iuf":
        return array
    if array.dtype.kind not in "SbU":
        raise DataError(f"{where}: an array of {array.dtype}; give numbers or texts")
    cells: list[object] = array.tolist()
    return [cell.decode(errors="replace") if isinstance(cell, bytes) else cell for cell in cells]


def _check_names(names: Iterable[str], wanted: Sequence[str], where: str) -> None:
    counts = Counter(names)
    for name, count in counts.items():
        if count > 1:
            raise DataError(f"{where}: {count} columns are called {name!r}; rename them")
    for name in wanted:
        if name not in counts:
            found = ", ".join(map(repr, list(counts)[:12])) + (" …" if len(counts) > 12 else "")
            alike = [other for other in counts if other.casefold() == name.casefold()]
            hint = f"; rename {alike[0]!r}, whose letters differ in case" if alike else ""
            if len(counts) == 1 and ";" in next(iter(counts)):
                hint = "; separate the columns by commas, not semicolons"
            raise DataError(f"{where}: column {name!r} is missing; it has {found}{hint}")


READERS: dict[str, Callable[[str, Path, Sequence[str]], DataTable]] = {
    ".csv": read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
