"""The best partition of participants that belong together, by column generation.

A linear program mixes known coalitions (`master`) and sets prices; a search finds coalitions worth
more than their prices (`pricing`). Two sets of prices are kept. The *outer* ones come from the
linear program and are too low until all coalitions that matter are known. The *inner* ones are high
enough for every coalition, so that their sum bounds the welfare, at any moment. The search looks at
a mixture of both (in-out separation, Ben-Ameur and Neto 2007): either it finds coalitions, or the
mixture becomes the new inner prices. Where a mixture near the outer prices takes too long to
search, one nearer to the inner prices still lowers the bound.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.annealing import Annealing
from fedegoists.coalitions.exact.incumbent import Standing
from fedegoists.coalitions.exact.pricing import SECONDS_PER_STEP, Pricing
from fedegoists.coalitions.exact.restricted_master import Master
from fedegoists.coalitions.exact.set_partitioning import choose
from fedegoists.coalitions.upper_bound import competing_groups

__all__ = ["Generation"]


FIRST_LOOK = 300_000
"""Search steps for each root when coalitions are still easily found."""

LEAST_PROOF = 10_000_000
"""Search steps for each root when nothing is found any more; more while there is effort left."""

MOST_PROPOSALS = 40_000
"""Proposals of the annealing in one round, for each participant."""

MOST_LISTED = 20_000
"""With at most so many coalitions left that could improve, all are listed and the best chosen."""

SECONDS_PER_LISTED = 2e-4
"""How long setting up the choice takes for each coalition, at most."""

SECONDS_PER_ENTRY = 2e-7
"""What an entry of the linear program counts as work each time it is solved."""

ROUNDING = 5e-16
"""Sums of k positive numbers are off by less than k times this part of them."""


class Generation:
    """Improves a standing until it is proven, or the effort is spent.

    Parameters
    ----------
    edges : boolean matrix
        Who benefits whom; not the same as positive weights where these are rounded to zero.
    bonus : float
        What each member of a coalition counts in addition to the benefits.
    keep : partition
        Among equally good partitions prefer one that moves few away from this one.
    """

    def __init__(
        self,
        weights: Floats,
        edges: Bools,
        competition: Bools,
        standing: Standing,
        effort: Effort,
        *,
        seed: int,
        bonus: float = 0.0,
        keep: Sequence[Sequence[int]] = (),
    ) -> None:
        self._n = len(weights)
        self._weights = weights
        self._standing = standing
        self._effort = effort
        self._seed = seed
        self._bonus = bonus
        self._keep = keep
        self._annealing = Annealing(weights, edges, competition, standing.partition, seed, bonus)
        self._pricing = Pricing(weights, edges, competition, effort)
        values = np.where(competition, 0.0, weights + weights.T)
        self._master = Master(values, bonus)
        self._largest = float(values.max(initial=0.0))
        best_partners = [values[:, group].max(axis=1) for group in competing_groups(competition)]
        self._inner: Floats = np.sum(best_partners, axis=0) / 2 + bonus
        self._mean = self._safe = self._inner
        self._bound(self._inner)
        self._mix = 0.0 if self._n <= 40 else 0.5  # how much of the inner prices
        self._listed_at = math.inf  # the gap at which listing was tried last

    def run(self) -> None:
        """Search, then generate columns, then cut, until done."""
        self._anneal()
        for group in self._standing.partition:
            self._learn(group)
        rounds = 0
        while not (self._standing.optimal or self._effort.over or self._scaled_badly):
            value, outer = self._solve_master()
            if self._mix > 0 and self._harvest(outer) and rounds % 8:
                rounds += 1
                continue
            rounds = 1
            self._look(outer)
            if self._standing.upper_bound > value * (1 + 1e-5) or self._standing.optimal:
                continue
            self._round()
            if self._standing.optimal or self._effort.over:
                break
            gap = self._standing.upper_bound - self._standing.value
            if gap < 0.6 * self._listed_at and self._list(MOST_LISTED):
                break
            if not self._master.separate() and self._list(5 * MOST_LISTED):
                break
        if self._standing.optimal and self._keep:
            self._list(MOST_LISTED)

    @property
    def _scaled_badly(self) -> bool:
        """Whether a pair is worth so much more than any partition that the rest is lost beside it.

        The caller then leaves such pairs out and scales anew.
        """
        return self._largest > 2 * self._standing.welfare_bound

    # Partitions ----------------------------------------------------------------------------

    def _anneal(self) -> None:
        n = self._n
        if n < 4:
            return
        work = self._effort.left
        # Small components are soon solved exactly; a start is enough for them.
        share = min(0.4 * work, 0.2 + 0.05 * work) if n > 30 else min(0.1 * work, 0.005 * n)
        if n > 60:
            share = min(0.9 * work, 0.6 + 0.1 * work)
        last = self._effort.left - share
        proposals = 1000 * n
        while True:
            before = self._effort.left
            for group in self._annealing.run(proposals, self._effort):
                self._learn(group)
            self._standing.offer(self._annealing.best)
            if self._effort.left < last or self._effort.over or self._standing.optimal:
                return
            # Longer rounds reach more, but several rounds reach more than one, above all where
            # benefits are rare.
            part = 0.12 if self._annealing.sparse else 0.45
            longer = part * share / (before - self._effort.left)
            proposals = int(min(max(proposals * longer, 1000 * n), MOST_PROPOSALS * n))

    def _round(self) -> None:
        """Look for a good partition among the coalitions of the linear program."""
        mixture = self._master.mixture
        used = self._master.columns[mixture > 1e-7]
        self._choose(used)

    def _choose(self, columns: Bools) -> float:
        """Offer the best partition of these coalitions; return an upper bound over them."""
        values = np.array([self._master.value(column) for column in columns])
        own = {tuple(group) for group in self._standing.partition}
        hint = [k for k, c in enumerate(columns) if tuple(np.flatnonzero(c).tolist()) in own]
        work = min(max(self._effort.left * 0.5, 0.05), 0.05 + 1e-4 * len(columns))
        choice = choose(
            columns,
            values,
            at_most=self._standing.upper_bound,
            deadline=self._effort.deadline,
            work=work,
            seed=self._seed,
            hint=hint,
            keep=self._keep,
        )
        self._effort.spend(work)
        self._effort.clock_ended |= choice.clock_ended
        groups = [np.flatnonzero(columns[k]).tolist() for k in choice.chosen]
        alone = set(range(self._n)).difference(*groups)
        self._standing.offer(
            sorted([*groups, *([i] for i in alone)]), prefer=bool(self._keep) and choice.optimal
        )
        return choice.upper_bound

    # Bounds --------------------------------------------------------------------------------

    def _bound(self, prices: Floats) -> None:
        """Take up prices that no coalition exceeds, if they are lower than those known."""
        total = math.fsum(prices.tolist())
        self._standing.bound(total * (1 + self._n**2 * ROUNDING))
        if total < math.fsum(self._inner.tolist()):
            self._inner = prices

    def _learn(self, group: Sequence[int]) -> None:
        if len(group) > 1:
            column = np.zeros(self._n, dtype=np.bool_)
            column[list(group)] = True
            self._master.add(column)

    def _solve_master(self) -> tuple[float, Floats]:
        value, prices = self._master.solve(self._effort.seconds_left)
        self._effort.spend(SECONDS_PER_ENTRY * self._n * (10 + len(self._master.columns)))
        return value, prices

    def _harvest(self, outer: Floats) -> bool:
        """Find coalitions where that is quick, near the outer prices; return whether any is new.

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
        self._pricing.set_prices(prices[:n] - self._bonus, triples, prices[n:])

    def _take(self, found: Bools) -> int:
        """Take up the best of the coalitions that were found; return how many are new."""
        return sum(self._master.add(column) for column in found[-3:])

    def _look(self, outer: Floats) -> None:
        """Search at a mixture of prices: find coalitions, or lower the bound."""
        safe = np.concatenate([self._safe, np.zeros(len(outer) - self._n)])
        near = self._mean if self._mix else outer
        prices = self._mix * safe + (1 - self._mix) * near
        self._set_prices(prices)
        n = self._n
        profits = np.full(n, np.inf)
        fresh = 0
        unfinished = []
        for root in range(n):
            profits[root], finished, found = self._pricing.best(root, FIRST_LOOK)
            fresh += self._take(found)
            if not finished:
                unfinished.append(root)
            if self._effort.over:
                break
        proven = not unfinished
        if not fresh:
            proven = True
            steps = self._proof_steps()
            for root in unfinished:
                if self._effort.over:
                    break
                profits[root], finished, found = self._pricing.best(root, steps)
                fresh += self._take(found)
                if not finished:
                    proven = False
                    break
        if np.isfinite(profits).all():
            raised = prices.copy()
            raised[self._pricing.ranked] += profits
            self._bound(raised)
        if fresh:
            return
        if proven:
            self._mix = 0.0 if self._mix < 0.05 else self._mix * 0.6
        else:
            self._mix = min(0.9, 1.5 * self._mix + 0.05)

    def _proof_steps(self) -> int:
        """How far to search one root where a failure would be no more than a setback."""
        return max(LEAST_PROOF, int(0.1 * self._effort.left / SECONDS_PER_STEP))

    def _list(self, most: int) -> bool:
        """List all coalitions that a better partition could use, and choose; False if too many."""
        standing = self._standing
        self._listed_at = standing.upper_bound - standing.value
        # No partition is worth more than all prices together, less what its coalitions are below
        # theirs. The bound may be lower than these prices, and says nothing about them.
        total = math.fsum(self._inner.tolist())
        threshold = -(total - standing.value) * (1 + 1e-6) - 2e-9 * total
        self._set_prices(self._inner)
        # Setting up the choice takes time that nothing can interrupt.
        most = int(min(most, self._effort.left / SECONDS_PER_LISTED))
        listed: list[Bools] = []
        left = most
        for root in range(self._n):
            columns = self._pricing.all_above(root, threshold, left, self._proof_steps())
            if columns is None:
                return False
            listed.append(columns)
            left -= len(columns)
        columns = np.concatenate(listed)
        if self._effort.lacks(len(columns) * SECONDS_PER_LISTED):
            return False
        known = {column.tobytes() for column in columns}
        mine = [self._column(group) for group in standing.partition if len(group) > 1]
        extra = [column for column in mine if column.tobytes() not in known]
        if extra:
            columns = np.concatenate([columns, np.array(extra)])
        if len(columns):
            standing.bound(max(self._choose(columns), standing.value))
        else:
            standing.bound(standing.value)
        return standing.optimal

    def _column(self, group: Sequence[int]) -> Bools:
        column = np.zeros(self._n, dtype=np.bool_)
        column[list(group)] = True
        return column
