"""The fairest partition: the lowest utility is as high as possible, then the next, and so on.

Two partitions are compared by all utilities in ascending order; the one that is higher at the first
difference is fairer (leximin). A participant alone has the lowest utility possible, zero, so the
fairest partition leaves as few as possible alone. The comparison can be made component by
component.

Where a component has few valid coalitions, all are listed and CP-SAT proves the fairest choice: at
each level of utility in turn, as few participants as possible are at or below it. Elsewhere the
fairest of the known partitions is improved by single moves and swaps, and nothing is proven.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Partition
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.enumeration import as_columns, is_small, valid_coalitions
from fedegoists.coalitions.exact.reduction import Subproblem, components, restricted
from fedegoists.coalitions.exact.set_partitioning import partition_of, solve_until
from fedegoists.coalitions.exact.solvers import has_solver, load_solver, missing_packages
from fedegoists.coalitions.welfare import utilities
from fedegoists.graphs.participant_graph import Entries

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import LinearExprT

MOST_LISTED = 4000
"""With more valid coalitions the fairest choice is not proven."""

SECONDS_PER_SET = 1e-7
"""Work of looking at a set of a few participants."""

SECONDS_PER_COALITION = 2e-5
"""Time and work of setting up a choice, per coalition."""

SAME = 1e-9
"""Utilities that differ by no more than this fraction count as equal."""


def fairer(one: Floats, other: Floats) -> bool:
    """Whether the first utilities are fairer than the second (leximin)."""
    a, b = np.sort(one), np.sort(other)
    different = np.flatnonzero(np.abs(a - b) > SAME * np.maximum(a, b))
    return bool(len(different)) and bool(a[different[0]] > b[different[0]])


def fairest_partition(
    weights: Floats,
    competition: Bools,
    starts: Sequence[Partition],
    effort: Effort,
    fewest_members: int = 1,
) -> tuple[list[list[int]], bool]:
    """Return the fairest partition found, and whether it is proven to be the fairest.

    Parameters
    ----------
    starts : sequence of partitions
        Partitions that satisfy both principles; the result is at least as fair as each of them.
    fewest_members : int
        The fewest members of a coalition of two or more.
    """
    parts = components(Entries.of(weights), Entries.of(competition), fewest_members)
    result = [[i] for i in sorted(set(range(len(weights))).difference(*parts))]
    proven = True
    for component in parts:
        inside = np.ix_(component, component)
        w, rivals = weights[inside], competition[inside]
        best: list[list[int]] = [[i] for i in range(len(component))]
        for start in starts:
            candidate = restricted(start, component)
            if fairer(utilities(w, candidate), utilities(w, best)):
                best = candidate
        columns = None if effort.over else _all_coalitions(w, rivals, effort, fewest_members)
        if columns is None or not has_solver():
            best, known = _improved(w, rivals, best, effort, fewest_members), False
        else:
            best, known = _choose(w, columns, best, effort)
        proven &= known
        result += [[component[i] for i in group] for group in best]
    return sorted(result), proven


def _all_coalitions(
    weights: Floats, competition: Bools, effort: Effort, fewest_members: int
) -> Bools | None:
    """Return every valid coalition of two or more as a row; None if there are too many."""
    n = len(weights)
    if is_small(n):
        edges = (weights > 0) & ~competition
        columns = as_columns(valid_coalitions(edges, competition, fewest_members), n)
        effort.spend(SECONDS_PER_SET * 2**n)
        return columns if len(columns) <= MOST_LISTED else None
    if missing_packages():
        return None
    from fedegoists.coalitions.exact.pricing import Pricing  # compiled, and not needed above

    problem = Subproblem(weights, weights > 0, competition, fewest_members=fewest_members)
    pricing = Pricing(problem, effort)
    found = np.zeros((0, n), dtype=np.bool_)
    for root in range(n):
        rows = pricing.all_above(root, -1.0, MOST_LISTED - len(found), 200 * 1000 * MOST_LISTED)
        if rows is None:
            return None
        found = np.concatenate([found, rows])
    return found


def _choose(
    weights: Floats, columns: Bools, best: list[list[int]], effort: Effort
) -> tuple[list[list[int]], bool]:
    """Minimise level after level the number of participants at or below it."""
    setup = SECONDS_PER_COALITION * len(columns)
    if effort.over or effort.lacks(2 * setup):
        return best, False
    cp_model = load_solver()
    n = len(weights)
    got = np.where(columns, columns @ weights, np.inf)
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"x{k}") for k in range(len(columns))]
    alone = [model.new_bool_var(f"alone{i}") for i in range(n)]
    for i in range(n):
        with_i = [taken[k] for k in np.flatnonzero(columns[:, i]).tolist()]
        model.add_exactly_one([alone[i], *with_i])

    def up_to(level: float) -> "LinearExprT":
        """Return the number of participants with at most this utility."""
        counts = (got <= level).sum(axis=1)
        some = np.flatnonzero(counts).tolist()
        nobody = [] if level < 0 else alone
        number: LinearExprT = cp_model.LinearExpr.weighted_sum(
            [*nobody, *(taken[k] for k in some)], [*[1] * len(nobody), *counts[some].tolist()]
        )
        return number

    fixed = 0
    improved = False
    while fixed < n:
        # The next utility from below in the best partition so far; can it be raised?
        level = float(np.sort(utilities(weights, best))[fixed])
        count = up_to(level * (1 + SAME))
        # The best partition so far has no more below this level, so neither has the fairest.
        model.add(up_to(level * (1 - SAME) if level > 0 else -1.0) <= fixed)
        model.minimize(count)
        solver = cp_model.CpSolver()
        status, late, done = solve_until(
            solver, model, effort.deadline - setup, max(effort.left, 0.01)
        )
        effort.clock_ended |= late
        effort.spend(setup + done)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            found = partition_of(columns[[k for k, x in enumerate(taken) if solver.value(x)]])
            improved = fairer(utilities(weights, found), utilities(weights, best))
            best = found if improved else best
        if status != cp_model.OPTIMAL:
            return best, False
        least = round(solver.objective_value)
        if least > fixed:
            model.add(count <= least)
            fixed = least
        elif not improved:
            return best, False  # the two differ by no more than rounding
        if fixed < n and (effort.over or effort.lacks(2 * setup)):
            return best, False
    return best, True


def _improved(
    weights: Floats,
    competition: Bools,
    best: list[list[int]],
    effort: Effort,
    fewest_members: int,
) -> list[list[int]]:
    """Move or swap participants while that makes the partition fairer."""
    edges = weights > 0

    def valid(group: list[int]) -> bool:
        inside = np.ix_(group, group)
        return len(group) < 2 or not (
            len(group) < fewest_members
            or competition[inside].any()
            or not edges[inside].any(axis=0).all()
            or not edges[inside].any(axis=1).all()
        )

    def swaps(partition: list[list[int]]) -> Iterator[tuple[int, int, int]]:
        """Yield a mover, its target, and the member it swaps with or -1; lowest utility first."""
        got = utilities(weights, partition)
        order = np.argsort(got, kind="stable").tolist()
        for i in order:
            for target, group in enumerate(partition):
                if i not in group:
                    for back in (-1, *(group if len(group) > 1 else ())):
                        yield i, target, back

    improving = True
    while improving and not effort.over:
        improving = False
        now = utilities(weights, best)
        for i, target, back in swaps(best):
            effort.spend(5e-5)
            if effort.over:
                break
            home = next(k for k, group in enumerate(best) if i in group)
            old = [j for j in best[home] if j != i] + ([back] if back >= 0 else [])
            new = sorted([*(j for j in best[target] if j != back), i])
            if not valid(new):
                continue
            broken = [old] if valid(sorted(old)) else [[j] for j in old]
            others = [g for k, g in enumerate(best) if k not in (home, target)]
            changed = sorted(sorted(g) for g in itertools.chain(others, broken, [new]) if g)
            if fairer(utilities(weights, changed), now):
                best = changed
                improving = True
                break
    return best
