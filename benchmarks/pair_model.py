"""The partition of highest welfare as a plain integer program over pairs, for comparison.

One boolean for each pair of independent participants says whether they are together. Being together
is transitive; who is with anybody at all has a giver and a taker with it (Principle 1); competitors
are apart (Principle 2). The sum of the benefits of the pairs that are together is the welfare.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.exact.solvers import load_solver

__all__ = ["PairSolution", "solve_pairs"]

SCALE_BITS = 44
"""Weights become integers that sum to at most 2**44; what rounding loses is added to the bound."""

TOLERANCE = 1e-9
"""A welfare counts as the highest if the bound exceeds it by no more than this part."""


@dataclass(frozen=True)
class PairSolution:
    """A partition of positions, an upper bound on any welfare, and whether the two meet.

    `clock_ended` tells that time, not work, stopped the solver: another run may get further.
    """

    partition: list[list[int]] | None
    upper_bound: float
    optimal: bool
    clock_ended: bool = False


def solve_pairs(
    weights: npt.NDArray[np.float64],
    competition: npt.NDArray[np.bool_],
    *,
    seconds: float,
    work: float,
    seed: int,
    hint: Sequence[Sequence[int]] = (),
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
    """
    deadline = time.perf_counter() + seconds
    pair_weights = {
        (i, j): float(weights[i, j] + weights[j, i])
        for i, j in itertools.combinations(range(len(weights)), 2)
        if not competition[i, j]
    }
    while True:
        left = max(deadline - time.perf_counter(), 0.01)
        solution = _solve(weights, pair_weights, left, work, seed, hint)
        # A pair that is worth more than any partition can reach is together in none. Without
        # such pairs the numbers that matter are rounded less, and the bound may meet the welfare.
        hopeless = [p for p, weight in pair_weights.items() if weight > solution.upper_bound]
        if solution.optimal or solution.clock_ended or not hopeless:
            return solution
        for pair in hopeless:
            del pair_weights[pair]


def _solve(
    weights: npt.NDArray[np.float64],
    pair_weights: dict[tuple[int, int], float],
    seconds: float,
    work: float,
    seed: int,
    hint: Sequence[Sequence[int]],
) -> PairSolution:
    """Solve with only some pairs allowed together."""
    cp_model = load_solver()
    n = len(weights)
    model = cp_model.CpModel()
    together: dict[tuple[int, int], Any] = {}
    for i, j in pair_weights:
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
    # Dividing by the largest first keeps tiny and huge weights alike from overflowing.
    largest = max(pair_weights.values(), default=0.0) or 1.0
    unit = math.fsum(weight / largest for weight in pair_weights.values()) or 1.0
    scale = 2.0**SCALE_BITS / unit
    values = {pair: round(weight / largest * scale) for pair, weight in pair_weights.items()}
    slack = 0.5 * len(values) / scale * largest
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
    clock_ended = status != cp_model.OPTIMAL and solver.wall_time > 0.95 * seconds
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        # Its bound means nothing before there is a solution.
        return PairSolution(None, math.inf, False, clock_ended)
    partition = _groups(n, {pair for pair, x in together.items() if solver.value(x)})
    bound = solver.best_objective_bound / scale * largest + slack
    reached = math.fsum(float(weights[i, j]) for group in partition for i in group for j in group)
    optimal = status == cp_model.OPTIMAL and bound <= reached * (1 + TOLERANCE) + 2 * slack
    return PairSolution(partition, bound, optimal, clock_ended)


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
