"""The best total of every set of participants: what a change of one pair would do, for all pairs.

With the best totals of all sets, the best partition with a changed pair follows without another
search. Only coalitions that hold both of the pair change their totals, and the rest of such a
partition is a best partition of a set that holds neither.
"""

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.coalitions.exact.admissible import BLOCK, ValueProblem, admissible_values
from fedegoists.coalitions.exact.enumeration import as_columns
from fedegoists.coalitions.exact.value_enumeration import best_of_all_subsets


class SubsetTable:
    """The totals of all admissible coalitions, and the best total of every set.

    Parameters
    ----------
    totals : array of float, optional
        The total of every set as a coalition, −∞ for those that are not admissible; those of the
        problem by default.
    """

    def __init__(self, problem: ValueProblem, totals: Floats | None = None) -> None:
        self.problem = problem
        self.n = problem.n
        self.values = admissible_values(problem) if totals is None else totals
        self.masks: Ints = np.flatnonzero(self.values > -np.inf)
        self.best = best_of_all_subsets(self.values, self.masks, self.n)
        self.whole = (1 << self.n) - 1

    @property
    def highest(self) -> float:
        """The highest total of any partition."""
        return float(self.best[self.whole])

    def partition(self, first: int = 0) -> list[list[int]]:
        """Return a best partition with a given coalition, or with any."""
        groups = [first] if first else []
        left = self.whole & ~first
        while left:
            last = left.bit_length() - 1
            fits = self.masks[((self.masks >> last) == 1) & ((self.masks & ~left) == 0)]
            totals = self.values[fits] + self.best[left ^ fits]
            group = 1 << last
            if totals.max(initial=-np.inf) > self.best[left ^ group]:
                group = int(fits[totals.argmax()])
            groups.append(group)
            left ^= group
        return sorted([k for k in range(self.n) if group >> k & 1] for group in groups)

    def together(self, a: int, b: int) -> tuple[float, int]:
        """Return the highest total of partitions that unite a and b, and their coalition."""
        masks = self.masks[(self.masks >> a & 1 == 1) & (self.masks >> b & 1 == 1)]
        return self.united(masks, self.values[masks])

    def united(self, masks: Ints, totals: Floats) -> tuple[float, int]:
        """Return the highest total with one of some coalitions, whose totals are given, and it."""
        whole = totals + self.best[self.whole ^ masks]
        if whole.max(initial=-np.inf) == -np.inf:
            return -np.inf, 0
        return float(whole.max()), int(masks[whole.argmax()])

    def apart(self, a: int, b: int) -> tuple[float, int]:
        """Return the highest total of partitions that separate a and b, and the coalition of a."""
        alone = float(self.best[self.whole ^ (1 << a)])
        masks = self.masks[(self.masks >> a & 1 == 1) & (self.masks >> b & 1 == 0)]
        whole = self.values[masks] + self.best[self.whole ^ masks]
        if whole.max(initial=-np.inf) > alone:
            return float(whole.max()), int(masks[whole.argmax()])
        return alone, 1 << a


def sets_holding(competition: Bools, a: int, b: int) -> Ints:
    """Return all sets without competitors that hold a and b, admissible or not."""
    n = len(competition)
    if competition[a, b]:
        return np.zeros(0, dtype=np.int64)
    masks = np.array([1 << a | 1 << b], dtype=np.int64)
    for k in range(n):
        if k not in (a, b) and not competition[k, [a, b]].any():
            rivals = int((competition[k].astype(np.int64) << np.arange(n)).sum())
            masks = np.concatenate([masks, masks[(masks & rivals) == 0] | 1 << k])
    return masks


def additive_totals(problem: ValueProblem, masks: Ints) -> Floats:
    """Return the totals of sets without competitors under additive values; −∞ if not admissible."""
    found = np.full(len(masks), -np.inf)
    _, weights = problem.values.linear_bounds(np.zeros((problem.n, problem.n)))
    for start in range(0, len(masks), BLOCK):
        columns: Bools = as_columns(masks[start : start + BLOCK], problem.n)
        gains = problem.values.gains(columns)
        given = columns.astype(np.float64) @ weights.T
        fine = problem.likely(columns, gains).all(axis=1)
        fine &= ((given > problem.least) | ~columns).all(axis=1)
        fine &= columns.sum(axis=1) >= max(problem.fewest_members, 2)
        part = found[start : start + BLOCK]
        part[fine] = gains[fine].sum(axis=1)
    return found
