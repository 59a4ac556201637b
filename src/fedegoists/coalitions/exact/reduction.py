"""What need not be searched: who is alone in any case, and who has nothing to do with whom."""

from collections.abc import Sequence

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats

__all__ = ["components", "restricted"]


def restricted(partition: Sequence[Sequence[int]], component: Sequence[int]) -> list[list[int]]:
    """Return a partition's groups inside a component, as positions in the component."""
    position = {i: k for k, i in enumerate(component)}
    groups = [[position[i] for i in group if i in position] for group in partition]
    return [group for group in groups if group]


def components(weights: Floats, competition: Bools) -> list[list[int]]:
    """Return the sets of participants that have to be looked at together, smallest first.

    Whoever has no giver or no taker among its independents, not counting others who drop out for
    that reason, is alone in every valid partition. The rest is split by "independent, and one
    benefits the other": a coalition that spans two parts can be split between them without loss.
    """
    useful = (weights > 0) & ~competition
    alive = np.ones(len(weights), dtype=bool)
    while True:
        supported = alive & useful[:, alive].any(axis=1) & useful[alive, :].any(axis=0)
        if (supported == alive).all():
            break
        alive = supported
    linked = useful | useful.T
    left = set(np.flatnonzero(alive).tolist())
    found = []
    while left:
        frontier = [min(left)]
        left.discard(frontier[0])
        for i in frontier:
            new = left.intersection(np.flatnonzero(linked[i]).tolist())
            left -= new
            frontier += sorted(new)
        found.append(sorted(frontier))
    return sorted(found, key=lambda component: (len(component), component))
