"""The best partition out of a list of coalitions, by OR-Tools' CP-SAT.

The set-partitioning problem: maximise Σ_S v(S) x_S, where x_S says whether coalition S is taken,
and every participant is in at most one coalition taken. A participant in none is alone.
"""

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Partition
from fedegoists.coalitions.exact.solvers import load_solver

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, CpSolverStatus, IntVar, LinearExprT

SCALE_BITS = 50
"""CP-SAT needs integers: values are scaled so that the largest total is about 2**50. The upper
bound allows for the rounding."""

SECONDS_TO_END = 1e-5
"""How much earlier the solver is told to stop, per coalition: it stops with a delay."""


@dataclass(frozen=True)
class Choice:
    """The partition chosen, an upper bound on any choice, and whether the two meet.

    `clock_ended` tells that time rather than work ended the search, so that another run may differ;
    `work` is what was done, in the solver's own count.
    """

    partition: list[list[int]]
    upper_bound: float
    optimal: bool
    clock_ended: bool = False
    work: float = 0.0


def partition_of(columns: Bools) -> list[list[int]]:
    """Return the partition of some disjoint coalitions; the other participants are alone."""
    groups: list[list[int]] = [np.flatnonzero(column).tolist() for column in columns]
    alone = set(range(columns.shape[1])).difference(*groups)
    return sorted([*groups, *([i] for i in alone)])


def rows_of(partition: Partition, columns: Bools) -> list[int]:
    """Return the rows of `columns` that are coalitions of a partition."""
    known = {tuple(group) for group in partition if len(group) > 1}
    return [k for k, c in enumerate(columns) if tuple(np.flatnonzero(c).tolist()) in known]


def choose(
    columns: Bools,
    values: Floats,
    *,
    at_most: float,
    deadline: float,
    work: float,
    seed: int,
    start: Partition = (),
    keep: Partition = (),
) -> Choice:
    """Choose disjoint coalitions of the highest total value.

    Parameters
    ----------
    columns : boolean matrix
        A row for each coalition.
    at_most : float
        An upper bound on any total, for scaling.
    deadline : float
        When to stop, by `time.perf_counter`.
    work : float
        When to stop, in the solver's own count, about a second each.
    start : partition
        Its coalitions, as far as they are listed, are the choice to start from.
    keep : partition, optional
        Among choices of equal, proven highest value, return one in which as many participants as
        possible stay where this (possibly partial) partition has them.
    """
    cp_model = load_solver()
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"x{k}") for k in range(len(columns))]
    n = columns.shape[1]
    for i in range(n):
        model.add_at_most_one([taken[k] for k in np.flatnonzero(columns[:, i]).tolist()])
    _, exponent = math.frexp(at_most or 1.0)
    scale = SCALE_BITS - exponent
    integers = [round(math.ldexp(value, scale)) for value in values.tolist()]
    total = cp_model.LinearExpr.weighted_sum(taken, integers)
    model.maximize(total)
    hint = rows_of(start, columns)
    _add_hint(model, taken, set(hint))

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed % 2**31
    deadline -= SECONDS_TO_END * len(columns)
    status, late, done = solve_until(solver, model, deadline, work)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Choice(partition_of(columns[hint]), math.inf, False, late, done)
    chosen = [k for k, x in enumerate(taken) if solver.value(x)]
    # Each value is off by half a unit at most, and no choice has more than n / 2 coalitions.
    bound = math.ldexp(solver.best_objective_bound + n / 4 + 1, -scale)
    if status == cp_model.OPTIMAL and keep:
        # A second solve: at the highest value, up to rounding, as many stayers as possible.
        model.add(total >= round(solver.objective_value) - n)
        model.maximize(_stayers(model, columns, taken, keep))
        model.clear_hints()
        _add_hint(model, taken, set(chosen))
        again, late, more = solve_until(solver, model, deadline, work)
        done += more
        if again in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            chosen = [k for k, x in enumerate(taken) if solver.value(x)]
    optimal = status == cp_model.OPTIMAL
    return Choice(partition_of(columns[chosen]), bound, optimal, late, done)


def solve_until(
    solver: "CpSolver", model: "CpModel", deadline: float, work: float
) -> "tuple[CpSolverStatus, bool, float]":
    """Solve with one worker until proven, the work is done or the time is up.

    Returns the solver's status, whether time ended it, and the work done.
    """
    cp_model = load_solver()
    seconds = min(deadline - time.perf_counter(), 1e6)
    if seconds <= 0:
        return cp_model.UNKNOWN, True, 0.0
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.max_deterministic_time = work
    solver.parameters.catch_sigint_signal = False  # or Ctrl-C would only end this solve
    status = solver.solve(model)
    late = status != cp_model.OPTIMAL and time.perf_counter() > deadline - 0.05 * seconds
    return status, late, float(solver.response_proto.deterministic_time)


def _add_hint(model: "CpModel", taken: "list[IntVar]", chosen: set[int]) -> None:
    for k, x in enumerate(taken):
        model.add_hint(x, k in chosen)


def _stayers(
    model: "CpModel", columns: Bools, taken: "list[IntVar]", keep: Partition
) -> "LinearExprT":
    """Return the number of stayers: shared members of old coalitions and their new partners."""
    n = columns.shape[1]
    covering = [[taken[k] for k in np.flatnonzero(columns[:, i]).tolist()] for i in range(n)]
    new_groups = [*columns, *np.eye(n, dtype=np.bool_)]
    staying = []
    by_new: list[list[IntVar]] = [[] for _ in new_groups]
    for g, group in enumerate(keep):
        members = np.zeros(n, dtype=np.bool_)
        members[list(group)] = True
        here = []
        for k, column in enumerate(new_groups):
            shared = int((column & members).sum())
            if shared:
                paired = model.new_bool_var(f"pair{g},{k}")
                here.append(paired)
                by_new[k].append(paired)
                staying.append(shared * paired)
        model.add_at_most_one(here)
    # A new coalition is paired at most once, and only if it is taken.
    for k, pairs in enumerate(by_new):
        if k < len(taken):
            model.add(sum(pairs) <= taken[k])
        elif pairs:
            # A coalition of one is there if its member is in no other.
            model.add(sum(pairs) + sum(covering[k - len(taken)]) <= 1)
    return sum(staying)
