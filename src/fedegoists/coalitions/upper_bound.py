"""A quick upper bound on the welfare of any valid partition."""

import math

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats
from fedegoists.coalitions.contraction import bits, rows_as_bitsets


def quick_upper_bound(weights: Floats, competition: Bools, fewest_members: int = 1) -> float:
    """Return an upper bound on the welfare of any valid partition, in a millisecond.

    Participants are grouped so that all in a group compete. The coalition of i holds at most one
    of each group, so i receives at most the largest benefit from each group, and gives at most the
    largest benefit to each. The same holds for the mutual benefit of pairs, which counts every
    benefit twice. The smallest of the three sums is returned.

    Where at least k members are demanded, a participant with independents in fewer than k − 1
    groups besides its own is alone, and receives and gives nothing.
    """
    n = len(weights)
    usable = np.where(competition, 0.0, weights)
    groups = competing_groups(competition)
    if fewest_members > 2:
        partners = np.zeros(n, dtype=np.int64)
        for group in groups:
            partners += (~competition[group, :]).any(axis=0)
        alone = partners < fewest_members  # its own group counts once, for itself
        usable[alone, :] = usable[:, alone] = 0.0
    received = np.zeros(n)
    given = np.zeros(n)
    both = np.zeros(n)
    mutual = usable + usable.T
    for group in groups:
        received += usable[group, :].max(axis=0)
        given += usable[:, group].max(axis=1)
        both += mutual[group, :].max(axis=0)
    bounds = (math.fsum(received), math.fsum(given), math.fsum(both) / 2)
    return min(bounds) * (1 + 1e-12)  # the sums of maxima above are rounded


def competing_groups(competition: Bools) -> list[list[int]]:
    """Group participants so that all in a group compete; a coalition has at most one of each.

    A greedy colouring, participants with most competitors first: fewer groups, a lower bound.
    """
    rivals = rows_as_bitsets(competition)
    groups: list[int] = []
    for i in np.argsort(-competition.sum(axis=1), kind="stable").tolist():
        for number, members in enumerate(groups):
            if not members & ~rivals[i]:
                groups[number] |= 1 << i
                break
        else:
            groups.append(1 << i)
    return [list(bits(members)) for members in groups]
