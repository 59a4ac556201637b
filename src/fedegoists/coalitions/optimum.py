"""The partition of highest welfare that satisfies both principles, with an upper bound.

Merge-stability, the paper's notion of optimal, is weak: merging greedily leaves welfare behind. A
partition of maximum welfare is always merge-stable too, because a merge with gain would raise its
welfare.

First the problem is split: participants that can be in no coalition are left out, and what remains
falls into components that cannot gain from one another. Each component is searched, and solved
exactly where the solver finishes in time.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.contraction import bits, rows_as_bitsets
from fedegoists.coalitions.local_search import improve
from fedegoists.coalitions.pair_model import solve_pairs

__all__ = ["Optimum", "best_partition", "quick_upper_bound", "welfare_of"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

EXACT_ALONE_UP_TO = 14
"""Components up to this size are solved without a search before: the solver needs milliseconds."""

EXACT_UP_TO = 32
"""Larger components are searched only: the pair model rarely finishes on them."""

CELLS_PER_SECOND = 6_000_000
"""How much local search is worth a second: a constant that suits slow machines, not a measurement,
so that the same seed gives the same result."""


@dataclass(frozen=True)
class Optimum:
    """A partition of positions, an upper bound on any welfare, and whether the two meet."""

    partition: list[list[int]]
    upper_bound: float
    optimal: bool
    clock_ended: bool = False
    """Whether time rather than the amount of work ended it, so that another run may differ."""


def welfare_of(weights: Floats, partition: Sequence[Sequence[int]]) -> float:
    """Return the sum of the benefits inside the coalitions, rounded once."""
    return math.fsum(
        weight
        for group in partition
        if len(group) > 1
        for weight in weights[np.ix_(group, group)].ravel().tolist()
    )


def best_partition(
    weights: Floats,
    competition: Bools,
    starts: Sequence[Sequence[Sequence[int]]],
    *,
    seconds: float,
    deadline: float,
    seed: int,
    keep: Sequence[Sequence[int]] = (),
) -> Optimum:
    """Return the best partition found with a given amount of work.

    Parameters
    ----------
    seconds : float
        How many seconds of a slow machine's work to do. The same work and seed give the same
        result.
    deadline : float
        When to stop in any case, by `time.perf_counter`.
    starts : sequence of partitions
        Partitions that satisfy both principles; the result is at least as good as each of them.
    keep : partition, optional
        Among equally good partitions prefer one that moves few participants away from this one.
    """
    components = _components(weights, competition)
    size = sum(len(component) ** 2 for component in components)
    result = [[i] for i in sorted(set(range(len(weights))).difference(*components))]
    bound = 0.0
    optimal = True
    clock_ended = False
    for component in components:
        inside = np.ix_(component, component)
        w, c = weights[inside], competition[inside]
        part = _best_of_component(
            w,
            c,
            max((_restricted(start, component) for start in starts), key=partial(welfare_of, w)),
            seconds=seconds * len(component) ** 2 / size,
            deadline=deadline,
            seed=seed,
            keep=_restricted(keep, component),
        )
        optimal &= part.optimal
        clock_ended |= part.clock_ended
        bound += part.upper_bound
        result += [[component[i] for i in group] for group in part.partition]
    return Optimum(sorted(result), bound, optimal, clock_ended)


def _best_of_component(
    weights: Floats,
    competition: Bools,
    best: list[list[int]],
    *,
    seconds: float,
    deadline: float,
    seed: int,
    keep: list[list[int]],
) -> Optimum:
    """Improve a partition by search, then by the exact solver where the component is small enough.

    The work is measured out in moves and solver steps worth `seconds`; the clock only guards the
    deadline.
    """
    n = len(weights)
    exact = n <= EXACT_UP_TO
    clock_ended = False
    if n > EXACT_ALONE_UP_TO:
        moves = seconds * CELLS_PER_SECOND / (n * (len(best) + 60))
        found, clock_ended = improve(
            weights,
            competition,
            best,
            moves=1 + int(min(moves * 0.3, 20 * n) if exact else moves),
            rng=np.random.default_rng(seed),
            out_of_time=lambda: time.perf_counter() > deadline,
        )
        # The search adds up differences; what it found is valued anew.
        best = max(best, found, key=partial(welfare_of, weights))
    welfare = welfare_of(weights, best)
    upper = quick_upper_bound(weights, competition)
    left = deadline - time.perf_counter()
    if not exact or (left <= 0 and n > EXACT_ALONE_UP_TO):
        return Optimum(best, max(upper, welfare), False, clock_ended or exact)
    solution = solve_pairs(
        weights,
        competition,
        seconds=max(left, 0.05),
        work=seconds * 0.15,
        seed=seed,
        hint=best,
        keep=keep,
    )
    if solution.partition is not None:
        reached = welfare_of(weights, solution.partition)
        # Of equally good ones the solver's comes second, so that ties do not depend on the solver;
        # unless it was asked to keep people in place, where its welfare may differ by rounding.
        if reached >= welfare * (1 - 1e-12) if keep else reached > welfare:
            best, welfare = solution.partition, reached
    if solution.optimal:
        return Optimum(best, welfare, True)
    clock_ended |= solution.clock_ended
    return Optimum(best, max(min(upper, solution.upper_bound), welfare), False, clock_ended)


def _restricted(partition: Sequence[Sequence[int]], component: Sequence[int]) -> list[list[int]]:
    """Return a partition's groups inside a component, as positions in the component."""
    position = {i: k for k, i in enumerate(component)}
    groups = [[position[i] for i in group if i in position] for group in partition]
    return [group for group in groups if group]


def _components(weights: Floats, competition: Bools) -> list[list[int]]:
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
    components = []
    while left:
        frontier = [min(left)]
        left.discard(frontier[0])
        for i in frontier:
            new = left.intersection(np.flatnonzero(linked[i]).tolist())
            left -= new
            frontier += sorted(new)
        components.append(sorted(frontier))
    return sorted(components, key=lambda component: (len(component), component))


def quick_upper_bound(weights: Floats, competition: Bools) -> float:
    """Return a number that no valid partition's welfare exceeds, in a millisecond.

    Participants are grouped so that all in a group compete. Whatever coalition i is in, it holds at
    most one of each group, so i receives at most the largest benefit from each group, and gives at
    most the largest to each. The same holds for what i gives and receives together, which counts
    every pair twice.
    """
    n = len(weights)
    usable = np.where(competition, 0.0, weights)
    rivals = rows_as_bitsets(competition)
    groups: list[int] = []
    for i in np.argsort(-competition.sum(axis=1), kind="stable").tolist():
        for number, members in enumerate(groups):
            if not members & ~rivals[i]:
                groups[number] |= 1 << i
                break
        else:
            groups.append(1 << i)
    received = np.zeros(n)
    given = np.zeros(n)
    both = np.zeros(n)
    mutual = usable + usable.T
    for members in groups:
        group = list(bits(members))
        received += usable[group, :].max(axis=0)
        given += usable[:, group].max(axis=1)
        both += mutual[group, :].max(axis=0)
    bounds = (math.fsum(received), math.fsum(given), math.fsum(both) / 2)
    return min(bounds) * (1 + 1e-12)
