"""The partition of highest welfare as an integer program, solved by OR-Tools' CP-SAT.

One boolean for each pair of independent participants says whether they are together. Being together
is transitive; who is with anybody at all has a giver and a taker with it (Principle 1); competitors
are apart (Principle 2). The sum of the benefits of the pairs that are together is the welfare.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.errors import MissingDependencyError

__all__ = ["PairSolution", "load_solver", "solve_pairs"]

SCALE_BITS = 44
"""Weights become integers that sum to at most 2**44; what rounding loses is added to the bound."""


@dataclass(frozen=True)
class PairSolution:
    """A partition of positions, an upper bound on any welfare, and whether the two meet."""

    partition: list[list[int]] | None
    upper_bound: float
    optimal: bool


def solve_pairs(
    weights: npt.NDArray[np.float64],
    competition: npt.NDArray[np.bool_],
    *,
    seconds: float,
    work: float,
    seed: int,
    hint: Sequence[Sequence[int]] = (),
    keep: Sequence[Sequence[int]] = (),
) -> PairSolution:
    """Maximise welfare over all partitions that satisfy principles 1 and 2.

    Parameters
    ----------
    seconds : float
        When to stop.
    work : float
        How much the solver may do, in its own count: about a second each, and the same on every
        machine.
    hint : partition
        A partition to start from.
    keep : partition, optional
        Among partitions of equal, proven highest welfare, return one in which as many participants
        as possible stay where this (possibly partial) partition has them.
    """
    cp_model = load_solver()
    n = len(weights)
    model = cp_model.CpModel()
    together: dict[tuple[int, int], Any] = {}
    for i, j in itertools.combinations(range(n), 2):
        if not competition[i, j]:
            together[i, j] = together[j, i] = model.new_bool_var(f"x{i},{j}")
    for i, j, k in itertools.combinations(range(n), 3):
        pairs = [together.get(pair) for pair in ((i, j), (j, k), (i, k))]
        for apart in range(3):
            one, other = (pairs[p] for p in range(3) if p != apart)
            if one is None or other is None:
                continue
            third = pairs[apart]
            model.add_bool_or([~one, ~other] if third is None else [~one, ~other, third])
    for i in range(n):
        with_i = [together[i, j] for j in range(n) if (i, j) in together]
        givers = [together[i, j] for j in range(n) if (i, j) in together and weights[j, i] > 0]
        takers = [together[i, j] for j in range(n) if (i, j) in together and weights[i, j] > 0]
        for pair in with_i:
            model.add_bool_or([~pair, *givers])
            model.add_bool_or([~pair, *takers])

    # Integers for the solver. Rounding moves the welfare of any partition by at most `slack`.
    total = float(weights.sum()) or 1.0
    scale = 2.0**SCALE_BITS / total
    values = {(i, j): round((weights[i, j] + weights[j, i]) * scale) for i, j in together if i < j}
    slack = 0.5 * len(values) / scale
    welfare = sum(values[pair] * together[pair] for pair in values)
    model.maximize(welfare)
    if hint:
        _add_hint(model, together, hint)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return PairSolution(None, math.inf, False)  # its bound means nothing before a solution
    optimal = status == cp_model.OPTIMAL
    partition = _groups(n, {pair for pair, x in together.items() if solver.value(x)})
    bound = solver.best_objective_bound / scale + slack
    if optimal and keep:
        # Equal welfare may differ by the rounding of each pair.
        model.add(welfare >= round(solver.objective_value) - len(values))
        model.maximize(_stayers(model, together, keep))
        model.clear_hints()
        _add_hint(model, together, partition)
        if solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            partition = _groups(n, {pair for pair, x in together.items() if solver.value(x)})
    return PairSolution(partition, bound, optimal)


def _stayers(
    model: Any, together: dict[tuple[int, int], Any], keep: Sequence[Sequence[int]]
) -> Any:
    """Return how many stay: those who do are together if and only if they were."""
    home = {i: number for number, group in enumerate(keep) for i in group}
    stays = {i: model.new_bool_var(f"stay{i}") for i in home}
    for i, j in itertools.combinations(home, 2):
        pair = together.get((i, j))
        if home[i] == home[j]:
            model.add_bool_or([~stays[i], ~stays[j]] + ([] if pair is None else [pair]))
        elif pair is not None:
            model.add_bool_or([~stays[i], ~stays[j], ~pair])
    return sum(stays.values())


def _add_hint(
    model: Any, together: dict[tuple[int, int], Any], partition: Sequence[Sequence[int]]
) -> None:
    home = {i: number for number, group in enumerate(partition) for i in group}
    for (i, j), pair in together.items():
        if i < j:
            model.add_hint(pair, home[i] == home[j])


def _groups(n: int, pairs: set[tuple[int, int]]) -> list[list[int]]:
    """Return the partition that a transitive relation stands for."""
    groups: list[list[int]] = []
    for i in range(n):
        for group in groups:
            if (group[0], i) in pairs:
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def load_solver() -> Any:
    """Import OR-Tools, or say how to get it."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingDependencyError(
            "method 'best' needs OR-Tools: pip install ortools. Without it, method 'stable' works"
        ) from None
    return cp_model
