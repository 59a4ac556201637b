"""The incumbent: the best partition so far and the lowest upper bound, which searches improve."""

import numpy as np

from fedegoists.coalitions.array_types import Floats, Partition
from fedegoists.coalitions.welfare import welfare
from fedegoists.graphs.participant_graph import Entries

TOLERANCE = 1e-9
"""A partition is optimal if the upper bound exceeds its value by no more than this fraction of what
is at stake."""

OUTLIER = 1000.0
"""Benefits count up to this many times the median benefit as being at stake: a benefit that is in
every good partition anyway must not hide what others could gain."""


def together(partition: Partition) -> int:
    """Return the number of participants that are not alone."""
    return sum(len(group) for group in partition if len(group) > 1)


class Incumbent:
    """A partition with its value, and an upper bound on any value.

    The value is the welfare plus a bonus for each participant that is not alone.
    """

    def __init__(
        self,
        weights: Floats | Entries[np.float64],
        partition: list[list[int]],
        upper_bound: float,
        bonus: float = 0.0,
    ) -> None:
        self._weights = weights
        self._bonus = bonus
        given = weights.values if isinstance(weights, Entries) else weights
        positive = given[given > 0]
        most = OUTLIER * float(np.median(positive)) if len(positive) else 0.0
        capped = np.minimum(given, most)
        self._capped = weights._replace(values=capped) if isinstance(weights, Entries) else capped
        self._take(partition)
        self.upper_bound = max(upper_bound, self.value)

    def _take(self, partition: list[list[int]]) -> None:
        self.partition = partition
        self.value = self.valued(partition)
        self.at_stake = welfare(self._capped, partition)

    def valued(self, partition: Partition) -> float:
        """Return the value of a partition."""
        return welfare(self._weights, partition) + self._bonus * together(partition)

    @property
    def optimal(self) -> bool:
        """Whether value and bound meet, compared with the benefits without any bonus."""
        return self.upper_bound - self.value <= TOLERANCE * self.at_stake

    @property
    def welfare_bound(self) -> float:
        """Upper bound on the welfare of any partition at least as good as the incumbent.

        Such a partition has at least as many bonuses, as one bonus exceeds any welfare.
        """
        if not self._bonus:
            return self.upper_bound
        rest = self.upper_bound - self._bonus * together(self.partition)
        return rest + 1e-15 * self.upper_bound

    def offer(self, partition: list[list[int]], *, prefer: bool = False) -> None:
        """Take a partition if it is better; if preferred, also if it is equal up to rounding."""
        value = self.valued(partition)
        if value > self.value or (prefer and value >= self.value * (1 - 1e-12)):
            self._take(partition)
            self.upper_bound = max(self.upper_bound, value)

    def close(self) -> None:
        """Take note that no partition is better, up to rounding."""
        self.upper_bound = self.value

    def bound(self, upper_bound: float) -> None:
        """Take an upper bound if it is lower."""
        self.upper_bound = max(min(self.upper_bound, upper_bound), self.value)
