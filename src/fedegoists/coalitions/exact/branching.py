"""Branch and bound on pairs, where the linear program over coalitions is solved and a gap is left.

Of the pair that the linear program is least sure about, the two are together in one branch and
apart in the other (Ryan and Foster 1981). Apart means that they compete; together means that they
are one participant, whose internal value is added to the bound. So both branches are problems of
the same kind, with their own columns, prices and cuts, inherited from their parent. The branch with
the highest bound is split next, so that the bound of all falls at any moment.
"""

import heapq
import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.column_generation import ColumnGeneration, Inherited
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.reduction import Subproblem

if TYPE_CHECKING:
    from fedegoists.coalitions.exact.restricted_master import Triple

Array = TypeVar("Array", Floats, Bools)

LEAST_DOUBT = 1e-4
"""Pairs that are together or apart up to this amount are not split."""


class Target(Incumbent):
    """The incumbent of a branch: what a partition of it has to exceed to be of use."""

    def __init__(self, weights: Floats, upper_bound: float, target: float) -> None:
        self._target = target
        super().__init__(weights, [[i] for i in range(len(weights))], upper_bound)

    def _take(self, partition: list[list[int]]) -> None:
        super()._take(partition)
        self.value = max(self.value, self._target)


@dataclass
class _Branch:
    problem: Subproblem
    groups: list[list[int]]  # the participants of the root that each participant stands for
    inside: float  # the value of the pairs inside these
    generation: ColumnGeneration
    bound: float  # the internal value included


class Branching:
    """Splits the root until all branches are closed or the effort is spent."""

    def __init__(
        self,
        problem: Subproblem,
        incumbent: Incumbent,
        generation: ColumnGeneration,
        effort: Effort,
    ) -> None:
        self._root = problem
        self._incumbent = incumbent
        self._effort = effort
        groups = [[i] for i in range(problem.n)]
        first = _Branch(problem, groups, 0.0, generation, incumbent.upper_bound)
        self._number = itertools.count()
        self._open = [(-first.bound, next(self._number), first)]

    def run(self) -> None:
        """Split the branch with the highest bound, again and again."""
        incumbent = self._incumbent
        while self._open and not (self._effort.over or incumbent.optimal):
            incumbent.bound(-self._open[0][0])
            branch = self._open[0][2]
            pair = _doubtful(branch)
            if pair is None or incumbent.optimal:
                return
            children = [self._apart(branch, *pair), self._together(branch, *pair)]
            heapq.heappop(self._open)
            for child in children:
                self._explore(child)
        incumbent.bound(-self._open[0][0] if self._open else incumbent.value)

    def _explore(self, branch: _Branch) -> None:
        """Solve the linear program of a branch, and keep it unless it is closed."""
        target = branch.generation.incumbent
        if not self._effort.over:
            branch.generation.resume(self._effort)
            partition = [[i for k in group for i in branch.groups[k]] for group in target.partition]
            # Of two that are together, each may have taken the other's giver for its own.
            if all(_is_valid(self._root, group) for group in partition if len(group) > 1):
                self._incumbent.offer(partition)
        branch.bound = min(branch.bound, target.upper_bound + branch.inside)
        closed = target.upper_bound <= target.value and not self._effort.over
        if not closed and branch.bound > self._incumbent.value:
            heapq.heappush(self._open, (-branch.bound, next(self._number), branch))

    def _apart(self, parent: _Branch, i: int, j: int) -> _Branch:
        competition = parent.problem.competition.copy()
        competition[i, j] = competition[j, i] = True
        weights = np.where(competition, 0.0, parent.problem.weights)
        problem = replace(parent.problem, competition=competition, weights=weights)
        prices, triples, columns = parent.generation.inheritance
        columns = columns[~(columns[:, i] & columns[:, j])]
        return self._child(
            parent, problem, parent.groups, parent.inside, Inherited(prices, triples, columns)
        )

    def _together(self, parent: _Branch, i: int, j: int) -> _Branch:
        """Unite j with i; the last participant takes j's place."""
        before = parent.problem
        kept = np.delete(np.arange(before.n), j)
        place = np.empty(before.n, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        place[j] = m = int(place[i])
        competition = _united(before.competition, i, j, kept)
        # Where one of the two gives to the other, they are a giver and a taker of themselves.
        edges = _united(before.edges, i, j, kept)
        weights = np.where(competition, 0.0, _united(before.weights, i, j, kept))
        np.fill_diagonal(weights, 0.0)
        np.fill_diagonal(competition, val=False)
        problem = replace(before, weights=weights, edges=edges, competition=competition)
        own = float(before.pair_values[i, j])
        prices, triples, columns = parent.generation.inheritance
        n = before.n
        participants = prices[:n].copy()
        participants[i] += participants[j] - own
        new_triples: list[Triple] = []
        triple_prices: list[float] = []
        for triple, price in zip(triples, prices[n:].tolist(), strict=True):
            if i in triple and j in triple:
                participants[i] += price  # every coalition with the two holds two of the triple
            else:
                a, b, c = sorted(place[list(triple)].tolist())
                new_triples.append((a, b, c))
                triple_prices.append(price)
        participants[i] = max(participants[i], 0.0)
        new_prices = np.concatenate([participants[kept], triple_prices])
        columns = columns[columns[:, i] == columns[:, j]][:, kept]
        columns = columns[columns.sum(axis=1) > 1]
        groups = [parent.groups[k] for k in kept.tolist()]
        groups[m] = parent.groups[i] + parent.groups[j]
        inherited = Inherited(new_prices, new_triples, columns)
        return self._child(parent, problem, groups, parent.inside + own, inherited)

    def _child(
        self,
        parent: _Branch,
        problem: Subproblem,
        groups: list[list[int]],
        inside: float,
        inherited: Inherited,
    ) -> _Branch:
        # Inherited prices give the bound, but for rounding.
        bound = math.fsum(inherited.prices.tolist()) * (1 + 1e-12)
        target = Target(problem.weights, bound, self._incumbent.value - inside)
        generation = ColumnGeneration(problem, target, self._effort, inherited)
        return _Branch(problem, groups, inside, generation, parent.bound)


def _is_valid(problem: Subproblem, group: list[int]) -> bool:
    """Whether a set of two or more satisfies both principles."""
    inside = np.ix_(group, group)
    edges = problem.edges[inside]
    served = edges.any(axis=0) & edges.any(axis=1)
    return bool(served.all()) and not problem.competition[inside].any()


def _united(matrix: Array, i: int, j: int, kept: Ints) -> Array:
    """Return a matrix with the row and column of j added to those of i."""
    united = matrix.copy()
    united[i] += united[j]
    united[:, i] += united[:, j]
    return united[np.ix_(kept, kept)]


def _doubtful(branch: _Branch) -> tuple[int, int] | None:
    """Return the pair that the linear program is least sure about, the more valuable first."""
    amounts = branch.generation.pair_amounts
    doubt = np.minimum(amounts, 1 - amounts) * ~branch.problem.competition
    np.fill_diagonal(doubt, 0.0)
    values = branch.problem.pair_values
    score = np.where(doubt > LEAST_DOUBT, doubt * (1 + values / max(values.max(), 1e-300)), 0.0)
    i, j = np.unravel_index(int(score.argmax()), score.shape)
    return (int(min(i, j)), int(max(i, j))) if score[i, j] > 0 else None
