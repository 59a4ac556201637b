"""The participants' gains over training alone, with confidence intervals."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass

from fedegoists.federation import Federation
from fedegoists.files import csv_bytes
from fedegoists.learning.estimates import (
    CONFIDENCE,
    Interval,
    Over,
    over_divisions,
    over_initialisations,
)
from fedegoists.methods import Outcome
from fedegoists.training.summary import by_participant, chosen_test_values


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
        the repetitions, paired; see `fedegoists.learning.estimates`. NaN where it is not known.
    over : str
        What the interval is over: repetitions of a run are initialisations on the same division of
        the data, those of a comparison are divisions. Empty without an interval.
    """

    method: str
    participant: str
    value: float
    alone: float
    gain: float
    low: float
    high: float
    over: Over | str = ""

    @property
    def interval(self) -> Interval:
        """The gain with its interval."""
        return Interval(self.gain, self.low, self.high)


def gains_over_local(
    outcomes: Mapping[str, Outcome],
    federation: Federation,
    confidence: float = CONFIDENCE,
    *,
    alone: Collection[str] = (),
    ratio: Mapping[str, float] | None = None,
) -> list[Gain]:
    """Return the gains of participants with every method but Local itself.

    Parameters
    ----------
    alone : collection of str
        Participants without a coalition. They train alone with every method; that one method trains
        longer than another is no gain of theirs.
    ratio : mapping of str to float, optional
        Where repetitions divide the same data in different ways: each participant's test samples
        divided by its training samples, for the error of Nadeau and Bengio. If left out,
        repetitions are initialisations on one division.
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
                differences = [sign * (v - a) for v, a in pairs]
                found = over_initialisations(differences)
                if ratio is not None:
                    found = over_divisions(differences, ratio[participant])
                one = found.interval(confidence)
                over = "initialisations" if ratio is None else "divisions"
                over = over if math.isfinite(one.low) else ""
                value, base = (statistics.fmean(column) for column in zip(*pairs, strict=True))
                about = (method, participant, value, base)
                gains.append(Gain(*about, one.value, one.low, one.high, over))
    return gains


def gains_csv(gains: Sequence[Gain]) -> bytes:
    """Return a ``gains.csv``."""
    columns = ("method", "participant", "value", "alone", "gain", "low", "high", "over")
    return csv_bytes(columns, map(astuple, gains))
