"""Which coalitions are admissible under coalition values, for many coalitions at once.

With gain_i(S) the expected gain of member i in coalition S, S is admissible if it has no
competitors, has enough members, and each member i

- receives: gain_i(S) > 0;
- gives: without i, the total gain of the other members would be lower;
- is likely to gain: the probability that its gain is positive is at least the confidence.

Under uncertain benefits the last is a demand on the coalition as a whole: the probability that
nobody rides free in it is at least the confidence.

The first two are Principle 1: where gains are sums of benefits, they are the two sums of Equation
1. The independent checker has its own version in `fedegoists.coalitions.value_principles`.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats
from fedegoists.graphs import UncertainBenefits
from fedegoists.graphs.coalition_values import CoalitionValues, least_gain

BLOCK = 1 << 15
"""Coalitions that are valued at once."""


@dataclass(frozen=True)
class ValueProblem:
    """Coalition values, competition, and the demands on a coalition."""

    values: CoalitionValues
    competition: Bools
    confidence: float = 0.5
    fewest_members: int = 1

    @property
    def n(self) -> int:
        """The number of participants."""
        return len(self.values.participants)

    @cached_property
    def least(self) -> float:
        """The gain above which gains count as positive."""
        return least_gain(self.values)

    @cached_property
    def quantile(self) -> float:
        """The number of standard errors that an expected gain must have."""
        return NormalDist().inv_cdf(self.confidence)

    def totals(self, columns: Bools) -> Floats:
        """Return the total expected gain of each coalition, admissible or not."""
        return np.asarray(self.values.gains(columns).sum(axis=1))

    def likely(self, columns: Bools, gains: Floats) -> Bools:
        """Whether each member is likely enough to gain, and gains in expectation; else True."""
        fine = (gains > self.least) | ~columns
        if isinstance(self.values, UncertainBenefits):
            # The member that is the likeliest to ride free answers for an unsafe coalition.
            exchanging = self.values.receiving(columns) * self.values.giving(columns)
            riskiest = np.where(columns, exchanging, np.inf).argmin(axis=1)
            rows = np.arange(len(columns))
            single = columns.sum(axis=1) < 2
            fine[rows, riskiest] &= (exchanging.prod(axis=1) >= self.confidence) | single
            return fine
        if self.quantile > 0:
            errors = self.values.standard_errors(columns)
            fine &= gains >= self.quantile * errors
        return fine

    def worth(self, column: Bools) -> tuple[Floats, Bools]:
        """Return what the coalition's total loses without each member, and who may be in it.

        A member may not be in it if it competes with another, receives or gives nothing, or is not
        likely enough to gain. Others than members are worth nothing, and may.
        """
        members = np.flatnonzero(column)
        without = np.repeat(column[None], len(members) + 1, axis=0)
        without[np.arange(len(members)), members] = False
        gains = self.values.gains(without)
        own, total = gains[-1], float(gains[-1].sum())
        worth = np.zeros(len(column))
        worth[members] = total - gains[:-1].sum(axis=1)
        fine = self.likely(column[None], own[None])[0]
        fine[members] &= worth[members] - own[members] > self.least
        fine[members] &= ~(self.competition[np.ix_(members, members)].any(axis=1))
        return worth, fine

    def admits(self, column: Bools) -> bool:
        """Whether a coalition is admissible; one alone always is."""
        size = int(column.sum())
        if size < 2:
            return True
        return size >= self.fewest_members and bool(self.worth(column)[1].all())


def admissible_values(problem: ValueProblem) -> Floats:
    """Return the total gain of every set of participants; −∞ if it is not admissible.

    Sets are bitmasks. A set without competitors has only such subsets, so the total of the set
    without a member, which tells what the member gives, is known before.
    """
    n = problem.n
    independent = np.ones(1, dtype=np.bool_)
    for i in range(n):
        smaller = np.arange(1 << i)
        rivals = int((problem.competition[i, :i] << np.arange(i)).sum())
        independent = np.concatenate([independent, independent & (smaller & rivals == 0)])
    sets = np.flatnonzero(independent)
    sets = sets[sets & (sets - 1) != 0]  # two members or more
    totals = np.zeros(1 << n)
    values = np.full(1 << n, -np.inf)
    for start in range(0, len(sets), BLOCK):
        masks = sets[start : start + BLOCK]
        columns = (masks[:, None] >> np.arange(n) & 1).astype(np.bool_)
        gains = problem.values.gains(columns)
        totals[masks] = gains.sum(axis=1)
        fine = problem.likely(columns, gains).all(axis=1)
        fine &= columns.sum(axis=1) >= problem.fewest_members
        for i in range(n):
            given = totals[masks] - gains[:, i] - totals[masks & ~(1 << i)]
            fine &= (given > problem.least) | ~columns[:, i]
        values[masks[fine]] = totals[masks[fine]]
    return values
