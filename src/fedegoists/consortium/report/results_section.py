"""Metrics, costs and gains of a run, as both kinds of pages show them."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fedegoists.consortium.delivered_gains import DeliveredGain, run_delivered
from fedegoists.consortium.evaluations import Evaluations
from fedegoists.consortium.report.wording import UNKNOWN, counted, decimals_for, fixed, signed
from fedegoists.consortium.tree_yardstick import TreeYardstick
from fedegoists.federation import SimulatedFederation
from fedegoists.federation.delivery import OWN
from fedegoists.learning.estimates import Interval
from fedegoists.learning.sample_scores import few_samples
from fedegoists.training.gains import Gain
from fedegoists.training.summary import COSTS, Summary

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_run import ConsortiumRun

CONFIDENCE = "95 %"

FEW = "too few test samples"
SIGNS = {
    "better": "▲",
    "no clear difference": "◆",
    "worse": "▼",
    "uncertain": "○",
    FEW: "†",
}
VERDICTS = tuple(SIGNS)


@dataclass(frozen=True)
class GainRow:
    """A gain as text."""

    gain: Gain
    value: str
    alone: str
    change: str
    interval: str
    verdict: str
    sign: str

    @classmethod
    def of(cls, gain: Gain, decimals: int, *, few: bool = False) -> "GainRow":
        """Return a gain with some decimals; with few test samples there is no verdict."""
        low, high = signed(gain.low, decimals), signed(gain.high, decimals)
        said = FEW if few else gain.interval.verdict
        return cls(
            gain,
            fixed(gain.value, decimals),
            fixed(gain.alone, decimals),
            signed(gain.gain, decimals),
            f"{low} to {high}" if math.isfinite(gain.low) else "",
            said,
            SIGNS[said],
        )

    @property
    def sentence(self) -> str:
        """The gain as a sentence, for readers who cannot see the chart."""
        between = f", interval {self.interval}" if self.interval else ""
        gain = self.gain
        return f"{gain.participant} with {gain.method}: {self.change}{between}; {self.verdict}"


@dataclass(frozen=True)
class DeliveredRow:
    """What a member ends with, as text."""

    participant: str
    delivered: str
    predicted: str
    value: str
    alone: str
    change: str
    interval: str
    verdict: str
    sign: str

    @classmethod
    def of(cls, one: DeliveredGain, decimals: int, *, few: bool = False) -> "DeliveredRow":
        """Return what a member ends with, with some decimals."""
        said = FEW if few else one.gain.verdict
        own = one.method == OWN
        return cls(
            one.participant,
            one.delivered,
            _between(one.predicted, decimals, signed(one.predicted.value, decimals))
            if one.predicted
            else "",
            fixed(one.value, decimals),
            fixed(one.alone, decimals),
            signed(one.gain.value, decimals),
            "" if own else _between(one.gain, decimals),
            "as alone" if own else said,
            "" if own else SIGNS[said],
        )


def _between(one: Interval, decimals: int, before: str = "") -> str:
    """Return the ends of an interval, in brackets behind a value if there is one."""
    if not math.isfinite(one.low):
        return before
    ends = f"{signed(one.low, decimals)} to {signed(one.high, decimals)}"
    return f"{before} ({ends})" if before else ends


def _metric(run: "ConsortiumRun") -> str:
    """Return the name of the metric, with its unit where that differs between silos."""
    federation = run.repetitions.federation
    words = federation.task.metric_words
    if federation.task.metric != "mse" or isinstance(federation, SimulatedFederation):
        return words
    # A silo does not show the deviation of its numbers, so it adds noise to scaled errors.
    return f"{words}, at silos with noise in units of their own variance"


@dataclass(frozen=True)
class Results:
    """Metrics, costs and gains of a run.

    Attributes
    ----------
    methods : tuple of str
        In the order of the settings.
    metric : str
        Its name.
    summary : Summary
        Means over repetitions.
    gains : tuple of GainRow
        Of all participants with every method but Local.
    chosen : mapping of str to str
        The model that each participant keeps, in words.
    alone : tuple of str
        Participants without a coalition, which have no gains.
    few : mapping of str to str
        Why the test samples of some participants are too few for a result.
    evaluations : Evaluations
        Intervals over test samples; empty where they are not known.
    yardstick : TreeYardstick
        Boosted trees that each participant trains alone, for comparison.
    delivered : tuple of DeliveredGain
        What each participant ends with.
    """

    methods: tuple[str, ...]
    metric: str
    higher_is_better: bool
    seeds: int
    summary: Summary
    gains: tuple[GainRow, ...]
    chosen: Mapping[str, str]
    alone: tuple[str, ...]
    few: Mapping[str, str]
    evaluations: Evaluations
    yardstick: TreeYardstick = field(default_factory=TreeYardstick)
    delivered: tuple[DeliveredGain, ...] = ()

    @property
    def grouped(self) -> bool:
        """Whether some participant's test samples have groups, such as patients."""
        return any(one.groups is not None for one in self.evaluations.models.values())

    @classmethod
    def of(cls, run: "ConsortiumRun") -> "Results":
        """Collect the results of a run."""
        task, methods = run.repetitions.federation.task, run.settings.training.methods
        order = {name: k for k, name in enumerate(run.formation.participants)}
        gains = sorted(run.gains, key=lambda g: (methods.index(g.method), order[g.participant]))
        decimals = _decimals(run.summary)
        few = few_test_samples(run)
        return cls(
            methods,
            _metric(run),
            task.higher_is_better,
            run.settings.training.seeds,
            run.summary,
            tuple(
                GainRow.of(
                    _over_samples(gain, run.evaluations), decimals, few=gain.participant in few
                )
                for gain in gains
            ),
            {name: one.words for name, one in run.delivered.items()},
            run.alone,
            few,
            run.evaluations,
            run.yardstick,
            tuple(run_delivered(run)),
        )

    def about(self, participant: str) -> "Results":
        """Return the results of one participant, shown as if there were no others."""
        summary = self.summary.about(participant)
        decimals = _decimals(summary)
        own = (row.gain for row in self.gains if row.gain.participant == participant)
        return replace(
            self,
            summary=summary,
            gains=tuple(GainRow.of(gain, decimals, few=participant in self.few) for gain in own),
            chosen={name: how for name, how in self.chosen.items() if name == participant},
            alone=tuple(name for name in self.alone if name == participant),
            few={name: why for name, why in self.few.items() if name == participant},
            evaluations=self.evaluations.about(participant),
            yardstick=self.yardstick.about(participant),
            delivered=tuple(one for one in self.delivered if one.participant == participant),
        )

    @property
    def endings(self) -> tuple[DeliveredRow, ...]:
        """What each participant ends with, as text."""
        decimals = _decimals(self.summary)
        return tuple(
            DeliveredRow.of(one, decimals, few=one.participant in self.few)
            for one in self.delivered
        )

    @property
    def direction(self) -> str:
        """The direction of the metric."""
        return "higher is better" if self.higher_is_better else "lower is better"

    def metric_of(self, method: str, participant: str) -> str:
        """Return the mean of the metric with its standard deviation, marked where it is from few.

        † marks a participant with too few test samples.
        """
        row, decimals = self.summary.row(method, participant), _decimals(self.summary)
        mean = fixed(row.mean, decimals)
        mark = " †" if participant in self.few and math.isfinite(row.mean) else ""
        return f"{mean} ± {fixed(row.std, decimals)}{mark}" if row.n > 1 else f"{mean}{mark}"

    def trees_of(self, participant: str) -> str:
        """Return the metric of boosted trees that a participant, or each of all, trains alone."""
        known = self.yardstick.values.get(participant)
        if known is None:
            return UNKNOWN
        mean, spread = (fixed(number, _decimals(self.summary)) for number in known)
        mark = " †" if participant in self.few else ""
        return f"{mean} ± {spread}{mark}" if self.seeds > 1 else f"{mean}{mark}"

    def interval_of(self, method: str, participant: str) -> str:
        """Return the interval of the metric over test samples; a dash where it is not known."""
        one = self.evaluations.methods.get((method, participant))
        if one is None or not math.isfinite(one.value.low):
            return UNKNOWN
        decimals = _decimals(self.summary)
        return f"{fixed(one.value.low, decimals)} to {fixed(one.value.high, decimals)}"

    def cost_of(self, method: str, participant: str) -> tuple[str, str, str]:
        """Return sample passes, and megabytes sent and received."""
        passes, sent, received = (self.summary.row(method, participant, k).mean for k in COSTS)
        return f"{passes:,.0f}", _megabytes(sent / 1e6), _megabytes(received / 1e6)


