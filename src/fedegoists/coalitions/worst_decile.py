"""The partition whose welfare is highest in the worst tenth of scenarios.

With W_s(P) the welfare of partition P in scenario s, the mean over the worst tenth is the lowest
mean of W_s(P) over all ways to weight scenarios in which none has more than ten times its part. For
fixed weights the welfare is that of one benefit graph, the weighted mean of all scenarios, so its
best partition bounds what any partition reaches in its worst tenth.

Up to ten participants all partitions are compared. With up to 20, the weights are moved
towards the worst tenth of the partition found last (fictitious play), and the lowest bound is kept.
With more, the best partitions of a few such graphs are compared, and the bound is that of the mean.
"""

import math
import time
from collections.abc import Iterator

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Partition
from fedegoists.coalitions.exact.admissible import ValueProblem
from fedegoists.coalitions.exact.enumeration import as_columns
from fedegoists.coalitions.exact.subset_table import SubsetTable
from fedegoists.coalitions.exact.value_enumeration import most_exact
from fedegoists.coalitions.partition_search import SearchResult
from fedegoists.coalitions.upper_bound import quick_upper_bound
from fedegoists.coalitions.value_partition_search import reduced, search_values, united
from fedegoists.coalitions.value_principles import Judge
from fedegoists.graphs import CompetitionGraph, UncertainBenefits

MOST_COMPARED = 10
"""Participants for which all partitions are compared."""

MOST_GRAPHS = 12
"""Weighted means of the scenarios that are solved."""


def worst_mean(welfare: Floats) -> float:
    """Return the mean of the lowest tenth, at least one.

    Examples
    --------
    >>> worst_mean(np.arange(20.0))
    0.5
    """
    return float(np.sort(welfare)[: max(len(welfare) // 10, 1)].mean())


def scenario_welfare(scenarios: Floats, partition: Partition) -> Floats:
    """Return the benefits inside the coalitions, in each scenario."""
    total = np.zeros(len(scenarios))
    for group in partition:
        if len(group) > 1:
            total += scenarios[:, group][:, :, group].sum(axis=(1, 2))
    return total


def search_worst_decile(
    values: UncertainBenefits,
    competition: CompetitionGraph,
    *,
    confidence: float,
    seed: int,
    time_limit: float,
    scenarios: int,
    fewest_members: int = 1,
) -> SearchResult:
    """Look for the admissible partition with the highest mean over its worst tenth."""
    expected = search_values(
        values,
        competition,
        confidence=confidence,
        seed=seed,
        time_limit=time_limit,
        fewest_members=fewest_members,
    )
    members, problem = reduced(values, competition, confidence, fewest_members)
    drawn = values.scenarios(scenarios, seed)
    deadline = time.perf_counter() + time_limit
    found, bound = _best_worst(problem, members, drawn, expected.partition, deadline)
    judge = Judge(values, competition, confidence, fewest_members)
    partition, stable = united(judge, found)
    reached = worst_mean(scenario_welfare(drawn, partition))
    note = f"the worst tenth of {scenarios} scenarios has a welfare of {reached:.6g} on average"
    if reached >= bound * (1 - 1e-9):
        note += ", the highest possible over these scenarios"
    else:
        note += f"; at most {bound:.6g} is possible over these scenarios"
    return SearchResult(
        partition,
        stable=stable,
        start=[[k] for k in range(values.n)],
        merges=[("best found", [1 << k for k in group]) for group in partition if len(group) > 1],
        notes=(*expected.notes, note),
        upper_bound=expected.upper_bound,
    )


def _best_worst(
    problem: ValueProblem,
    members: list[int],
    drawn: Floats,
    start: Partition,
    deadline: float,
) -> tuple[list[list[int]], float]:
    """Return the best partition found, and an upper bound on any mean over the worst tenth."""
    alone = sorted(set(range(drawn.shape[1])).difference(members))
    inside = drawn[:, members][:, :, members]
    best, reached = [list(group) for group in start], worst_mean(scenario_welfare(drawn, start))
    bound = quick_upper_bound(drawn.mean(axis=0), _whole(problem, members, drawn.shape[1]))
    if not members or problem.n > most_exact():
        return best, bound
    table = SubsetTable(problem)
    tried: Iterator[tuple[list[list[int]], float]]
    if problem.n <= MOST_COMPARED:
        tried, bound = _all_partitions(table), reached
    else:
        tried = _by_weights(table, inside, deadline)
    for partition, at_most in tried:
        worst = worst_mean(scenario_welfare(inside, partition))
        if worst > reached * (1 + 1e-12):
            named = [[members[k] for k in group] for group in partition]
            best, reached = sorted([*named, *([k] for k in alone)]), worst
        bound = max(bound, worst) if math.isinf(at_most) else min(bound, at_most)
    return best, max(bound, reached)


def _whole(problem: ValueProblem, members: list[int], n: int) -> Bools:
    """Return the competition among all participants; those left out compete with everybody."""
    whole = ~np.eye(n, dtype=np.bool_)
    whole[np.ix_(members, members)] = problem.competition
    return whole


def _all_partitions(table: SubsetTable) -> Iterator[tuple[list[list[int]], float]]:
    """Return all partitions into admissible coalitions."""
    by_last: list[list[int]] = [[1 << k] for k in range(table.n)]
    for mask in table.masks.tolist():
        by_last[mask.bit_length() - 1].append(mask)

    def divide(left: int, groups: list[int]) -> Iterator[list[int]]:
        if not left:
            yield groups
            return
        for mask in by_last[left.bit_length() - 1]:
            if not mask & ~left:
                yield from divide(left ^ mask, [*groups, mask])

    for groups in divide(table.whole, []):
        yield [[k for k in range(table.n) if mask >> k & 1] for mask in groups], math.inf


def _by_weights(
    table: SubsetTable, scenarios: Floats, deadline: float
) -> Iterator[tuple[list[list[int]], float]]:
    """Return the best partitions of weighted means of the scenarios, each with its bound."""
    count = len(scenarios)
    weights = np.full(count, 1 / count)
    columns = as_columns(table.masks, table.n).astype(np.float64)
    for k in range(1, MOST_GRAPHS + 1):
        mean = np.tensordot(weights, scenarios, axes=1)
        totals = np.full(len(table.values), -np.inf)
        totals[table.masks] = ((columns @ mean) * columns).sum(axis=1)
        solved = SubsetTable(table.problem, totals)
        partition = solved.partition()
        yield partition, solved.highest * (1 + 1e-12)
        if time.perf_counter() > deadline:
            return
        order = np.argsort(scenario_welfare(scenarios, partition), kind="stable")
        worst = np.zeros(count)
        worst[order[: max(count // 10, 1)]] = 1 / max(count // 10, 1)
        weights = weights + (worst - weights) / (k + 1)
