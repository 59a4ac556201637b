"""Seals: HMACs under a key of the files' owner, by which damaged and swapped files are noticed.

A seal is made with a key that only the files' owner can read. It shows that a file is, byte for
byte, what this owner wrote under this name. It cannot show anything to or about a program that runs
as the same user: that program can read the key.
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fedegoists.errors import FileError
from fedegoists.files import private_folder, read_text, write_all, write_bytes

SECRET_BYTES: Final = 32
KEY_FILE: Final = "seal.key"
"""The key of a folder's seals. It travels with the folder, so that a copy of it stays usable."""

LEDGER_FILE: Final = "seals.json"

BLANK: Final = "0" * 64
"""Stands in a content where `Seal.stamped` puts the seal."""

_STAMP = re.compile(rb'"seal": ?"([0-9a-f]{64})"')


class SealError(FileError):
    """A file that is not what its owner wrote under its name."""


def owner_secret(path: Path) -> bytes:
    """Return a random secret that only its owner can read: drawn once, then always the same.

    Raises
    ------
    FileError
        If the file does not hold such a secret, or cannot be written.
    """
    if not path.exists():
        private = path.parent / f".{path.name}.{secrets.token_hex(8)}"
        write_bytes(private, secrets.token_bytes(SECRET_BYTES), private=True)
        try:
            os.link(private, path)  # of two processes that draw one at once, both use the first
        except FileExistsError:
            pass
        except OSError:  # not every file system has links
            private.replace(path)
        finally:
            private.unlink(missing_ok=True)
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    if len(secret) != SECRET_BYTES:
        raise FileError(
            f"{path}: {len(secret)} bytes where the owner's secret has {SECRET_BYTES}; restore it "
            "from a copy, or remove it and all that was kept with it"
        )
    return secret


def derived_key(secret: bytes, purpose: str) -> bytes:
    """Return a key for one purpose; keys of different purposes tell nothing of each other.

    Examples
    --------
    >>> derived_key(b"secret", "seals") == derived_key(b"secret", "batches")
    False
    """
    return hmac.digest(secret, f"fedegoists {purpose}".encode(), "sha256")


class Seal:
    """A key under which files are sealed.

    Parameters
    ----------
    key : bytes
        A random secret, or a key derived from one.

    Examples
    --------
    >>> seal = Seal(b"0" * 32)
    >>> content = seal.stamped(b'{"seal": "' + BLANK.encode() + b'", "round": 3}', "a run")
    >>> seal.check(content, "a run")
    >>> seal.check(content.replace(b"3", b"4"), "a run")
    Traceback (most recent call last):
    fedegoists.sealed_files.SealError: its seal is not the one of its content
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of_folder(cls, folder: Path) -> "Seal":
        """Return the seal of a folder, whose key is in it."""
        return cls(owner_secret(folder / KEY_FILE))

    def of(self, place: str, *parts: bytes | memoryview) -> str:
        """Return the seal of a content, in parts, in a place, such as a file's name."""
        name = place.encode()
        made = hmac.new(self._key, f"{len(name)}:".encode() + name, hashlib.sha256)
        for part in parts:
            made.update(part)
        return made.hexdigest()

    def stamped(self, content: bytes, place: str) -> bytes:
        """Return a content with its seal in the place of the first ``"seal": "000…"`` in it."""
        found = _STAMP.search(content)
        if found is None or found[1] != BLANK.encode():
            raise ValueError("there is no blank seal in this content")
        begin, end = found.span(1)
        return content[:begin] + self.of(place, content).encode() + content[end:]

    def check(self, content: bytes, place: str) -> None:
        """Check a stamped content.

        Raises
        ------
        SealError
            If it has no seal, or another one than it must have.
        """
        found = _STAMP.search(content)
        if found is None:
            raise SealError("it has no seal: it is damaged, or of an earlier version")
        begin, end = found.span(1)
        view = memoryview(content)
        made = self.of(place, view[:begin], BLANK.encode(), view[end:])
        if not hmac.compare_digest(made.encode(), found[1]):
            raise SealError("its seal is not the one of its content")


