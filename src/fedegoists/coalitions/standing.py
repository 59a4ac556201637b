"""The best partition found so far and the lowest upper bound, which searches improve."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["TOLERANCE", "Standing", "welfare_of"]

Floats = npt.NDArray[np.float64]

TOLERANCE = 1e-9
"""A value counts as the highest if the bound exceeds it by no more than this part."""


def welfare_of(weights: Floats, partition: Sequence[Sequence[int]]) -> float:
    """Return the sum of the benefits inside the coalitions, rounded once."""
    return math.fsum(
        weight
        for group in partition
        if len(group) > 1
        for weight in weights[np.ix_(group, group)].ravel().tolist()
    )


class Standing:
    """A partition with its value, and an upper bound on any value.

    The value is the welfare plus a bonus for everybody who is not alone.
    """

    def __init__(
        self, weights: Floats, partition: list[list[int]], upper_bound: float, bonus: float = 0.0
    ) -> None:
        self._weights = weights
        self._bonus = bonus
        self.partition = partition
        self.value = self.valued(partition)
        self.upper_bound = max(upper_bound, self.value)

    def valued(self, partition: Sequence[Sequence[int]]) -> float:
        """Return the value of a partition."""
        together = sum(len(group) for group in partition if len(group) > 1)
        return welfare_of(self._weights, partition) + self._bonus * together

    @property
    def optimal(self) -> bool:
        """Whether value and bound meet."""
        return self.upper_bound <= self.value * (1 + TOLERANCE)

    def offer(self, partition: list[list[int]], *, prefer: bool = False) -> None:
        """Take a partition if it is better; if preferred, also if it is as good up to rounding."""
        value = self.valued(partition)
        if value > self.value or (prefer and value >= self.value * (1 - 1e-12)):
            self.partition = partition
            self.value = value
            self.upper_bound = max(self.upper_bound, value)

    def bound(self, upper_bound: float) -> None:
        """Take an upper bound if it is lower."""
        self.upper_bound = max(min(self.upper_bound, upper_bound), self.value)
