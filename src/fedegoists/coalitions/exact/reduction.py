"""Reduction: participants that are alone in any case, and components to be solved separately."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Partition


@dataclass(frozen=True)
class Subproblem:
    """The participants of one component, and what makes a partition of them good."""

    weights: Floats  # benefits; zero between competitors
    edges: Bools  # benefit edges, also where a positive weight was rounded to zero
    competition: Bools
    seed: int = 0
    bonus: float = 0.0  # added to the value of a coalition for each member
    keep: Partition = ()  # of equally good partitions prefer one that moves few away from this
    fewest_members: int = 1  # of a coalition of two or more

    @property
    def n(self) -> int:
        """The number of participants."""
        return len(self.weights)

    @cached_property
    def pair_values(self) -> Floats:
        """The value of each pair: what the two give each other; zero between competitors."""
        values = np.where(self.competition, 0.0, self.weights + self.weights.T)
        return np.ascontiguousarray(values)


def restricted(partition: Partition, component: Sequence[int]) -> list[list[int]]:
    """Return a partition's groups inside a component, as positions in the component."""
    position = {i: k for k, i in enumerate(component)}
    groups = [[position[i] for i in group if i in position] for group in partition]
    return [group for group in groups if group]


def components(weights: Floats, competition: Bools, fewest_members: int = 1) -> list[list[int]]:
    """Return the sets of participants that have to be solved together, smallest first.

    A participant without a giver or without a taker among its independents is alone in every valid
    partition; it is dropped, which may deprive others of their last giver or taker. The rest is
    split into components linked by benefits between independents: a coalition that spans two
    components could be split between them without loss.

    Where at least k members are demanded, a participant with fewer than k − 1 independents is alone
    as well. A coalition cannot always be split then, as its parts may be too small. But its members
    are pairwise independent, so the components are linked by independence instead.
    """
    useful = (weights > 0) & ~competition
    alive = np.ones(len(weights), dtype=bool)
    independent = ~competition  # everybody of itself, too
    while True:
        supported = alive & useful[:, alive].any(axis=1) & useful[alive, :].any(axis=0)
        if fewest_members > 2:
            supported &= independent[:, alive].sum(axis=1) >= fewest_members
        if (supported == alive).all():
            break
        alive = supported
    linked = independent if fewest_members > 2 else useful | useful.T
    left = set(np.flatnonzero(alive).tolist())
    found = []
    while left:
        frontier = [min(left)]
        left.discard(frontier[0])
        for i in frontier:  # grows while it is walked: breadth first
            new = left.intersection(np.flatnonzero(linked[i]).tolist())
            left -= new
            frontier += sorted(new)
        found.append(sorted(frontier))
    return sorted(found, key=lambda component: (len(component), component))
