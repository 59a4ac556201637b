"""An upper bound from the pairs alone: a semidefinite program with cuts.

A variable x_ij for each two participants says whether they are together; between competitors it is
0, and x_ii is 1. The program maximises Σ v_ij x_ij over all pairs under inequalities that every
valid partition satisfies (`pair_rows`), and with a positive semidefinite matrix x: for any numbers
u, Σ_ij u_i u_j x_ij is the sum of the squares of the totals of u in the coalitions. Inequalities
that its solution violates are added round by round (`pair_separation`).

The program is solved by alternating projections with multipliers (ADMM): on the positive
semidefinite matrices by eigenvalues, and on the inequalities one after the other. At any moment its
multipliers prove a bound, which a checker adds up without a search: those of the inequalities are
prices y, and what the eigenvalues cut off is a sum of squares, rounded to whole numbers.
"""

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.pair_rows import PairRows
from fedegoists.coalitions.exact.pair_separation import (
    Violated,
    violated_stars,
    violated_support,
    violated_wheels,
)

STEPS, SWEEPS = 40, 3
"""Steps between two rounds of new inequalities, and sweeps over the inequalities in each."""

OVER = 1.6
"""Over-relaxation of the steps; 1 would be none."""

FIRST_STARS, FIRST_WHEELS = 3, 8
"""Rounds without inequalities, and rounds without wheels."""

WHEEL_PARTS = 4
"""Wheels are looked for around this fraction of the centres in a round."""

NEW_EACH = 6
"""Inequalities added in one round, per participant."""

PATIENCE, LEAST_GAIN = 12, 5e-4
"""The search ends if so many rounds lower the bound by less than this fraction."""

SECONDS_PER_CUBE, SECONDS_PER_ENTRY = 1e-9, 4e-9
"""Work of a step: of the eigenvalues, per cube of the participants, and of a sweep, per factor."""

SECONDS_PER_TRIPLE, SECONDS_PER_WHEEL = 5e-8, 8e-9
"""Work of looking for stars, per three participants, and for wheels, per four."""

DIGITS = 20
"""Binary digits of the numbers that are squared."""

MOST_PARTICIPANTS = 250
"""With more, a checker has to add up too much."""


@dataclass
class PairPrices:
    """Prices of inequalities and, for what they leave, of participants."""

    rows: list[str] = field(default_factory=list)
    row_prices: list[float] = field(default_factory=list)
    prices: list[float] = field(default_factory=list)
    total: float = 0.0  # what all of them cost: the bound that they prove by adding up


@dataclass(frozen=True)
class _Multipliers:
    """Those of the lowest bound: of inequalities, and the numbers to be squared as rows."""

    names: list[str]
    prices: Floats
    squares: Ints


