"""What each member ends with: the model it keeps, its test result, and what was predicted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.coalitions import Formation
from fedegoists.federation.delivery import OWN
from fedegoists.files import csv_bytes
from fedegoists.graphs import CurveValues
from fedegoists.learning.estimates import Interval, Over
from fedegoists.training.summary import chosen_test_values

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_run import ConsortiumRun

PREDICTED_REACH = 1.6449
"""Standard errors of a two-sided interval of 90 %, as expected gains have."""


@dataclass(frozen=True)
class DeliveredGain:
    """The model that a member keeps, against the one that it trained alone.

    Attributes
    ----------
    delivered : str
        The model, in words.
    value, alone : float
        The test metric of this model, and of the own model of the same repetition; NaN if not
        known here.
    gain : Interval
        Positive for an improvement; the interval is known where test samples are in this process.
    over : str
        What the interval is over; empty without one.
    predicted : Interval, optional
        The gain that was expected before training, with its 90 % interval, where the evidence
        gives one.
    """

    participant: str
    delivered: str
    method: str
    share: float
    seed: int
    value: float
    alone: float
    gain: Interval
    over: Over | str
    predicted: Interval | None


def run_delivered(run: "ConsortiumRun") -> list[DeliveredGain]:
    """Return what each member of a run ends with, in the order of the participants."""
    federation, outcomes, formation = run.repetitions.federation, run.outcomes, run.formation
    sign = 1.0 if federation.task.higher_is_better else -1.0
    local = chosen_test_values(outcomes[OWN], federation) if OWN in outcomes else {}
    found = []
    for name in formation.participants:
        model = run.delivered.get(name)
        if model is None:
            continue
        alone = local.get(model.trained, math.nan)
        gain = Interval(sign * (model.tested - alone))
        over: Over | str = ""
        if model.card.method == OWN:
            gain = Interval(0.0, 0.0, 0.0)  # it is the model that was trained alone
        elif name in run.evaluations.delivered:
            gain, over = run.evaluations.delivered[name].interval(), "test samples"
        card = model.card
        found.append(
            DeliveredGain(
                name,
                model.words,
                card.method,
                card.share,
                card.seed,
                model.tested,
                alone,
                gain,
                over,
                predicted_gain(formation, name),
            )
        )
    return found


def predicted_gain(formation: Formation, participant: str) -> Interval | None:
    """Return the gain that was expected before training; None where benefits have no units."""
    if (
        not isinstance(formation.values, CurveValues)
        or len(formation.coalition_of(participant)) < 2
    ):
        return None
    gain = formation.utilities[participant]
    reach = PREDICTED_REACH * formation.standard_errors[participant]
    return Interval(gain, gain - reach, gain + reach)


def delivered_csv(gains: Sequence[DeliveredGain]) -> bytes:
    """Return a ``delivered.csv``."""
    columns = (
        "participant",
        "delivered",
        "method",
        "share",
        "seed",
        "value",
        "alone",
        "gain",
        "low",
        "high",
        "over",
        "predicted",
        "predicted_low",
        "predicted_high",
    )
    rows = []
    for one in gains:
        numbers = (one.value, one.alone, one.gain.value, one.gain.low, one.gain.high)
        expected = one.predicted or Interval(math.nan)
        rows.append(
            (
                *(one.participant, one.delivered, one.method, one.share, one.seed),
                *(f"{number:.6g}" for number in numbers),
                one.over,
                *(f"{number:.6g}" for number in (expected.value, expected.low, expected.high)),
            )
        )
    return csv_bytes(columns, rows)
