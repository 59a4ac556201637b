"""A run's folder: its log, its state, and its results.

A finished run stays until another one that replaces it is finished, too: that one works in a folder
beside it, and the two change places at its end.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedegoists.consortium.progress import Progress
from fedegoists.errors import FileError
from fedegoists.files import read_text, remove_leftovers, write_all, write_bytes
from fedegoists.folder_swap import discard, swap_in
from fedegoists.sealed_files import KEY_FILE, LEDGER_FILE

RESULTS = (
    "benefit.csv",
    "weights.csv",
    "benefit_errors.csv",
    "certificate.json",
    "metrics.csv",
    "summary.csv",
    "gains.csv",
    "delivered.csv",
    "intervals.csv",
    "ledger.csv",
    "models/*.safetensors",
    "cards/*.md",
    "origins.json",
    "report.html",
    "members/*.html",
)
"""The files of results, which an earlier run of the same name may have left."""

OWN_FILES = (
    *RESULTS,
    "trees-alone.csv",
    "export/*",  # of models that are replaced
    "config.toml",
    "run.json",
    "log.txt",
    KEY_FILE,
    f"{LEDGER_FILE.removesuffix('.json')}.*",
)
"""All files that a run writes; others in its folder are its user's, and outlive it."""

BESIDE = ".replacing"
"""The folder, beside the runs, of runs that are to replace finished ones."""


class RunFolder:
    """The folder of one run, which times its stages and writes its log and its state.

    Attributes
    ----------
    path : Path
        The folder in which the run works: its own, or one beside the finished run it replaces.
    seconds : dict of str to float
        How long each finished stage took.
    made : str
        The day on which the run was made, in universal time.
    """

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path = self._place = path
        self._beside = path.parent / BESIDE / path.name
        self._number = 1
        self.seconds: dict[str, float] = {}
        self.made = time.strftime("%Y-%m-%d", time.gmtime())
        self.progress = progress

    def begin(self, config: str, stage: str, *, resume: bool, replace: bool = False) -> None:
        """Write the settings, and remove results of an interrupted run, which had other settings.

        A finished run is not touched: this one then works beside it.

        Raises
        ------
        FileError
            If a finished run is here and shall not be replaced, or an interrupted one that shall
            not be resumed.
        """
        self._settle()
        finished, begun = _marker(self._place), _marker(self._beside)
        if finished is not None and finished["state"] == "finished":
            self._check_replaced(begun is not None, resume=resume, replace=replace)
            if not resume:
                discard(self._beside)
            self.path, self._number = self._beside, int(finished.get("number", 1)) + 1
        elif finished is not None and not (resume or replace):
            raise FileError(
                f"{self.path} was interrupted; add --resume to go on or --replace to begin again, "
                "or use another folder or name"
            )
        remove_leftovers(self.path)
        self._mark("running", stage)
        # The settings name the competitors, so only their owner may read them.
        write_bytes(self.path / "config.toml", config.encode(), private=True)
        for pattern in RESULTS:
            for path in self.path.glob(pattern):
                try:
                    path.unlink()
                except OSError as error:
                    raise FileError(f"{path}: cannot be removed ({error.strerror})") from None

    def _check_replaced(self, begun: bool, *, resume: bool, replace: bool) -> None:
        """Refuse to replace a finished run, unless that was asked for now or at the beginning."""
        if replace or (resume and begun):
            return
        if begun:
            raise FileError(
                f"{self.path} has a finished run, and a run that is to replace it was interrupted; "
                "add --resume to go on with that, --replace to begin it again, or use another "
                "--name"
            )
        done = "there is nothing to resume; " if resume else ""
        raise FileError(
            f"{self.path} has a finished run, which is left as it is; {done}use another --name, or "
            "add --replace to put the new run in its place when that is complete"
        )

    def _settle(self) -> None:
        """Finish an exchange of two finished runs in which a process was killed."""
        beside, here = _marker(self._beside), _marker(self._place)
        if beside is None or beside["state"] != "finished":
            return
        if here is None and not self._place.exists():
            self._beside.rename(self._place)
        elif here is None or int(beside.get("number", 1)) > int(here.get("number", 1)):
            swap_in(self._beside, self._place, OWN_FILES)
        else:
            discard(self._beside)

    def _mark(self, state: str, stage: str) -> None:
        marked = {"state": state, "stage": stage, "seconds": self.seconds, "number": self._number}
        content = json.dumps(marked) + "\n"
        write_bytes(self.path / "run.json", content.encode(), private=True)

    def log(self, text: str) -> None:
        """Add a line with the time to the log."""
        path = self.path / "log.txt"
        try:
            # It names silos and competitors.
            with open(path, "a", encoding="utf-8", opener=_private) as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        except OSError as error:
            raise FileError(f"{path}: cannot be written ({error.strerror})") from None

    def log_all(self, texts: Iterable[str]) -> None:
        """Add several lines to the log."""
        for text in texts:
            self.log(text)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Context manager that times a stage, and marks the run as interrupted on an error."""
        began = time.perf_counter()
        self.log(f"{name}: begins")
        self._mark("running", name)
        self.progress(name, "", 0, 0, "")
        ended = "ended"
        try:
            yield
        except BaseException as error:
            ended = f"stopped by {type(error).__name__}"
            raise
        finally:
            self.seconds[name] = time.perf_counter() - began
            self.log(f"{name}: {ended} after {self.seconds[name]:.1f} s")
            if ended != "ended":
                with suppress(FileError):  # it would hide the first error
                    self._mark("interrupted", name)

    def write(self, contents: dict[str, bytes]) -> None:
        """Write results that only their owner can read."""
        write_all([(self.path / name, text) for name, text in contents.items()], private=True)

    def finish(self) -> None:
        """Mark the run as finished, and put it in the place of the one that it replaces."""
        self._mark("finished", "")
        if self.path != self._place:
            swap_in(self.path, self._place, OWN_FILES)
            self.path = self._place


def _marker(folder: Path) -> dict[str, Any] | None:
    """Return the state of the run in a folder; None without a run."""
    path = folder / "run.json"
    if not path.exists():
        return None
    try:
        found = json.loads(read_text(path))
        return found if isinstance(found["state"], str) else {"state": "damaged"}
    except (ValueError, KeyError, TypeError):
        return {"state": "damaged"}  # no sign of a finished run


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
