"""The restricted master: the linear program over the coalitions known so far, and its prices.

With x_S the amount of coalition S that is used and v(S) its value:

    maximise  Σ_S v(S) x_S   subject to   Σ_{S ∋ i} x_S ≤ 1  for every participant i,  x ≥ 0,

and, for some *triples* of participants, the subset-row inequalities of Jepsen and others (2008):
only one coalition of a partition can hold two or three of a triple, so the amounts of all such
coalitions sum to at most 1. The dual values are the prices of participants and triples.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats
from fedegoists.coalitions.exact.solvers import load_linear_solver

if TYPE_CHECKING:
    from ortools.linear_solver.pywraplp import Constraint, Variable

Triple = tuple[int, int, int]

MOST_COLUMNS = 4000
"""With more coalitions, those with the highest reduced costs are dropped."""

MOST_TRIPLES_EACH = 6
"""New triples per participant in one round: more would say much the same."""

LEAST_EXCESS = 0.02
"""A triple is added if the solution violates its inequality by more."""


class RestrictedMaster:
    """Coalitions with their values, triples, and the linear program over them."""

    def __init__(self, pair_values: Floats, bonus: float) -> None:
        self._pair_values = pair_values
        self._bonus = bonus  # added to the value of a coalition for each member
        self.triples: list[Triple] = []
        self._columns: dict[bytes, Bools] = {}
        self._mixture: list[float] = []
        self._prices = np.zeros(len(pair_values))
        self._build()

    def _build(self) -> None:
        """Set up the linear program for the present coalitions and triples."""
        self._solver = load_linear_solver().Solver.CreateSolver("GLOP")
        infinity = self._solver.infinity()
        n = len(self._pair_values)
        self._rows = [self._solver.Constraint(-infinity, 1.0) for _ in range(n)]
        self._triple_rows: list[Constraint] = []
        self._variables: list[Variable] = []
        self._objective = self._solver.Objective()
        self._objective.SetMaximization()
        columns, self._columns = list(self._columns.values()), {}
        for column in columns:
            self.add(column)
        triples, self.triples = self.triples, []
        for triple in triples:
            self.add_triple(triple)

    def value(self, column: Bools) -> float:
        """Return the value of a coalition, the bonus for each member included."""
        rows = np.flatnonzero(column)
        return float(self._pair_values[np.ix_(rows, rows)].sum()) / 2 + self._bonus * len(rows)

    def add(self, column: Bools) -> bool:
        """Add a coalition; return whether it is new."""
        key = column.tobytes()
        if key in self._columns:
            return False
        self._columns[key] = column
        variable = self._solver.NumVar(0.0, self._solver.infinity(), "")
        for i in np.flatnonzero(column).tolist():
            self._rows[i].SetCoefficient(variable, 1.0)
        for (a, b, c), row in zip(self.triples, self._triple_rows, strict=True):
            if int(column[a]) + int(column[b]) + int(column[c]) > 1:
                row.SetCoefficient(variable, 1.0)
        self._objective.SetCoefficient(variable, self.value(column))
        self._variables.append(variable)
        return True

    def add_triple(self, triple: Triple) -> None:
        """Add the inequality of a triple."""
        row = self._solver.Constraint(-self._solver.infinity(), 1.0)
        self.triples.append(triple)
        self._triple_rows.append(row)
        held = self.columns[:, list(triple)].sum(axis=1) > 1 if self._columns else ()
        for k in np.flatnonzero(held).tolist():
            row.SetCoefficient(self._variables[k], 1.0)

    @property
    def columns(self) -> Bools:
        """All coalitions as rows of a boolean matrix."""
        if not self._columns:
            return np.zeros((0, len(self._pair_values)), dtype=np.bool_)
        return np.array(list(self._columns.values()))

    def solve(self, seconds: float) -> tuple[float, Floats]:
        """Return the value of the linear program and the prices, participants' before triples'.

        If that takes longer than `seconds`, the value is infinite and the prices are the last
        ones: the search for coalitions works with any prices.
        """
        self._solver.SetTimeLimit(int(min(max(1000 * seconds, 1.0), 1e9)))
        if len(self._columns) > MOST_COLUMNS:
            self._drop_columns()
        if self._solver.Solve() != self._solver.OPTIMAL:
            new = len(self._rows) + len(self._triple_rows) - len(self._prices)
            return math.inf, np.concatenate([self._prices, np.zeros(new)])
        self._mixture = [x.solution_value() for x in self._variables]
        rows = [*self._rows, *self._triple_rows]
        prices = np.array([row.dual_value() for row in rows], dtype=np.float64)
        self._prices = np.maximum(np.nan_to_num(prices), 0.0)
        return self._objective.Value(), self._prices

    @property
    def mixture(self) -> Floats:
        """The amount x_S of each coalition in the last solution; zero for those added since."""
        since = len(self._variables) - len(self._mixture)
        return np.array([*self._mixture, *[0.0] * since], dtype=np.float64)

    def _drop_columns(self) -> None:
        """Keep the half of the coalitions that are closest to being used."""
        if self._solver.Solve() != self._solver.OPTIMAL:
            return
        close = np.array([x.reduced_cost() for x in self._variables])
        kept = np.sort(np.argsort(-close, kind="stable")[: MOST_COLUMNS // 2])
        columns = list(self._columns.items())
        self._columns = dict(columns[k] for k in kept)
        self._build()

    def separate(self, most: int = 40) -> int:
        """Add triples that the last solution violates, the most violated first; return how many.

        The coalitions with two or three of {i, a, b} are those with i and a, with i and b, and
        with a and b; a coalition with all three is counted thrice there, so twice too often.
        """
        mixture = self.mixture
        # Coalitions used wholly, or not at all, violate nothing.
        used = np.flatnonzero((mixture > 1e-6) & (mixture < 1 - 1e-6))
        if not len(used):
            return 0
        share = mixture[used]
        columns = self.columns[used].astype(np.float64)
        pairs = (columns * share[:, None]).T @ columns  # by pair: the amount that holds both
        known = set(self.triples)
        found: list[tuple[float, Triple]] = []
        for i in np.flatnonzero(columns.any(axis=0)).tolist():
            mine = columns[:, i] > 0
            with_i = (columns[mine] * share[mine, None]).T @ columns[mine]
            excess = pairs[i][:, None] + pairs[i][None, :] + pairs - 2 * with_i - 1
            excess[: i + 1] = 0  # i is the smallest of its triples
            for a, b in np.argwhere(np.triu(excess, 1) > LEAST_EXCESS).tolist():
                if (i, a, b) not in known:
                    found.append((-float(excess[a, b]), (i, a, b)))
        found.sort()
        times = np.zeros(len(self._pair_values), dtype=np.int64)
        added = 0
        for _, triple in found:
            if added < most and (times[list(triple)] < MOST_TRIPLES_EACH).all():
                times[list(triple)] += 1
                self.add_triple(triple)
                added += 1
        return added
