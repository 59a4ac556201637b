"""What each participant gains against training alone, with how sure that is."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedegoists.federation import Federation, Participant
from fedegoists.methods import Outcome
from fedegoists.training.summary import chosen_test_values

__all__ = ["Gain", "gains_over_local"]

ROUNDING = 1e-9
"""Gains that differ by less are the same."""


@dataclass(frozen=True)
class Gain:
    """A participant's test metric with a method, and by how much it is better than alone.

    Attributes
    ----------
    method, participant : str
        Whose, and how it was trained.
    value, alone : float
        Means of the metric over seeds: with the method, and by Local.
    gain, low, high : float
        How much better than alone, positive is better, and its confidence interval: Student's t
        over the seeds, paired. Not a number with a single seed, nor where all seeds have the same
        gain other than zero, as may be by a few test samples: that says nothing of the spread.
    """

    method: str
    participant: str
    value: float
    alone: float
    gain: float
    low: float
    high: float


def gains_over_local(
    outcomes: Mapping[str, Outcome], federation: Federation, confidence: float = 0.95
) -> list[Gain]:
    """Return the gains of every participant by every method but Local itself."""
    if "local" not in outcomes:
        return []
    sign = 1.0 if federation.task.higher_is_better else -1.0
    alone = _by_participant(chosen_test_values(outcomes["local"], federation))
    gains = []
    for method, outcome in outcomes.items():
        if method == "local":
            continue
        for participant, values in _by_participant(chosen_test_values(outcome, federation)).items():
            own = alone.get(participant, {})
            seeds = [
                seed
                for seed in values
                if math.isfinite(values[seed]) and math.isfinite(own.get(seed, math.nan))
            ]
            if seeds:
                differences = [sign * (values[seed] - own[seed]) for seed in seeds]
                mean, low, high = _interval(differences, confidence)
                gains.append(
                    Gain(
                        method,
                        participant,
                        statistics.fmean(values[seed] for seed in seeds),
                        statistics.fmean(own[seed] for seed in seeds),
                        mean,
                        low,
                        high,
                    )
                )
    return gains


def _by_participant(values: Mapping[Participant, float]) -> dict[str, dict[object, float]]:
    found: dict[str, dict[object, float]] = {}
    for one, value in values.items():
        found.setdefault(one.name, {})[one.repetition] = value
    return found


def _interval(values: Sequence[float], confidence: float) -> tuple[float, float, float]:
    from scipy.stats import t

    mean = statistics.fmean(values)
    same = max(values) - min(values) < ROUNDING < abs(mean)
    if len(values) < 2 or same:
        return mean, math.nan, math.nan
    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = float(t.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    return mean, mean - reach, mean + reach
