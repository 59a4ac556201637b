"""Entry to the exact search: reduce, split, scale, and distribute the work.

Participants that can be in no coalition are left out, and the rest falls into components that
cannot gain from one another. Small components are solved by `enumeration`, others by
`column_generation`, whose searches are compiled and loaded only then. See `exact` for a map.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.coalitions.array_types import Floats, Partition
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.enumeration import (
    Enumeration,
    as_columns,
    is_small,
    valid_coalitions,
)
from fedegoists.coalitions.exact.incumbent import TOLERANCE, Incumbent, together
from fedegoists.coalitions.exact.reduction import (
    SparseSubproblem,
    Subproblem,
    components,
    restricted,
    restricted_entries,
    usable_entries,
)
from fedegoists.coalitions.exact.solvers import has_solver, load_solver, missing_packages
from fedegoists.coalitions.upper_bound import quick_upper_bound, sparse_upper_bound
from fedegoists.coalitions.welfare import welfare
from fedegoists.graphs.participant_graph import Entries

if TYPE_CHECKING:
    from fedegoists.coalitions.exact.column_generation import ColumnGeneration
    from fedegoists.coalitions.exact.pair_relaxation import PairRelaxation

logger = logging.getLogger(__name__)

LARGEST = 1000
"""Larger components are searched by `sparse_search` alone: the tables of column generation would
not fit into memory."""


def prepare(
    weights: Entries[np.float64], competition: Entries[np.bool_], fewest_members: int = 1
) -> None:
    """Load the solvers and the compiled searches, if a component is too large for enumeration.

    That takes about a second in each process, and up to a minute the first time in an installation,
    as the log says.
    """
    parts = components(weights, competition, fewest_members)
    if not all(is_small(len(component)) for component in parts):
        load_searches()


@cache
def load_searches() -> None:
    """Load the solvers, and compile the searches unless they are on disk.

    Call it once after an installation, or when a service starts, so that the first formation of
    more than a few participants need not wait for it.
    """
    if has_solver():
        load_solver()
    logger.info("loading the search")
    from fedegoists.coalitions.exact.annealing import Annealing
    from fedegoists.coalitions.exact.compiled import must_compile
    from fedegoists.coalitions.exact.pair_relaxation import PairRelaxation
    from fedegoists.coalitions.exact.pricing import Pricing
    from fedegoists.coalitions.exact.sparse_search import SparseSearch

    if must_compile():
        logger.warning(
            "compiling the search, half a minute of work that is not part of any time limit; "
            "it is kept for this installation where its folder or the user's cache can be written"
        )
    ring = np.roll(np.eye(4), 1, axis=1)
    problem = Subproblem(ring, ring > 0, np.zeros((4, 4), dtype=np.bool_))
    effort = Effort(1.0)
    Annealing(problem, [[0, 1, 2, 3]]).run(10, effort)
    pricing = Pricing(problem, effort)
    pricing.set_prices(np.zeros(4), [(0, 1, 2)], np.ones(1))
    pricing.best(0, 1000)
    PairRelaxation(ring + ring.T, ring > 0, problem.competition, 0.0, Effort(1e-3)).run()
    large = SparseSubproblem(Entries.of(ring), Entries.of(problem.competition))
    SparseSearch(large, Incumbent(large.weights, [[0, 1, 2, 3]], 9.0), Effort(1e-4)).run()
    logger.info("the search is loaded")


MANY, LINKS_SHARE = 500, 0.6
"""Components of more participants are searched by links first, for this fraction of the effort."""

GENERATION_SHARE, RELAXATION_SHARE = 0.45, 0.3
"""The fraction of the effort for column generation before pairs are looked at, and the fraction of
the rest for these."""

MANY_PAIRS, EARLY_SHARE = 60, 0.15
"""With more participants, pairs are looked at after this fraction of the effort that is left when
annealing ends: column generation needs longer than that to be of use."""

LEAST_GAP_TO_RELAX = 0.02
"""The pairs are looked at where column generation has left at least this gap."""


@dataclass(frozen=True)
class ComponentPrices:
    """Prices that no coalition of a component exceeds, for a proof of its upper bound.

    Members and triples are positions among all participants. Inequalities over pairs, as text, name
    positions among the members (`pair_relaxation`).
    """

    members: list[int]
    prices: list[float]
    triples: list[tuple[int, int, int]]
    triple_prices: list[float]
    upper_bound: float
    rows: tuple[str, ...] = ()
    row_prices: tuple[float, ...] = ()


@dataclass(frozen=True)
class Optimum:
    """A partition of positions, an upper bound on any value, and whether the two meet.

    `clock_ended` tells that time rather than work ended the search, so that another run may
    differ; `unspent` is the work that was not needed. `bounds` has the members of each component
    and an upper bound on its value; the value, if optimal. `prices` has an entry for each component
    that was solved by column generation; `local` has the sizes of those that were not: because they
    are too large, or a package that it needs is missing.
    """

    partition: list[list[int]]
    upper_bound: float
    optimal: bool
    clock_ended: bool = False
    interrupted: bool = False
    unspent: float = 0.0
    prices: tuple[ComponentPrices, ...] = ()
    local: tuple[int, ...] = ()
    bounds: tuple[tuple[list[int], float], ...] = ()


def best_partition(
    weights: Entries[np.float64],
    competition: Entries[np.bool_],
    starts: Sequence[Partition],
    *,
    seconds: float,
    deadline: float,
    seed: int,
    keep: Partition = (),
    participation: bool = False,
    fewest_members: int = 1,
    progress: Callable[[float, float], None] | None = None,
) -> Optimum:
    """Return the best partition found with a given amount of work.

    Parameters
    ----------
    seconds : float
        The work to do, in seconds of a slow machine. The same work and seed give the same result.
    deadline : float
        When to stop in any case, by `time.perf_counter`.
    starts : sequence of partitions
        Partitions that satisfy both principles; the result is at least as good as each of them.
    keep : partition, optional
        Among equally good partitions prefer one that moves few participants away from this one.
    participation : bool
        Whether the number of participants that are not alone counts before welfare. Value and
        upper bound then include a bonus for each of them, and only tell whether the two meet.
    fewest_members : int
        The fewest members of a coalition of two or more.
    progress : callable, optional
        Called repeatedly with the value and the upper bound so far.
    """
    parts = [
        _LocalComponent(weights, competition, members, starts, seed, participation, fewest_members)
        if _needs_local_search(len(members))
        else _Component(
            weights, competition, members, starts, keep, seed, participation, fewest_members
        )
        for members in components(weights, competition, fewest_members)
    ]
    size = sum(len(part.members) ** 2 for part in parts)

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
            effort = Effort(seconds * len(part.members) ** 2 / size + spare, deadline, report)
            part.solve(effort)
            clock_ended |= effort.clock_ended
            spare = max(effort.left, 0.0)  # unspent work goes to the next, larger component
    except KeyboardInterrupt:
        interrupted = True
    result = [[i] for i in set(range(weights.n)).difference(*(p.members for p in parts))]
    for part in parts:
        result += part.partition
    return Optimum(
        sorted(result),
        math.fsum(part.upper_bound for part in parts),
        all(part.optimal for part in parts),
        clock_ended,
        interrupted,
        spare,
        tuple(prices for part in parts for prices in part.prices),
        tuple(len(part.members) for part in parts if part.local),
        tuple((part.members, part.upper_bound) for part in parts),
    )


class _Scaled:
    """A component whose numbers are scaled by a power of two, and its incumbent."""

    members: list[int]
    prices: tuple[ComponentPrices, ...]
    local: bool  # whether only a local search is possible
    _incumbent: Incumbent
    _exponent: int  # of the power of two that was divided by
    _lost: float  # what vanished by that

    @property
    def partition(self) -> list[list[int]]:
        """The best partition so far, by positions among all participants."""
        return [[self.members[i] for i in group] for group in self._incumbent.partition]

    @property
    def value(self) -> float:
        """The value of the partition."""
        return math.ldexp(self._incumbent.value, self._exponent)

    @property
    def upper_bound(self) -> float:
        """Upper bound on the value of any partition."""
        if self.optimal:
            return self.value
        return self._given_units(self._incumbent.upper_bound)

    def _given_units(self, bound: float) -> float:
        """Return a bound in units of the given weights."""
        return math.ldexp(bound, self._exponent) + max(self._lost, 0.0)

    @property
    def optimal(self) -> bool:
        """Whether value and upper bound meet."""
        at_stake = math.ldexp(self._incumbent.at_stake, self._exponent)
        return self._incumbent.optimal and self._lost <= TOLERANCE * at_stake


def _needs_local_search(size: int) -> bool:
    """Whether a component is too large for tables, or packages for the exact search are missing."""
    return size > LARGEST or (not is_small(size) and bool(missing_packages()))


class _LocalComponent(_Scaled):
    """A component as lists of links, with a local search and a quick bound."""

    prices = ()
    local = True

    def __init__(
        self,
        weights: Entries[np.float64],
        competition: Entries[np.bool_],
        members: list[int],
        starts: Sequence[Partition],
        seed: int,
        participation: bool,
        fewest_members: int,
    ) -> None:
        self.members = members
        self._participation = participation
        rivals = restricted_entries(competition, members)
        usable = usable_entries(restricted_entries(weights, members), rivals)
        scaled, self._exponent, self._lost = scaled_to_one(usable.values)
        inside = usable._replace(values=scaled)
        best = max(
            (restricted(start, members) for start in starts),
            key=lambda start: (together(start) if participation else 0, welfare(usable, start)),
        )
        self._problem = SparseSubproblem(inside, rivals, seed, fewest_members)
        bound = sparse_upper_bound(inside, rivals, fewest_members)
        self._incumbent = Incumbent(inside, best, bound)

    @property
    def optimal(self) -> bool:
        """Whether value and upper bound meet; of participation, nothing is known."""
        return super().optimal and not self._participation

    def solve(self, effort: Effort) -> None:
        """Improve the welfare until the effort is spent."""
        from fedegoists.coalitions.exact.sparse_search import SparseSearch

        if not (effort.over or self._participation):  # the search knows welfare only
            SparseSearch(self._problem, self._incumbent, effort).run()


def scaled_to_one(weights: Floats) -> tuple[Floats, int, float]:
    """Return weights divided by a power of two so that the largest is about one.

    That is exact but for weights so small beside the largest that they vanish. The exponent of the
    power is returned, too, and the sum of what vanished, so that nothing is claimed about it.
    """
    _, exponent = math.frexp(float(weights.max(initial=0.0)))
    scaled = np.ldexp(weights, -exponent)
    lost = math.fsum((weights - np.ldexp(scaled, exponent)).ravel().tolist())
    return scaled, exponent, lost


def pair_prices(relaxation: "PairRelaxation", members: list[int], exponent: int) -> ComponentPrices:
    """Return the prices of a relaxation of scaled values, in units of the given ones."""
    found = relaxation.prices
    prices, row_prices = (
        np.ldexp(np.array(scaled), exponent).tolist() for scaled in (found.prices, found.row_prices)
    )
    bound = math.ldexp(found.total, exponent)
    return ComponentPrices(members, prices, [], [], bound, tuple(found.rows), tuple(row_prices))


class _Component(_Scaled):
    """A component with tables over all pairs of its members."""

    local = False

    def __init__(
        self,
        weights: Entries[np.float64],
        competition: Entries[np.bool_],
        members: list[int],
        starts: Sequence[Partition],
        keep: Partition,
        seed: int,
        participation: bool,
        fewest_members: int,
    ) -> None:
        self.members = members
        self._fewest_members = fewest_members
        self._competition = restricted_entries(competition, members).dense()
        self._rivals = self._competition
        self._small = is_small(len(members))
        self._keep = restricted(keep, members)
        self._seed = seed
        self._participation = participation
        self._given = restricted_entries(weights, members).dense()
        self._generation: ColumnGeneration | None = None
        self._relaxation: PairRelaxation | None = None
        if self._small:
            self._list_coalitions()
        usable = np.where(self._competition, 0.0, self._given)
        best = max(
            (restricted(start, members) for start in starts),
            key=lambda start: (together(start) if participation else 0, welfare(usable, start)),
        )
        self._set_up(best)

    def _list_coalitions(self) -> None:
        edges = (self._given > 0) & ~self._competition
        self._coalitions = valid_coalitions(edges, self._competition, self._fewest_members)
        # Two that are together in no valid coalition might as well compete: the bound is lower.
        columns = as_columns(self._coalitions, len(self.members)).astype(np.float64)
        self._competition = self._competition | (columns.T @ columns == 0)

    def _set_up(self, partition: list[list[int]], at_most: float = math.inf) -> None:
        """Scale, so that the largest weight is about one, and begin from a partition."""
        usable = np.where(self._competition, 0.0, self._given)
        scaled, self._exponent, self._lost = scaled_to_one(usable)
        bound = quick_upper_bound(scaled, self._competition, self._fewest_members)
        # One bonus exceeds any welfare, so that participation comes before welfare.
        bonus = 2.0 * bound if self._participation else 0.0
        self._problem = Subproblem(
            scaled,
            usable > 0,
            self._competition,
            self._seed,
            bonus,
            self._keep,
            self._fewest_members,
        )
        most = min(bound, math.ldexp(at_most, -self._exponent)) + bonus * len(self.members)
        self._incumbent = Incumbent(scaled, partition, most, bonus)

    def solve(self, effort: Effort) -> None:
        """Improve until proven or the effort is spent.

        A pair of more value than any partition that is at least as good as the incumbent is
        excluded. Without such pairs the other numbers are rounded less, and the bound may meet the
        value.
        """
        while not effort.over:
            if self._small:
                Enumeration(self._problem, self._coalitions, self._incumbent, effort).run()
            else:
                self._generate(effort)
            at_most = self._incumbent.welfare_bound * (1 + 1e-9)
            pairs = self._problem.weights + self._problem.weights.T
            hopeless = (pairs > at_most) & ~self._competition
            if self.optimal or effort.over or not hopeless.any():
                return
            self._competition = self._competition | hopeless
            if self._small:
                self._list_coalitions()
            self._set_up(self._incumbent.partition, self._given_units(at_most))

    def _search_links(self, effort: Effort) -> None:
        """Search by links first: with many participants, the tables take most of a short limit."""
        from fedegoists.coalitions.exact.sparse_search import SparseSearch

        part = effort.part(LINKS_SHARE)
        given = part.left
        problem = self._problem
        weights = Entries.of(np.where(problem.competition, 0.0, problem.weights))
        sparse = SparseSubproblem(
            weights, Entries.of(problem.competition), self._seed, self._fewest_members
        )
        SparseSearch(sparse, self._incumbent, part).run()
        effort.spend_part(part, given)

    def _generate(self, effort: Effort) -> None:
        """Generate columns; where that does not soon close the gap, bound by pairs, and go on."""
        from fedegoists.coalitions.exact.column_generation import ColumnGeneration

        if len(self.members) > MANY and self._generation is None and not self._participation:
            self._search_links(effort)
        generation = self._generation = ColumnGeneration(self._problem, self._incumbent, effort)
        generation.start()
        relaxed = self._participation or self._relaxation is not None or self._lost > 0
        if relaxed or self._incumbent.optimal or effort.over:
            generation.resume(effort)
            self._branch(generation, effort)
            return
        share = EARLY_SHARE if len(self.members) > MANY_PAIRS else GENERATION_SHARE
        part = effort.part(share)
        given = part.left
        generation.resume(part)
        effort.spend_part(part, given)
        if self._incumbent.value < (1 - LEAST_GAP_TO_RELAX) * self._incumbent.upper_bound:
            self._relax(effort)
        if not (effort.over or self._incumbent.optimal):
            generation.resume(effort)
            self._branch(generation, effort)

    def _branch(self, generation: "ColumnGeneration", effort: Effort) -> None:
        """Split the problem where column generation has come to its end with a gap."""
        from fedegoists.coalitions.exact.branching import Branching

        # Who is united with another counts as one member, so their number must not matter.
        if not self._participation and self._fewest_members <= 2:
            Branching(self._problem, self._incumbent, generation, effort).run()

    def _relax(self, effort: Effort) -> None:
        """Bound the welfare by the pairs alone."""
        from fedegoists.coalitions.exact.pair_relaxation import MOST_PARTICIPANTS, PairRelaxation

        if len(self.members) > MOST_PARTICIPANTS:
            return
        # Not the competition that was extended by pairs that are together in no good partition: a
        # checker does not know these.
        usable = np.where(self._rivals, 0.0, self._given)
        scaled = np.ldexp(usable, -self._exponent)
        given = effort.left * RELAXATION_SHARE
        part = effort.part(RELAXATION_SHARE)
        reached = self._incumbent.value
        self._relaxation = PairRelaxation(
            scaled + scaled.T, usable > 0, self._rivals, reached, part
        )
        self._relaxation.run()
        effort.spend_part(part, given)
        self._incumbent.bound(self._relaxation.bound)

    @property
    def prices(self) -> tuple[ComponentPrices, ...]:  # type: ignore[override]
        """Prices that no coalition exceeds, raised by more than they are rounded."""
        if self._generation is None or self._participation:
            return ()
        scaled, triples = self._generation.prices
        raised = np.ldexp(scaled * (1 + 2.0**-45) + 2.0**-60, self._exponent).tolist()
        n, own = len(self.members), self.members
        named = [(own[a], own[b], own[c]) for a, b, c in triples]
        found = ComponentPrices(own, raised[:n], named, raised[n:], self.upper_bound)
        if self._relaxation is None:
            return (found,)
        return (found, pair_prices(self._relaxation, own, self._exponent))
