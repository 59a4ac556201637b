"""Tables in files and data frames, with the place of every cell for errors.

Nothing is guessed: a cell is what its column is declared to be, missing, or an error that names it.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedegoists.errors import FileError, shown
from fedegoists.learning.data import Array, DataError

MISSING_WORDS = frozenset({"", "na", "nan", "null"})
"""What pandas, R, NumPy and databases write for a missing number."""
USUAL_MARKS = frozenset({"?", "-", "--", ".", "n/a", "n.a.", "none", "unknown", "missing", "#n/a"})
"""What people write for a missing number; to be declared."""
TRUTH = {
    word: number
    for number, words in ((1.0, "true yes y t 1"), (0.0, "false no n f 0"))
    for word in words.split()
}
DATE_LIKE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
UNIT = re.compile(r"(.*\S)\s*(?:\[([^\[\]]+)\]|\(([^()]+)\))")

LARGEST = float(np.finfo(np.float32).max)
EPOCH = datetime.datetime(1970, 1, 1)  # days are counted without time zones
Cells = Sequence[object] | Array
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DataTable:
    """Some columns of one file or data frame.

    Attributes
    ----------
    owner : str
        Whose table it is, as errors begin.
    path : path or str
        The file, or what stands for it in errors.
    names : tuple of str
        All columns of the file, also those that were not read.
    line_of : function
        Returns where a row is, such as ``line 7``.
    missing : collection of str
        Texts, in small letters, that stand for a missing number.
    decimal_comma : bool
        Whether 3,5 is a number, as in files with semicolons between the columns.
    """

    owner: str
    path: Path | str
    names: tuple[str, ...]
    columns: dict[str, Cells]
    line_of: Callable[[int], str]
    missing: Collection[str] = MISSING_WORDS
    decimal_comma: bool = False

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

    def numbers(self, column: str, codes: Collection[str | float] = ()) -> Numbers:
        """Return a column of finite numbers, with NaN for missing ones; text is refused.

        Parameters
        ----------
        codes : collection of str and float
            Texts and numbers that stand for a missing one, besides `missing`.
        """
        cells = self.columns[column]
        words = {str(code).casefold() for code in codes}
        if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
            values = cells.astype(np.float64)
        else:
            values = np.array(
                [self._number(cell, k, column, words) for k, cell in enumerate(cells)]
            )
        numeric = [float(code) for code in codes if not isinstance(code, str)]
        if numeric:
            values[np.isin(values, numeric)] = np.nan
        bad = np.flatnonzero(np.abs(values) > LARGEST)
        if len(bad):
            raise DataError(
                f"{self.place(int(bad[0]), column)}: {cells[bad[0]]} is not a finite number; "
                f"numbers up to {LARGEST:.1g} can be used"
            )
        return values

    def _number(self, cell: object, row: int, column: str, words: Collection[str]) -> float:
        if cell is None:
            return math.nan
        if isinstance(cell, str):
            text = cell.strip()
            if text.casefold() in self.missing or text.casefold() in words:
                return math.nan
            plain = text.replace(",", ".") if self._has_decimal_comma(text) else text
            # Python reads 1_000 and １ as numbers; other programs do not.
            if "_" not in plain and plain.isascii():
                try:
                    return float(plain)
                except ValueError:
                    pass
            raise DataError(
                f"{self.place(row, column)}: {shown(text)} is not a number; {_way(text)}"
            )
        try:
            return float(cell)  # type: ignore[arg-type]  # decimals, fractions
        except (TypeError, ValueError, OverflowError):
            way = "store this column as numbers"
            if isinstance(cell, datetime.date):
                way = f"if it is a date, set kind = 'date' in [columns.{column}] of the schema"
            raise DataError(
                f"{self.place(row, column)}: {shown(cell)} is not a number; {way}"
            ) from None

    def _has_decimal_comma(self, text: str) -> bool:
        return self.decimal_comma and DECIMAL_COMMA.fullmatch(text) is not None

    def truths(self, column: str, codes: Collection[str | float] = ()) -> Numbers:
        """Return a column of truth values as 1 and 0, with NaN for missing ones."""
        found = []
        for row, text in enumerate(self.words(column, codes)):
            value = math.nan if not text else TRUTH.get(text.casefold())
            if value is None:
                raise DataError(
                    f"{self.place(row, column)}: {shown(text)} is neither true nor false; write "
                    "true and false, yes and no, or 1 and 0"
                )
            found.append(value)
        return np.array(found)

    def days(self, column: str, codes: Collection[str | float] = (), form: str = "") -> Numbers:
        """Return a column of dates as days since 1970, with NaN for missing ones.

        Parameters
        ----------
        form : str
            How dates are written, such as ``%d.%m.%Y``; by default as 2024-03-31.
        """
        cells = self.columns[column]
        missing = {*self.missing, *(str(code).casefold() for code in codes)}
        found = []
        for row, cell in enumerate(cells):
            if cell is None or str(cell).strip().casefold() in (*missing, "nat"):
                found.append(math.nan)
                continue
            moment = _moment(cell, form)
            if moment is None:
                raise DataError(
                    f"{self.place(row, column)}: {shown(cell)} is not a date like "
                    f"{EPOCH.strftime(form) if form else '2024-03-31'}; where dates are written in "
                    f"another way, say how in [columns.{column}] of the schema, for example: "
                    "format = '%d.%m.%Y'"
                )
            found.append((moment - EPOCH) / datetime.timedelta(days=1))
        return np.array(found)

    def texts(self, column: str) -> list[str]:
        """Return a column as text, with the empty text for missing values.

        Whole numbers are written without a point, and truth values as True and False.
        """
        return [_text(cell) for cell in self.columns[column]]

    def words(self, column: str, codes: Collection[str | float] = ()) -> list[str]:
        """Return a column of words, with the empty text for missing ones; ``1.0`` is ``1``."""
        missing = {*self.missing, *(str(code).casefold() for code in codes)}
        words = (whole(text) for text in self.texts(column))
        return ["" if word.casefold() in missing else word for word in words]


def _way(text: str) -> str:
    """Return what to do about a text where a number is expected."""
    if text.casefold() in USUAL_MARKS:
        return (
            f"if it stands for a missing value, add missing_values = [{text!r}] to the schema; or "
            "leave the cell empty"
        )
    if DATE_LIKE.match(text):
        return "if it is a date, declare the column with kind = 'date' in the schema"
    hint = " (a decimal point, not a comma)" if "," in text else ""
    way = f"write numbers like 0.25{hint}, or leave the cell empty where there is none"
    if text[:1].isalpha():
        way += "; if the column holds categories, declare them as `fedegoists data show` proposes"
    return way


def _moment(cell: object, form: str) -> datetime.datetime | None:
    if isinstance(cell, datetime.datetime):
        return cell.replace(tzinfo=None)
    if isinstance(cell, datetime.date):
        return datetime.datetime(cell.year, cell.month, cell.day)
    if isinstance(cell, np.datetime64):
        return _moment(cell.astype("datetime64[us]").item(), form)
    if not isinstance(cell, str):
        return None
    try:
        if form:
            return datetime.datetime.strptime(cell.strip(), form).replace(tzinfo=None)
        return datetime.datetime.fromisoformat(cell.strip()).replace(tzinfo=None)
    except ValueError:
        return None


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


def whole(text: str) -> str:
    """Return ``1`` for ``1.0``, as many programs write whole numbers beside missing ones."""
    number, _, rest = text.partition(".")
    return number if rest and not rest.strip("0") else text


@dataclass(frozen=True)
class WantedColumns:
    """The columns to read from a table.

    Attributes
    ----------
    required, optional : tuple of str
        Columns that must be there, and those that may be.
    numbers : collection of str
        Those of them that hold numbers.
    units : dict of str to str
        Units of columns. A column ``crp [mg/l]`` is the column ``crp`` if its unit is this.
    everything : bool
        Whether to read all columns, whatever their names.
    missing : tuple of str
        Texts that stand for a missing number in all columns.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    numbers: Collection[str] = ()
    units: dict[str, str] | None = None
    everything: bool = False
    missing: tuple[str, ...] = ()

    @property
    def words(self) -> frozenset[str]:
        """Texts, in small letters, that stand for a missing number."""
        return MISSING_WORDS | {word.casefold() for word in self.missing}

    def found(self, names: Sequence[str], where: str) -> dict[str, str]:
        """Return the columns to read, by the names that the schema gives them."""
        counts = Counter(names)
        for name, count in counts.items():
            if count > 1:
                raise DataError(f"{where}: {count} columns are called {name!r}; rename them")
        if self.everything:
            return {name: name for name in names}
        found, problems = {}, []
        for name in (*self.required, *self.optional):
            try:
                header = name if name in counts else self._with_unit(name, counts, where)
            except DataError as error:
                problems.append(str(error))
                continue
            if header is not None:
                found[name] = header
            elif name in self.required or _alike(name, counts):
                problems.append(f"{where}: {_missing_column(name, counts)}")
        if problems:
            raise DataError("\n".join(problems))
        return found

    def reads(self, header: str) -> bool:
        """Return whether a column of this name is read."""
        match = UNIT.fullmatch(header)
        known = (*self.required, *self.optional)
        return header in known or (match is not None and match[1] in known)

    def _with_unit(self, name: str, names: Iterable[str], where: str) -> str | None:
        """Return the column that has this name and its unit in brackets."""
        for header in names:
            match = UNIT.fullmatch(header)
            if match is None or match[1] != name:
                continue
            unit, declared = match[2] or match[3], (self.units or {}).get(name)
            if declared is None:
                raise DataError(
                    f"{where}: column {header!r} has a unit, but the schema declares none; add "
                    f"unit = {unit!r} to [columns.{name}] of the schema if it is everybody's"
                )
            if unit.strip() != declared:
                raise DataError(
                    f"{where}: column {header!r} is in {unit}, but the schema says {declared}; "
                    "convert its numbers"
                )
            return header
        return None


def _alike(name: str, names: Iterable[str]) -> list[str]:
    return [other for other in names if other.casefold() == name.casefold()]


def _missing_column(name: str, names: Iterable[str]) -> str:
    all_names = list(names)
    found = ", ".join(map(repr, all_names[:12])) + (" …" if len(all_names) > 12 else "")
    alike = _alike(name, all_names)
    hint = f"; rename {alike[0]!r}, whose letters differ in case" if alike else ""
    return f"column {name!r} is missing; it has {found}{hint}"


def check_is_file(path: Path, where: str) -> None:
    """Refuse a path at which there is no file."""
    if not path.is_file():
        raise FileError(
            f"{where}: {'is a folder, not a file' if path.is_dir() else 'no such file'}"
        )
