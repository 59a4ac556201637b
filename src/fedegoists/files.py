"""Reading and writing whole files, CSV and JSON: clear errors, written completely or not at all."""

import csv
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from fedegoists.errors import FedEgoistsError, FileError, GraphError, shown

MAX_BYTES = 256 * 1024 * 1024
"""Larger files are refused; a million benefit edges need about 30 MB."""

LONGEST_NAME = 50


def file_name(name: str) -> str:
    """Return a file name without a suffix that is valid everywhere; two names may collide.

    Examples
    --------
    >>> file_name("../a/b")
    '_a_b'
    """
    kept = "".join(c if c.isalnum() or c in "._- " else "_" for c in name).strip("-. ")
    if len(kept) <= LONGEST_NAME:
        return kept
    # A letter takes up to four bytes, and file systems allow 255.
    return f"{kept[:LONGEST_NAME].strip('-. ')}-{name_digest(name)}"


def name_digest(name: str) -> str:
    """Return a short digest that tells two names apart."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def private_folder(path: Path) -> None:
    """Make a folder, or change an existing one, so that only its owner can read it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise FileError(f"{path}: cannot be a private folder ({error.strerror})") from None


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the UTF-8 text of a file, without a byte-order mark; ``-`` is the standard input.

    Raises
    ------
    FileError
        If the file is missing, is a folder, is larger than `MAX_BYTES`, or is not UTF-8.
    """
    path = Path(path)
    try:
        raw = _standard_input(sys.stdin.buffer) if str(path) == "-" else _read_file(path)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise FileError(f"{path}: is a folder, not a file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise FileError(f"{str(path)!r}: no file can have this name") from None
    if len(raw) > MAX_BYTES:
        raise FileError(f"{path}: files over {MAX_BYTES:,} bytes are refused")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FileError(
            f"{path}, line {line}: byte {error.start} is not UTF-8 text; save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FileError(f"{path}, line {line}: contains a NUL character; is this a text file?")
    return text.removeprefix("\ufeff")


def _read_file(path: Path) -> bytes:
    """Return the bytes of a file, up to one more than is allowed."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size  # 0 for pipes and devices, even endless ones
        return file.read(min(size or MAX_BYTES, MAX_BYTES) + 1)


@lru_cache(maxsize=1)
def _standard_input(stream: BinaryIO) -> bytes:
    """Return the standard input, which can be read only once but is asked for repeatedly."""
    return stream.read(MAX_BYTES + 1)


def write_bytes(path: str | os.PathLike[str], content: bytes, *, private: bool = False) -> None:
    """Write a file atomically: other programs see either the old content or the whole new one."""
    write_all([(Path(path), content)], private=private)


def write_all(contents: Iterable[tuple[Path, bytes]], *, private: bool = False) -> None:
    """Write several files; none of them changes unless all of them could be written.

    Every file is first written beside its destination under a temporary name, and all are renamed
    only when the last one is on disk. If a renaming fails nevertheless, those before it are undone.
    Private files can be read by their owner only.

    Raises
    ------
    FileError
        If a file cannot be written, or a folder or a device has its name.
    """
    temporary: list[Path] = []
    staged: list[tuple[Path, Path]] = []
    undo: list[tuple[Path, Path | None]] = []
    path = Path()
    contents = list(contents)  # here, so that an error in making them is not taken for ours
    try:
        for path, content in contents:
            if path.exists() and not path.is_file():
                raise FileError(f"{path}: cannot be written, as a folder or device has this name")
            path.parent.mkdir(parents=True, exist_ok=True)
            new = _name_beside(path)
            with new.open("xb") as file:
                temporary.append(new)
                if private:
                    new.chmod(0o600)
                elif path.exists():
                    shutil.copymode(path, new)  # a private file stays private
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            staged.append((new, path))
        for new, path in staged[:-1]:
            old = None
            if path.exists():
                old = _name_beside(path)
                temporary.append(old)
                shutil.copy2(path, old)
            new.replace(path)
            undo.append((path, old))
        for new, path in staged[-1:]:
            new.replace(path)
        undo.clear()
    except FileError:
        raise
    except FileExistsError:
        raise FileError(f"{path}: cannot be written, as {path.parent} is not a folder") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None
    except ValueError:
        raise FileError(f"{str(path)!r}: no file can have this name") from None
    finally:
        for changed, old in reversed(undo):
            if old is None:
                changed.unlink()
            else:
                old.replace(changed)
        for name in temporary:
            name.unlink(missing_ok=True)


def _name_beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}")


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of processes that were killed while they wrote into a folder."""
    for path in folder.rglob(".*"):
        if re.fullmatch(r"\..+\.[0-9a-f]{16}", path.name) and path.is_file():
            path.unlink(missing_ok=True)


# CSV and JSON ------------------------------------------------------------------------------------


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a CSV file's content with Unix line ends."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def json_value(text: str, where: str, error_type: type[FedEgoistsError] = GraphError) -> object:
    """Parse a JSON text; a repeated key is an error, as programs disagree on its meaning.

    Examples
    --------
    >>> json_value('{"participants": []}', "graph.json")
    {'participants': []}
    """
    try:
        return json.loads(text, object_pairs_hook=_object_of)
    except (ValueError, RecursionError) as error:
        raise error_type(f"{where}: not JSON ({error})") from None


def _object_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} appears twice")
        found[key] = value
    return found


def csv_rows(
    path: str | os.PathLike[str], columns: Sequence[str], error_type: type[FedEgoistsError]
) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the rows of a CSV file: line number, and values in the order of `columns`.

    The first row names the columns, in any order. Empty rows are skipped.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    expected = ",".join(columns)
    order: list[int] | None = None
    try:
        for row in reader:
            if not "".join(row).strip():
                continue
            if order is None:
                line = f"{path}, line {reader.line_num}"
                order = _column_order(row, columns, line, error_type)
            elif len(row) != len(columns):
                raise error_type(
                    f"{path}, line {reader.line_num}: {len(row)} values where {len(columns)} are "
                    f"expected ({expected}); is the file cut off, or a name with a comma not in "
                    "quotes?"
                )
            else:
                yield reader.line_num, [row[k] for k in order]
    except csv.Error as error:
        raise error_type(
            f"{path}, line {reader.line_num}: not valid CSV ({error}); is the file cut off?"
        ) from None
    if order is None:
        raise error_type(f"{path}: the file is empty; expected the header {expected}")


def _column_order(
    row: list[str], columns: Sequence[str], line: str, error_type: type[FedEgoistsError]
) -> list[int]:
    header = [value.strip().casefold() for value in row]
    if sorted(header) != sorted(columns):
        hint = (
            " (separate the columns by commas, not semicolons)"
            if len(row) == 1 and ";" in row[0]
            else ""
        )
        raise error_type(
            f"{line}: expected the header {','.join(columns)}, got {','.join(row)[:80]!r}{hint}"
        )
    return [header.index(column) for column in columns]
