"""The best partition of one component, by column generation.

The linear program over all valid coalitions bounds the welfare from above, but has exponentially
many columns. Column generation solves it over the coalitions known so far (`restricted_master`),
which gives prices, and looks for coalitions worth more than their prices (`pricing`).

Two sets of prices are kept. The *outer* ones come from the restricted master and are too low until
all coalitions that matter are known. The *inner* ones are high enough for every coalition, so that
their sum is an upper bound on the welfare at any moment. The search looks at a mixture of both
(in-out separation, Ben-Ameur and Neto 2007): either it finds coalitions, or the mixture becomes the
new inner prices. Where a mixture near the outer prices takes too long to search, one nearer to the
inner prices still lowers the bound.

When both meet, the linear program is solved. Its mixture of coalitions is rounded to a partition.
If a gap is left, either all coalitions that could close it are few enough to be listed and the best
choice among them is proven (`set_partitioning`), or cuts are added to the linear program.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.annealing import Annealing
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.pricing import SECONDS_PER_STEP, Pricing
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.exact.restricted_master import RestrictedMaster, Triple
from fedegoists.coalitions.exact.set_partitioning import choose
from fedegoists.coalitions.upper_bound import competing_groups

FIRST_LOOK = 300_000
"""Search steps per root while coalitions are easily found."""

LEAST_PROOF = 10_000_000
"""Search steps per root to prove that there is none; more while there is effort left."""

MOST_PROPOSALS = 40_000
"""Proposals of the annealing in one round, per participant."""

MOST_LISTED = 20_000
"""With at most this many coalitions left that could improve, all are listed and chosen from."""

MOST_LISTED_IN_BRANCH = 3000
"""The same in a branch, where splitting again may be faster."""

SECONDS_PER_LISTED = 2e-4
"""The longest time that setting up the choice takes, per coalition."""

SECONDS_TO_SET_UP = 2e-5
"""Work to set up the choice, per coalition."""

SECONDS_PER_ENTRY = 2e-7
"""Work of an entry of the linear program, each time it is solved."""

ROUNDING = 5e-16
"""Sums of k positive numbers are off by less than k times this fraction."""


class Inherited(NamedTuple):
    """What a branch begins with: prices that no coalition exceeds, their triples, coalitions."""

    prices: Floats
    triples: list[Triple]
    columns: Bools


class ColumnGeneration:
    """Improves an incumbent until it is proven, or the effort is spent."""

    def __init__(
        self,
        problem: Subproblem,
        incumbent: Incumbent,
        effort: Effort,
        inherited: Inherited | None = None,
    ) -> None:
        self._problem = problem
        self._n = problem.n
        self.incumbent = self._incumbent = incumbent
        self._effort = effort
        self._annealing = Annealing(problem, incumbent.partition)
        self._pricing = Pricing(problem, effort)
        values = problem.pair_values
        self._master = RestrictedMaster(values, problem.bonus)
        self._largest = float(values.max(initial=0.0))
        # The first inner prices: half the value of the best partner in each group of competitors,
        # of which a coalition holds at most one.
        groups = competing_groups(problem.competition)
        best_partners = [values[:, group].max(axis=1) for group in groups]
        self._inner: Floats = np.sum(best_partners, axis=0) / 2 + problem.bonus
        self._mean = self._safe = self._inner
        self._bound(self._inner)
        self._mix = 0.0 if self._n <= 40 else 0.5  # the fraction of inner prices in the mixture
        self._listed_at = math.inf  # the gap at which listing was tried last
        self._patience = 1.0  # factor of the work for the best choice
        self._most_listed = MOST_LISTED
        self._too_many = False  # whether the last listing found too many
        self._proven_choice = False  # whether the last choice was proven
        self._is_branch = inherited is not None
        if inherited is not None:
            self._begin_with(inherited)

    def _begin_with(self, inherited: Inherited) -> None:
        self._mix = 0.0
        self._most_listed = MOST_LISTED_IN_BRANCH
        for triple in inherited.triples:
            self._master.add_triple(triple)
        for column in inherited.columns:
            self._master.add(column)
        self._bound(inherited.prices)

    def start(self) -> None:
        """Anneal: the first incumbent, and the first columns."""
        self._anneal()
        for group in self._incumbent.partition:
            self._learn(group)

    def resume(self, effort: Effort) -> None:
        """Generate columns, then round, list and cut, until that ends or this effort is spent."""
        self._effort = self._pricing.effort = effort
        incumbent = self._incumbent
        rounds = 0
        while not (incumbent.optimal or effort.over or self._scaled_badly):
            value, outer = self._solve_master()
            # Quick finds near the outer prices, with a thorough look every eighth round.
            if self._mix > 0 and self._harvest(outer) and rounds % 8:
                rounds += 1
                continue
            rounds = 1
            self._look(outer)
            if incumbent.upper_bound > value * (1 + 1e-5) or incumbent.optimal:
                continue  # the linear program is not solved yet
            if not self._is_branch:
                self._round()
            if incumbent.optimal or effort.over:
                break
            gap = incumbent.upper_bound - incumbent.value
            if gap < 0.6 * self._listed_at and self._list(self._most_listed):
                break
            if self._master.separate():
                continue
            if self._is_branch:
                self._round()  # an integral solution is a partition
            if self._list(5 * self._most_listed) or self._is_branch or self._too_many:
                break
        if incumbent.optimal and self._problem.keep:
            self._list(MOST_LISTED)
        self._pricing.release()

    @property
    def prices(self) -> tuple[Floats, list[Triple]]:
        """Prices that no coalition exceeds: of the participants, then of the triples returned."""
        return self._inner, self._master.triples[: len(self._inner) - self._n]

    @property
    def inheritance(self) -> Inherited:
        """What branches of this problem begin with, before they are split."""
        prices, triples = self.prices
        return Inherited(prices, triples, self._master.columns)

    @property
    def pair_amounts(self) -> Floats:
        """How much the last solution of the linear program has each two together."""
        columns = self._master.columns.astype(np.float64)
        amounts: Floats = (columns * self._master.mixture[:, None]).T @ columns
        return amounts

    @property
    def _scaled_badly(self) -> bool:
        """Whether a pair has so much value that rounding hides any partition that is possible.

        The caller then excludes such pairs and scales again.
        """
        return self._largest > 2 * self._incumbent.welfare_bound

    # Partitions ----------------------------------------------------------------------------

    def _anneal(self) -> None:
        """Find a good partition; its coalitions, and those on the way, are the first columns."""
        n, effort = self._n, self._effort
        if n < 4:
            return
        work = effort.left
        # Small components are soon solved exactly, and need only a start. The fractions are
        # measured: they gave the highest welfare in a second at n = 30, 60 and 100.
        share = min(0.8 * work, 0.3 + 0.05 * work) if n > 30 else min(0.1 * work, 0.005 * n)
        if n > 60:
            share = min(0.9 * work, 0.6 + 0.1 * work)
        last = effort.left - share
        proposals = 1000 * n
        while True:
            before = effort.left
            for group in self._annealing.run(proposals, effort):
                self._learn(group)
            self._incumbent.offer(self._annealing.best)
            if effort.left < last or effort.over or self._incumbent.optimal:
                return
            # Longer rounds reach more, but several rounds reach more than one, above all where
            # benefits are rare.
            part = 0.12 if self._annealing.sparse else 0.45
            longer = part * share / (before - effort.left)
            proposals = int(min(max(proposals * longer, 1000 * n), MOST_PROPOSALS * n))

    def _round(self) -> None:
        """Look for a good partition among the coalitions that the linear program uses."""
        self._choose(self._master.columns[self._master.mixture > 1e-7])

    def _choose(self, columns: Bools) -> float:
        """Offer the best partition of these coalitions; return an upper bound over them."""
        problem, effort = self._problem, self._effort
        work = min(max(effort.left * 0.5, 0.05), self._patience * (0.05 + 1e-4 * len(columns)))
        choice = choose(
            columns,
            np.array([self._master.value(column) for column in columns]),
            at_most=self._incumbent.upper_bound,
            deadline=effort.deadline,
            work=work,
            seed=problem.seed,
            start=self._incumbent.partition,
            keep=problem.keep,
        )
        effort.spend(choice.work + SECONDS_TO_SET_UP * len(columns))
        effort.clock_ended |= choice.clock_ended
        self._proven_choice = choice.optimal
        self._incumbent.offer(choice.partition, prefer=bool(problem.keep) and choice.optimal)
        return choice.upper_bound

    # Bounds --------------------------------------------------------------------------------

    def _bound(self, prices: Floats) -> None:
        """Take up prices that no coalition exceeds, if their sum is lower than before."""
        total = math.fsum(prices.tolist())
        self._incumbent.bound(total * (1 + self._n**2 * ROUNDING))
        if total < math.fsum(self._inner.tolist()):
            self._inner = prices

    def _learn(self, group: Sequence[int]) -> None:
        if len(group) > 1:
            self._master.add(self._column(group))

    def _column(self, group: Sequence[int]) -> Bools:
        column = np.zeros(self._n, dtype=np.bool_)
        column[list(group)] = True
        return column

    def _solve_master(self) -> tuple[float, Floats]:
        value, prices = self._master.solve(self._effort.seconds_left)
        self._effort.spend(SECONDS_PER_ENTRY * self._n * (10 + len(self._master.columns)))
        return value, prices

    def _harvest(self, outer: Floats) -> bool:
        """Find coalitions quickly, near the outer prices; return whether any is new.

        Outer prices jump from round to round; their running mean leads to better coalitions.
        """
        mean = np.concatenate([self._mean, np.zeros(len(outer) - len(self._mean))])
        self._mean = (mean + outer) / 2
        for prices in (self._mean, outer):
            self._set_prices(prices)
            fresh = 0
            for root in range(self._n):
                _, _, found = self._pricing.best(root, FIRST_LOOK)
                fresh += self._take(found)
                if self._effort.over:
                    break
            if fresh:
                return True
        return False

    def _set_prices(self, prices: Floats) -> None:
        n = self._n
        triples = self._master.triples[: len(prices) - n]
        self._pricing.set_prices(prices[:n] - self._problem.bonus, triples, prices[n:])

    def _take(self, found: Bools) -> int:
        """Take up the best of the coalitions that were found; return how many are new."""
        return sum(self._master.add(column) for column in found[-3:])

    def _look(self, outer: Floats) -> None:
        """Search at a mixture of prices: find coalitions, or lower the bound."""
        n, pricing, effort = self._n, self._pricing, self._effort
        safe = np.concatenate([self._safe, np.zeros(len(outer) - n)])
        near = self._mean if self._mix else outer
        prices = self._mix * safe + (1 - self._mix) * near
        self._set_prices(prices)
        profits = np.full(n, np.inf)
        fresh = 0
        unfinished = []
        for root in range(n):
            profits[root], finished, found = pricing.best(root, FIRST_LOOK)
            fresh += self._take(found)
            if not finished:
                unfinished.append(root)
            if effort.over:
                break
        proven = not unfinished
        if not fresh:
            # Nothing was found quickly, so prove for the rest that there is nothing.
            proven = True
            steps = self._proof_steps()
            for root in unfinished:
                if effort.over:
                    break
                profits[root], finished, found = pricing.best(root, steps)
                fresh += self._take(found)
                if not finished:
                    proven = False
                    break
        # Each root's price, raised by its highest profit, is high enough for all its coalitions.
        if np.isfinite(profits).all():
            raised = prices.copy()
            raised[pricing.ranked] += profits
            self._bound(raised)
        if fresh:
            return
        # Searched to the end: go nearer to the outer prices, where the bound is lower. Too hard:
        # go nearer to the inner prices, where the search is shorter.
        if proven:
            self._mix = 0.0 if self._mix < 0.05 else self._mix * 0.6
        else:
            self._mix = min(0.9, 1.5 * self._mix + 0.05)

    def _proof_steps(self) -> int:
        """How far to search one root where a failure would only be a setback."""
        return max(LEAST_PROOF, int(0.1 * self._effort.left / SECONDS_PER_STEP))

    def _list(self, most: int) -> bool:
        """List all coalitions that a better partition could use, and choose.

        Returns whether nothing better is left to be found; False if there are too many.

        The welfare of a partition is at most the sum of all inner prices, plus the profits of its
        coalitions, which are not positive at these prices. So a coalition whose profit is below
        the gap between incumbent and that sum, taken negative, is in no better partition.
        """
        incumbent, effort = self._incumbent, self._effort
        self._listed_at = incumbent.upper_bound - incumbent.value
        # The bound may come from elsewhere and be lower; only the prices themselves count here.
        total = math.fsum(self._inner.tolist())
        threshold = -(total - incumbent.value) * (1 + 1e-6) - 2e-9 * total
        self._set_prices(self._inner)
        # Setting up the choice takes time that nothing can interrupt.
        most = int(min(most, effort.left / SECONDS_PER_LISTED))
        listed: list[Bools] = []
        self._too_many = False
        left = most
        for root in range(self._n):
            columns = self._pricing.all_above(root, threshold, left, self._proof_steps())
            if columns is None:
                self._too_many = True
                return False
            listed.append(columns)
            left -= len(columns)
        columns = np.concatenate(listed)
        if effort.lacks(len(columns) * SECONDS_PER_LISTED):
            return False
        # The coalitions of the incumbent are a choice, too.
        known = {column.tobytes() for column in columns}
        mine = [self._column(group) for group in incumbent.partition if len(group) > 1]
        extra = [column for column in mine if column.tobytes() not in known]
        if extra:
            columns = np.concatenate([columns, np.array(extra)])
        best = self._choose(columns) if len(columns) else incumbent.value
        incumbent.bound(max(best, incumbent.value))
        self._patience *= 4.0  # if the choice was not proven, the next one gets more work
        # Beside a proven choice only rounding leaves a gap; going on would change nothing.
        return incumbent.optimal or not len(columns) or self._proven_choice
