"""Forming coalitions: one function, four methods, one kind of result."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedegoists.coalitions.algorithm1 import baseline_coalitions, merge_as_published
from fedegoists.coalitions.contraction import Contraction, OutOfTimeError
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.best_partition import best_partition, prepare
from fedegoists.coalitions.exact.fairest_partition import fairest_partition
from fedegoists.coalitions.exact.solvers import load_solver
from fedegoists.coalitions.formation import (
    METHODS,
    OBJECTIVES,
    Formation,
    Method,
    Objective,
    Progress,
    make_formation,
    positions,
)
from fedegoists.coalitions.merging import stabilise
from fedegoists.coalitions.principles import check_partition
from fedegoists.errors import GraphError, PartitionError, SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.participants import index_of

__all__ = ["DEFAULT_TIME_LIMIT", "form", "form_best", "form_stable"]

DEFAULT_TIME_LIMIT = 1.0

PUBLISHED_SHARE = 0.3
"""Which part of the time the published algorithm may take as a start for method best."""

_STAGES: Mapping[Objective, int] = {"welfare": 1, "participation": 2, "fair": 3}
"""How many searches share the time: for welfare, for participation, for fairness."""


def form(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    method: Method = "best",
    *,
    seed: int = 0,
    time_limit: float | None = None,
    cover: Iterable[Iterable[str | int]] | None = None,
    objective: Objective = "welfare",
    progress: Progress | None = None,
) -> Formation:
    """Decide who trains with whom.

    An interruption (Ctrl-C) while ``best`` works returns the best partition so far, with a note.

    Parameters
    ----------
    method : {"best", "stable", "published", "cliques"}
        ``best`` maximises welfare subject to both principles within `time_limit`; it is never worse
        than ``stable`` or ``published``, always merge-stable, and exact where the solver finishes.
        ``stable`` merges until no set of coalitions should merge; fastest. ``published`` is
        Algorithm 1 of the paper. ``cliques`` is its lines 1 to 6 only, which satisfy both
        principles but may leave mergers: what the paper's baselines get.
    seed : int
        For ``best``: the same seed gives the same result, unless the time limit ends the search,
        which a note then says.
    time_limit : float, optional
        For ``best``: seconds to spend on improvement, 1 if left out.
    cover : partition, optional
        For ``cliques`` and ``published``: the groups of independent participants to start from.
    objective : {"welfare", "fair", "participation"}
        For ``best``: the highest welfare; or that whoever receives least receives as much as
        possible, then the next, and so on; or that as few as possible are alone, and then welfare.
    progress : callable, optional
        For ``best``: called now and then with the welfare reached and the upper bound so far.

    Returns
    -------
    Formation

    Examples
    --------
    Three banks help one another in a circle, and South competes with East:

    >>> banks = ["North", "South", "East"]
    >>> benefit = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], banks)
    >>> formation = form(benefit, CompetitionGraph([("South", "East")], banks))
    >>> formation.coalitions
    (('North', 'South'), ('East',))
    >>> formation.welfare, formation.optimal, formation.stable
    (3.0, True, True)
    """
    if benefit.participants != competition.participants:
        raise GraphError(_difference(benefit, competition))
    if method not in METHODS:
        raise SettingsError(f"unknown method {method!r}; methods are {', '.join(METHODS)}")
    if cover is not None and method not in ("cliques", "published"):
        raise SettingsError(f"a clique cover applies to 'cliques' and 'published', not {method!r}")
    if objective not in OBJECTIVES:
        raise SettingsError(
            f"unknown objective {objective!r}; objectives are {', '.join(OBJECTIVES)}"
        )
    if objective != "welfare" and method != "best":
        raise SettingsError(f"the objective {objective!r} needs method 'best', not {method!r}")
    if time_limit is None:
        time_limit = DEFAULT_TIME_LIMIT
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float):
        raise SettingsError(f"the time limit must be a number of seconds, not {time_limit!r}")
    if not 0 < time_limit < math.inf:
        raise SettingsError(
            f"the time limit must be a positive number of seconds, not {time_limit}"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise SettingsError(f"the seed must be a whole number that is not negative, not {seed!r}")
    if method == "best":
        return form_best(
            benefit, competition, seed, time_limit, objective=objective, progress=progress
        )
    if method == "stable":
        return form_stable(benefit, competition)
    cliques = None if cover is None else _checked_cover(cover, competition)
    return _published(benefit, competition, cliques, merge=method == "published")


def form_stable(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    start: Sequence[Sequence[int]] = (),
) -> Formation:
    """Merge until stable, from a partition of positions or from everybody alone."""
    z = Contraction(benefit, competition)
    z.merge_all(start)
    origin = z.partition()
    merges, proven = stabilise(z)
    return make_formation(
        benefit,
        competition,
        "stable",
        z.partition(),
        stable=True if proven else None,
        start=origin,
        merges=[("search", sets) for sets in merges],
        notes=() if proven else (_NOT_PROVEN_STABLE,),
    )


def _published(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    cover: list[list[int]] | None,
    *,
    merge: bool,
    deadline: float = math.inf,
) -> Formation:
    notes = []
    z = Contraction(benefit, competition)
    origin, largest = baseline_coalitions(z, competition.matrix, cover, deadline)
    z.merge_all(origin)
    origin = z.partition()
    if not largest:
        notes.append(
            "the cliques are the largest found; that none is larger was not proven in time"
        )
    merges: list[tuple[str, list[int]]] = []
    if merge:
        merges, smallest = merge_as_published(z, deadline)
        if not smallest:
            notes.append(
                f"after {len(merges)} merges the smallest cycle or path was not found in time; "
                "the remaining merges are those of method 'stable'"
            )
    partition = z.partition()
    rest, proven = stabilise(z)
    if merge:
        merges += [("search", sets) for sets in rest]
        partition = z.partition()
        stable = True if proven else None
    else:
        stable = False if rest else (True if proven else None)
    if stable is None:
        notes.append(_NOT_PROVEN_STABLE)
    return make_formation(
        benefit,
        competition,
        "published" if merge else "cliques",
        partition,
        stable=stable,
        start=origin,
        merges=merges,
        notes=tuple(notes),
    )


def form_best(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    seed: int,
    time_limit: float,
    keep: Sequence[Sequence[int]] = (),
    starts: Sequence[Sequence[Sequence[int]]] = (),
    objective: Objective = "welfare",
    progress: Progress | None = None,
) -> Formation:
    """Find the best by an objective; see `form`, and `best_partition` for `keep` and `starts`."""
    interrupted = clock_ended = False
    try:
        # Loading may take a while the first time, and is not part of the limit.
        prepare(benefit.weights, competition.matrix)
        if keep or objective == "fair":
            load_solver()
    except KeyboardInterrupt:
        interrupted = True  # what is below needs nothing of it then
    began = time.perf_counter()
    notes = []
    merged = [form_stable(benefit, competition)]
    # What comes last, a search for mergers and the account of it, takes about as long as this did;
    # twice that is kept for it, as the machine may be busier by then.
    reserve = min(2 * (time.perf_counter() - began), 0.2 * time_limit)
    deadline, early = began + time_limit - reserve, began + PUBLISHED_SHARE * time_limit
    try:
        if not interrupted:
            merged.append(_published(benefit, competition, None, merge=True, deadline=early))
    except OutOfTimeError:
        notes.append(
            "the published algorithm, one of the starts, did not finish in its time; "
            "the same seed may give another result"
        )
    except KeyboardInterrupt:
        interrupted = True
    starts = [*starts, *(positions(one.coalitions, one.participants) for one in merged)]
    # Less work than there is time, so that it is the work that ends the search. The other
    # objectives begin with the best welfare, which is often close.
    stages = _STAGES[objective]
    share, unspent = 0.7 * time_limit / stages, 0.0
    for stage in range(min(stages, 2)):
        optimum = best_partition(
            benefit.weights,
            competition.matrix,
            starts,
            seconds=0.0 if interrupted else share + unspent,
            deadline=deadline,
            seed=seed,
            keep=keep,
            participation=stage == 1,
            progress=progress if stage == 0 else None,
        )
        starts.append(optimum.partition)
        unspent = optimum.unspent
        interrupted |= optimum.interrupted
        clock_ended |= optimum.clock_ended
        if stage == 0:
            upper_bound = optimum.upper_bound
    best, best_by_objective = optimum.partition, optimum.optimal
    if objective == "fair":
        effort = Effort(0.0 if interrupted else share + unspent, deadline)
        try:
            best, best_by_objective = fairest_partition(
                benefit.weights, competition.matrix, starts, effort
            )
        except KeyboardInterrupt:
            interrupted, best_by_objective = True, False
        clock_ended |= effort.clock_ended
    z = Contraction(benefit, competition)
    z.merge_all(best)
    # A merge raises somebody's utility and lowers nobody's, so it is good for every objective.
    _, proven = stabilise(z)
    partition = z.partition()
    if interrupted:
        notes.append("interrupted; this is the best partition found until then")
    elif clock_ended:
        notes.append("the time limit ended the search; the same seed may give another result")
    if objective != "welfare" and not best_by_objective:
        notes.append(f"that no partition is better by the objective '{objective}' is not proven")
    if not proven:
        notes.append(_NOT_PROVEN_STABLE)
    rule = "optimum" if best_by_objective else "best found"
    return make_formation(
        benefit,
        competition,
        "best",
        partition,
        stable=True if proven else None,
        start=[[k] for k in range(benefit.n)],
        merges=[(rule, [1 << k for k in group]) for group in partition if len(group) > 1],
        notes=tuple(notes),
        upper_bound=upper_bound,
        seed=seed,
        objective=objective,
        best_by_objective=best_by_objective,
    )


_NOT_PROVEN_STABLE = "that no coalitions should merge was not proven within the budget"


def _checked_cover(
    cover: Iterable[Iterable[str | int]], competition: CompetitionGraph
) -> list[list[int]]:
    """Return a clique cover as positions, or say why it is none."""
    names = competition.participants
    position = {name: k for k, name in enumerate(names)}
    groups = check_partition(
        ([names[index_of(m, names, "clique cover", position)] for m in group] for group in cover),
        names,
    )
    cliques = [[position[name] for name in group] for group in groups]
    for clique in cliques:
        together = np.argwhere(competition.matrix[np.ix_(clique, clique)])
        if len(together):
            a, b = (names[clique[k]] for k in together[0])
            raise PartitionError(f"clique cover: {a!r} and {b!r} share a clique but compete")
    return cliques


def _difference(benefit: BenefitGraph, competition: CompetitionGraph) -> str:
    only_benefit = [p for p in benefit.participants if p not in set(competition.participants)]
    only_competition = [p for p in competition.participants if p not in set(benefit.participants)]
    if only_benefit:
        what = f"{only_benefit[0]!r} is in the benefit graph only"
    elif only_competition:
        what = f"{only_competition[0]!r} is in the competition graph only"
    else:
        what = "the same participants stand in another order"
    return f"the two graphs are over different participants: {what}"
