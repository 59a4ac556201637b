"""The best partition of a few participants: all coalitions are listed, and nothing is compiled.

Sets are bitmasks. The best value of every set is derived from those of smaller sets: whoever has
the highest number in it is alone, or in a coalition with some of the rest, and what then remains is
a smaller set.
"""

from collections.abc import Sequence

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.coalitions.contraction import rows_as_bitsets
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.incumbent import Standing
from fedegoists.coalitions.exact.set_partitioning import choose

__all__ = ["Enumeration", "as_columns", "is_small", "valid_coalitions"]


SMALL = 14
"""With more participants than this column generation is faster; each one triples the work."""

BLOCK = 1024
"""Sets that are handled at once; larger tables would leave the processor's cache."""

SECONDS_PER_PAIR = 2e-8
"""What a set with a part of it counts as work; there are 3 to the power n of them."""

SECONDS_PER_LISTED = 2e-4
"""How long setting up a choice takes for each coalition, at most."""

ROUNDING = 5e-16
"""Sums of k positive numbers are off by less than k times this part of them."""

TIED = 1e-11
"""A coalition may be in a best partition if the rest makes up for it up to this part."""


def is_small(n: int) -> bool:
    """Whether n participants are few enough to list all their coalitions."""
    return n <= SMALL


def valid_coalitions(edges: Bools, competition: Bools) -> Ints:
    """Return every set of two or more that satisfies both principles, as bitmasks.

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
        fine = ((masks & rivals) == 0) & ((masks & givers) != 0) & ((masks & takers) != 0)
        masks = masks[fine | ((masks >> i & 1) == 0)]
    return masks


def as_columns(masks: Ints, n: int) -> Bools:
    """Return sets as rows of a boolean matrix."""
    return np.asarray(masks[:, None] >> np.arange(n) & 1, dtype=np.bool_)


class Enumeration:
    """Improves a standing to the optimum, unless the effort is spent before.

    Parameters
    ----------
    masks : array of int
        All valid coalitions.
    bonus : float
        What each member of a coalition counts in addition to the benefits.
    keep : partition
        Among equally good partitions prefer one that moves few away from this one.
    """

    def __init__(
        self,
        weights: Floats,
        masks: Ints,
        standing: Standing,
        effort: Effort,
        *,
        seed: int,
        bonus: float = 0.0,
        keep: Sequence[Sequence[int]] = (),
    ) -> None:
        self._n = len(weights)
        self._masks = masks
        self._columns = as_columns(masks, self._n)
        members = self._columns.astype(np.float64)
        self._values: Floats = ((members @ weights + bonus) * members).sum(axis=1)
        self._standing = standing
        self._effort = effort
        self._seed = seed
        self._keep = keep

    def run(self) -> None:
        """Find a best partition, and if asked one that moves few."""
        if self._standing.optimal and not self._keep:
            return
        best = np.zeros(1)
        for i in range(self._n - 1):
            if self._effort.over:
                return
            best = self._joined_by(i, best)
        self._effort.spend(3 ** (self._n - 1) * SECONDS_PER_PAIR)
        partition = self._partition(best)
        self._standing.offer(partition)
        value = self._standing.valued(partition)
        self._standing.bound(value * (1 + self._n**2 * ROUNDING))
        if self._keep and not self._effort.over:
            self._move_few(self._joined_by(self._n - 1, best))

    def _joined_by(self, i: int, best: Floats) -> Floats:
        """Return the best value of all sets of numbers up to i, from those of numbers below i."""
        last = (self._masks >> i) == 1
        if not last.any():
            return np.concatenate([best, best])
        value = np.full(1 << i, -np.inf)
        value[self._masks[last] ^ (1 << i)] = self._values[last]
        return np.concatenate([best, np.maximum(best, _divided(value, best))])

    def _partition(self, best: Floats) -> list[list[int]]:
        """Return a best partition of everybody, from the best values of sets without the last."""
        left = (1 << self._n) - 1
        groups = []
        for i in reversed(range(self._n)):
            if not left >> i & 1:
                continue
            group = 1 << i
            fits = ((self._masks >> i) == 1) & ((self._masks & ~left) == 0)
            masks, values = self._masks[fits], self._values[fits] + best[left ^ self._masks[fits]]
            if values.max(initial=0.0) > best[left ^ group]:
                group = int(masks[values.argmax()])
            groups.append([k for k in range(self._n) if group >> k & 1])
            left ^= group
        return sorted(groups)

    def _move_few(self, best: Floats) -> None:
        """Choose among the best partitions one that is close to the one to keep."""
        whole = (1 << self._n) - 1
        highest = self._values + best[whole ^ self._masks]
        tied = np.flatnonzero(highest >= best[-1] * (1 - TIED))
        own = {tuple(group) for group in self._standing.partition if len(group) > 1}
        columns = self._columns[tied]
        hint = [k for k, c in enumerate(columns) if tuple(np.flatnonzero(c).tolist()) in own]
        # Without another best partition there is no choice; with many, there may be no time for it.
        if len(tied) == len(hint) or self._effort.lacks(len(tied) * SECONDS_PER_LISTED):
            return
        choice = choose(
            columns,
            self._values[tied],
            at_most=self._standing.upper_bound,
            deadline=self._effort.deadline,
            work=max(self._effort.left, 0.01),
            seed=self._seed,
            hint=hint,
            keep=self._keep,
        )
        self._effort.clock_ended |= choice.clock_ended
        groups = [np.flatnonzero(columns[k]).tolist() for k in choice.chosen]
        alone = set(range(self._n)).difference(*groups)
        self._standing.offer(sorted([*groups, *([i] for i in alone)]), prefer=choice.optimal)


def _divided(one: Floats, other: Floats) -> Floats:
    """Return for each set the highest sum over its divisions into two: one's value and the other's.

    Examples
    --------
    >>> _divided(np.array([0.0, 5.0, 1.0, 7.0]), np.array([0.0, 2.0, 4.0, 5.0])).tolist()
    [0.0, 5.0, 4.0, 9.0]
    """
    if len(one) > BLOCK:
        half = len(one) // 2
        (low, high), (low_other, high_other) = np.split(one, 2), np.split(other, 2)
        parts = [(low, low_other), (high, low_other), (low, high_other)]
        # Whoever has the highest number is in neither part, in the first, or in the second.
        nothing = np.full(half, -np.inf)
        absent, first, second = (_divided(a, b) if a.max() > -np.inf else nothing for a, b in parts)
        return np.concatenate([absent, np.maximum(first, second)])
    one, other = one[None], other[None]
    while one.shape[1] > 1:  # the same for all numbers at once
        half = one.shape[1] // 2
        one = np.concatenate([one[:, :half], one[:, half:], one[:, :half]])
        other = np.concatenate([other[:, :half], other[:, :half], other[:, half:]])
    total = one + other
    while len(total) > 1:
        absent, first, second = np.split(total, 3)
        total = np.concatenate([absent, np.maximum(first, second)], axis=1)
    return np.asarray(total[0], dtype=np.float64)