class PairRelaxation:
    """The program over pairs of one component, and the lowest bound that it gave.

    Parameters
    ----------
    pair_values : array
        What every two give each other, the largest about 1.
    edges, competition : array of bool
        Whether the first gives to the second, and whether two compete.
    reached : float
        The welfare of a known partition; a bound that meets it ends the search.
    """

    def __init__(
        self,
        pair_values: Floats,
        edges: Bools,
        competition: Bools,
        reached: float,
        effort: Effort,
    ) -> None:
        self._n = n = len(pair_values)
        self._rows = rows = PairRows(edges, competition)
        self._values = np.asarray(pair_values[rows.first, rows.second], dtype=np.float64)
        self._matrix = np.where(competition, 0.0, pair_values)
        self._edges = edges & ~competition
        self._reached = reached
        self._effort = effort
        # The weight of the distance between both projections: that of values measures well.
        self._weight = float(self._values.mean()) if len(self._values) else 1.0
        self._together = self._full(np.full(len(self._values), 0.3))
        self._pull = np.zeros((n, n))  # the multipliers of the equality of both projections
        self.bound = math.inf
        self._best = _Multipliers([], np.zeros(0), np.zeros((0, n), dtype=np.int64))

    def run(self) -> None:
        """Add inequalities until none is found, little is gained, or the effort is spent."""
        if self._weight <= 0:
            self._take_bound(np.zeros((0, self._n)))
            return
        history: list[float] = []
        for rounds in itertools.count(1):
            cut_off = self._approach()
            self._take_bound(cut_off)
            history.append(self.bound)
            closed = self.bound <= self._reached * (1 + 1e-9)
            stuck = rounds > 2 * PATIENCE and (
                history[-1 - PATIENCE] - self.bound < LEAST_GAIN * self.bound
            )
            if closed or stuck or self._effort.over:
                return
            if rounds > FIRST_STARS:
                self._rows.drop(self._together[self._rows.first, self._rows.second])
                self._rows.take(self._violated(rounds), NEW_EACH * self._n)

    @property
    def prices(self) -> PairPrices:
        """The prices of the lowest bound; participants pay for what is left of their pairs."""
        rows, best = self._rows, self._best
        # Halves of positive rests, and a margin for their rounding.
        rest = np.maximum(self._rest(best), 0.0) + 1e-12 * np.abs(self._values).max(initial=0.0)
        both = np.bincount(rows.first, rest, self._n) + np.bincount(rows.second, rest, self._n)
        share = both * (0.5 * (1 + 1e-12))
        squares = [" ".join(("square", *map(str, own))) for own in best.squares.tolist()]
        price = math.ldexp(0.5, -2 * DIGITS)
        paid = [price * _right_side(own) for own in best.squares.tolist()]
        paid += rows.cost(best.names, best.prices)
        # Less than the total would leave a gap, and all coalitions within it would be listed.
        total = math.fsum([*paid, *share.tolist()]) * (1 + 2.0**-45)
        prices = [price] * len(squares) + best.prices.tolist()
        return PairPrices(squares + best.names, prices, share.tolist(), total)

    # The program ---------------------------------------------------------------------------

    def _approach(self) -> Floats:
        """Make some steps; return what the last projection cut off, as vectors to be squared."""
        vectors = np.zeros((0, self._n))
        for _ in range(STEPS):
            wanted = self._together - self._pull + self._matrix / (2 * self._weight)
            eigenvalues, basis = np.linalg.eigh(wanted)
            negative = eigenvalues < 0
            vectors = (basis[:, negative] * np.sqrt(-eigenvalues[negative])).T
            semidefinite = wanted + vectors.T @ vectors
            ahead = OVER * semidefinite + (1 - OVER) * self._together + self._pull
            x = self._rows.project(ahead[self._rows.first, self._rows.second], SWEEPS)
            self._together = self._full(x)
            self._pull = ahead - self._together
            work = SECONDS_PER_CUBE * self._n**3
            self._effort.spend(work + SECONDS_PER_ENTRY * SWEEPS * self._rows.entries)
            if self._effort.over:
                break
        return vectors * math.sqrt(2 * self._weight)

    def _full(self, x: Floats) -> Floats:
        matrix = np.eye(self._n)
        matrix[self._rows.first, self._rows.second] = x
        matrix[self._rows.second, self._rows.first] = x
        return matrix

    def _take_bound(self, cut_off: Floats) -> None:
        """Keep the multipliers of the moment if they prove a lower bound than before."""
        squares = np.rint(np.ldexp(cut_off, DIGITS)).astype(np.int64)
        used = np.flatnonzero(self._rows.multipliers > 0).tolist()
        names, every = [], self._rows.names
        names = [every[k] for k in used]
        prices = 2 * self._weight * self._rows.multipliers[used]
        found = _Multipliers(names, prices, squares[squares.any(axis=1)])
        right = math.ldexp(0.5, -2 * DIGITS) * sum(map(_right_side, found.squares.tolist()))
        rest = np.maximum(self._rest(found), 0.0)
        # The margin covers the rounding of all sums.
        total = right + math.fsum(prices * self._rows.rights[used]) + math.fsum(rest)
        margin = 1e-13 * (right + self._n**2)
        if total * (1 + 1e-11) + margin < self.bound:
            self.bound, self._best = total * (1 + 1e-11) + margin, found

    def _rest(self, multipliers: _Multipliers) -> Floats:
        """Return what multipliers leave of the value of each pair."""
        # Exact: whole numbers of 63 bits are not exceeded.
        product = np.ldexp((multipliers.squares.T @ multipliers.squares).astype(np.float64), -40)
        values = self._values + product[self._rows.first, self._rows.second]
        return self._rows.lowered(values, multipliers.names, multipliers.prices)

    def _violated(self, rounds: int) -> list[Violated]:
        """Find inequalities that the solution of the moment violates."""
        self._effort.spend(SECONDS_PER_TRIPLE * self._n**3)
        together = np.clip(self._together, 0.0, 1.0)
        np.fill_diagonal(together, 0.0)
        found = violated_stars(together) + violated_support(together, self._edges)
        if rounds <= FIRST_WHEELS:
            return found
        centres = range(rounds % WHEEL_PARTS, self._n, WHEEL_PARTS)
        self._effort.spend(SECONDS_PER_WHEEL * len(centres) * self._n**3)
        return found + violated_wheels(together, centres)


def _right_side(numbers: list[int]) -> int:
    """Return the right side of the inequality of a square."""
    return sum(u * u for u in numbers) - abs(sum(numbers))
