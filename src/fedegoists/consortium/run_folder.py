"""A run's folder: its log, its state, and its results."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedegoists.consortium.progress import Progress
from fedegoists.errors import FileError
from fedegoists.files import read_text, write_all, write_bytes

RESULTS = (
    "benefit.csv",
    "weights.csv",
    "certificate.json",
    "metrics.csv",
    "summary.csv",
    "gains.csv",
    "delivered.csv",
    "intervals.csv",
    "models/*.safetensors",
    "cards/*.md",
    "origins.json",
    "report.html",
    "members/*.html",
)
"""The files of results, which an earlier run of the same name may have left."""


class RunFolder:
    """The folder of one run, which times its stages and writes its log and its state.

    Attributes
    ----------
    path : Path
        The folder.
    seconds : dict of str to float
        How long each finished stage took.
    """

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path = path
        self.seconds: dict[str, float] = {}
        self.progress = progress
        self._marker = path / "run.json"

    def begin(self, config: str, stage: str, *, resume: bool) -> None:
        """Write the settings, and remove results of an earlier run, which had other settings.

        Raises
        ------
        FileError
            If an interrupted run is here and shall not be resumed.
        """
        if self._marker.exists() and not resume and self._interrupted():
            raise FileError(
                f"{self.path} was interrupted; add --resume to go on, or use another --name"
            )
        self._mark("running", stage)
        # The settings name the competitors, so only their owner may read them.
        write_bytes(self.path / "config.toml", config.encode(), private=True)
        for pattern in RESULTS:
            for path in self.path.glob(pattern):
                try:
                    path.unlink()
                except OSError as error:
                    raise FileError(f"{path}: cannot be removed ({error.strerror})") from None

    def _interrupted(self) -> bool:
        try:
            return bool(json.loads(read_text(self._marker))["state"] != "finished")
        except (ValueError, KeyError, TypeError):
            return True  # a damaged marker is no sign of a finished run

    def _mark(self, state: str, stage: str) -> None:
        content = json.dumps({"state": state, "stage": stage, "seconds": self.seconds}) + "\n"
        write_bytes(self._marker, content.encode(), private=True)

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
        """Mark the run as finished."""
        self._mark("finished", "")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
