"""Compressed JSON Lines: many small records in one file.

``pandas.read_json(path, lines=True)`` opens such a file. The same records give the same bytes.
"""

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedegoists.errors import FileError

__all__ = ["ENDING", "Record", "packed", "read_packed"]

Record = dict[str, Any]

ENDING = ".jsonl.gz"


def packed(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Return records as a compressed file with one line each.

    Examples
    --------
    >>> len(packed([{"a": 1}] * 1000)) < 100
    True
    """
    text = "".join(f"{json.dumps(record, allow_nan=False)}\n" for record in records)
    # Without the time of writing, which would make every file different.
    return gzip.compress(text.encode(), 9, mtime=0)


def read_packed(path: Path) -> list[Record]:
    """Return the records of a compressed file, in their order."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except (OSError, EOFError, ValueError) as error:
        raise FileError(f"{path}: not a file of packed records ({error})") from None
