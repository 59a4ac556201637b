"""Results of several methods: every measurement, and means over the repetitions."""

import csv
import io
import math
import statistics
from collections.abc import Container, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedegoists.federation import Federation, Participant, Repetition
from fedegoists.files import csv_bytes, read_text
from fedegoists.methods import Outcome
from fedegoists.notebooks import data_frame, html_table

EVERYBODY = "all"
"""The participant's name in rows that average over all participants."""
COSTS = ("sample_passes", "bytes_sent", "bytes_received")
"""The costs of a participant, counted over a whole run."""
SUMMARY_COLUMNS = ("method", "participant", "metric", "mean", "std", "n")


@dataclass(frozen=True)
class SummaryRow:
    """Mean and sample standard deviation over `n` repetitions with a defined value."""

    method: str
    participant: str
    metric: str
    mean: float
    std: float
    n: int


@dataclass(frozen=True)
class Summary:
    """Means over repetitions of the costs, and of the test metric at the step chosen by validation.

    The rows of each method, metric and cost are all participants, then their mean, `EVERYBODY`.
    """

    rows: tuple[SummaryRow, ...]

    @classmethod
    def of(
        cls,
        wanted: Mapping[str, Outcome],
        outcomes: Mapping[str, Outcome],
        federation: Federation,
        *,
        alone: Container[str] = (),
    ) -> "Summary":
        """Summarise the outcomes that are `wanted`; `outcomes` has those before fine-tuning too.

        Parameters
        ----------
        alone : container of str
            Participants without a coalition. Their result with any method is that of Local, if it
            was trained: that one method trains longer than another is no difference to them.
        """
        names = federation.participants
        local = wanted.get("local")
        alone_values = {} if local is None else chosen_test_values(local, federation)
        rows: list[SummaryRow] = []
        for method, outcome in wanted.items():
            tested = chosen_test_values(outcome, federation)
            tested |= {one: value for one, value in alone_values.items() if one.name in alone}
            rows += _averages(method, federation.task.metric, tested, names)
            for kind in COSTS:
                spent = dict.fromkeys(names, 0) | _spent(kind, method, outcomes)
                rows += _averages(method, kind, spent, names)
        return cls(tuple(rows))

    @classmethod
    def read(cls, path: Path) -> "Summary":
        """Read a ``summary.csv``."""
        _, *lines = csv.reader(io.StringIO(read_text(path), newline=""))
        return cls(
            tuple(
                SummaryRow(method, participant, metric, float(mean), float(std), int(n))
                for method, participant, metric, mean, std, n in lines
            )
        )

    def csv(self) -> bytes:
        """Return a ``summary.csv``, with six significant digits."""
        rows = [
            (*astuple(row)[:3], f"{row.mean:.6g}", f"{row.std:.6g}", row.n) for row in self.rows
        ]
        return csv_bytes(SUMMARY_COLUMNS, rows)

    def to_frame(self) -> Any:
        """Return a pandas data frame: method, participant, metric, mean, std, n."""
        return data_frame(SUMMARY_COLUMNS, map(astuple, self.rows))

    def _repr_html_(self) -> str:
        rows = [astuple(row) for row in self.rows if row.metric == self.metric]
        return html_table(f"Test {self.metric} over repetitions", SUMMARY_COLUMNS, rows)

    @property
    def metric(self) -> str:
        """The name of the test metric; empty without rows."""
        return next((row.metric for row in self.rows if row.metric not in COSTS), "")

    @cached_property
    def _found(self) -> dict[tuple[str, str, str], SummaryRow]:
        return {(row.method, row.participant, row.metric): row for row in self.rows}

    def row(self, method: str, participant: str = EVERYBODY, metric: str = "") -> SummaryRow:
        """Return the row of a cost, or of the test metric if none is named."""
        return self._found[method, participant, metric or self.metric]

    def about(self, participant: str) -> "Summary":
        """Return the rows of one participant."""
        return Summary(tuple(row for row in self.rows if row.participant == participant))


def metrics_csv(wanted: Mapping[str, Outcome], outcomes: Mapping[str, Outcome]) -> bytes:
    """Return a ``metrics.csv``: every measurement, and each participant's total costs."""
    rows: list[tuple[object, ...]] = []
    for method, outcome in wanted.items():
        for row in outcome.rows:
            one = row.participant
            measured = (row.round, row.split, row.metric, repr(row.value))
            rows.append((one.repetition, method, one.name, *measured))
        for kind in COSTS:
            for one, amount in _spent(kind, method, outcomes).items():
                spent = (outcome.state.round, "train", kind, amount)
                rows.append((one.repetition, method, one.name, *spent))
    columns = ("seed", "method", "participant", "round", "split", "metric", "value")
    return csv_bytes(columns, rows)


def failures_csv(wanted: Mapping[str, Outcome]) -> bytes:
    """Return a ``failures.csv``: participant, method, round and reason of every failure."""
    rows = [
        (one.repetition, one.name, method, number, failure.reason, failure.detail)
        for method, outcome in wanted.items()
        for number, failure in outcome.failures
        for one in [failure.participant]
    ]
    return csv_bytes(("seed", "participant", "method", "round", "reason", "detail"), rows)


def chosen_test_values(outcome: Outcome, federation: Federation) -> dict[Participant, float]:
    """Return each participant's test metric at the step that validation chose."""
    chosen = {
        name: number
        for name, number, score in zip(
            federation.participants, outcome.best_round, outcome.best_score, strict=True
        )
        if score[0] > -math.inf  # a participant that was never validated has no result
    }
    return {
        row.participant: row.value
        for row in outcome.rows
        if (row.split, row.metric) == ("test", federation.task.metric)
        and row.round == chosen.get(row.participant)
    }


ByName = dict[str, dict[Repetition | None, float]]
"""Values by the name of a participant, then by repetition."""


def by_participant(values: Mapping[Participant, float]) -> ByName:
    """Return values by participant, then by repetition."""
    found: ByName = {}
    for one, value in values.items():
        found.setdefault(one.name, {})[one.repetition] = value
    return found


def _averages(
    method: str,
    metric: str,
    values: Mapping[Participant, float],
    participants: Sequence[Participant],
) -> list[SummaryRow]:
    """Return a row for each participant over the repetitions, and one for the mean of all."""
    own: ByName = {one.name: {} for one in participants}
    own |= by_participant(values)
    rows = {name: list(repetitions.values()) for name, repetitions in own.items()}
    # The mean over all participants needs a value of each, or it would not be comparable.
    rows[EVERYBODY] = [
        statistics.fmean(one[seed] for one in own.values())
        for seed in dict.fromkeys(one.repetition for one in participants)
        if all(seed in one for one in own.values())
    ]
    return [SummaryRow(method, name, metric, *_statistics(values)) for name, values in rows.items()]


def _spent(kind: str, method: str, outcomes: Mapping[str, Outcome]) -> dict[Participant, int]:
    """Return the costs of all participants; fine-tuning counts on top of its method."""
    totals: dict[Participant, int] = {}
    for name in dict.fromkeys((method.removesuffix("+ft"), method)):
        for participant, amount in outcomes[name].spent.get(kind, {}).items():
            totals[participant] = totals.get(participant, 0) + amount
    return totals


def _statistics(values: Sequence[float]) -> tuple[float, float, int]:
    """Return mean, sample standard deviation and number of the values that are defined."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, math.nan, 0
    spread = statistics.stdev(finite) if len(finite) > 1 else 0.0
    return statistics.fmean(finite), spread, len(finite)
