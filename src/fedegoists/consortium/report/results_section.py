"""What the methods came to, as both kinds of pages show it."""

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedegoists.consortium.gains import Gain
from fedegoists.consortium.participant_models import preferred
from fedegoists.consortium.report.wording import decimals_for, fixed, signed
from fedegoists.training.summary import EVERYBODY, summary_csv

if TYPE_CHECKING:
    from fedegoists.consortium.pipeline import ConsortiumRun

__all__ = ["CONFIDENCE", "EVERYBODY", "VERDICTS", "Amount", "GainRow", "Results", "verdict"]

CONFIDENCE = "95 %"

NAMES = {"auc": "AUC", "accuracy": "accuracy", "mse": "mean squared error"}
"""Metrics as a reader calls them."""

SIGNS = {"better": "▲", "no clear difference": "◆", "worse": "▼", "not sure": "○"}
VERDICTS = tuple(SIGNS)


@dataclass(frozen=True)
class Amount:
    """A mean over seeds with its standard deviation, and over how many seeds."""

    mean: float
    std: float
    n: int


@dataclass(frozen=True)
class GainRow:
    """A gain in words."""

    gain: Gain
    value: str
    alone: str
    change: str
    interval: str
    verdict: str
    sign: str

    @property
    def sentence(self) -> str:
        """The gain for who cannot see the chart."""
        between = f", interval {self.interval}" if self.interval else ""
        gain = self.gain
        return f"{gain.participant} with {gain.method}: {self.change}{between}; {self.verdict}"


def verdict(gain: Gain) -> str:
    """Return whether a participant is better off than alone, as far as that is sure.

    Examples
    --------
    >>> verdict(Gain("fedavg", "North", 0.8, 0.7, gain=0.1, low=0.05, high=0.15))
    'better'
    >>> verdict(Gain("fedavg", "North", 0.8, 0.7, gain=0.1, low=-0.05, high=0.25))
    'no clear difference'
    >>> verdict(Gain("fedavg", "North", 0.8, 0.7, gain=0.1, low=math.nan, high=math.nan))
    'not sure'
    """
    if not math.isfinite(gain.low):
        return "not sure"
    if gain.low > 0:
        return "better"
    return "worse" if gain.high < 0 else "no clear difference"


@dataclass(frozen=True)
class Results:
    """Metrics, costs and gains of a run.

    Attributes
    ----------
    methods : tuple of str
        In the order they were asked for.
    metric : str
        Its name.
    summary : mapping
        Amounts by method, participant (or `EVERYBODY`) and ``metric`` or kind of cost.
    decimals : int
        How many to show of metrics and gains.
    gains : tuple of GainRow
        Of everybody by every method but Local.
    chosen : mapping of str to str
        By which method the model of each participant that has one was trained.
    """

    methods: tuple[str, ...]
    metric: str
    higher_is_better: bool
    seeds: int
    summary: Mapping[tuple[str, str, str], Amount]
    decimals: int
    gains: tuple[GainRow, ...]
    chosen: Mapping[str, str]

    @classmethod
    def of(cls, run: "ConsortiumRun") -> "Results":
        """Collect the results of a run; the numbers are those of its ``summary.csv``."""
        task, methods = run.trials.federation.task, run.settings.training.methods
        wanted = {method: run.outcomes[method] for method in methods}
        text = summary_csv(wanted, run.outcomes, run.trials.federation).decode()
        summary = {
            (
                row["method"],
                row["participant"],
                "metric" if row["metric"] == task.metric else row["metric"],
            ): Amount(float(row["mean"]), float(row["std"]), int(row["n"]))
            for row in csv.DictReader(io.StringIO(text, newline=""))
        }
        decimals = _decimals(summary)
        order = {name: k for k, name in enumerate(run.formation.participants)}

        def place(gain: Gain) -> tuple[int, int]:
            return methods.index(gain.method), order[gain.participant]

        return cls(
            methods,
            NAMES.get(task.metric, task.metric),
            task.higher_is_better,
            run.settings.training.seeds,
            summary,
            decimals,
            tuple(_row(gain, decimals) for gain in sorted(run.gains, key=place)),
            {
                name: method
                for name, (method, _) in preferred(wanted, run.trials.federation).items()
            },
        )

    def about(self, participant: str) -> "Results":
        """Return the results of one participant alone, shown as if there were nobody else."""
        summary = {key: amount for key, amount in self.summary.items() if key[1] == participant}
        decimals = _decimals(summary)
        own = (row.gain for row in self.gains if row.gain.participant == participant)
        return replace(
            self,
            summary=summary,
            decimals=decimals,
            gains=tuple(_row(gain, decimals) for gain in own),
            chosen={name: how for name, how in self.chosen.items() if name == participant},
        )

    @property
    def direction(self) -> str:
        """Which metrics are good."""
        return "higher is better" if self.higher_is_better else "lower is better"

    def metric_of(self, method: str, participant: str) -> str:
        """Return a mean over seeds with its standard deviation."""
        amount = self.summary[method, participant, "metric"]
        mean = fixed(amount.mean, self.decimals)
        return f"{mean} ± {fixed(amount.std, self.decimals)}" if amount.n > 1 else mean

    def cost_of(self, method: str, participant: str) -> tuple[str, str, str]:
        """Return sample passes, and megabytes sent and received."""
        passes = self.summary[method, participant, "sample_passes"].mean
        sent, received = (
            self.summary[method, participant, kind].mean / 1e6
            for kind in ("bytes_sent", "bytes_received")
        )
        return f"{passes:,.0f}", _megabytes(sent), _megabytes(received)


def _decimals(summary: Mapping[tuple[str, str, str], Amount]) -> int:
    return decimals_for(amount.mean for (_, _, kind), amount in summary.items() if kind == "metric")


def _row(gain: Gain, decimals: int) -> GainRow:
    known = math.isfinite(gain.low)
    said = verdict(gain)
    return GainRow(
        gain,
        fixed(gain.value, decimals),
        fixed(gain.alone, decimals),
        signed(gain.gain, decimals),
        f"{signed(gain.low, decimals)} to {signed(gain.high, decimals)}" if known else "",
        said,
        SIGNS[said],
    )


def _megabytes(value: float) -> str:
    return "0" if value == 0 else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
