"""Folders of results that are replaced as a whole: the old result or the new one, never a mixture.

A new result is written beside the old one. Only when it is complete do the two folders change
places, in one step of the file system, so that a process may be killed at any moment.
"""

import ctypes
import os
import secrets
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

from fedegoists.errors import FileError
from fedegoists.files import write_all

_HERE = -100  # AT_FDCWD: paths are relative to the current folder
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS

LONGEST_WAIT = 60.0
"""Seconds to wait for another process that replaces something in the same folder."""


def check_replaceable(
    folder: Path, names: Collection[str], *, replace: bool, how: str = "--replace"
) -> None:
    """Refuse to write files that are in a folder already, unless they are to be replaced.

    Parameters
    ----------
    names : collection of str
        Paths of the files in the folder.
    how : str
        What the user writes to replace them.

    Raises
    ------
    FileError
        If one of them exists.
    """
    found = next((folder / name for name in names if (folder / name).exists()), None)
    if found is not None and not replace:
        raise FileError(
            f"{found}: exists already and is left as it is; add {how} to replace it, or write "
            "elsewhere"
        )


def write_folder(
    folder: str | os.PathLike[str],
    contents: Mapping[str, bytes],
    *,
    replace: bool = False,
    gone: Collection[str] = (),
    private: bool = True,
) -> None:
    """Write files into a folder, all of them or none.

    Other files that are in the folder stay. Processes that write into it at once take turns.

    Parameters
    ----------
    contents : mapping of str to bytes
        By their paths in the folder.
    replace : bool
        Whether files of the same names may be replaced.
    gone : collection of str
        Paths of an earlier result that has no successor, and does not stay.
    private : bool
        Whether only their owner can read the files.

    Raises
    ------
    FileError
        If a file exists and may not be replaced, or cannot be written.
    """
    folder = Path(folder)
    check_replaceable(folder, contents, replace=replace)
    place = folder.resolve()
    if place.exists() and not place.is_dir():
        raise FileError(f"{folder}: cannot be written, as a file has this name")
    if Path.cwd().is_relative_to(place) or os.path.ismount(place):
        # A shell would stay in the old folder, which is removed.
        write_all([(folder / name, content) for name, content in contents.items()], private=private)
        for name in gone:
            (folder / name).unlink(missing_ok=True)
        return
    new = place.with_name(f".{place.name[:40]}.{secrets.token_hex(8)}")
    try:
        write_all([(new / name, content) for name, content in contents.items()], private=private)
        with _in_turn(place.parent):
            check_replaceable(folder, contents, replace=replace)  # another process may be first
            if not private:
                _keep_modes(place, new, contents)
            if place.exists():
                swap_in(new, place, (*contents, *gone))
            else:
                _move(new, place)
    except FileError as error:
        # The user asked for another folder than the one beside it.
        raise FileError(str(error).replace(str(new), str(folder))) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def swap_in(new: Path, folder: Path, results: Collection[str]) -> None:
    """Put a complete new folder in the place of an old one, and remove the old one.

    Parameters
    ----------
    results : collection of str
        Patterns of paths. What matches none of them is not a result, such as a user's notes, and
        is kept.

    Raises
    ------
    FileError
        If the folders cannot be exchanged; then the old one is as it was.
    """
    try:
        _keep_others(folder, new, results)
        shutil.copymode(folder, new)
        exchange(new, folder)
    except OSError as error:
        raise FileError(f"{folder}: cannot be replaced ({error.strerror})") from None
    discard(new)


def discard(folder: Path) -> None:
    """Remove a folder; half of one is never seen under its name."""
    gone = folder.with_name(f".gone-{secrets.token_hex(8)}")
    with suppress(FileNotFoundError):
        folder.rename(gone)
    for one in folder.parent.glob(".gone-*"):  # also those of processes that were killed here
        shutil.rmtree(one, ignore_errors=True)


def exchange(one: Path, other: Path) -> None:
    """Let two folders change places, in one step where the system can do that.

    Elsewhere it takes three renamings. A process killed between them leaves `other` missing and
    both contents beside it.
    """
    if _exchanged(one, other):
        return
    away = one.with_name(f"{one.name}.old")
    other.rename(away)
    one.rename(other)
    away.rename(one)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two paths in one step; return False where the system has no such step."""
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(*paths, _EXCHANGE)
        else:
            failed = library.renameat2(_HERE, paths[0], _HERE, paths[1], _EXCHANGE)
    except AttributeError:
        return False
    # An old kernel or a file system without it; the renamings show any other trouble.
    return not failed


def _keep_others(old: Path, new: Path, results: Collection[str]) -> None:
    """Link the files of an old folder that are no results into the new one."""
    for path in sorted(old.rglob("*")):
        name = path.relative_to(old).as_posix()
        here = new / name
        if os.path.lexists(here) or any(fnmatch(name, pattern) for pattern in results):
            continue
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                here.mkdir(parents=True)
            continue
        here.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, here, follow_symlinks=False)
        except OSError:  # not every file system has links
            shutil.copy2(path, here, follow_symlinks=False)


@contextmanager
def _in_turn(folder: Path) -> Iterator[None]:
    """Context manager that waits for other processes that replace something in a folder.

    A file that one of them adds between the linking and the exchange would be lost. Systems, file
    systems and folders that cannot be locked do without.

    Raises
    ------
    FileError
        If another process holds the folder for long.
    """
    descriptor = None
    if os.name == "posix":
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
    try:
        if descriptor is not None and not _locked(descriptor):
            raise FileError(f"{folder}: another process has locked this folder; try again later")
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Lock a folder; return False if another process has it for too long."""
    import fcntl

    end = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return True
        else:
            return True


def _keep_modes(old: Path, new: Path, names: Collection[str]) -> None:
    """Let files that replace others be as private as these were."""
    for name in names:
        if (old / name).is_file():
            shutil.copymode(old / name, new / name)


def _move(new: Path, folder: Path) -> None:
    try:
        new.rename(folder)
    except OSError as error:
        raise FileError(f"{folder}: cannot be written ({error.strerror})") from None
