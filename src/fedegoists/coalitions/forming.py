"""Forming coalitions: one function, five formation methods, one kind of result."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from fedegoists.coalitions.array_types import Partition
from fedegoists.coalitions.contraction import bits
from fedegoists.coalitions.exact.best_partition import ComponentPrices
from fedegoists.coalitions.formation import Formation, Merge
from fedegoists.coalitions.formation_options import (
    DEFAULT_SCENARIOS,
    FORMATION_METHODS,
    OBJECTIVES,
    RISKS,
    FormationMethod,
    Objective,
    Risk,
)
from fedegoists.coalitions.partition_search import (
    GapReport,
    SearchResult,
    search_best,
    search_published,
    search_stable,
)
from fedegoists.coalitions.principles import Coalition, check_partition
from fedegoists.coalitions.proof.price_proof import PriceProof, proven_bound
from fedegoists.coalitions.truthful_search import search_truthful
from fedegoists.coalitions.upper_bound import sparse_upper_bound
from fedegoists.coalitions.welfare import welfare_by, welfare_change_by
from fedegoists.errors import GraphError, PartitionError, SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph, UncertainBenefits
from fedegoists.graphs.argument_kinds import check_graphs
from fedegoists.graphs.coalition_values import DEFAULT_CONFIDENCE, Benefits, pair_graph
from fedegoists.graphs.participants import index_of
from fedegoists.graphs.uncertain_benefits import DEFAULT_SAFETY, MOST_SCENARIOS

DEFAULT_TIME_LIMIT = 1.0
"""Seconds for method ``best``."""


def form(
    benefit: Benefits,
    competition: CompetitionGraph,
    method: FormationMethod = "best",
    *,
    seed: int = 0,
    time_limit: float | None = None,
    cover: Iterable[Iterable[str | int]] | None = None,
    objective: Objective = "welfare",
    fewest_members: int = 1,
    confidence: float | None = None,
    risk: Risk | None = None,
    scenarios: int = DEFAULT_SCENARIOS,
    progress: GapReport | None = None,
) -> Formation:
    """Decide who trains with whom.

    An interruption (Ctrl-C) while ``best`` works returns the best partition so far, with a note.

    Parameters
    ----------
    benefit : BenefitGraph, UncertainBenefits or CoalitionValues
        What the participants gain from one another: benefits that add up, as in the paper, with or
        without standard errors, or expected gains in coalitions. With coalition values, method
        ``best`` maximises the total expected gain; up to 20 participants it always finishes, with
        proof.
    method : {"best", "stable", "published", "cliques", "truthful"}
        ``best`` maximises welfare subject to both principles within `time_limit`; it is never worse
        than ``stable`` or ``published``, always merge-stable, and exact where the solver finishes.
        ``stable`` merges until no set of coalitions should merge; fastest. ``published`` is
        Algorithm 1 of the paper. ``cliques`` is its lines 1 to 6 only, which satisfy both
        principles but may leave mergers: the coalitions of the paper's baselines. ``truthful``
        satisfies both principles, and no participant gains by misreporting the benefit it
        receives; it may leave mergers, which every such method must.
    seed : int
        For ``best``: the same seed gives the same result, unless the time limit ends the search,
        which a note then says.
    time_limit : float, optional
        For ``best``: seconds to spend on improvement, 1 by default.
    cover : partition, optional
        For ``cliques`` and ``published``: the groups of independent participants to start from.
    objective : {"welfare", "fair", "participation"}
        For ``best``: the highest welfare; or the fairest partition, which raises the lowest utility
        as far as possible, then the next lowest, and so on; or the fewest participants alone, and
        then the highest welfare.
    fewest_members : int
        For ``best`` and ``stable``: the fewest members of a coalition of two or more. With 3, every
        coalition is one participant alone or has at least three members, so that a sum over its
        members hides the single ones. 1, like 2, demands nothing.
    confidence : float, optional
        With coalition values: the least probability of gaining that each member of a coalition must
        have, from 0.5 (its expected gain is positive) to below 1; 0.6 by default. With uncertain
        benefits: the least probability that nobody rides free in a coalition, 0.8 by default.
    risk : {"expected", "worst-decile", "ignore"}, optional
        With uncertain benefits: maximise the expected welfare (the default), or the mean welfare of
        the worst tenth of `scenarios`; or ignore the errors and decide by the estimates alone.
    scenarios : int
        With uncertain benefits: how many are drawn, with the same `seed`, for the worst tenth, and
        for the expected regret that the certificate states.
    progress : callable, optional
        For ``best``: called repeatedly with the welfare reached and the upper bound so far.

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

    With at least three members demanded, the pair is not allowed, and no three are independent:

    >>> rivals = CompetitionGraph([("South", "East")], banks)
    >>> form(benefit, rivals, fewest_members=3).coalitions
    (('North',), ('South',), ('East',))

    With coalition values the welfare is the total gain, here in accuracy:

    >>> from fedegoists import CurveValues
    >>> rates = [[0, 0.9, 0], [0.5, 0, 0], [-0.5, 0, 0]]
    >>> values = CurveValues([100, 300, 200], [0.02, 0.01, 0.03], rates, banks, unit="accuracy")
    >>> formation = form(values, CompetitionGraph([], banks))
    >>> formation.coalitions, round(formation.welfare, 4)
    ((('North', 'South'), ('East',)), 0.0302)
    """
    check_graphs(benefit, competition)
    if benefit.participants != competition.participants:
        raise GraphError(_difference(benefit, competition))
    seed, fewest_members = plain_number(seed), plain_number(fewest_members)
    if method not in FORMATION_METHODS:
        methods = ", ".join(FORMATION_METHODS)
        raise SettingsError(f"unknown method {method!r}; methods are {methods}")
    if cover is not None and method not in ("cliques", "published"):
        raise SettingsError(f"a clique cover applies to 'cliques' and 'published', not {method!r}")
    if objective not in OBJECTIVES:
        raise SettingsError(
            f"unknown objective {objective!r}; objectives are {', '.join(OBJECTIVES)}"
        )
    if objective != "welfare" and method != "best":
        raise SettingsError(f"the objective {objective!r} needs method 'best', not {method!r}")
    check_fewest_members(fewest_members, method)
    scenarios = plain_number(scenarios)
    benefit, risk, confidence = _settled_risk(benefit, risk, confidence, scenarios)
    confidence = check_values_options(benefit, method, objective, confidence)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise SettingsError(f"the seed must be a whole number that is not negative, not {seed!r}")
    found = search_by(
        method,
        benefit,
        competition,
        seed=seed,
        time_limit=time_limit,
        cover=None if cover is None else _checked_cover(cover, competition),
        objective=objective,
        fewest_members=fewest_members,
        confidence=confidence,
        risk=risk,
        scenarios=scenarios,
        progress=progress,
    )
    return formation_of(
        benefit,
        competition,
        method,
        found,
        seed=seed,
        objective=objective,
        fewest_members=fewest_members,
        confidence=confidence,
        risk=risk,
        scenarios=scenarios,
    )


def _settled_risk(
    benefit: Benefits, risk: Risk | None, confidence: float | None, scenarios: int
) -> tuple[Benefits, Risk | None, float | None]:
    """Return the benefits to decide by; those without doubt are a plain benefit graph."""
    if risk is not None and risk not in RISKS:
        raise SettingsError(f"unknown risk {risk!r}; expected one of {', '.join(RISKS)}")
    if not isinstance(benefit, UncertainBenefits):
        if risk not in (None, "ignore"):
            raise SettingsError(
                f"risk is {risk!r}, but these benefits have no standard errors; give "
                "UncertainBenefits (a file with the column error), or leave it out"
            )
        return benefit, None, confidence
    if isinstance(scenarios, bool) or not isinstance(scenarios, int):
        raise SettingsError(f"the number of scenarios must be a whole number, not {scenarios!r}")
    if not 10 <= scenarios <= MOST_SCENARIOS:
        raise SettingsError(f"{scenarios} scenarios; expected 10 to {MOST_SCENARIOS}")
    if risk == "ignore":
        return benefit.graph, None, confidence
    if benefit.certain:
        check_values_options(benefit, "best", "welfare", confidence)
        return benefit.graph, None, None
    return benefit, risk or "expected", confidence


def check_values_options(
    benefits: Benefits, method: FormationMethod, objective: Objective, confidence: float | None
) -> float | None:
    """Return the confidence to demand; None for benefit graphs, which know no errors."""
    if isinstance(benefits, BenefitGraph):
        if confidence is not None:
            raise SettingsError(
                f"a confidence of {confidence!r} was given, but a benefit graph has no standard "
                "errors; leave it out, or give coalition values"
            )
        return None
    if method != "best":
        if isinstance(benefits, UncertainBenefits):
            raise SettingsError(
                f"method {method!r} works on benefits without errors; use method 'best', or ignore "
                "the errors with risk='ignore'"
            )
        raise SettingsError(
            f"method {method!r} works on benefit graphs; with coalition values use method 'best'"
        )
    if objective != "welfare":
        raise SettingsError(
            f"the objective {objective!r} works on benefit graphs; coalition values are decided by "
            "the highest total gain: leave the objective out"
        )
    if confidence is None:
        return default_confidence(benefits)
    confidence = plain_number(confidence)
    if (
        isinstance(confidence, bool)
        or not isinstance(confidence, int | float)
        or not 0.5 <= confidence < 1
    ):
        raise SettingsError(
            f"the confidence must be a number from 0.5 to below 1, not {confidence!r}; 0.5 demands "
            "that each member's expected gain is positive, 0.9 that it gains with probability 0.9"
        )
    return float(confidence)


def default_confidence(benefits: Benefits) -> float:
    """Return the probability that is demanded where nothing is said."""
    return DEFAULT_SAFETY if isinstance(benefits, UncertainBenefits) else DEFAULT_CONFIDENCE


def check_fewest_members(fewest_members: int, method: FormationMethod) -> None:
    """Refuse a number that is none, and methods that cannot respect it."""
    if (
        isinstance(fewest_members, bool)
        or not isinstance(fewest_members, int)
        or fewest_members < 1
    ):
        raise SettingsError(
            "the smallest number of members must be a whole number of 1 or more, "
            f"not {fewest_members!r}"
        )
    if fewest_members > 2 and method == "truthful":
        raise SettingsError(
            f"at least {fewest_members} members: method 'truthful' cannot demand a size, as false "
            "reports could then make a coalition large enough; use method 'best' or 'stable'"
        )
    if fewest_members > 2 and method in ("cliques", "published"):
        raise SettingsError(
            f"at least {fewest_members} members: method {method!r} follows the paper, whose "
            "algorithm begins with coalitions of any size; use method 'best' or 'stable'"
        )


def search_by(
    method: FormationMethod,
    benefit: Benefits,
    competition: CompetitionGraph,
    *,
    seed: int = 0,
    time_limit: float | None = None,
    cover: list[list[int]] | None = None,
    objective: Objective = "welfare",
    fewest_members: int = 1,
    keep: Partition = (),
    confidence: float | None = None,
    risk: Risk | None = None,
    scenarios: int = DEFAULT_SCENARIOS,
    progress: GapReport | None = None,
) -> SearchResult:
    """Search by a formation method; see `form`.

    Parameters
    ----------
    keep : coalitions
        For ``best`` and ``stable``: among equally good partitions prefer one that moves few
        participants away from these. The other methods leave no choice.
    """
    limit = DEFAULT_TIME_LIMIT if time_limit is None else plain_number(time_limit)
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise SettingsError(f"the time limit must be a number of seconds, not {limit!r}")
    if not 0 < limit < math.inf:
        raise SettingsError(f"the time limit must be a positive number of seconds, not {limit}")
    if not isinstance(benefit, BenefitGraph):
        from fedegoists.coalitions.value_partition_search import search_values

        confidence = default_confidence(benefit) if confidence is None else confidence
        if risk == "worst-decile" and isinstance(benefit, UncertainBenefits):
            from fedegoists.coalitions.worst_decile import search_worst_decile

            return search_worst_decile(
                benefit,
                competition,
                confidence=confidence,
                seed=seed,
                time_limit=limit,
                scenarios=scenarios,
                fewest_members=fewest_members,
            )
        return search_values(
            benefit,
            competition,
            confidence=confidence,
            seed=seed,
            time_limit=limit,
            keep=keep,
            fewest_members=fewest_members,
            progress=progress,
        )
    if method == "best":
        return search_best(
            benefit,
            competition,
            seed=seed,
            time_limit=limit,
            keep=keep,
            objective=objective,
            fewest_members=fewest_members,
            progress=progress,
        )
    if method == "stable":
        return search_stable(benefit, competition, keep, fewest_members)
    if method == "truthful":
        return search_truthful(benefit, competition)
    return search_published(benefit, competition, cover, merge=method == "published")


def formation_of(
    benefit: Benefits,
    competition: CompetitionGraph,
    method: FormationMethod,
    found: SearchResult,
    *,
    seed: int = 0,
    objective: Objective = "welfare",
    fewest_members: int = 1,
    confidence: float | None = None,
    risk: Risk | None = None,
    scenarios: int = DEFAULT_SCENARIOS,
) -> Formation:
    """Return the formation of a search's result: by name, with its welfare and gains."""
    values = None if isinstance(benefit, BenefitGraph) else benefit
    graph = benefit if isinstance(benefit, BenefitGraph) else pair_graph(benefit)
    names = benefit.participants

    def named(group: Iterable[int]) -> Coalition:
        return tuple(names[k] for k in group)

    trace = []
    for rule, sets in found.merges:
        groups = [list(bits(members)) for members in sets]
        union = [k for group in groups for k in group]
        gain = welfare_change_by(benefit, groups, [union])  # what Equation 2 compares
        trace.append(Merge(tuple(map(named, groups)), rule, gain))
    upper_bound = found.upper_bound
    if upper_bound is None:
        upper_bound = sparse_upper_bound(graph.entries, competition.entries, fewest_members)
    notes = found.notes
    if fewest_members > max(len(names), 2):
        notes = (
            *notes,
            f"at least {fewest_members} members are demanded, but there are only {len(names)} "
            "participants, so each is alone",
        )
    reached = welfare_by(benefit, found.partition)
    return Formation(
        benefit=graph,
        competition=competition,
        method=method,
        coalitions=tuple(map(named, found.partition)),
        welfare=reached,
        upper_bound=max(upper_bound, reached),
        stable=found.stable,
        start=tuple(map(named, found.start)),
        trace=tuple(trace),
        seed=seed if method == "best" else 0,  # the other methods draw nothing
        notes=notes,
        objective=objective,
        fewest_members=fewest_members,
        best_by_objective=found.best_by_objective and objective != "welfare",
        values=values,
        confidence=confidence,
        risk=risk,
        scenarios=scenarios,
        prices=tuple(_named_prices(part, names) for part in found.prices),
        closed=_closed(found, benefit, competition, fewest_members, reached, upper_bound),
    )


