"""The lock of a kit: one set of processes at a time, or two silos would answer in one name."""

import fcntl
import os
from pathlib import Path

from fedegoists.errors import FileError

LOCK_FILE = ".lock"


class KitLock:
    """Holds a kit from the beginning of its process to the end.

    The kit's FLARE process and its guard hold it as well (see `fedegoists.deploy.kit_guard`), so
    that the kit is free only when all of them have ended.

    Parameters
    ----------
    kit : Path
        The kit's folder.

    Raises
    ------
    FileError
        If another process holds the kit.
    """

    def __init__(self, kit: Path) -> None:
        try:
            self.descriptor = os.open(kit / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise FileError(f"{kit}: cannot be locked ({error.strerror})") from None
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self.descriptor, 20).decode(errors="replace").strip() or "unknown"
            os.close(self.descriptor)
            raise FileError(
                f"{kit}: is in use already, by process {holder}; end that one first"
            ) from None
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)
        self._held = True

    def release(self) -> None:
        """Let others have the kit."""
        if self._held:
            self._held = False
            os.close(self.descriptor)

    def __del__(self) -> None:
        if getattr(self, "_held", False):
            self.release()
