"""Several processes at the same folder: each takes what no other one is at."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["WAIT", "claimed", "held"]

WAIT = 0.5
"""Seconds between two looks at what another process is at."""


@contextmanager
def claimed(folder: Path, name: str) -> Iterator[bool]:
    """Claim something for as long as the block runs; tell whether nobody else has it.

    A claim ends with its process, however that ends. Where the system has no such locks, everything
    can be claimed: one process at a time, then.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    path = folder / "checkpoint" / "claims" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            yield False
            return
        if not _is(path, file.fileno()):
            yield False  # whoever had it is done, and has removed the file
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def held(folder: Path, name: str, stop: Callable[[], bool]) -> Iterator[bool]:
    """Wait until something can be claimed, and claim it for as long as the block runs.

    Tell whether it is; it is not if it became time to stop.
    """
    while True:
        with claimed(folder, name) as mine:
            if mine or stop():
                yield mine
                return
        time.sleep(WAIT)
