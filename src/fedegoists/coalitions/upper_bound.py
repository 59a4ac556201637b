"""A quick upper bound on the welfare of any valid partition."""

import math

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.graphs.participant_graph import Entries


def quick_upper_bound(weights: Floats, competition: Bools, fewest_members: int = 1) -> float:
    """Return an upper bound on the welfare of any valid partition, in a millisecond."""
    return sparse_upper_bound(Entries.of(weights), Entries.of(competition), fewest_members)


def sparse_upper_bound(
    weights: Entries[np.float64], competition: Entries[np.bool_], fewest_members: int = 1
) -> float:
    """Return an upper bound on the welfare of any valid partition, from the links alone.

    Participants are grouped so that all in a group compete. The coalition of i holds at most one
    of each group, so i receives at most the largest benefit from each group, and gives at most the
    largest benefit to each. The same holds for the mutual benefit of pairs, which counts every
    benefit twice. The smallest of the three sums is returned.

    Where at least k members are demanded, a participant with independents in fewer than k − 1
    groups besides its own is alone, and receives and gives nothing.
    """
    n = weights.n
    group = _group_of(competition)
    givers, takers, values = weights.rows, weights.columns, weights.values
    usable = ~np.isin(givers * n + takers, competition.rows * n + competition.columns)
    if fewest_members > 2:
        alone = _groups_with_partners(competition, group) < fewest_members
        usable &= ~(alone[givers] | alone[takers])
    givers, takers, values = givers[usable], takers[usable], values[usable]
    # What the two of a pair give each other, once by either of them.
    pairs = np.concatenate((givers * n + takers, takers * n + givers))
    pairs, number = np.unique(pairs, return_inverse=True)
    mutual = np.zeros(len(pairs))
    np.add.at(mutual, number, np.concatenate((values, values)))
    bounds = (
        _sum_of_largest(takers, group[givers], values),
        _sum_of_largest(givers, group[takers], values),
        _sum_of_largest(pairs // max(n, 1), group[pairs % max(n, 1)], mutual) / 2,
    )
    return min(bounds) * (1 + 1e-12)  # the sums of maxima above are rounded


def _sum_of_largest(participant: Ints, group: Ints, value: Floats) -> float:
    """Return the sum, over participants and groups, of the largest value of each."""
    if not len(value):
        return 0.0
    order = np.lexsort((group, participant))
    participant, group, value = participant[order], group[order], value[order]
    new = np.flatnonzero(np.diff(participant, prepend=-1) | np.diff(group, prepend=-1))
    return math.fsum(np.maximum.reduceat(value, new).tolist())


def _groups_with_partners(competition: Entries[np.bool_], group: Ints) -> Ints:
    """Return in how many groups each participant has an independent; it is one of its own."""
    sizes = np.bincount(group)
    pairs, rivals = np.unique(
        competition.rows * len(sizes) + group[competition.columns], return_counts=True
    )
    full = rivals == sizes[pairs % len(sizes)]  # groups whose members are all rivals
    closed = np.bincount(pairs[full] // len(sizes), minlength=competition.n)
    return np.asarray(len(sizes) - closed)


def competing_groups(competition: Bools) -> list[list[int]]:
    """Group participants so that all in a group compete; a coalition has at most one of each."""
    group = _group_of(Entries.of(competition))
    members: list[list[int]] = [[] for _ in range(int(group.max(initial=-1)) + 1)]
    for i, own in enumerate(group.tolist()):
        members[own].append(i)
    return members


def _group_of(competition: Entries[np.bool_]) -> Ints:
    """Return the group of each participant, such that all in a group compete.

    A greedy colouring, participants with most competitors first: fewer groups, a lower bound.
    """
    starts, columns = competition.starts.tolist(), competition.columns.tolist()
    group = [-1] * competition.n
    sizes: list[int] = []
    degrees = np.diff(competition.starts)
    for i in np.argsort(-degrees, kind="stable").tolist():
        rivals: dict[int, int] = {}
        for k in columns[starts[i] : starts[i + 1]]:
            if group[k] >= 0:
                rivals[group[k]] = rivals.get(group[k], 0) + 1
        own = min((g for g, count in rivals.items() if count == sizes[g]), default=len(sizes))
        if own == len(sizes):
            sizes.append(0)
        sizes[own] += 1
        group[i] = own
    return np.asarray(group, dtype=np.int64)
