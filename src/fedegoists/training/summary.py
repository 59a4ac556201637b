"""The results of a comparison as CSV: every measurement, and what it comes to."""

import math
import statistics
from collections.abc import Mapping, Sequence

from fedegoists.federation import Federation, Participant
from fedegoists.graphs.interchange import csv_bytes
from fedegoists.methods import Outcome

__all__ = ["COSTS", "EVERYBODY", "chosen_test_values", "failures_csv", "metrics_csv", "summary_csv"]

METRIC_COLUMNS = ("seed", "method", "participant", "round", "split", "metric", "value")
SUMMARY_COLUMNS = ("method", "participant", "metric", "mean", "std", "n")
EVERYBODY = "all"
"""The participant's name in rows that average over all of them."""
COSTS = ("sample_passes", "bytes_sent", "bytes_received")
"""What a participant spends, counted over a whole run."""


def metrics_csv(wanted: Mapping[str, Outcome], outcomes: Mapping[str, Outcome]) -> bytes:
    """Return everything measured, and what each participant spent in all, row by row."""
    rows: list[tuple[object, ...]] = []
    for method, outcome in wanted.items():
        for row in outcome.rows:
            one = row.participant
            rows.append(
                (
                    *(one.repetition, method, one.name),
                    *(row.round, row.split, row.metric, repr(row.value)),
                )
            )
        for kind in COSTS:
            for one, amount in _spent(kind, method, outcomes).items():
                about = (one.repetition, method, one.name)
                rows.append((*about, outcome.state.round, "train", kind, amount))
    return csv_bytes(METRIC_COLUMNS, rows)


def failures_csv(wanted: Mapping[str, Outcome]) -> bytes:
    """Return who failed in which round, and why."""
    rows = [
        (one.repetition, one.name, method, number, failure.reason, failure.detail)
        for method, outcome in wanted.items()
        for number, failure in outcome.failures
        for one in [failure.participant]
    ]
    return csv_bytes(("seed", "participant", "method", "round", "reason", "detail"), rows)


def summary_csv(
    wanted: Mapping[str, Outcome], outcomes: Mapping[str, Outcome], federation: Federation
) -> bytes:
    """Average over seeds the test metric of the step that validation chose, and what it cost."""
    rows: list[tuple[object, ...]] = []
    metric = federation.task.metric
    for method, outcome in wanted.items():
        tested = chosen_test_values(outcome, federation)
        rows += _averages(method, metric, tested, federation.participants)
        for kind in COSTS:
            spent = dict.fromkeys(federation.participants, 0) | _spent(kind, method, outcomes)
            rows += _averages(method, kind, spent, federation.participants)
    return csv_bytes(SUMMARY_COLUMNS, rows)


def chosen_test_values(outcome: Outcome, federation: Federation) -> dict[Participant, float]:
    """Return everybody's test metric at the step that validation chose."""
    chosen = {
        name: number
        for name, number, score in zip(
            federation.participants, outcome.best_round, outcome.best_score, strict=True
        )
        if score[0] > -math.inf  # who was never validated has no result
    }
    return {
        row.participant: row.value
        for row in outcome.rows
        if (row.split, row.metric) == ("test", federation.task.metric)
        and row.round == chosen.get(row.participant)
    }


def _averages(
    method: str,
    metric: str,
    values: Mapping[Participant, float],
    participants: Sequence[Participant],
) -> list[tuple[object, ...]]:
    """Return a row for each participant over the seeds, and one for the mean of all of them."""
    by_seed: dict[str, dict[object, float]] = {one.name: {} for one in participants}
    for one, value in values.items():
        by_seed[one.name][one.repetition] = value
    rows: list[tuple[object, ...]] = [
        (method, participant, metric, *_statistics(list(own.values())))
        for participant, own in by_seed.items()
    ]
    # A mean over everybody only where everybody has a value, or it would not be comparable.
    complete = set.intersection(*(set(own) for own in by_seed.values()))
    means = [
        statistics.fmean([own[seed] for own in by_seed.values()])
        for seed in dict.fromkeys(one.repetition for one in participants)
        if seed in complete
    ]
    return [*rows, (method, EVERYBODY, metric, *_statistics(means))]


def _spent(kind: str, method: str, outcomes: Mapping[str, Outcome]) -> dict[Participant, int]:
    """Return what everybody spent; fine-tuning counts on top of its method."""
    totals: dict[Participant, int] = {}
    for name in dict.fromkeys((method.removesuffix("+ft"), method)):
        for participant, amount in outcomes[name].spent.get(kind, {}).items():
            totals[participant] = totals.get(participant, 0) + amount
    return totals


def _statistics(values: Sequence[float]) -> tuple[str, str, int]:
    """Return mean, sample standard deviation and number of the values that are defined."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "nan", "nan", 0
    spread = statistics.stdev(finite) if len(finite) > 1 else 0.0
    return f"{statistics.fmean(finite):.6g}", f"{spread:.6g}", len(finite)
