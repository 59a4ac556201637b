"""Reading and writing whole files: read with clear errors, written completely or not at all."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fedegoists.errors import FileError

__all__ = ["MAX_BYTES", "read_text", "write_all", "write_bytes"]

MAX_BYTES = 256 * 1024 * 1024
"""Larger files are refused before they are read; a million benefit edges need about 30 MB."""


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the UTF-8 text of a file, without a byte-order mark.

    Raises
    ------
    FileError
        If the file is missing, is a folder, is larger than `MAX_BYTES`, or is not UTF-8.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise FileError(f"{path}: {size:,} bytes; files over {MAX_BYTES:,} bytes are refused")
        raw = path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise FileError(f"{path}: is a folder, not a file") from None
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FileError(
            f"{path}, line {line}: byte {error.start} is not UTF-8 text; save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FileError(f"{path}, line {line}: contains a NUL character; is this a text file?")
    return text


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that other programs see either the old content or the whole new one."""
    write_all([(Path(path), content)])


def write_all(contents: Iterable[tuple[Path, bytes]]) -> None:
    """Write several files; none of them changes unless all of them could be written.

    Every file is first written beside its destination under a temporary name, and the names
    are exchanged only when the last one is on disk.
    """
    staged: list[tuple[Path, Path]] = []
    path = Path()
    try:
        for path, content in contents:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            staged.append((Path(name), path))
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # mkstemp creates private files; a result is as readable as any other new file.
            umask = os.umask(0)
            os.umask(umask)
            Path(name).chmod(0o666 & ~umask)
        for temporary, path in staged:
            temporary.replace(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
