"""Rows of a dataclass as a CSV file, and back."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from fedegoists.files import csv_bytes, read_text

__all__ = ["read_records", "records_csv"]

Record = TypeVar("Record")

READ: Mapping[type, Callable[[str], object]] = {
    str: str,
    int: int,
    float: float,
    bool: {"True": True, "False": False}.__getitem__,
}
"""How the text of a cell is read, by the type of its field."""


def records_csv(kind: type[Record], records: Iterable[Record]) -> bytes:
    r"""Return all records as CSV with a column for each field, and six digits of each number.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Gain:
    ...     silo: str
    ...     gain: float
    >>> records_csv(Gain, [Gain("North", 1 / 3)])
    b'silo,gain\nNorth,0.333333\n'
    """
    columns = _columns(kind)
    rows = ([_written(getattr(one, name)) for name in columns] for one in records)
    return csv_bytes(columns, rows)


def read_records(kind: type[Record], path: Path) -> list[Record]:
    """Read what `records_csv` wrote."""
    types, columns = get_type_hints(kind), _columns(kind)
    return [
        kind(**{name: READ[types[name]](line[name]) for name in columns})
        for line in csv.DictReader(io.StringIO(read_text(path), newline=""))
    ]


def _columns(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]


def _written(cell: object) -> object:
    return f"{cell:.6g}" if isinstance(cell, float) else cell
