"""A run's folder: its log, how far the run has come, and what an earlier one left there."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fedegoists.consortium.progress import Progress
from fedegoists.errors import FileError
from fedegoists.files import read_text, write_bytes

__all__ = ["Clock", "interrupted", "remove_results", "state"]

RESULTS = (
    "benefit.csv",
    "weights.csv",
    "certificate.json",
    "metrics.csv",
    "summary.csv",
    "gains.csv",
    "models/*.safetensors",
    "report.html",
    "members/*.html",
)
"""What a run leaves, other than how it was made."""


class Clock:
    """Times the stages and writes the log."""

    def __init__(self, folder: Path, marker: Path, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self.marker = marker
        self.progress = progress
        self._path = folder / "log.txt"

    def log(self, text: str) -> None:
        """Write a line with the time."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        except OSError as error:
            raise FileError(f"{self._path}: cannot be written ({error.strerror})") from None

    def stage(self, name: str) -> "_Stage":
        """Return a context manager that times a stage."""
        return _Stage(self, name)


class _Stage:
    def __init__(self, clock: Clock, name: str) -> None:
        self.clock, self.name = clock, name

    def __enter__(self) -> None:
        self.began = time.perf_counter()
        self.clock.log(f"{self.name}: begins")
        write_bytes(self.clock.marker, state("running", self.name, self.clock.seconds))
        self.clock.progress(self.name, "", 0, 0, "")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        seconds = time.perf_counter() - self.began
        ended = "ended" if kind is None else f"stopped by {kind.__name__}"
        self.clock.log(f"{self.name}: {ended} after {seconds:.1f} s")
        self.clock.seconds[self.name] = seconds
        if kind is not None:
            content = state("interrupted", self.name, self.clock.seconds)
            with suppress(FileError):  # it would hide what went wrong
                write_bytes(self.clock.marker, content)


def interrupted(marker: Path) -> bool:
    """Return whether a run began that did not come to its end."""
    try:
        found = json.loads(read_text(marker))["state"]
    except (ValueError, KeyError, TypeError):
        return True  # a damaged file is no sign of a run that came to its end
    return bool(found != "finished")


def remove_results(folder: Path) -> None:
    """Remove what an earlier run of this name left, which these settings did not make."""
    for pattern in RESULTS:
        for path in folder.glob(pattern):
            try:
                path.unlink()
            except OSError as error:
                raise FileError(f"{path}: cannot be removed ({error.strerror})") from None


def state(what: str, stage: str, seconds: Mapping[str, float]) -> bytes:
    """Return what ``run.json`` says: running, interrupted or finished, in which stage, how long."""
    return (json.dumps({"state": what, "stage": stage, "seconds": dict(seconds)}) + "\n").encode()
