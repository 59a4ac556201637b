"""What each member is expected to gain, where coalitions were formed from coalition values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.benefit.curve_fit import pair_gains
from fedegoists.coalitions.explanation import explain_alone
from fedegoists.consortium.report.wording import decimals_for, fixed, signed
from fedegoists.graphs import CurveValues

if TYPE_CHECKING:
    from fedegoists.coalitions import Formation

QUANTILE = 1.6449
"""Of the normal distribution, for two-sided intervals with a probability of 90 %."""

SURE = 1.2816
"""Standard errors by which a gain is above zero with a probability of 90 %."""

MOST_TIMES = 100.0
"""With more times the samples than this, no number is told."""

MORE = (
    "Another estimate with more divisions of the same samples (benefit.repeats) costs less and "
    "tells a little more."
)

TRAINED = (
    "This run has made the cheapest experiment: the coalitions have trained once, every member "
    "keeps the better model, its own or the coalition's, and the measured gains tell more than "
    f"these estimates. {MORE}"
)

NEXT = (
    "The cheapest next experiment costs no more data: train together once and let every member "
    "keep the better model, its own or the coalition's, by its own validation data "
    '(benefit.estimator = "everybody"; competitors stay apart). Nobody has to take a worse model, '
    f"and measured gains replace these estimates. {MORE}"
)


@dataclass(frozen=True)
class ExpectedGain:
    """The expected gain of a member of a coalition, as text."""

    participant: str
    gain: str
    interval: str
    probability: str


@dataclass(frozen=True)
class ExpectedGains:
    """The expected gains of a formation.

    Attributes
    ----------
    unit : str
        The metric.
    rows : tuple of ExpectedGain
        One for each member of a coalition of two or more.
    sentences : tuple of str
        How much more data and which experiment would tell more, where some member's gain is not
        certain; and, without a coalition, what keeps out the participant that would gain most.
    """

    unit: str
    rows: tuple[ExpectedGain, ...]
    sentences: tuple[str, ...]


def expected_gains(formation: "Formation") -> ExpectedGains | None:
    """Return the expected gains; None where benefits decided, which have no units."""
    values = formation.values
    if not isinstance(values, CurveValues):
        return None
    likely = formation.probabilities
    gains, errors = formation.utilities, formation.standard_errors
    decimals = decimals_for([gains[name] for name in likely] or [0.0])
    rows = tuple(
        ExpectedGain(
            name,
            signed(gains[name], decimals),
            f"{signed(gains[name] - QUANTILE * errors[name], decimals)} to "
            f"{signed(gains[name] + QUANTILE * errors[name], decimals)}",
            f"{fixed(100 * likely[name], 0)} %",
        )
        for name in likely
    )
    unsure = [
        (name, gains[name], errors[name]) for name in likely if SURE * errors[name] > gains[name]
    ]
    return ExpectedGains(values.unit, rows, _words(values, formation, unsure))


def _words(
    values: CurveValues, formation: "Formation", unsure: Sequence[tuple[str, float, float]]
) -> tuple[str, ...]:
    """Return what is not known yet, what would tell, and who is kept out although it would gain."""
    if unsure:
        return (*_needed("every one of these gains", unsure), TRAINED)
    if formation.probabilities:
        return ()
    sentences = ["In no coalition is every member likely to gain and to give the others something."]
    everybody = values.gains(np.ones((1, len(values.participants)), dtype=np.bool_))[0]
    most = values.participants[int(everybody.argmax())]
    if everybody.max() > 0:
        sentences.append(str(explain_alone(formation, most)))
    pairs, errors = pair_gains(values)
    j, i = np.unravel_index(int(pairs.argmax()), pairs.shape)
    if pairs[j, i] <= 0:
        return (*sentences, "No pair is expected to gain, so more evidence would hardly help.")
    giver, taker = values.participants[j], values.participants[i]
    told = f"the largest expected gain of a pair, that of {taker} with {giver}"
    largest = [(taker, float(pairs[j, i]), float(errors[j, i]))]
    return (*sentences, *_needed(told, largest), NEXT)


def _needed(told: str, gains: Sequence[tuple[str, float, float]]) -> tuple[str, ...]:
    """Return how much more data would make gains certain; nothing where they are."""
    name, gain, error = max(gains, key=lambda one: one[2] / one[1])
    times = (SURE * error / gain) ** 2
    if times <= 1:
        return ()
    about = f"{signed(gain, 4)} ± {fixed(error, 4)}"
    if not math.isfinite(times) or times > MOST_TIMES:
        return (
            f"The data is far too little to be 90 % sure of {told}: for {name}, {about} could as "
            "well be nothing.",
        )
    return (
        f"To be 90 % sure of {told}, about {math.ceil(times)} times the samples would be needed: "
        f"for {name}, {about} could still be nothing.",
    )
