"""The best partition of a few participants, by dynamic programming over all subsets.

Sets are bitmasks. With v(S) the value of a valid coalition, the best value of a set T is

    best(T) = max(best(T − {i}), max over valid S ⊆ T with i ∈ S of v(S) + best(T − S)),

where i is the highest participant in T: it is alone or in one of the coalitions, and the rest is a
smaller set. Nothing is compiled, so small consortia are solved in milliseconds from the start.
"""

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.coalitions.contraction import rows_as_bitsets
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.exact.set_partitioning import choose, rows_of
from fedegoists.coalitions.exact.solvers import has_solver

SMALL = 14
"""With more participants column generation is faster; each further one triples the work."""

BLOCK = 1024
"""Sets that are handled at once; larger tables would not fit the processor's cache."""

SECONDS_PER_PAIR = 2e-8
"""Work of a set with a subset of it; there are 3 to the power n of them."""

SECONDS_PER_LISTED = 2e-4
"""The longest time that setting up a choice takes, per coalition."""

ROUNDING = 5e-16
"""Sums of k positive numbers are off by less than k times this fraction."""

TIED = 1e-11
"""A coalition may be in a best partition if the best value with it is lower by no more than this
fraction."""


def is_small(n: int) -> bool:
    """Whether n participants are few enough to list all their coalitions."""
    return n <= SMALL


def valid_coalitions(edges: Bools, competition: Bools, fewest_members: int = 1) -> Ints:
    """Return every set of two or more that satisfies both principles, as bitmasks.

    Sets with fewer members than demanded are left out.

    Examples
    --------
    0 and 1 benefit each other, 1 and 2 too, but 0 and 2 compete:

    >>> edges = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> rivals = np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)
    >>> [bin(mask) for mask in valid_coalitions(edges, rivals)]
    ['0b11', '0b110']
    """
    masks = np.arange(1, 1 << len(edges), dtype=np.int64)
    rows = map(rows_as_bitsets, (competition, edges.T, edges))
    for i, (rivals, givers, takers) in enumerate(zip(*rows, strict=True)):
        # Principle 2, then the two sums of Equation 1, for member i.
        fine = ((masks & rivals) == 0) & ((masks & givers) != 0) & ((masks & takers) != 0)
        masks = masks[fine | ((masks >> i & 1) == 0)]
    if fewest_members > 2:
        masks = masks[as_columns(masks, len(edges)).sum(axis=1) >= fewest_members]
    return masks


def as_columns(masks: Ints, n: int) -> Bools:
    """Return sets as rows of a boolean matrix."""
    return np.asarray(masks[:, None] >> np.arange(n) & 1, dtype=np.bool_)


class Enumeration:
    """Improves an incumbent to the optimum, unless the effort is spent before.

    Parameters
    ----------
    masks : array of int
        All valid coalitions.
    """

    def __init__(
        self, problem: Subproblem, masks: Ints, incumbent: Incumbent, effort: Effort
    ) -> None:
        self._problem = problem
        self._masks = masks
        self._columns = as_columns(masks, problem.n)
        members = self._columns.astype(np.float64)
        values = (members @ problem.weights + problem.bonus) * members
        self._values: Floats = values.sum(axis=1)
        self._incumbent = incumbent
        self._effort = effort

    def run(self) -> None:
        """Find a best partition and, if asked, one that moves few participants."""
        n, keep, incumbent = self._problem.n, self._problem.keep, self._incumbent
        if incumbent.optimal and not keep:
            return
        best = np.zeros(1)
        # The last step, which takes half of all time, is needed for the full set only.
        for i in range(n - 1):
            if self._effort.over:
                return
            best = self._joined_by(i, best)
        self._effort.spend(3 ** (n - 1) * SECONDS_PER_PAIR)
        partition = self._partition(best)
        incumbent.offer(partition)
        incumbent.close()
        if keep and has_solver() and not self._effort.over:
            self._move_few(self._joined_by(n - 1, best))

    def _joined_by(self, i: int, best: Floats) -> Floats:
        """Return the best value of all sets of participants up to i, from those below i."""
        last = (self._masks >> i) == 1
        if not last.any():
            return np.concatenate([best, best])
        value = np.full(1 << i, -np.inf)
        value[self._masks[last] ^ (1 << i)] = self._values[last]
        return np.concatenate([best, np.maximum(best, divided(value, best))])

    def _partition(self, best: Floats) -> list[list[int]]:
        """Return a best partition, from the best values of all sets without the last."""
        n = self._problem.n
        left = (1 << n) - 1
        groups = []
        for i in reversed(range(n)):
            if not left >> i & 1:
                continue
            group = 1 << i
            fits = ((self._masks >> i) == 1) & ((self._masks & ~left) == 0)
            masks, values = self._masks[fits], self._values[fits] + best[left ^ self._masks[fits]]
            if values.max(initial=0.0) > best[left ^ group]:
                group = int(masks[values.argmax()])
            groups.append([k for k in range(n) if group >> k & 1])
            left ^= group
        return sorted(groups)

    def _move_few(self, best: Floats) -> None:
        """Choose among the best partitions one that is close to the one to keep."""
        whole = (1 << self._problem.n) - 1
        highest = self._values + best[whole ^ self._masks]
        tied = np.flatnonzero(highest >= best[-1] * (1 - TIED))
        used = rows_of(self._incumbent.partition, self._columns[tied])
        # Without another best partition there is no choice; with many, there may be no time for it.
        if len(tied) == len(used) or self._effort.lacks(len(tied) * SECONDS_PER_LISTED):
            return
        choice = choose(
            self._columns[tied],
            self._values[tied],
            at_most=self._incumbent.upper_bound,
            deadline=self._effort.deadline,
            work=max(self._effort.left, 0.01),
            seed=self._problem.seed,
            start=self._incumbent.partition,
            keep=self._problem.keep,
        )
        self._effort.clock_ended |= choice.clock_ended
        self._incumbent.offer(choice.partition, prefer=choice.optimal)


def divided(one: Floats, other: Floats) -> Floats:
    """Return for each set the highest sum over its divisions into two: one's value and the other's.

    Examples
    --------
    >>> divided(np.array([0.0, 5.0, 1.0, 7.0]), np.array([0.0, 2.0, 4.0, 5.0])).tolist()
    [0.0, 5.0, 4.0, 9.0]
    """
    # The highest participant is in neither part, in the first, or in the second: three problems of
    # half the size. Large tables are divided one after the other, small ones all at once.
    if len(one) > BLOCK:
        half = len(one) // 2
        (low, high), (low_other, high_other) = np.split(one, 2), np.split(other, 2)
        parts = [(low, low_other), (high, low_other), (low, high_other)]
        nothing = np.full(half, -np.inf)
        absent, first, second = (divided(a, b) if a.max() > -np.inf else nothing for a, b in parts)
        return np.concatenate([absent, np.maximum(first, second)])
    one, other = one[None], other[None]
    while one.shape[1] > 1:
        half = one.shape[1] // 2
        one = np.concatenate([one[:, :half], one[:, half:], one[:, :half]])
        other = np.concatenate([other[:, :half], other[:, :half], other[:, half:]])
    total = one + other
    while len(total) > 1:
        absent, first, second = np.split(total, 3)
        total = np.concatenate([absent, np.maximum(first, second)], axis=1)
    return np.asarray(total[0], dtype=np.float64)
