"""The best partition out of a list of coalitions, by OR-Tools' CP-SAT.

One boolean for each coalition; everybody is in one at most. Whoever is in none is alone.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats
from fedegoists.coalitions.exact.solvers import load_solver

__all__ = ["Choice", "choose", "solve_until"]


SCALE_BITS = 50
"""Values become integers, the largest total about 2**50; what rounding loses goes to the bound."""

SECONDS_TO_END = 1e-5
"""How much earlier the solver is told to stop, for each coalition: it does so with a delay."""


@dataclass(frozen=True)
class Choice:
    """Which coalitions to take, an upper bound on any choice, and whether the two meet.

    `clock_ended` tells that time rather than work ended it, so that another run may differ.
    """

    chosen: list[int]
    upper_bound: float
    optimal: bool
    clock_ended: bool = False


def choose(
    columns: Bools,
    values: Floats,
    *,
    at_most: float,
    deadline: float,
    work: float,
    seed: int,
    hint: Sequence[int] = (),
    keep: Sequence[Sequence[int]] = (),
) -> Choice:
    """Choose disjoint coalitions of the highest total value.

    Parameters
    ----------
    columns : boolean matrix
        A row for each coalition.
    at_most : float
        A total that no choice exceeds, for scaling.
    deadline : float
        When to stop, by `time.perf_counter`.
    work : float
        When to stop, in the solver's own count, about a second each.
    hint : rows
        A choice to start from.
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
    _add_hint(model, taken, set(hint))

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed % 2**31
    deadline -= SECONDS_TO_END * len(columns)
    status, late, _ = solve_until(solver, model, deadline, work)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Choice(list(hint), math.inf, False, late)
    chosen = [k for k, x in enumerate(taken) if solver.value(x)]
    # Each value is off by half a unit at most, and no choice has more than n / 2 coalitions.
    bound = math.ldexp(solver.best_objective_bound + n / 4 + 1, -scale)
    if status == cp_model.OPTIMAL and keep:
        model.add(total >= round(solver.objective_value) - n)
        model.maximize(_stayers(model, columns, taken, keep))
        model.clear_hints()
        _add_hint(model, taken, set(chosen))
        again, late, _ = solve_until(solver, model, deadline, work)
        if again in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            chosen = [k for k, x in enumerate(taken) if solver.value(x)]
    return Choice(chosen, bound, status == cp_model.OPTIMAL, late)


def solve_until(solver: Any, model: Any, deadline: float, work: float) -> tuple[Any, bool, float]:
    """Solve with one worker until proven, the work is done or the time is up.

    Returns the solver's status, whether it was the time, and how much work was done.
    """
    cp_model = load_solver()
    seconds = min(deadline - time.perf_counter(), 1e6)
    if seconds <= 0:
        return cp_model.UNKNOWN, True, 0.0
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.max_deterministic_time = work
    solver.parameters.catch_sigint_signal = False  # or an interruption would only end this solve
    status = solver.solve(model)
    late = status != cp_model.OPTIMAL and time.perf_counter() > deadline - 0.05 * seconds
    return status, late, float(solver.response_proto.deterministic_time)


def _add_hint(model: Any, taken: list[Any], chosen: set[int]) -> None:
    for k, x in enumerate(taken):
        model.add_hint(x, k in chosen)


def _stayers(model: Any, columns: Bools, taken: list[Any], keep: Sequence[Sequence[int]]) -> Any:
    """Return how many stay: old coalitions are paired with new ones, who is in both stays."""
    n = columns.shape[1]
    covering = [[taken[k] for k in np.flatnonzero(columns[:, i]).tolist()] for i in range(n)]
    new_groups = [*columns, *np.eye(n, dtype=np.bool_)]
    present = [*taken, *(None for _ in range(n))]
    staying = []
    by_new: list[list[Any]] = [[] for _ in new_groups]
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
    for k, pairs in enumerate(by_new):
        if present[k] is not None:
            model.add(sum(pairs) <= present[k])
        elif pairs:
            # A coalition of one is there if its member is in no other.
            model.add(sum(pairs) + sum(covering[k - len(taken)]) <= 1)
    return sum(staying)
