"""Locks for several processes that work in the same folder.

A lock ends with its process, however that ends. Systems without such locks, such as Windows, grant
every lock: use one process at a time there.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedegoists.errors import FileError

__all__ = ["WAIT", "alone", "at_work", "claimed", "held"]

WAIT = 0.5
"""Seconds between two attempts to get a lock."""


@contextmanager
def claimed(folder: Path, name: str) -> Iterator[bool]:
    """Claim a piece of work for as long as the block runs; yield whether the claim succeeded."""
    path = _locks(folder) / name
    with _locked(path, exclusive=True) as file:
        # The owner may have finished, and removed the file, after it was opened here.
        if file is None or not _is(path, file):
            yield False
            return
        try:
            yield True
        finally:
            with suppress(PermissionError):  # Windows removes no open file
                path.unlink(missing_ok=True)


@contextmanager
def held(folder: Path, name: str, stop: Callable[[], bool]) -> Iterator[bool]:
    """Wait for a claim and hold it for as long as the block runs.

    Yield whether it is held; it is not if `stop` told to stop waiting.
    """
    while True:
        with claimed(folder, name) as mine:
            if mine or stop():
                yield mine
                return
        time.sleep(WAIT)


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """Keep other processes from packing a folder for as long as the block runs."""
    with _locked(_presence(folder), exclusive=False) as file:
        if file is None:
            raise FileError(f"another process packs {folder}: try again when it is done")
        yield


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Require that no other process works in a folder for as long as the block runs."""
    with _locked(_presence(folder), exclusive=True) as file:
        if file is None:
            raise FileError(f"other processes work in {folder}: pack it when they are done")
        yield


def _locks(folder: Path) -> Path:
    return folder / "checkpoint" / "claims"


def _presence(folder: Path) -> Path:
    return folder / "checkpoint" / "at-work"


@contextmanager
def _locked(path: Path, *, exclusive: bool) -> Iterator[int | None]:
    """Lock a file without waiting; yield its descriptor, or None if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        try:
            import fcntl
        except ImportError:
            yield file.fileno()
            return
        try:
            kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            yield None
            return
        yield file.fileno()


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
