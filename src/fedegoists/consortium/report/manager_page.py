"""What the manager's page says."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedegoists.benefit import ESTIMATOR_ENTRIES
from fedegoists.coalitions import Formation, explain
from fedegoists.consortium.report.coalition_picture import inline_picture
from fedegoists.consortium.report.gain_chart import gains_chart
from fedegoists.consortium.report.heatmap import MOST_DRAWN, benefits, heat_map
from fedegoists.consortium.report.no_coalition import nobody
from fedegoists.consortium.report.results_section import CONFIDENCE, EVERYBODY, VERDICTS, Results
from fedegoists.consortium.report.setup_section import settings_text, stage_times, versions
from fedegoists.consortium.report.wording import counted, decimals_for, fixed, listed, weight

if TYPE_CHECKING:
    import networkx as nx

    from fedegoists.consortium.pipeline import ConsortiumRun

__all__ = ["manager_view"]

MOST_NAMED = 6
"""A headline names at most so many participants."""

CLAIMS = {
    "no free riders": "Everybody in a coalition benefits another member and is benefited by one.",
    "no conflicts": "Nothing of one competitor reaches another, directly or through others.",
    "merge-stable": "No coalitions could unite so that nobody loses and somebody gains.",
    "welfare": "The total benefit inside the coalitions.",
    "upper bound": "No valid coalitions have a higher total benefit than this.",
    "objective": "No valid coalitions are better by what was to be best, where it is proven.",
}


@dataclass(frozen=True)
class Member:
    """One participant in the table of coalitions."""

    name: str
    contributors: tuple[str, ...]
    beneficiaries: tuple[str, ...]
    utility: str


def manager_view(
    run: "ConsortiumRun", results: Results, usage: "nx.DiGraph[str]", files: Mapping[str, str]
) -> dict[str, Any]:
    """Return what ``report.html.j2`` needs."""
    formation = run.formation
    names = formation.participants
    together, alone = headline(formation)
    why_nobody = nobody(run)
    if why_nobody is not None and why_nobody.lead:
        alone = why_nobody.lead
    return {
        "run": run,
        "name": run.folder.name,
        "results": results,
        "together": together,
        "alone": alone,
        "total": total(formation),
        "tallies": _tallies(results),
        "confidence": CONFIDENCE,
        "picture": inline_picture(formation, f"{together} {alone} The table below says the same."),
        "nobody": why_nobody,
        "coalitions": _coalitions(formation, usage),
        "competitors": formation.competition.pairs,
        "mingled": mingled(run),
        "chart": gains_chart(results.gains),
        "everybody": EVERYBODY,
        "benefits": benefits(run),
        "heat_map": heat_map(names),
        "names": names,
        "explanations": _explanations(formation),
        "most_drawn": MOST_DRAWN,
        "claims": [(CLAIMS[claim.claim], claim) for claim in formation.certificate.claims],
        "sizes": [(silo.name, silo.sizes) for silo in run.data.silos],
        "pages": {name: f"members/{quote(file)}.html" for name, file in files.items()},
        "models": {
            name: (f"{file}.safetensors", results.chosen[name])
            for name, file in files.items()
            if name in results.chosen
        },
        "failures": _failures(run, results),
        "settings": settings_text(run.settings, run.folder),
        "versions": versions(),
        "times": stage_times(run.seconds),
        "weight": weight,
        "listed": listed,
        "counted": counted,
    }


def mingled(run: "ConsortiumRun") -> str:
    """Return by which estimator competitors saw models made from one another's data, or nothing."""
    estimate = run.benefit.estimate
    if estimate is None or not run.formation.competition.pairs:
        return ""
    entry = ESTIMATOR_ENTRIES.get(estimate.estimator)
    return estimate.estimator if entry is not None and entry.mingles else ""


