"""A log that an attack cannot fill: repeated lines are counted and summed up."""

import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

LINES = 60
"""Lines of one kind in one period."""

SECONDS = 60.0
"""Length of a period."""

MOST_KINDS = 1000
"""Kinds that are told apart; all others share one count."""


class ThrottledHandler(logging.StreamHandler[TextIO]):
    """Handler that writes a limited number of lines of each kind, and then how many it left out.

    A record's kind is its attribute ``kind``, or else its unformatted message without digits.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream)
        self._clock = clock
        self._began = clock()
        self._seen: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        if self._clock() - self._began >= SECONDS:
            self.sum_up()
        kind = _kind(record)
        if kind not in self._seen and len(self._seen) >= MOST_KINDS:
            kind = "of other kinds"
        self._seen[kind] += 1
        if self._seen[kind] <= LINES:
            super().emit(record)

    def sum_up(self) -> None:
        """Write how many lines were left out, and begin a new period."""
        left_out = {kind: count - LINES for kind, count in self._seen.items() if count > LINES}
        self._began, self._seen = self._clock(), Counter()
        for kind, count in left_out.items():
            said = f"{count} more lines in the last period like: {kind}"
            super().emit(logging.LogRecord("log", logging.WARNING, "", 0, said, (), None))

    def close(self) -> None:
        """Write what is left to be said."""
        self.sum_up()
        super().close()


def _kind(record: logging.LogRecord) -> str:
    kind = getattr(record, "kind", None) or re.sub(r"\d+", "0", str(record.msg))
    return f"{record.name}: {kind[:120]}"
