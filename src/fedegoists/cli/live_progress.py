"""Progress of long commands: bars on a terminal, plain lines elsewhere, such as in a job's log."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

EVERY = 30.0
"""Seconds between the lines about a part of the work where there is no terminal."""

_quiet = False


def _set_quiet(context: typer.Context, value: bool) -> bool:
    """Be quiet until the command ends."""
    global _quiet
    _quiet = value
    context.call_on_close(_be_heard)
    return value


def _be_heard() -> None:
    global _quiet
    _quiet = False


def is_quiet() -> bool:
    """Whether the user wants to see no progress."""
    return _quiet


QuietOption = Annotated[
    bool,
    typer.Option("--quiet", callback=_set_quiet, help="Show no progress, only results."),
]


class PlainLines:
    """Lines about work in progress: one when a part begins, then now and then with the time left.

    Parameters
    ----------
    every : float
        Seconds between two lines about the same part.
    """

    def __init__(self, console: Console, *, every: float = EVERY) -> None:
        self._console, self._every = console, every
        self._parts: dict[str, _StagePart] = {}
        self._printed: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int, remark: str = "") -> None:
        """Print a line about a part of the work, if it is time for one."""
        now = time.monotonic()
        part = self._parts.get(what)
        if part is None or part.total != total or done < part.first:
            part = self._parts[what] = _StagePart(what, done, total, now)
            self._printed.pop(what, None)
        elif now < self._printed[what] + self._every:
            return
        self._printed[what] = now
        count = f"{done}/{total}" if total else "…"
        words = (f"{what}: {count}", remark, part.left(done, now) if total else "")
        self.say("  ".join(text for text in words if text))

    def say(self, text: str) -> None:
        """Print a line, unless the user wants none."""
        if not is_quiet():
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """A line for each stage with its part, rounds, metric and time left; a `Progress`.

    It appears with the first stage. Without a terminal there are `PlainLines` instead. Messages
    are printed anywhere.
    """

    def __init__(self, stages: Sequence[str], console: Console, *, every: float = EVERY) -> None:
        self._lines = PlainLines(console, every=every)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[remark]}", markup=False),
            TextColumn("{task.fields[left]}", style="cyan"),
            console=console,
            disable=is_quiet() or not console.is_terminal,
        )
        self._plain = not console.is_terminal
        self._width = max(map(len, stages))
        self._tasks: dict[str, TaskID] = {
            stage: self._progress.add_task(
                self._described(" ", stage), total=1, start=False, remark="", left=""
            )
            for stage in stages
        }
        self._stage: str | None = None
        self._stage_began = 0.0
        self._part = _StagePart("", 0, 0, 0.0)

    def __enter__(self) -> "LiveView":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._end_stage("✓" if kind is None else "✗", "" if kind is None else "stopped after ")
        self._progress.stop()

    def __call__(self, stage: str, what: str, done: int, total: int, remark: str) -> None:
        """Show the progress of a stage."""
        now = time.monotonic()
        if stage != self._stage:
            self._begin_stage(stage, now)
        if not what:
            return
        # The time left is estimated from the time this part of the stage has taken so far.
        part = self._part
        if total != part.total or done < part.first or not part.what:
            part = self._part = _StagePart(what, done, total, now)
        told = "  ".join(text for text in (what, f"{done}/{total}", remark) if text)
        left = part.left(done, now)
        self._progress.update(
            self._tasks[stage], completed=done, total=total, remark=told, left=left
        )
        if self._plain:
            self._lines(f"{stage}: {what}", done, total, remark)

    def message(self, text: str, *, waiting: bool = False) -> None:  # noqa: ARG002
        """Print a message above the stages."""
        self._progress.console.print(text, markup=False, soft_wrap=True)

    def _begin_stage(self, stage: str, now: float) -> None:
        self._progress.start()
        self._end_stage("✓", "")
        self._stage, self._stage_began, self._part = stage, now, _StagePart("", 0, 0, now)
        if self._plain:
            self._lines(stage, 0, 0)
        task = self._tasks[stage]
        self._progress.start_task(task)
        self._progress.update(task, total=None, description=self._described("▸", stage))

    def _end_stage(self, mark: str, before: str) -> None:
        if self._stage is None:
            return
        spent = time.monotonic() - self._stage_began
        task = self._tasks[self._stage]
        if self._plain and spent >= 1:
            ended = "done after " if mark == "✓" else before
            self._lines.say(f"{self._stage}: {ended}{_spoken(spent)}")
        if mark == "✓":
            self._progress.update(task, completed=1, total=1)
        self._progress.update(
            task,
            description=self._described(mark, self._stage),
            left=f"{before}{_spoken(spent)}",
        )
        self._stage = None

    def _described(self, mark: str, stage: str) -> str:
        return f"{mark} {stage:<{self._width}}"


@dataclass(frozen=True)
class _StagePart:
    """A counted part of a stage, with its first count, its total and its start."""

    what: str
    first: int
    total: int
    began: float

    def left(self, done: int, now: float) -> str:
        if done <= self.first:
            return ""
        return f"{_spoken((now - self.began) / (done - self.first) * (self.total - done))} left"


def _spoken(seconds: float) -> str:
    """Return a duration in words.

    Examples
    --------
    >>> _spoken(4.21), _spoken(75), _spoken(7300)
    ('4.2 s', '1 min 15 s', '2 h 01 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
