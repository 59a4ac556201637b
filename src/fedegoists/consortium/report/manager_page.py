"""Content of the manager's page."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from fedegoists.benefit import ESTIMATOR_ENTRIES
from fedegoists.coalitions import Formation, explain
from fedegoists.coalitions.doubt_report import percent
from fedegoists.coalitions.sensitivity import unnamed_reach
from fedegoists.consortium.model_choice import searches_decay
from fedegoists.consortium.report.bottom_line import bottom_line
from fedegoists.consortium.report.coalition_picture import inline_picture
from fedegoists.consortium.report.contribution_section import contribution_section
from fedegoists.consortium.report.expected_gains import expected_gains
from fedegoists.consortium.report.gain_chart import gains_chart
from fedegoists.consortium.report.heatmap import MOST_DRAWN, benefit_cells, heat_map
from fedegoists.consortium.report.no_coalition import no_coalition
from fedegoists.consortium.report.results_section import CONFIDENCE, VERDICTS, Results, failures_of
from fedegoists.consortium.report.setup_section import settings_text, stage_times, versions
from fedegoists.consortium.report.wording import counted, decimals_for, fixed, listed, weight
from fedegoists.federation import SimulatedFederation
from fedegoists.graphs import UncertainBenefits
from fedegoists.learning.model_registry import AUTO, model_named, model_reason
from fedegoists.learning.own_models import weights_in
from fedegoists.training.summary import EVERYBODY

if TYPE_CHECKING:
    import networkx as nx

    from fedegoists.consortium.consortium_run import ConsortiumRun

MOST_NAMED = 6
"""The largest number of participants that a headline names."""

CLAIMS = {
    "no free riders": "Every member of a coalition benefits another member and is benefited by "
    "one.",
    "no conflicts": "Nothing of one competitor reaches another, directly or through others.",
    "enough members": "Every coalition is one participant alone or has the demanded members.",
    "merge-stable": "No coalitions could merge so that no member loses and some member gains.",
    "strategy-proof": "No participant gains by misreporting the benefit that it receives.",
    "welfare": "The total benefit inside the coalitions.",
    "upper bound": "No valid coalitions have a higher total benefit than this.",
    "participation constraint": "Every member of a coalition is expected to gain, or nobody rides "
    "free in it, with the probability that was demanded.",
    "objective": "No valid coalitions are better by the chosen objective, where it is proven.",
}


@dataclass(frozen=True)
class CoalitionMember:
    """One participant in the table of coalitions."""

    name: str
    contributors: tuple[str, ...]
    beneficiaries: tuple[str, ...]
    utility: str


def manager_view(
    run: "ConsortiumRun", results: Results, usage: "nx.DiGraph[str]", files: Mapping[str, str]
) -> dict[str, object]:
    """Return the values of ``report.html.j2``."""
    formation = run.formation
    names = formation.participants
    together, alone = headline(formation)
    why_none = no_coalition(run)
    model = model_named(run.repetitions.defaults.model)
    simulated = isinstance(run.repetitions.federation, SimulatedFederation)
    if why_none is not None and why_none.lead:
        alone = why_none.lead
    return {
        "run": run,
        "name": run.folder.name,
        "results": results,
        "together": together,
        "alone": alone,
        "quality": quality(formation),
        "bottom": bottom_line(run, results, alone),
        "incomplete": run.incomplete,
        "tallies": _tallies(results),
        "confidence": CONFIDENCE,
        "picture": inline_picture(formation, f"{together} {alone} The table below says the same."),
        "no_coalition": why_none,
        "expected": expected_gains(formation),
        "doubt": formation.doubt,
        "reach": unnamed_reach(formation),
        "coalitions": _coalitions(formation, usage),
        "competitors": formation.competition.pairs,
        "shown_to_all": shown_to_all(run),
        "chart": gains_chart(results.gains),
        "contributions": contribution_section(run),
        "everybody": EVERYBODY,
        "benefits": benefit_cells(run),
        "heat_map": heat_map(names),
        "names": names,
        "explanations": _explanations(formation),
        "most_drawn": MOST_DRAWN,
        "claims": [(CLAIMS[claim.claim], claim) for claim in formation.certificate.claims],
        "network": model,
        "network_reason": model_reason(run.data) if run.settings.training.model == AUTO else "",
        "parameters": run.repetitions.federation.schema,
        "weights": weights_in(run.repetitions.options),
        "decay": run.repetitions.defaults.train.weight_decay,
        "together_decay": run.repetitions.defaults.together_decay,
        "searched_decay": searches_decay(run.settings.training, model, simulated=simulated),
        "sizes": list(run.data.sizes.items()),
        "pages": {name: f"members/{quote(file)}.html" for name, file in files.items()},
        "models": {
            name: (f"{file}.safetensors", results.chosen[name])
            for name, file in files.items()
            if name in results.chosen
        },
        "at_home": {name for name, one in run.delivered.items() if "" in one.card.kept},
        "failures": [
            *(("data", absent, "did not answer and was left out") for absent in run.absent),
            *failures_of(run),
            *(
                (method, one.participant or "all members", f"{one.kind}: {one.detail}")
                for method, outcome in run.outcomes.items()
                for one in outcome.findings
            ),
            *(("report", name, "its model was not delivered") for name in run.undelivered),
        ],
        "settings": settings_text(run.settings, run.folder),
        "versions": versions(),
        "times": stage_times(run.seconds),
        "weight": weight,
        "listed": listed,
        "counted": counted,
        "percent": percent,
    }


def shown_to_all(run: "ConsortiumRun") -> str:
    """Return the estimator if it showed competitors models made from one another's data."""
    estimate = run.benefit.estimate
    if estimate is None or not run.formation.competition.pairs:
        return ""
    entry = ESTIMATOR_ENTRIES.get(estimate.estimator)
    return estimate.estimator if entry is not None and entry.mingles else ""


