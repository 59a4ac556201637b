"""Reduction: participants that are alone in any case, and components to be solved separately."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Partition
from fedegoists.graphs.participant_graph import Entries, Scalar


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


@dataclass(frozen=True)
class SparseSubproblem:
    """The participants of a large component, as lists of links."""

    weights: Entries[np.float64]  # benefits between independents, also those rounded to zero
    competition: Entries[np.bool_]
    seed: int = 0
    fewest_members: int = 1


def restricted(partition: Partition, component: Sequence[int]) -> list[list[int]]:
    """Return a partition's groups inside a component, as positions in the component."""
    position = {i: k for k, i in enumerate(component)}
    groups = [[position[i] for i in group if i in position] for group in partition]
    return [group for group in groups if group]


def components(
    weights: Entries[np.float64], competition: Entries[np.bool_], fewest_members: int = 1
) -> list[list[int]]:
    """Return the sets of participants that have to be solved together, smallest first.

    A participant without a giver or without a taker among its independents is alone in every valid
    partition; it is dropped, which may deprive others of their last giver or taker. The rest is
    split into components linked by benefits between independents: a coalition that spans two
    components could be split between them without loss.

    Where at least k members are demanded, a participant with fewer than k − 1 independents is alone
    as well. A coalition cannot always be split then, as its parts may be too small. But its members
    are pairwise independent, so the components are linked by independence instead.
    """
    n = weights.n
    givers, takers = (ends[_usable(weights, competition)] for ends in weights[:2])
    alive = np.ones(n, dtype=np.bool_)
    while True:
        inside = alive[givers] & alive[takers]
        supported = np.zeros(n, dtype=np.bool_)
        supported[givers[inside]] = True
        receiving = np.zeros(n, dtype=np.bool_)
        receiving[takers[inside]] = True
        supported &= receiving
        if fewest_members > 2:
            rivals = np.bincount(competition.rows[alive[competition.columns]], minlength=n)
            supported &= alive.sum() - rivals >= fewest_members  # independents, and itself
        if (supported == alive).all():
            break
        alive = supported
    if fewest_members > 2:
        found = _independent_components(competition, alive)
    else:
        inside = alive[givers] & alive[takers]
        found = _linked_components(givers[inside], takers[inside], alive)
    return sorted(found, key=lambda component: (len(component), component))


def _usable(weights: Entries[np.float64], competition: Entries[np.bool_]) -> Bools:
    """Return which entries of the weights are positive and between independents."""
    n = weights.n
    between = np.isin(
        weights.rows * n + weights.columns, competition.rows * n + competition.columns
    )
    return np.asarray((weights.values > 0) & ~between)


def _linked_components(one: Ints, other: Ints, alive: Bools) -> list[list[int]]:
    """Return the components of a graph, given by the ends of its links."""
    neighbours: dict[int, set[int]] = {i: set() for i in np.flatnonzero(alive).tolist()}
    for a, b in zip(one.tolist(), other.tolist(), strict=True):
        neighbours[a].add(b)
        neighbours[b].add(a)
    return _walked(set(neighbours), lambda i, left: neighbours[i] & left)


def _independent_components(competition: Entries[np.bool_], alive: Bools) -> list[list[int]]:
    """Return the components of the graph that links participants that do not compete."""
    starts, columns = competition.starts.tolist(), competition.columns.tolist()
    left = set(np.flatnonzero(alive).tolist())
    return _walked(left, lambda i, left: left.difference(columns[starts[i] : starts[i + 1]]))


def _walked(left: set[int], neighbours: Callable[[int, set[int]], set[int]]) -> list[list[int]]:
    """Return the components that a walk finds; `neighbours` are those among the unvisited."""
    found = []
    while left:
        frontier = [min(left)]
        left.discard(frontier[0])
        for i in frontier:  # grows while it is walked: breadth first
            new = neighbours(i, left)
            left -= new
            frontier += sorted(new)
        found.append(sorted(frontier))
    return found


def restricted_entries(entries: Entries[Scalar], members: Sequence[int]) -> Entries[Scalar]:
    """Return the entries among some participants, as positions among these in ascending order."""
    position = np.full(entries.n, -1, dtype=np.int64)
    position[list(members)] = np.arange(len(members))
    rows, columns = position[entries.rows], position[entries.columns]
    inside = (rows >= 0) & (columns >= 0)
    return Entries(rows[inside], columns[inside], entries.values[inside], len(members))


def usable_entries(
    weights: Entries[np.float64], competition: Entries[np.bool_]
) -> Entries[np.float64]:
    """Return the positive weights between independents."""
    usable = _usable(weights, competition)
    ends = weights.rows[usable], weights.columns[usable]
    return Entries(*ends, weights.values[usable], weights.n)