def headline(formation: Formation) -> tuple[str, str]:
    """Say who trains together and who alone, in two sentences.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2, 0], [1, 0, 0], [0, 0, 0]], ["North", "South", "East"])
    >>> headline(form(benefit, CompetitionGraph([], benefit.participants)))
    ('2 of 3 participants train together, in 1 coalition.', 'East trains alone.')
    """
    groups = [group for group in formation.coalitions if len(group) > 1]
    alone = [group[0] for group in formation.coalitions if len(group) == 1]
    everybody = len(formation.participants)
    if not groups:
        edges = sum(1 for _ in formation.benefit.edges())
        if not edges:
            why = "No benefit between any two participants was found."
        elif formation.optimal:
            why = (
                f"There {'is' if edges == 1 else 'are'} {counted(edges, 'benefit')} between "
                "participants, but no coalition in which everybody gives and receives and nobody "
                "helps a rival."
            )
        else:
            why = "No valid coalition was found."
        return "Nobody trains together.", why
    inside = everybody - len(alone)
    share = f"All {everybody}" if not alone else f"{inside} of {everybody}"
    first = f"{share} participants train together, in {counted(len(groups), 'coalition')}."
    if not alone:
        return first, "Nobody trains alone."
    if len(alone) > MOST_NAMED:
        return first, f"{len(alone)} train alone."
    return first, f"{listed(alone)} {'trains' if len(alone) == 1 else 'train'} alone."


def total(formation: Formation) -> str:
    """Say how good the decision is, and whether that is proven."""
    welfare = weight(formation.welfare)
    if formation.optimal:
        return f"The total benefit is {welfare}, proven to be the highest possible."
    return (
        f"The total benefit is {welfare}. The highest possible is at most "
        f"{weight(formation.upper_bound)}: at most {100 * formation.gap:.2g} % of that is missed."
    )


def _tallies(results: Results) -> list[tuple[str, str]]:
    """Count by method who is better, not clearly different, or worse than alone."""
    found = []
    for method in dict.fromkeys(row.gain.method for row in results.gains):
        counts = Counter(row.verdict for row in results.gains if row.gain.method == method)
        told = [f"{counts[said]} {said}" for said in VERDICTS if said in counts]
        found.append((method, ", ".join(told)))
    return found


def _coalitions(formation: Formation, usage: "nx.DiGraph[str]") -> list[tuple[str, list[Member]]]:
    decimals = decimals_for(formation.utilities.values())
    shown: list[tuple[str, list[Member]]] = []
    alone: list[Member] = []
    for group in formation.coalitions:
        members = [
            Member(
                name,
                usage.nodes[name]["contributors"],
                usage.nodes[name]["beneficiaries"],
                fixed(formation.utilities[name], decimals),
            )
            for name in group
        ]
        if len(group) == 1:
            alone += members
        else:
            shown.append((f"Coalition {len(shown) + 1}", members))
    return [*shown, *([("Alone", alone)] if alone else [])]


def _explanations(formation: Formation) -> list[tuple[str, list[tuple[str, bool, str]]]]:
    """Return for each participant the others, whether they are together, and why."""
    names = formation.participants
    if len(names) > MOST_DRAWN:
        return []
    known = {
        frozenset((a, b)): explain(formation, a, b)
        for k, a in enumerate(names)
        for b in names[k + 1 :]
    }
    return [
        (
            a,
            [
                (b, known[frozenset((a, b))].together, known[frozenset((a, b))].sentence)
                for b in names
                if b != a
            ],
        )
        for a in names
    ]


def _failures(run: "ConsortiumRun", results: Results) -> list[tuple[str, str, str]]:
    """Return what failed: in which part, whose, and how often for which reason."""
    found = [("data", who, "away and left out") for who in run.absent]
    for text in run.benefit.failures:
        who, _, what = text.rpartition(": ")
        found.append(("benefit", who, what))
    for method in results.methods:
        counts = Counter(
            (failure.participant.name, failure.reason)
            for _, failure in run.outcomes[method].failures
        )
        found += [
            (method, who, f"{reason}, {counted(times, 'time')}")
            for (who, reason), times in counts.items()
        ]
    found += [("report", who, "its silo has not got its model") for who in run.undelivered]
    return found