def headline(formation: Formation) -> tuple[str, str]:
    """Return two sentences: who trains together, and who alone.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2, 0], [1, 0, 0], [0, 0, 0]], ["North", "South", "East"])
    >>> headline(form(benefit, CompetitionGraph([], benefit.participants)))
    ('2 of 3 participants train together, in 1 coalition.', 'East trains alone.')
    """
    groups = [group for group in formation.coalitions if len(group) > 1]
    alone = [group[0] for group in formation.coalitions if len(group) == 1]
    count = len(formation.participants)
    if not groups:
        edges = sum(1 for _ in formation.benefit.edges())
        why = "No valid coalition was found."
        if not edges:
            why = "No benefit between any two participants was found."
        elif formation.optimal:
            why = (
                f"There {'is' if edges == 1 else 'are'} {counted(edges, 'benefit')} between "
                f"participants, but no coalition {_of_members(formation)}in which every member "
                "gives and receives and none helps a competitor."
            )
        return "No coalition was formed.", why
    share = f"All {count}" if not alone else f"{count - len(alone)} of {count}"
    first = f"{share} participants train together, in {counted(len(groups), 'coalition')}."
    if not alone:
        return first, "None trains alone."
    if len(alone) > MOST_NAMED:
        return first, f"{len(alone)} train alone."
    return first, f"{listed(alone)} {'trains' if len(alone) == 1 else 'train'} alone."


def _of_members(formation: Formation) -> str:
    least = formation.fewest_members
    return f"of at least {least} members " if least > 2 else ""


def quality(formation: Formation) -> str:
    """Return a sentence on the total benefit, and whether it is proven to be the highest."""
    total = "total benefit"
    if isinstance(formation.values, UncertainBenefits):
        total = "expected total benefit"
    elif formation.values is not None:
        total = f"total expected gain in {formation.values.unit}"
    reached = f"The {total} is {weight(formation.welfare)}"
    if formation.optimal:
        return f"{reached}, proven to be the highest possible."
    return (
        f"{reached}. The highest possible is at most {weight(formation.upper_bound)}: at most "
        f"{100 * formation.gap:.2g} % of that is missed."
    )


def _tallies(results: Results) -> list[tuple[str, str]]:
    """Return for each method how many participants have each verdict."""
    found = []
    for method in dict.fromkeys(row.gain.method for row in results.gains):
        counts = Counter(row.verdict for row in results.gains if row.gain.method == method)
        told = [f"{counts[said]} {said}" for said in VERDICTS if said in counts]
        found.append((method, ", ".join(told)))
    return found


def _coalitions(
    formation: Formation, usage: "nx.DiGraph[str]"
) -> list[tuple[str, list[CoalitionMember]]]:
    decimals = decimals_for(formation.utilities.values())
    shown: list[tuple[str, list[CoalitionMember]]] = []
    alone: list[CoalitionMember] = []
    for group in formation.coalitions:
        members = [
            CoalitionMember(
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
    found = []
    for a in names:
        pairs = [(b, known[frozenset((a, b))]) for b in names if b != a]
        found.append((a, [(b, one.together, one.sentence) for b, one in pairs]))
    return found