def _over_samples(gain: Gain, evaluations: Evaluations) -> Gain:
    """Return a gain with its interval over test samples and repetitions, if it is known."""
    one = evaluations.methods.get((gain.method, gain.participant))
    if one is None or one.gain is None:
        return gain
    # Without a spread over initialisations, as with one of them, samples are all there is.
    over = "test samples and initialisations" if evaluations.repetitions > 1 else "test samples"
    return replace(gain, low=one.gain.low, high=one.gain.high, over=over)


def few_test_samples(run: "ConsortiumRun") -> dict[str, str]:
    """Return why the test samples of some participants are too few; labels may not be known."""
    found = {name: few_samples(size.test) for name, size in run.data.sizes.items()}
    found |= {name: one.few for name, one in run.evaluations.models.items()}
    return {name: why for name, why in found.items() if why}


def failures_of(run: "ConsortiumRun") -> list[tuple[str, str, str]]:
    """Return the silos' failures: the part of the run, the participant, and what happened."""
    found = []
    for text in () if run.benefit.estimate is None else run.benefit.estimate.failures:
        name, _, what = text.rpartition(": ")
        found.append(("benefit", name, what))
    for method, outcome in run.wanted.items():
        counts = Counter(
            (failure.participant.name, failure.reason) for _, failure in outcome.failures
        )
        found += [
            (method, name, f"{reason}, {counted(times, 'time')}")
            for (name, reason), times in counts.items()
        ]
    return found


def _decimals(summary: Summary) -> int:
    return decimals_for(row.mean for row in summary.rows if row.metric == summary.metric)


def _megabytes(value: float) -> str:
    return "0" if value == 0 else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
