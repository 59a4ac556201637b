"""A good partition, and an upper bound, for more participants than can be enumerated.

*Linear bounds.* Gains are concave, so the gain of each member is at most its tangent at any point:
a constant plus a sum over the other members. Summed over participants, that is a constant plus the
welfare of an additive graph, for which `best_partition` finds good partitions and upper bounds.
With tangents at the present partition the bound is exact there, so all of the gap is that of the
additive problem.

*Local search.* Under learning curves, simulated annealing in compiled code (`curve_annealing`); for
other values, the additive problem with tangents at the present partition. Then moves of a
participant to another coalition or out of its own, mergers of two coalitions, and swaps of two
participants. A coalition that becomes inadmissible is repaired by taking out members.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Partition
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.admissible import ValueProblem
from fedegoists.coalitions.exact.best_partition import best_partition, load_searches
from fedegoists.coalitions.exact.set_partitioning import partition_of
from fedegoists.coalitions.upper_bound import competing_groups, quick_upper_bound
from fedegoists.graphs import CurveValues
from fedegoists.graphs.coalition_values import pair_bounds
from fedegoists.graphs.participant_graph import Entries

if TYPE_CHECKING:
    from fedegoists.coalitions.exact.curve_annealing import CurveAnnealing

FIRST_PROPOSALS = 200
"""Proposals of the first round of annealing, per participant; each further round makes twice as
many."""

SEARCH_SHARE = 0.6
"""The fraction of the work for a good partition; the rest is for the upper bound."""

SECONDS_PER_CALL, SECONDS_PER_MEMBER, SECONDS_PER_ENTRY = 3e-4, 1.5e-7, 3e-9
"""Work of valuing coalitions: per call, and for each coalition per participant and per entry of the
matrix of effects."""

LEAST_BOUND_WORK = 0.005
"""What a round for the upper bound counts for at least."""

MOST_BOUNDS = 60
"""Rounds for the upper bound."""

TAKEN_OUT = 0.15
"""The fraction of participants that a perturbation takes out of their coalitions."""

TINY = 1e-12
"""The least weight of a benefit edge, as a fraction of the largest: edges must not vanish."""


class ValueSearch:
    """Improves a partition until the effort is spent."""

    def __init__(self, problem: ValueProblem, starts: Sequence[Partition], seed: int) -> None:
        self._problem = problem
        self._random = np.random.default_rng(seed)
        self._seed = seed
        self._effort = Effort(math.inf)
        n = problem.n
        self.columns: Bools = np.zeros((0, n), dtype=np.bool_)
        self.total = -math.inf
        for start in [[[i] for i in range(n)], *starts]:
            self._offer(self._repaired(_columns(start, n)))

    @property
    def partition(self) -> list[list[int]]:
        """The best partition so far."""
        return partition_of(self.columns)

    def run(self, effort: Effort, report: Callable[[], None] = lambda: None) -> None:
        """Search until the effort is spent."""
        self._effort = effort
        annealing = _annealing(self._problem, self._seed)
        share = 0.1 * effort.left
        proposals = FIRST_PROPOSALS * self._problem.n
        while not effort.over:
            if annealing is not None:
                start = annealing.run(self.partition, proposals, effort)
                proposals = 2 * proposals
            else:
                start = self._linear_start(share)
            before = self.total
            self._offer(self._improved(self._repaired(_columns(start, self._problem.n))))
            report()
            if annealing is None and self.total <= before:
                break
        while not effort.over:
            self._offer(self._improved(self._perturbed()))
            report()

    def _linear_start(self, seconds: float) -> list[list[int]]:
        """Return a good partition of the additive problem; pairs that harm each other compete."""
        problem = self._problem
        touching = company(self.partition, problem.n)
        _, weights = linear_problem(problem, touching)
        self._effort.spend(seconds)
        found = best_partition(
            Entries.of(weights),
            Entries.of(problem.competition | harmful_pairs(problem, touching)),
            [[[i] for i in range(problem.n)]],
            seconds=seconds,
            deadline=self._effort.deadline,
            seed=self._seed,
            fewest_members=problem.fewest_members,
        )
        return found.partition

    def _offer(self, columns: Bools) -> None:
        total = math.fsum(self._problem.totals(columns).tolist())
        if total > self.total + self._problem.least:
            self.columns, self.total = columns, total

    def _totals(self, columns: Bools) -> Floats:
        self._spend(len(columns))
        return self._problem.totals(columns)

    def _spend(self, coalitions: int) -> None:
        n = self._problem.n
        each = n * SECONDS_PER_MEMBER + n**2 * SECONDS_PER_ENTRY
        self._effort.spend(SECONDS_PER_CALL + coalitions * each)

    # Repair --------------------------------------------------------------------------------

    def _repaired(self, columns: Bools) -> Bools:
        """Return admissible coalitions: members are taken out of those that are not."""
        parts = [self._admissible_part(column) for column in columns]
        return _without_singles(np.array(parts, dtype=np.bool_), columns)

    def _admissible_part(self, column: Bools) -> Bools:
        """Return the coalition without the members that may not be in it, the least worth first."""
        column = column.copy()
        while column.sum() > 1:
            self._spend(int(column.sum()))
            worth, fine = self._problem.worth(column)
            if fine.all():
                if column.sum() < self._problem.fewest_members:
                    column[:] = False
                break
            column[int(np.where(fine, np.inf, worth).argmin())] = False
        if column.sum() < 2:
            column[:] = False
        return column

    # Local search --------------------------------------------------------------------------

    def _improved(self, columns: Bools) -> Bools:
        """Return a partition that no move, merger or swap improves, unless the effort ends."""
        while not self._effort.over:
            for step in (self._merged, self._moved, self._swapped):
                better = step(columns)
                if better is not None:
                    columns = better
                    break
            else:
                break
        return columns

    def _replaced(
        self, columns: Bools, gone: Sequence[int], new: Sequence[Bools], least: float
    ) -> Bools | None:
        """Return the partition with coalitions replaced, if the total rises by more than `least`.

        New coalitions are repaired; the members taken out are alone.
        """
        parts = [self._admissible_part(column) for column in new]
        parts = [part for part in parts if part.any()]
        after = self._totals(np.array(parts)).sum() if parts else 0.0
        if after <= least + self._problem.least:
            return None
        rest = np.delete(columns, gone, axis=0)
        return np.concatenate([rest, np.array(parts)])

    def _merged(self, columns: Bools) -> Bools | None:
        """Unite two coalitions, or two participants alone."""
        groups = self._groups(columns)
        rivals = groups.astype(np.float64) @ self._problem.competition @ groups.T > 0
        first, second = np.nonzero(np.triu(~rivals, 1))
        if not len(first):
            return None
        totals = self._totals(groups)
        united = self._totals(groups[first] | groups[second])
        rise = united - totals[first] - totals[second]
        for k in self._best(rise):
            pair = [int(first[k]), int(second[k])]
            better = self._replaced(
                groups, pair, [groups[pair[0]] | groups[pair[1]]], float(totals[pair].sum())
            )
            if better is not None:
                return _without_singles(better, columns)
        return None

    def _moved(self, columns: Bools) -> Bools | None:
        """Move one participant into another coalition, or out of its own."""
        problem = self._problem
        n = problem.n
        totals = self._totals(columns) if len(columns) else np.zeros(0)
        home = np.where(columns.any(axis=0), columns.argmax(axis=0), -1) if len(columns) else None
        if home is None:
            return None
        for i in self._random.permutation(n).tolist():
            if self._effort.over:
                return None
            own = int(home[i])
            open_to = ~(columns & problem.competition[i]).any(axis=1)
            open_to[own if own >= 0 else 0] &= own < 0
            targets = np.flatnonzero(open_to)
            joined = columns[targets].copy()
            joined[:, i] = True
            left = columns[[own]].copy() if own >= 0 else np.zeros((1, n), dtype=np.bool_)
            left[:, i] = False
            values = self._totals(np.concatenate([joined, left]))
            before = totals[targets] + (totals[own] if own >= 0 else 0.0)
            rise = np.append(values[:-1] - before, 0.0 - (totals[own] if own >= 0 else 0.0))
            for k in self._best(rise + values[-1]):
                new, gone = [left[0]], [own] if own >= 0 else []
                if k < len(targets):
                    new, gone = [left[0], joined[k]], [*gone, int(targets[k])]
                better = self._replaced(columns, gone, new, float(totals[gone].sum()))
                if better is not None:
                    return better
        return None

    def _swapped(self, columns: Bools) -> Bools | None:
        """Exchange two participants of different coalitions."""
        if len(columns) < 2:
            return None
        problem, totals = self._problem, self._totals(columns)
        home = np.where(columns.any(axis=0), columns.argmax(axis=0), -1)
        for i in self._random.permutation(np.flatnonzero(home >= 0)).tolist():
            if self._effort.over:
                return None
            others = np.flatnonzero((home >= 0) & (home > home[i]))
            one = np.repeat(columns[[home[i]]], len(others), axis=0)
            other = columns[home[others]].copy()
            rows = np.arange(len(others))
            one[rows, others], one[:, i] = True, False
            other[rows, others], other[:, i] = False, True
            clash = ((one & problem.competition[others]).any(axis=1)) | (
                other & problem.competition[i]
            ).any(axis=1)
            before = totals[home[others]] + totals[home[i]]
            both = self._totals(np.concatenate([one, other])).reshape(2, -1).sum(axis=0)
            for k in self._best(np.where(clash, -np.inf, both - before)):
                gone = [int(home[i]), int(home[others[k]])]
                better = self._replaced(columns, gone, [one[k], other[k]], float(before[k]))
                if better is not None:
                    return better
        return None

    def _best(self, rise: Floats) -> list[int]:
        """Return the three changes that promise most, if they raise the total at all."""
        order: Ints = np.argsort(-rise, kind="stable")[:3]
        return [int(k) for k in order if rise[k] > self._problem.least]

    def _groups(self, columns: Bools) -> Bools:
        """Return all coalitions, also of one."""
        alone = np.flatnonzero(~columns.any(axis=0))
        return np.concatenate([columns, np.eye(self._problem.n, dtype=np.bool_)[alone]])

    def _perturbed(self) -> Bools:
        columns = self.columns.copy()
        out = self._random.random(self._problem.n) < TAKEN_OUT
        columns[:, out] = False
        return self._repaired(columns)


def prepare_search(problem: ValueProblem) -> None:
    """Load the solvers and the compiled searches, which is not part of any time limit."""
    load_searches()
    if isinstance(problem.values, CurveValues):
        from fedegoists.coalitions.exact.curve_annealing import load_curve_search

        load_curve_search()


def _annealing(problem: ValueProblem, seed: int) -> "CurveAnnealing | None":
    """Return the compiled search, which knows learning curves only."""
    if not isinstance(problem.values, CurveValues):
        return None
    from fedegoists.coalitions.exact.curve_annealing import CurveAnnealing

    return CurveAnnealing(problem, problem.values, seed)


def company(partition: Partition, n: int) -> Floats:
    """Return as row i the coalition of participant i."""
    touching = np.zeros((n, n))
    for group in partition:
        touching[np.ix_(group, group)] = 1.0
    return touching


def harmful_pairs(problem: ValueProblem, touching: Floats) -> Bools:
    """Return the pairs that do each other more harm than good, by tangents."""
    _, slopes = problem.values.linear_bounds(touching)
    return np.asarray(slopes + slopes.T < 0)


def linear_problem(problem: ValueProblem, touching: Floats) -> tuple[float, Floats]:
    """Return a constant and weights of a graph whose welfare plus the constant bounds any total.

    What two members do to each other counts only as a sum, so harm to one is set off against the
    good of the other. An edge that could make a coalition admissible keeps a tiny weight.

    Parameters
    ----------
    touching : array of float
        Where the tangents touch, see `CoalitionValues.linear_bounds`.
    """
    constants, slopes = problem.values.linear_bounds(touching)
    edges = pair_bounds(problem.values) > 0
    shared = np.where(problem.competition, 0.0, np.maximum(slopes + slopes.T, 0.0))
    count = np.maximum(edges.astype(np.int64) + edges.T, 1)
    least = TINY * float(np.abs(slopes).max(initial=0.0))
    weights = np.where(edges, np.maximum(shared / count, least), 0.0)
    return math.fsum(constants.tolist()), weights


def cap_bound(problem: ValueProblem) -> float:
    """Return an upper bound on any total gain, quickly: everybody with all that could help it.

    Of participants that all compete with one another, a coalition holds one at most; for each
    participant the most helpful one of each such group is taken.
    """
    bounds = np.where(problem.competition, 0.0, pair_bounds(problem.values))
    touching = np.eye(problem.n, dtype=np.bool_)
    rows = np.arange(problem.n)
    for group in competing_groups(problem.competition):
        best = np.array(group)[bounds[group, :].argmax(axis=0)]
        helpful = bounds[best, rows] > 0
        touching[rows[helpful], best[helpful]] = True
    highest = problem.values.upper_gains(touching)[rows, rows]
    additive = quick_upper_bound(bounds, problem.competition, problem.fewest_members)
    return min(math.fsum(highest.tolist()) * (1 + 1e-12), additive)


def bound_at(
    problem: ValueProblem, partition: Partition, *, seconds: float, deadline: float, seed: int
) -> tuple[float, bool]:
    """Return an upper bound on any total gain, with tangents at a partition and then others.

    The bound of the additive problem is attained by some partition. Tangents that touch at the mean
    of the partition given and those found so far make it lower: that is the method of averaged
    subgradients, as the bound is a convex function of the tangents' slopes. A round that does not
    solve its additive problem is the last, so that more seconds give no higher bound.

    Also returned is whether the clock rather than the work ended the search for it.
    """
    bound, late = cap_bound(problem), False
    total = math.fsum(problem.totals(_columns(partition, problem.n)).tolist())
    touching = company(partition, problem.n)
    for k in range(1, MOST_BOUNDS + 1):
        constant, weights = linear_problem(problem, touching)
        found = best_partition(
            Entries.of(weights),
            Entries.of(problem.competition),
            [partition],
            seconds=seconds,
            deadline=deadline,
            seed=seed,
            fewest_members=problem.fewest_members,
        )
        bound = min(bound, (constant + found.upper_bound) * (1 + 1e-12))
        late = found.clock_ended
        seconds = min(found.unspent, seconds - LEAST_BOUND_WORK)
        if not found.optimal or seconds <= 0 or bound <= total * (1 + 1e-9):
            break
        touching += (company(found.partition, problem.n) - touching) / (k + 1)
    return bound, late


def _columns(partition: Partition, n: int) -> Bools:
    groups = [group for group in partition if len(group) > 1]
    columns = np.zeros((len(groups), n), dtype=np.bool_)
    for k, group in enumerate(groups):
        columns[k, list(group)] = True
    return columns


def _without_singles(columns: Bools, like: Bools) -> Bools:
    columns = columns.reshape(-1, like.shape[1])
    return np.asarray(columns[columns.sum(axis=1) > 1])
