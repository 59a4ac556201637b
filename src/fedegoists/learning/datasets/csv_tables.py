"""Tables in CSV files, with commas, semicolons or tabs between the columns."""

import csv
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedegoists.files import read_text
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.data_tables import (
    LARGEST,
    Cells,
    DataTable,
    WantedColumns,
    check_is_file,
)

SEPARATORS = (",", ";", "\t")
QUICK_BYTES = 1_000_000
"""Larger files are read by pyarrow, where it is installed and finds nothing to object to."""


def read_csv(
    owner: str, path: Path, wanted: WantedColumns, *, header: tuple[str, ...] | None = None
) -> DataTable:
    """Read some columns of a CSV file; its first line names them unless a header is given.

    Columns are separated by commas, or by semicolons or tabs if the first line is. With semicolons,
    3,5 is a number.
    """
    check_is_file(path, f"{owner}, {path}")
    if header is None and path.stat().st_size > QUICK_BYTES:
        table = read_quickly(owner, path, wanted)
        if table is not None:
            return table
    return read_carefully(owner, path, wanted, header=header)


def read_carefully(
    owner: str, path: Path, wanted: WantedColumns, *, header: tuple[str, ...] | None = None
) -> DataTable:
    """Read a CSV file cell by cell; every error names its line."""
    where = f"{owner}, {path}"
    text = read_text(path)
    separator = "," if header is not None else _separator(text.lstrip("\r\n").split("\n", 1)[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    names = header
    lines: list[int] = []
    columns: dict[str, list[object]] = {}
    places: list[tuple[list[object], int]] = []
    done = 0

    def begin(found: tuple[str, ...], place: str) -> None:
        for name, own in wanted.found(found, place).items():
            columns[name] = []
            places.append((columns[name], found.index(own)))

    if names is not None:
        begin(names, where)
    try:
        for row in reader:
            done = reader.line_num
            if not row:
                continue
            if names is None:
                names = tuple(name.strip() for name in row)
                begin(names, f"{where}, line {done}")
                continue
            if len(row) != len(names):
                raise DataError(
                    f"{where}, line {done}: {len(row)} values for {len(names)} columns; is the "
                    "file cut off, or a text with a comma not in quotes?"
                )
            for cells, k in places:
                cells.append(row[k])
            lines.append(done)
    except csv.Error as error:
        raise DataError(
            f"{where}, line {done + 1}: not valid CSV ({error}); is a quotation mark not closed, "
            "or the file cut off?"
        ) from None
    if names is None:
        raise DataError(f"{where}: the file is empty; its first line names the columns")
    return DataTable(
        owner,
        path,
        names,
        dict(columns),
        lambda k: f"line {lines[k]}",
        wanted.words,
        separator == ";",
    )


def _separator(first_line: str) -> str:
    """Return what separates the columns: the most frequent candidate, a comma if none is there."""
    return max(SEPARATORS, key=first_line.count)


def read_quickly(owner: str, path: Path, wanted: WantedColumns) -> DataTable | None:
    """Read a large CSV file with pyarrow; None if there is anything to object to.

    Then `read_carefully` names the first error, or reads what pyarrow does not.
    """
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        from pyarrow import csv as arrow_csv
    except ImportError:
        return None
    begin = _header(path)
    if begin is None:
        return None
    names, separator, skipped = begin
    headers = wanted.found(names, f"{owner}, {path}, line {skipped}")
    numbers = [own for name, own in headers.items() if name in wanted.numbers]
    # Where nothing is declared, pyarrow finds out which columns hold numbers.
    types = {own: pa.float64() if own in numbers else pa.string() for own in headers.values()}
    empty = {form for word in wanted.words for form in (word, word.upper(), word.title())}

    def table(decimal: str) -> Any:
        return arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(column_names=list(names), skip_rows=skipped),
            parse_options=arrow_csv.ParseOptions(delimiter=separator),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(headers.values()),
                column_types=None if wanted.everything else types,
                null_values=sorted({*empty, "NaN"}),
                strings_can_be_null=False,
                decimal_point=decimal,
            ),
        )

    found = None
    for decimal in (".", ",") if separator == ";" else (".",):
        try:
            found = table(decimal)
            break
        except (pa.ArrowException, OSError, UnicodeError):
            continue
    if found is None:
        return None
    columns: dict[str, Cells] = {}
    for name, own in headers.items():
        column = found.column(own)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            columns[name] = column.to_pylist()
            continue
        columns[name] = values = column.cast(pa.float64()).to_numpy()
        if (abs(values) > LARGEST).any():
            return None
        found = found.drop_columns([own])  # so that no more than one copy is held
    pa.default_memory_pool().release_unused()
    return DataTable(
        owner, path, names, columns, _line_finder(path, separator), wanted.words, separator == ";"
    )


def _header(path: Path) -> tuple[tuple[str, ...], str, int] | None:
    """Return the names of the columns, their separator, and the lines up to the first row."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, line in enumerate(itertools.islice(file, 100), 1):
                if line.strip("\r\n"):
                    separator = _separator(line)
                    (row,) = csv.reader([line], delimiter=separator, strict=True)
                    return tuple(name.strip() for name in row), separator, number
    except (OSError, UnicodeError, csv.Error, ValueError):
        return None
    return None


def _line_finder(path: Path, separator: str) -> Callable[[int], str]:
    """Return a function that finds the line of a row, by reading the file again."""

    def rows() -> Iterator[int]:
        with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
            reader = csv.reader(file, delimiter=separator)
            yield from (reader.line_num for row in reader if row)

    return lambda k: f"line {next(itertools.islice(rows(), k + 1, None))}"
