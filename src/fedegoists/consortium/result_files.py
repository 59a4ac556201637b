"""What a finished run leaves in its folder, besides its models."""

from collections.abc import Iterator, Mapping, Sequence

from fedegoists.consortium.consortium_run import ConsortiumRun
from fedegoists.consortium.delivered_gains import delivered_csv, run_delivered
from fedegoists.consortium.model_cards import run_cards
from fedegoists.consortium.participant_models import ChosenModel
from fedegoists.consortium.run_folder import RunFolder
from fedegoists.consortium.warm_start import ORIGINS_FILE, StartedMember, origins_json, origins_of
from fedegoists.methods import Outcome
from fedegoists.training.gains import gains_csv
from fedegoists.training.summary import metrics_csv


def training_remarks(outcomes: Mapping[str, Outcome], wanted: Sequence[str]) -> Iterator[str]:
    """Return the lines of the log about failures and findings; for the manager only."""
    for method in wanted:
        for failure in sorted({str(one) for _, one in outcomes[method].failures}):
            yield f"{method}: left out {failure}"
    for method, outcome in outcomes.items():
        for finding in outcome.findings:
            yield f"{method}: {finding}"


def write_results(
    folder: RunFolder,
    result: ConsortiumRun,
    models: Sequence[ChosenModel],
    begun: Mapping[str, StartedMember],
) -> None:
    """Write measurements, gains, model cards, origins and the report."""
    from fedegoists.consortium.report import write_report

    origins = origins_of(models, result.formation.coalitions, begun)
    # Costs tell who trains alone, and results are confidential to each participant.
    files = {
        "metrics.csv": metrics_csv(result.wanted, result.outcomes),
        "summary.csv": result.summary.csv(),
        "gains.csv": gains_csv(result.gains),
        "delivered.csv": delivered_csv(run_delivered(result)),
        ORIGINS_FILE: origins_json(origins),
        **run_cards(result, {one.card.participant: one.card for one in models}, origins),
    }
    if result.yardstick.values:
        files["trees-alone.csv"] = result.yardstick.csv()
    if result.evaluations.methods:
        files["intervals.csv"] = result.evaluations.csv()
    if result.ledger is not None:
        files["ledger.csv"] = result.ledger.csv()
    folder.write(files)
    write_report(result)
