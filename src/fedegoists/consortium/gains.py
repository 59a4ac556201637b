"""The participants' gains over training alone, with confidence intervals."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass

from fedegoists.federation import Federation
from fedegoists.files import csv_bytes
from fedegoists.methods import Outcome
from fedegoists.training.summary import by_participant, chosen_test_values

ROUNDING = 1e-9
"""Gains that differ by less are the same."""


@dataclass(frozen=True)
class Gain:
    """A participant's test metric with a method, and its gain over training alone.

    Attributes
    ----------
    method, participant : str
        Their names.
    value, alone : float
        Means of the metric over repetitions: with the method, and with Local.
    gain, low, high : float
        The gain, positive if it is an improvement, and its confidence interval: Student's t over
        the repetitions, paired. The interval is NaN with a single repetition, and where all
        repetitions have the same gain other than zero, as a few test samples may give: that says
        nothing about the spread.
    """

    method: str
    participant: str
    value: float
    alone: float
    gain: float
    low: float
    high: float


def gains_over_local(
    outcomes: Mapping[str, Outcome],
    federation: Federation,
    confidence: float = 0.95,
    *,
    alone: Collection[str] = (),
) -> list[Gain]:
    """Return the gains of participants with every method but Local itself.

    Parameters
    ----------
    alone : collection of str
        Participants without a coalition. They train alone with every method; that one method trains
        longer than another is no gain of theirs.
    """
    if "local" not in outcomes:
        return []
    sign = 1.0 if federation.task.higher_is_better else -1.0
    local = by_participant(chosen_test_values(outcomes["local"], federation))
    gains = []
    for method, outcome in outcomes.items():
        if method == "local":
            continue
        for participant, values in by_participant(chosen_test_values(outcome, federation)).items():
            if participant in alone:
                continue
            own = local.get(participant, {})
            pairs = [
                (value, own[seed])
                for seed, value in values.items()
                if math.isfinite(value) and math.isfinite(own.get(seed, math.nan))
            ]
            if pairs:
                mean, low, high = _interval([sign * (v - a) for v, a in pairs], confidence)
                value, base = (statistics.fmean(column) for column in zip(*pairs, strict=True))
                gains.append(Gain(method, participant, value, base, mean, low, high))
    return gains


def gains_csv(gains: Sequence[Gain]) -> bytes:
    """Return a ``gains.csv``."""
    columns = ("method", "participant", "value", "alone", "gain", "low", "high")
    return csv_bytes(columns, map(astuple, gains))


def _interval(values: Sequence[float], confidence: float) -> tuple[float, float, float]:
    from scipy.stats import t

    mean = statistics.fmean(values)
    same = max(values) - min(values) < ROUNDING < abs(mean)
    if len(values) < 2 or same:
        return mean, math.nan, math.nan
    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = float(t.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    return mean, mean - reach, mean + reach
