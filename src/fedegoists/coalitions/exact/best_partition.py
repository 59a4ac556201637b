"""The partition of highest welfare that satisfies both principles, with an upper bound.

Merge-stability, the paper's notion of optimal, is weak: merging greedily leaves welfare behind. A
partition of maximum welfare is always merge-stable too, because a merge with gain would raise its
welfare.

First the problem is split: participants that can be in no coalition are left out, and what remains
falls into components that cannot gain from one another. Small components are solved by
`enumeration`, others by `generation`, whose searches are compiled and loaded only then.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.enumeration import (
    Enumeration,
    as_columns,
    is_small,
    valid_coalitions,
)
from fedegoists.coalitions.exact.incumbent import TOLERANCE, Standing, together
from fedegoists.coalitions.exact.reduction import components, restricted
from fedegoists.coalitions.exact.solvers import load_solver
from fedegoists.coalitions.upper_bound import quick_upper_bound
from fedegoists.coalitions.welfare import welfare

__all__ = [
    "Optimum",
    "best_partition",
    "load_searches",
    "prepare",
]


logger = logging.getLogger(__name__)

LARGEST = 1000
"""Larger components keep the best of their starts: the tables of the search would not fit."""


def prepare(weights: Floats, competition: Bools) -> None:
    """Load the solvers and the compiled searches, if a component is too large to do without.

    That takes about a second in each process, and up to a minute the first time in an installation,
    as the log says.
    """
    if not all(is_small(len(component)) for component in components(weights, competition)):
        load_searches()


@cache
def load_searches() -> None:
    """Load the solvers, and compile the searches unless that was done before.

    Call it once after an installation, or when a service starts, and the first formation of more
    than a few participants need not wait for it.
    """
    load_solver()
    logger.info("loading the search")
    from fedegoists.coalitions.exact.annealing import Annealing
    from fedegoists.coalitions.exact.compiled import must_compile
    from fedegoists.coalitions.exact.pricing import Pricing

    if must_compile():
        logger.warning(
            "compiling the search, half a minute of work that is not part of any time limit; "
            "it is kept for this installation where its folder or the user's cache can be written"
        )
    ring = np.roll(np.eye(4), 1, axis=1)
    nobody = np.zeros((4, 4), dtype=np.bool_)
    effort = Effort(1.0)
    Annealing(ring, ring > 0, nobody, [[0, 1, 2, 3]], 0).run(10, effort)
    pricing = Pricing(ring, ring > 0, nobody, effort)
    pricing.set_prices(np.zeros(4), [(0, 1, 2)], np.ones(1))
    pricing.best(0, 1000)
    logger.info("the search is loaded")


@dataclass(frozen=True)
class Optimum:
    """A partition of positions, an upper bound on any value, and whether the two meet.

    `clock_ended` tells that time rather than work ended it, so that another run may differ;
    `unspent` is how much of the work was not needed.
    """

    partition: list[list[int]]
    upper_bound: float
    optimal: bool
    clock_ended: bool = False
    interrupted: bool = False
    unspent: float = 0.0


def best_partition(
    weights: Floats,
    competition: Bools,
    starts: Sequence[Sequence[Sequence[int]]],
    *,
    seconds: float,
    deadline: float,
    seed: int,
    keep: Sequence[Sequence[int]] = (),
    participation: bool = False,
    progress: Callable[[float, float], None] | None = None,
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
    participation : bool
        Whether it counts more than any welfare how many are not alone. The upper bound is then
        about welfare plus a number for each of them, and of use only to see whether they meet.
    progress : callable, optional
        Called now and then with the value and the upper bound so far.
    """
    parts = [
        _Part(weights, competition, component, starts, keep, participation)
        for component in components(weights, competition)
    ]
    size = sum(len(part.component) ** 2 for part in parts)

    def report() -> None:
        if progress is not None:
            progress(
                math.fsum(part.value for part in parts),
                math.fsum(part.upper_bound for part in parts),
            )

    clock_ended = interrupted = False
    spare = 0.0 if parts else seconds
    try:
        for part in parts:
            effort = Effort(seconds * len(part.component) ** 2 / size + spare, deadline, report)
            part.solve(effort, seed)
            clock_ended |= effort.clock_ended
            spare = max(effort.left, 0.0)  # what one does not need goes to the next, larger one
    except KeyboardInterrupt:
        interrupted = True
    result = [
        [i] for i in sorted(set(range(len(weights))).difference(*(p.component for p in parts)))
    ]
    for part in parts:
        result += part.partition
    return Optimum(
        sorted(result),
        math.fsum(part.upper_bound for part in parts),
        all(part.optimal for part in parts),
        clock_ended,
        interrupted,
        spare,
    )


