"""The work budget of a search: counted, so that the same seed gives the same result.

Work is counted in seconds of a slow machine, by constants rather than measurements. The clock only
guards the deadline; where it ends a search, `clock_ended` tells.
"""

import math
import time
from collections.abc import Callable

LEAST_BETWEEN_LOOKS = 2e-3
"""Work between two looks at the clock."""


class Effort:
    """A budget of work, and a deadline by `time.perf_counter`."""

    def __init__(
        self,
        work: float,
        deadline: float = math.inf,
        report: Callable[[], None] | None = None,
    ) -> None:
        self.left = work
        self.deadline = deadline
        self.clock_ended = False
        self._looked_at = math.inf  # the work that was left when the clock was last looked at
        self._report = report

    def spend(self, work: float) -> None:
        """Count work as done."""
        self.left -= work
        if self._report is not None:
            self._report()

    def part(self, fraction: float) -> "Effort":
        """Return a budget of a fraction of what is left; `spend_part` counts what it spent."""
        return Effort(self.left * fraction, self.deadline, self._report)

    def spend_part(self, part: "Effort", given: float) -> None:
        """Count the work of a part that was given so much."""
        self.spend(given - part.left)
        self.clock_ended |= part.clock_ended

    @property
    def over(self) -> bool:
        """Whether to stop, because the budget is spent or the time is up."""
        if self.left <= 0:
            return True
        # On some systems, a look at the clock takes as long as a short step of a search.
        if self._looked_at - self.left >= LEAST_BETWEEN_LOOKS:
            self._looked_at = self.left
            if time.perf_counter() > self.deadline:
                self.clock_ended = True
        return self.clock_ended

    def lacks(self, seconds: float) -> bool:
        """Whether the clock leaves less than this for a step; if so, it ends the search."""
        if self.seconds_left < seconds:
            self.clock_ended = True
        return self.clock_ended

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return max(self.deadline - time.perf_counter(), 0.0)
