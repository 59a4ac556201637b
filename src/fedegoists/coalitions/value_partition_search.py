"""The search behind `form` with coalition values; returns a partition as plain values."""

import math
import time
from itertools import chain

from fedegoists.coalitions.array_types import Partition
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.admissible import ValueProblem
from fedegoists.coalitions.exact.reduction import components, restricted
from fedegoists.coalitions.exact.value_enumeration import best_by_values, most_exact
from fedegoists.coalitions.exact.value_search import (
    SEARCH_SHARE,
    ValueSearch,
    bound_at,
    cap_bound,
    prepare_search,
)
from fedegoists.coalitions.partition_search import (
    WORK_SHARE,
    GapReport,
    SearchResult,
    lacking_notes,
)
from fedegoists.coalitions.value_principles import Judge, valued_merger
from fedegoists.coalitions.welfare import total_gain
from fedegoists.graphs import CoalitionValues, CompetitionGraph
from fedegoists.graphs.coalition_values import pair_bounds
from fedegoists.graphs.participant_graph import Entries

MERGER_BUDGET = 2000
"""Sets of coalitions that the search for mergers looks at."""

ROUNDING = 1e-12
"""Sums of gains are off by less than this fraction."""


def search_values(
    values: CoalitionValues,
    competition: CompetitionGraph,
    *,
    confidence: float,
    seed: int,
    time_limit: float,
    keep: Partition = (),
    fewest_members: int = 1,
    progress: GapReport | None = None,
) -> SearchResult:
    """Look for the admissible partition of the highest total gain.

    Participants that nobody could help, or that could help nobody, are alone. Up to 20 others are
    solved exactly, however long that takes: a few seconds at most. With more, the time limit
    counts.
    """
    members, problem = reduced(values, competition, confidence, fewest_members)
    kept = restricted(keep, members)
    notes: list[str] = []
    if problem.n <= most_exact():
        partition, rule = best_by_values(problem, kept), "optimum"
        upper_bound = total_gain(problem.values, partition) * (1 + ROUNDING)
    else:
        prepare_search(problem)
        partition, upper_bound, notes = _searched(
            problem, kept, seed=seed, time_limit=time_limit, progress=progress
        )
        notes += lacking_notes()
        reached = total_gain(problem.values, partition)
        rule = "optimum" if reached >= upper_bound * (1 - 1e-9) else "best found"
    alone = set(range(len(values.participants))).difference(members)
    whole = sorted([*([members[k] for k in group] for group in partition), *([k] for k in alone)])
    stable: bool | None = True  # uniting coalitions with gain would be better than the optimum
    if rule != "optimum":
        judge = Judge(values, competition, confidence, fewest_members)
        whole, stable = united(judge, whole)
        if stable is None:
            notes.append("that no coalitions should merge was not proven within the budget")
    return SearchResult(
        whole,
        stable=stable,
        start=[[k] for k in range(len(values.participants))],
        merges=[(rule, [1 << k for k in group]) for group in whole if len(group) > 1],
        notes=tuple(notes),
        upper_bound=upper_bound,
        best_by_objective=rule == "optimum",
    )


def value_bound(
    values: CoalitionValues,
    competition: CompetitionGraph,
    partition: Partition,
    *,
    confidence: float,
    seed: int,
    time_limit: float,
    fewest_members: int = 1,
) -> tuple[float, float]:
    """Return the total gain of an admissible partition, and an upper bound on any total gain."""
    members, problem = reduced(values, competition, confidence, fewest_members)
    if problem.n <= most_exact():
        best = total_gain(problem.values, best_by_values(problem))
        return best, best * (1 + ROUNDING)
    prepare_search(problem)
    mine = restricted(partition, members)
    deadline = time.perf_counter() + time_limit
    bound, _ = bound_at(problem, mine, seconds=time_limit, deadline=deadline, seed=seed)
    return total_gain(values, partition), bound


def quick_value_bound(values: CoalitionValues, competition: CompetitionGraph) -> float:
    """Return an upper bound on any total gain, in milliseconds."""
    return cap_bound(ValueProblem(values, competition.matrix))


def reduced(
    values: CoalitionValues, competition: CompetitionGraph, confidence: float, fewest_members: int
) -> tuple[list[int], ValueProblem]:
    """Leave out the participants that are alone in any case."""
    parts = components(Entries.of(pair_bounds(values)), competition.entries, fewest_members)
    members = sorted(chain.from_iterable(parts))
    names = [values.participants[k] for k in members]
    inside = competition.restricted_to(names).matrix
    return members, ValueProblem(values.restricted_to(names), inside, confidence, fewest_members)


def united(judge: Judge, partition: list[list[int]]) -> tuple[list[list[int]], bool | None]:
    """Unite coalitions that should merge until the checker finds none; tell if that is proven."""
    names = judge.values.participants
    place = {name: k for k, name in enumerate(names)}
    while True:
        named = [tuple(names[k] for k in group) for group in partition]
        found, complete = valued_merger(judge, named, MERGER_BUDGET)
        if found is None:
            return partition, True if complete else None
        gone = {place[name] for group in found.coalitions for name in group}
        partition = sorted([*(g for g in partition if g[0] not in gone), sorted(gone)])


def _searched(
    problem: ValueProblem,
    keep: Partition,
    *,
    seed: int,
    time_limit: float,
    progress: GapReport | None,
) -> tuple[list[list[int]], float, list[str]]:
    """Return the best partition found, an upper bound on any total gain, and notes."""
    began = time.perf_counter()
    deadline = began + time_limit
    work = WORK_SHARE * time_limit
    highest = cap_bound(problem)
    search = ValueSearch(problem, [keep] if keep else [], seed)
    effort = Effort(SEARCH_SHARE * work, began + SEARCH_SHARE * time_limit)
    notes = []
    bound, late = math.inf, False
    try:
        search.run(effort, lambda: progress(search.total, highest) if progress else None)
        bound, late = bound_at(
            problem,
            search.partition,
            seconds=(1 - SEARCH_SHARE) * work,
            deadline=deadline,
            seed=seed,
        )
    except KeyboardInterrupt:
        notes.append("interrupted; this is the best partition found until then")
    if effort.clock_ended or late:
        notes.append("the time limit ended the search; the same seed may give another result")
    return search.partition, min(bound, highest), notes
