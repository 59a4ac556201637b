"""The best partition found so far and the lowest upper bound, which searches improve."""

from collections.abc import Sequence

from fedegoists.coalitions.array_types import Floats
from fedegoists.coalitions.welfare import welfare

__all__ = ["TOLERANCE", "Standing", "together"]


TOLERANCE = 1e-9
"""A value counts as the highest if the bound exceeds it by no more than this part."""


def together(partition: Sequence[Sequence[int]]) -> int:
    """Return how many are not alone."""
    return sum(len(group) for group in partition if len(group) > 1)


class Standing:
    """A partition with its value, and an upper bound on any value.

    The value is the welfare plus a bonus for everybody who is not alone.
    """

    def __init__(
        self, weights: Floats, partition: list[list[int]], upper_bound: float, bonus: float = 0.0
    ) -> None:
        self._weights = weights
        self._bonus = bonus
        self._take(partition)
        self.upper_bound = max(upper_bound, self.value)

    def _take(self, partition: list[list[int]]) -> None:
        self.partition = partition
        self.value = self.valued(partition)
        self._welfare = welfare(self._weights, partition)

    def valued(self, partition: Sequence[Sequence[int]]) -> float:
        """Return the value of a partition."""
        return welfare(self._weights, partition) + self._bonus * together(partition)

    @property
    def optimal(self) -> bool:
        """Whether value and bound meet, closely enough for the welfare beside all bonuses."""
        return self.upper_bound - self.value <= TOLERANCE * self._welfare

    @property
    def welfare_bound(self) -> float:
        """What the welfare of no partition exceeds that is as good as the one known, or better."""
        if not self._bonus:
            return self.upper_bound
        rest = self.upper_bound - self._bonus * together(self.partition)
        return rest + 1e-15 * self.upper_bound

    def offer(self, partition: list[list[int]], *, prefer: bool = False) -> None:
        """Take a partition if it is better; if preferred, also if it is as good up to rounding."""
        value = self.valued(partition)
        if value > self.value or (prefer and value >= self.value * (1 - 1e-12)):
            self._take(partition)
            self.upper_bound = max(self.upper_bound, value)

    def bound(self, upper_bound: float) -> None:
        """Take an upper bound if it is lower."""
        self.upper_bound = max(min(self.upper_bound, upper_bound), self.value)
