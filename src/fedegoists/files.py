"""Reading and writing whole files: read with clear errors, written completely or not at all."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from fedegoists.errors import FileError

MAX_BYTES = 256 * 1024 * 1024
"""Larger files are refused; a million benefit edges need about 30 MB."""

LONGEST_NAME = 50


def file_name(name: str) -> str:
    """Return a name, without a suffix, that every file system takes; two may become the same.

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
    """Return a few letters that tell two names apart."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can look into, or make one that is there so."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise FileError(f"{path}: cannot be a private folder ({error.strerror})") from None


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the UTF-8 text of a file, without a byte-order mark.

    Raises
    ------
    FileError
        If the file is missing, is a folder, is larger than `MAX_BYTES`, or is not UTF-8.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size  # 0 for pipes and devices, even endless ones
            raw = file.read(min(size or MAX_BYTES, MAX_BYTES) + 1)
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


def write_bytes(path: str | os.PathLike[str], content: bytes, *, private: bool = False) -> None:
    """Write a file so that other programs see either the old content or the whole new one."""
    write_all([(Path(path), content)], private=private)


def write_all(contents: Iterable[tuple[Path, bytes]], *, private: bool = False) -> None:
    """Write several files; none of them changes unless all of them could be written.

    Every file is first written beside its destination under a temporary name, and the names
    are exchanged only when the last one is on disk. Should an exchange fail nevertheless, those
    before it are undone. Private files can be read by their owner only.

    Raises
    ------
    FileError
        If a file cannot be written, or a folder or a device stands in its place.
    """
    temporary: list[Path] = []
    staged: list[tuple[Path, Path]] = []
    undo: list[tuple[Path, Path | None]] = []
    path = Path()
    contents = list(contents)  # here, so that an error in making them is not taken for one below
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
                    shutil.copymode(path, new)  # what only its owner could read stays so
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
