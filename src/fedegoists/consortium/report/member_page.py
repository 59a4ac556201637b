"""What a participant's own page says.

Everything here is about the participant itself or its coalition. Nothing may depend on who competes
with whom other than through the members of its coalition.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from fedegoists.consortium.report.gain_chart import gains_chart
from fedegoists.consortium.report.results_section import CONFIDENCE, Results
from fedegoists.consortium.report.wording import counted, listed, weight
from fedegoists.version import __version__

if TYPE_CHECKING:
    import networkx as nx

    from fedegoists.consortium.pipeline import ConsortiumRun

__all__ = ["member_view"]


def member_view(
    run: "ConsortiumRun",
    results: Results,
    usage: "nx.DiGraph[str]",
    participant: str,
    file: str,
) -> dict[str, Any]:
    """Return what ``member.html.j2`` needs."""
    formation = run.formation
    own = usage.nodes[participant]
    gives = formation.benefit.benefit
    others = [name for name in formation.coalition_of(participant) if name != participant]
    results = results.about(participant)  # else the decimals shown would tell on others' errors
    gains = list(results.gains)
    return {
        "name": run.folder.name,
        "participant": participant,
        "results": results,
        "confidence": CONFIDENCE,
        "others": [
            (
                other,
                weight(gives(other, participant)) if other in own["contributors"] else "",
                weight(gives(participant, other)) if other in own["beneficiaries"] else "",
            )
            for other in others
        ],
        "together": listed(others),
        "utility": weight(formation.utilities[participant]),
        "gains": gains,
        "chart": gains_chart(gains),
        "sizes": next(silo.sizes for silo in run.data.silos if silo.name == participant),
        "model": f"{file}.safetensors",
        "method": results.chosen.get(participant),
        "failures": _failures(run, results, participant),
        "version": __version__,
    }


def _failures(run: "ConsortiumRun", results: Results, participant: str) -> list[tuple[str, str]]:
    found = [
        ("benefit", what)
        for who, _, what in (text.rpartition(": ") for text in run.benefit.failures)
        if who == participant
    ]
    for method in results.methods:
        reasons = Counter(
            failure.reason
            for _, failure in run.outcomes[method].failures
            if failure.participant.name == participant
        )
        found += [
            (method, f"{reason}, {counted(times, 'time')}") for reason, times in reasons.items()
        ]
    return found
