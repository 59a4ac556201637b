"""Room on the disks that the coordinator writes to."""

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from threading import Lock

SECONDS = 10.0
"""How long an answer holds: health is asked for by anyone."""

TRIED_BYTES = 64 * 1024
FEWEST_FILES = 100


class DiskRoom:
    """Says whether the disks of the database and of runs can be written to, and have room.

    Parameters
    ----------
    folders : dict of Path by str
        Folders that are written to, by what is in them.
    least_bytes : int
        Fewer free bytes are trouble.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self, folders: dict[str, Path], least_bytes: int, clock: Callable[[], float]
    ) -> None:
        self._folders, self._least, self._clock = folders, least_bytes, clock
        self._lock = Lock()
        self._found = ""
        self._until = clock()

    def trouble(self) -> str:
        """Return what is wrong, without naming folders to strangers, or an empty text."""
        with self._lock:
            if self._clock() >= self._until:
                found = (self._trouble(what, path) for what, path in self._folders.items())
                self._found = next((one for one in found if one), "")
                self._until = self._clock() + SECONDS
            return self._found

    def _trouble(self, what: str, folder: Path) -> str:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            room = os.statvfs(folder)
            # Free room does not show a quota, nor that the disk is read-only for this process.
            _try(folder)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return f"the disk of the {what} is full; make room"
            why = error.strerror or type(error).__name__
            return f"the disk of the {what} cannot be written to ({why})"
        if room.f_bavail * room.f_frsize < self._least:
            return f"the disk of the {what} is almost full; make room"
        if room.f_files and room.f_favail < FEWEST_FILES:
            return f"the disk of the {what} has almost no room for more files; remove some"
        return ""


def _try(folder: Path) -> None:
    """Write a small file, and remove it."""
    path = folder / f".room-{secrets.token_hex(8)}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        left = TRIED_BYTES
        while left:
            left -= os.write(file, b"\0" * left)
    finally:
        os.close(file)
        path.unlink(missing_ok=True)