class SealedFolder:
    """A folder whose files are sealed in a ledger beside them, so that they keep their format.

    The ledger knows the last two contents of each file, so that a process may be killed between
    writing the ledger and writing the file. An older content is refused, as any other. Only one who
    puts back all files and the ledger at once is not noticed.

    Parameters
    ----------
    folder : Path
        The folder of the files.
    seal : Seal
        Their owner's seal.
    ledger : Path, optional
        The ledger; by default ``seals.json`` in the folder.
    """

    def __init__(self, folder: Path, seal: Seal, ledger: Path | None = None) -> None:
        self._folder, self._seal = folder, seal
        self._ledger = folder / LEDGER_FILE if ledger is None else ledger

    def write(self, name: str, content: bytes) -> Path:
        """Write a file atomically, readable by its owner only; return its path."""
        self.write_all({name: content})
        return self._folder / name

    def write_all(self, contents: Mapping[str, bytes]) -> None:
        """Write several files; none of them changes unless all of them could be written."""
        with self._alone(fcntl.LOCK_EX):
            try:
                known = self._known()
            except SealError:
                known = {}  # what was sealed in a damaged ledger is refused; new files are not
            # Files that were removed need no seal any more.
            known = {name: own for name, own in known.items() if (self._folder / name).exists()}
            for name, content in contents.items():
                known[name] = [*known.get(name, [])[-1:], self._seal.of(name, content)]
            self._write_ledger(known)
            write_all(
                [(self._folder / name, content) for name, content in contents.items()], private=True
            )

    def _write_ledger(self, known: dict[str, list[str]]) -> None:
        content = json.dumps({"seal": BLANK, "files": known}, indent=1).encode()
        stamped = self._seal.stamped(content, LEDGER_FILE)
        write_bytes(self._ledger, stamped, private=True)

    def read(self, name: str) -> tuple[bytes, bool]:
        """Return a file's content, and whether it is the last one that was sealed.

        It may be the one before, if the process was killed while it wrote the last one.

        Raises
        ------
        SealError
            If the content is another one than was written here under this name.
        """
        with self._alone(fcntl.LOCK_SH):
            known = self._known().get(name, [])
            try:
                content = (self._folder / name).read_bytes()
            except OSError as error:
                raise FileError(f"{name}: cannot be read ({error.strerror})") from None
        made = self._seal.of(name, content)
        if not any(hmac.compare_digest(made, one) for one in known):
            raise SealError("its content is not what was written here last")
        return content, made == known[-1]

    def _known(self) -> dict[str, list[str]]:
        """Return the seals of each file, the last one at the end."""
        try:
            content = self._ledger.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise FileError(f"{self._ledger}: cannot be read ({error.strerror})") from None
        try:
            self._seal.check(content, LEDGER_FILE)
        except SealError as error:
            raise SealError(f"the seals in {self._ledger.name} cannot be used: {error}") from None
        files: dict[str, list[str]] = json.loads(content)["files"]
        return files

    @contextmanager
    def _alone(self, kind: int) -> Iterator[None]:
        """Keep other processes from changing a file and the ledger in between."""
        if not self._ledger.parent.exists():
            private_folder(self._ledger.parent)
        lock = self._ledger.with_suffix(".lock")
        try:
            number = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if kind == fcntl.LOCK_SH:  # of a folder that cannot be written, nothing changes
                yield
                return
            raise FileError(f"{lock}: cannot be written ({error.strerror})") from None
        try:
            fcntl.flock(number, kind)
            yield
        finally:
            os.close(number)


def write_sealed_text(path: Path, text: str) -> None:
    """Write a text with a seal in it, under the key of its folder; only its owner can read it."""
    content = json.dumps({"seal": BLANK, "content": text}).encode()
    write_bytes(path, Seal.of_folder(path.parent).stamped(content, path.name), private=True)


def read_sealed_text(path: Path) -> str:
    """Return a text that `write_sealed_text` wrote.

    Raises
    ------
    SealError
        If the file is damaged, or was not written in this folder under this name.
    """
    content = read_text(path)
    try:
        Seal.of_folder(path.parent).check(content.encode(), path.name)
    except SealError as error:
        raise SealError(f"{path}: {error}") from None
    return str(json.loads(content)["content"])