def _closed(
    found: SearchResult,
    benefit: Benefits,
    competition: CompetitionGraph,
    fewest_members: int,
    reached: float,
    upper_bound: float,
) -> bool | None:
    """Return whether every component reaches its own bound, where that decides on optimality.

    Searches that derive no bound may reach the quick one, up to a rounding that hides much: beside
    a pair worth 1e12, whatever the others lose.
    """
    near = reached >= upper_bound * (1 - 1e-9)
    if found.closed is not None or not near or not isinstance(benefit, BenefitGraph):
        return found.closed
    names = benefit.participants
    coalitions = [tuple(names[k] for k in group) for group in found.partition]
    quick = proven_bound(
        benefit,
        competition,
        coalitions,
        [],
        fewest_members=fewest_members,
        enough=sys.float_info.max,  # the quick bound of each component will do
    )
    return quick.closed


def _named_prices(part: ComponentPrices, names: Sequence[str]) -> PriceProof:
    return PriceProof(
        members=tuple(names[i] for i in part.members),
        prices=tuple(part.prices),
        at_most=part.upper_bound,
        triples=tuple((names[a], names[b], names[c]) for a, b, c in part.triples),
        triple_prices=tuple(part.triple_prices),
        rows=part.rows,
        row_prices=part.row_prices,
    )


Number = TypeVar("Number")


def plain_number(value: Number) -> Number:
    """Return a number of NumPy as the number of Python that it is; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _checked_cover(
    cover: Iterable[Iterable[str | int]], competition: CompetitionGraph
) -> list[list[int]]:
    """Return a clique cover as positions; a group with competitors is an error."""
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


def _difference(benefit: Benefits, competition: CompetitionGraph) -> str:
    only_benefit = [p for p in benefit.participants if p not in set(competition.participants)]
    only_competition = [p for p in competition.participants if p not in set(benefit.participants)]
    if only_benefit:
        given = "benefit graph" if isinstance(benefit, BenefitGraph) else "coalition values"
        what = f"{only_benefit[0]!r} is in the {given} only"
    elif only_competition:
        what = f"{only_competition[0]!r} is in the competition graph only"
    else:
        what = "the same participants are in another order"
    return f"the two graphs are over different participants: {what}"