class _Part:
    """A component: its numbers scaled to about one, and how it stands."""

    def __init__(
        self,
        weights: Floats,
        competition: Bools,
        component: list[int],
        starts: Sequence[Sequence[Sequence[int]]],
        keep: Sequence[Sequence[int]],
        participation: bool,
    ) -> None:
        self.component = component
        inside = np.ix_(component, component)
        self._competition = competition[inside]
        self._small = is_small(len(component))
        self._keep = restricted(keep, component)
        self._participation = participation
        self._given = weights[inside]
        if self._small:
            self._list_coalitions()
        usable = np.where(self._competition, 0.0, self._given)
        best = max(
            (restricted(start, component) for start in starts),
            key=lambda start: self._start_value(usable, start),
        )
        self._stand(best)

    def _start_value(self, weights: Floats, start: list[list[int]]) -> tuple[int, float]:
        return together(start) if self._participation else 0, welfare(weights, start)

    def _list_coalitions(self) -> None:
        edges = (self._given > 0) & ~self._competition
        self._coalitions = valid_coalitions(edges, self._competition)
        # Who is together in no coalition might as well compete.
        columns = as_columns(self._coalitions, len(self.component)).astype(np.float64)
        self._competition = self._competition | (columns.T @ columns == 0)

    def _stand(self, partition: list[list[int]], at_most: float = math.inf) -> None:
        """Scale by a power of two, so that the largest weight is about one.

        That is exact but for weights so small beside the largest that they vanish; what these are
        worth together is kept, so that nothing is claimed about it.
        """
        usable = np.where(self._competition, 0.0, self._given)
        _, self._exponent = math.frexp(float(usable.max(initial=0.0)))
        self._weights = np.ldexp(usable, -self._exponent)
        self._lost = math.fsum((usable - np.ldexp(self._weights, self._exponent)).ravel().tolist())
        self._edges = usable > 0
        bound = quick_upper_bound(self._weights, self._competition)
        self._bonus = 2.0 * bound if self._participation else 0.0
        welfare = min(bound, math.ldexp(at_most, -self._exponent))
        self._standing = Standing(
            self._weights, partition, welfare + self._bonus * len(self.component), self._bonus
        )

    def solve(self, effort: Effort, seed: int) -> None:
        """Improve until proven or the effort is spent.

        A pair that is worth more than any partition can reach, or any that is as good as the one
        known, is left out. Without such pairs the numbers that matter are rounded less, and the
        bound may meet the value.
        """
        while not effort.over:
            if self._small:
                self._enumerate(effort, seed)
            elif len(self.component) <= LARGEST:
                self._generate(effort, seed)
            at_most = self._standing.welfare_bound * (1 + 1e-9)
            pairs = self._weights + self._weights.T
            hopeless = (pairs > at_most) & ~self._competition
            if self.optimal or effort.over or not hopeless.any():
                return
            self._competition = self._competition | hopeless
            if self._small:
                self._list_coalitions()
            self._stand(self._standing.partition, self._given_units(at_most))

    def _enumerate(self, effort: Effort, seed: int) -> None:
        Enumeration(
            self._weights,
            self._coalitions,
            self._standing,
            effort,
            seed=seed,
            bonus=self._bonus,
            keep=self._keep,
        ).run()

    def _generate(self, effort: Effort, seed: int) -> None:
        from fedegoists.coalitions.exact.column_generation import Generation

        Generation(
            self._weights,
            self._edges,
            self._competition,
            self._standing,
            effort,
            seed=seed,
            bonus=self._bonus,
            keep=self._keep,
        ).run()

    @property
    def partition(self) -> list[list[int]]:
        """The best partition so far, by positions among everybody."""
        return [[self.component[i] for i in group] for group in self._standing.partition]

    @property
    def value(self) -> float:
        """What the partition is worth."""
        return math.ldexp(self._standing.value, self._exponent)

    @property
    def upper_bound(self) -> float:
        """What no partition exceeds."""
        if self.optimal:
            return self.value
        return self._given_units(self._standing.upper_bound)

    def _given_units(self, bound: float) -> float:
        """Return a bound in terms of the weights as they were given."""
        return math.ldexp(bound, self._exponent) + max(self._lost, 0.0)

    @property
    def optimal(self) -> bool:
        """Whether the two meet."""
        return self._standing.optimal and self._lost <= TOLERANCE * self.value
