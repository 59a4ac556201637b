"""An upper bound from the pairs alone: a linear program with cuts, whose prices are a short proof.

A variable x_ij for each two independents says whether they are together. The linear program
maximises Σ v_ij x_ij under inequalities that every valid partition satisfies; those that its
solution violates are added round by round (`pair_separation`). Any prices y ≥ 0 of them prove the
bound Σ y b + Σ max(0, v_ij − Σ y a_ij), which a checker adds up without a search.

The solutions jump between the corners of a flat polytope. Separating their running mean instead
needs a fraction of the rounds.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.pair_separation import (
    Violated,
    violated_stars,
    violated_support,
    violated_wheels,
)
from fedegoists.coalitions.exact.solvers import load_linear_solver

if TYPE_CHECKING:
    from ortools.linear_solver.pywraplp import Variable

MEAN = 0.7
"""The fraction of the old running mean in the new one."""

NEW_EACH = 6
"""Inequalities added in one round, per participant."""

REBUILD_EVERY = 10
"""Rounds after which inequalities that are not tight are dropped."""

SLACK_KEPT = 0.05
"""Inequalities that are further from being tight are dropped."""

FIRST_WHEELS = 4
"""Rounds with stars only, before wheels are looked for."""

PATIENCE, LEAST_GAIN = 6, 5e-4
"""The search ends if so many rounds lower the bound by less than this fraction."""

SECONDS_PER_ENTRY = 6e-8
"""Work of a simplex iteration, per inequality; and of the separation, per three participants."""

PARAMETERS = "use_dual_simplex: true use_preprocessing: false"
"""Without preprocessing, the dual simplex goes on from the last basis when rows are added."""

MOST_PARTICIPANTS = 150
"""With more, a single linear program takes too long."""


@dataclass
class _Row:
    pairs: Ints
    factors: Floats
    right: float


@dataclass
class _Program:
    """The linear program of the moment."""

    variables: "list[Variable]"
    add: Callable[[_Row], None]
    solve: Callable[[float], tuple[bool, int]]
    prices: Callable[[], Floats]


@dataclass
class PairPrices:
    """Prices of inequalities and, for what they leave, of participants."""

    rows: list[str] = field(default_factory=list)
    row_prices: list[float] = field(default_factory=list)
    prices: list[float] = field(default_factory=list)
    total: float = 0.0  # what all of them cost: the bound that they prove by adding up


class PairRelaxation:
    """The linear program over pairs of one component, and the lowest bound that it gave."""

    def __init__(
        self,
        pair_values: Floats,
        edges: Bools,
        competition: Bools,
        reached: float,
        effort: Effort,
    ) -> None:
        self._n = n = len(pair_values)
        free = np.triu(~competition, 1)
        self._first, self._second = np.nonzero(free)
        self._place = np.full((n, n), -1)
        self._place[free] = np.arange(len(self._first))
        self._place = np.maximum(self._place, self._place.T)
        self._values = np.asarray(pair_values[free], dtype=np.float64)
        self._edges = edges & ~competition
        self._reached = reached
        self._effort = effort
        self._rows: dict[str, _Row] = {}
        self._matrix = ~competition & ~np.eye(n, dtype=np.bool_)
        self.bound = math.inf
        self._best: tuple[list[str], Floats] = ([], np.zeros(0))

    def run(self) -> None:
        """Add inequalities until none is found, little is gained, or the effort is spent."""
        together = mean = self._matrix.astype(np.float64)
        history: list[float] = []
        self._take(self._violated(mean, 0))
        program = self._built()
        for rounds in itertools.count(1):
            solved, together = self._solved(program, together)
            history.append(self.bound)
            closed = self.bound <= self._reached * (1 + 1e-9)
            stuck = rounds > 2 * PATIENCE and (
                history[-1 - PATIENCE] - self.bound < LEAST_GAIN * self.bound
            )
            if closed or stuck or not solved or self._effort.over:
                return
            mean = MEAN * mean + (1 - MEAN) * together
            found = self._violated(mean, rounds)
            if len(found) < self._n:
                found += self._violated(together, FIRST_WHEELS)
            new = self._take(found)
            if not new:
                return
            if rounds % REBUILD_EVERY == 0:
                self._drop(together)
                program = self._built()
            else:
                for row in new:
                    program.add(row)

    @property
    def prices(self) -> PairPrices:
        """The prices of the lowest bound; participants pay for what is left of their pairs."""
        names, prices = self._best
        used = np.flatnonzero(prices > 0).tolist()
        # Halves of positive rests, and a margin for their rounding.
        rest = np.maximum(self._rest(names, prices), 0.0) + 1e-12 * np.abs(self._values).max()
        both = np.bincount(self._first, rest, self._n) + np.bincount(self._second, rest, self._n)
        share = both * (0.5 * (1 + 1e-12))
        rows = [names[k] for k in used]
        paid = [prices[k] * self._row(name).right for k, name in zip(used, rows, strict=True)]
        # Less than the total would leave a gap, and all coalitions within it would be listed.
        total = math.fsum([*paid, *share.tolist()]) * (1 + 2.0**-45)
        return PairPrices(rows, prices[used].tolist(), share.tolist(), total)

    # The linear program --------------------------------------------------------------------

    def _built(self) -> _Program:
        solver = load_linear_solver().Solver.CreateSolver("GLOP")
        solver.SetSolverSpecificParametersAsString(PARAMETERS)
        objective = solver.Objective()
        objective.SetMaximization()
        variables = [solver.NumVar(0.0, 1.0, "") for _ in self._values]
        for variable, value in zip(variables, self._values.tolist(), strict=True):
            objective.SetCoefficient(variable, value)
        constraints = []

        def add(row: _Row) -> None:
            constraint = solver.Constraint(-solver.infinity(), row.right)
            for k, factor in zip(row.pairs.tolist(), row.factors.tolist(), strict=True):
                constraint.SetCoefficient(variables[k], factor)
            constraints.append(constraint)

        def solve(seconds: float) -> tuple[bool, int]:
            solver.SetTimeLimit(int(min(max(1000 * seconds, 1.0), 1e9)))
            return solver.Solve() == solver.OPTIMAL, solver.iterations()

        def prices() -> Floats:
            duals = np.array([one.dual_value() for one in constraints], dtype=np.float64)
            return np.maximum(np.nan_to_num(duals), 0.0)

        for row in self._rows.values():
            add(row)
        return _Program(variables, add, solve, prices)

    def _solved(self, program: _Program, before: Floats) -> tuple[bool, Floats]:
        """Solve, and take up the bound; return whether it ended in time, and the solution."""
        solved, iterations = program.solve(self._effort.seconds_left)
        self._effort.spend(SECONDS_PER_ENTRY * (iterations * len(self._rows) + self._n**3))
        if not solved:
            self._effort.clock_ended = True
            return False, before
        names, prices = list(self._rows), program.prices()
        right = np.array([row.right for row in self._rows.values()])
        rest = self._rest(names, prices)
        # The margin covers the rounding of both sums.
        bound = (math.fsum(prices * right) + math.fsum(np.maximum(rest, 0.0))) * (1 + 1e-11)
        if bound < self.bound:
            self.bound, self._best = bound, (names, prices)
        x = np.zeros((self._n, self._n))
        x[self._first, self._second] = [one.solution_value() for one in program.variables]
        return True, np.clip(x + x.T, 0.0, 1.0)

    def _rest(self, names: list[str], prices: Floats) -> Floats:
        """Return what prices leave of the value of each pair."""
        rest = self._values.copy()
        for name, price in zip(names, prices.tolist(), strict=True):
            if price > 0:
                row = self._row(name)
                rest[row.pairs] -= price * row.factors
        return rest

    # Inequalities --------------------------------------------------------------------------

    def _violated(self, together: Floats, rounds: int) -> list[Violated]:
        found = violated_stars(together) + violated_support(together, self._edges)
        return found + violated_wheels(together) if rounds >= FIRST_WHEELS else found

    def _take(self, found: list[Violated]) -> list[_Row]:
        """Add the most violated inequalities that are new, and return them."""
        added: list[_Row] = []
        for _, name in sorted(found, key=lambda one: (-one[0], one[1])):
            if len(added) >= NEW_EACH * self._n:
                break
            if name not in self._rows:
                self._rows[name] = self._row(name)
                added.append(self._rows[name])
        return added

    def _row(self, name: str) -> _Row:
        known = self._rows.get(name)
        if known is not None:
            return known
        kind, *numbers = name.split(" ")
        centre, *others = map(int, numbers)
        factors: dict[tuple[int, int], float] = {(centre, other): 1.0 for other in others}
        pairs: Iterable[tuple[int, int]]
        if kind == "wheel":
            pairs = zip(others, (*others[1:], others[0]), strict=True)
            right = len(others) // 2
        else:
            pairs = itertools.combinations(others, 2)
            right = 1 if kind == "star" else 0
        factors |= dict.fromkeys(pairs, -1.0)
        if kind in ("givers", "takers"):
            helps = self._edges[:, centre] if kind == "givers" else self._edges[centre]
            for other in np.flatnonzero(helps).tolist():
                factors[centre, other] = factors.get((centre, other), 0.0) - 1.0
        places = np.array([self._place[pair] for pair in factors], dtype=np.int64)
        kept = places >= 0
        return _Row(places[kept], np.array(list(factors.values()))[kept], float(right))

    def _drop(self, together: Floats) -> None:
        """Keep the inequalities that are nearly tight, and those of the best bound."""
        x = together[self._first, self._second]
        self._rows = {
            name: row
            for name, row in self._rows.items()
            if row.factors @ x[row.pairs] > row.right - SLACK_KEPT
        }
