"""Simulated annealing over partitions under learning curves; see `curve_moves`.

A participant alone is a coalition of one in the tables. Principle 2 always holds on the way; free
riders and gains that are not likely enough are priced. So the result is a start, which
`value_search` makes admissible and improves.
"""

from functools import cache

import numpy as np

from fedegoists.coalitions.array_types import Partition
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import curve_moves
from fedegoists.coalitions.exact.admissible import ValueProblem
from fedegoists.coalitions.exact.compiled import between_looks
from fedegoists.coalitions.exact.curve_moves import CurveState
from fedegoists.graphs import CurveValues

HOT, COLD = 0.3, 0.003
"""First and last temperature, in units of the mean gain of a participant."""

PRICE = 3.0
"""The price of a shortfall, in units of the gain."""

RIDER = 1.0
"""The price of a free rider, in units of the mean gain of a participant."""

CHUNK = 2000
"""Proposals between two looks at the clock."""

SECONDS_PER_SCORE, SECONDS_PER_PROPOSAL = 3e-7, 3e-6


class CurveAnnealing:
    """A search that can be continued; the same seed and calls give the same partitions."""

    def __init__(self, problem: ValueProblem, values: CurveValues, seed: int) -> None:
        n = problem.n
        self._quantile = problem.quantile
        self._state = CurveState(
            effects=values.effects.copy(),
            variances=values.effect_variances.copy(),
            slopes=values.slopes.copy(),
            slope_errors=values.slope_errors.copy(),
            powers=values.powers.copy(),
            rivals=problem.competition.copy(),
            label=np.zeros(n, dtype=np.int64),
            place=np.zeros(n, dtype=np.int64),
            member=np.zeros((n, n), dtype=np.int64),
            size=np.zeros(n, dtype=np.int64),
            x=np.zeros(n),
            variance=np.zeros(n),
            score=np.zeros(n),
            steepness=np.zeros(n),
            riders=np.zeros(n, dtype=np.int64),
            best=np.zeros(n, dtype=np.int64),
            totals=np.zeros(4),
            moved=np.zeros(2 * curve_moves.MOST_EJECTED, dtype=np.int64),
            random=np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64),
        )

    def run(self, start: Partition, proposals: int, effort: Effort) -> list[list[int]]:
        """Heat up, cool down while making proposals, and return the best partition on the way."""
        t = self._state
        t.size[:] = 0
        for array in (t.x, t.variance, t.score, t.totals):
            array[:] = 0.0
        for c, group in enumerate(start):
            for i in group:
                curve_moves.put_in(t, i, c, self._quantile, PRICE)
        t.riders[:] = [curve_moves.count_riders(t, c) for c in range(len(t.riders))]
        t.totals[curve_moves.RIDERS] = t.riders.sum()
        t.best[:] = t.label
        t.totals[curve_moves.BEST] = t.totals[curve_moves.TOTAL]
        # About a doubling of data for each, where nothing better is known yet.
        total = max(float(t.totals[curve_moves.TOTAL]), float(t.slopes.sum()))
        mean = total / max(len(t.x), 1)
        chunk = between_looks(CHUNK)
        chunks = -(-proposals // chunk) if mean > 0 else 0
        temperature, cooling = HOT * mean, (COLD / HOT) ** (1 / max(chunks, 1))
        for _ in range(chunks):
            if effort.over:
                break
            t.totals[curve_moves.STEPS] = 0.0
            curve_moves.anneal_curves(
                t,
                chunk,
                self._quantile,
                PRICE,
                RIDER * mean,
                temperature,
                temperature * cooling,
            )
            temperature *= cooling
            scores = float(t.totals[curve_moves.STEPS])
            effort.spend(scores * SECONDS_PER_SCORE + chunk * SECONDS_PER_PROPOSAL)
        return sorted(np.flatnonzero(t.best == c).tolist() for c in np.unique(t.best))


@cache
def load_curve_search() -> None:
    """Compile the search unless it is on disk; that is not part of any time limit."""
    values = CurveValues([1, 1], [1.0, 1.0], [[0, 1], [1, 0]])
    problem = ValueProblem(values, np.zeros((2, 2), dtype=np.bool_))
    CurveAnnealing(problem, values, 0).run([[0], [1]], 1, Effort(1.0))
