"""Content of a participant's own page.

All of it is about the participant itself or its coalition. Nothing may depend on the competition
graph other than through the members of the coalition.
"""

from typing import TYPE_CHECKING

from fedegoists.consortium.report.bottom_line import member_bottom_line
from fedegoists.consortium.report.calibration_chart import calibration_chart
from fedegoists.consortium.report.contribution_section import own_contribution
from fedegoists.consortium.report.gain_chart import gains_chart
from fedegoists.consortium.report.results_section import CONFIDENCE, Results, failures_of
from fedegoists.consortium.report.wording import weight

if TYPE_CHECKING:
    import networkx as nx

    from fedegoists.consortium.consortium_run import ConsortiumRun


def member_view(
    run: "ConsortiumRun",
    results: Results,
    usage: "nx.DiGraph[str]",
    participant: str,
    file: str,
) -> dict[str, object]:
    """Return the values of ``member.html.j2``."""
    formation = run.formation
    own = usage.nodes[participant]
    gives = formation.benefit.benefit
    others = [name for name in formation.coalition_of(participant) if name != participant]
    # Else the number of decimals would tell of the others' errors.
    results = results.about(participant)
    judged = results.evaluations.models.get(participant)
    binary = None if judged is None else judged.binary
    return {
        "name": run.folder.name,
        "bottom": member_bottom_line(run, results, participant),
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
        "incomplete": [what for name, what in run.incomplete if name == participant],
        "utility": weight(formation.utilities[participant]),
        "gains": list(results.gains),
        "chart": gains_chart(results.gains),
        "sizes": run.data.sizes[participant],
        "model": f"{file}.safetensors",
        "judged": judged,
        "calibration": None if binary is None else calibration_chart(binary),
        "method": results.chosen.get(participant),
        "contribution": own_contribution(run, participant),
        "accounted": "" if run.ledger is None else run.ledger.method,
        "failures": [(part, what) for part, who, what in failures_of(run) if who == participant],
    }
