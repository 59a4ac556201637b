"""What each member is expected to gain, where coalitions were formed from coalition values."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.benefit.curve_fit import pair_gains
from fedegoists.consortium.report.wording import decimals_for, fixed, signed
from fedegoists.graphs import CurveValues

if TYPE_CHECKING:
    from fedegoists.coalitions import Formation

QUANTILE = 1.6449
"""Of the normal distribution, for two-sided intervals with a probability of 90 %."""

SURE = 1.2816
"""Standard errors by which a gain is above zero with a probability of 90 %."""

MOST_TIMES = 100.0


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
    sentence : str
        The experiment that would tell more, where some member's gain is not certain.
    """

    unit: str
    rows: tuple[ExpectedGain, ...]
    sentence: str


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
    return ExpectedGains(
        values.unit,
        rows,
        _more_evidence(values, [gains[n] for n in likely], [errors[n] for n in likely]),
    )


def _more_evidence(values: CurveValues, gains: list[float], errors: list[float]) -> str:
    """Return what it would take to be sure of every gain, or of any."""
    if not gains:
        pairs, spreads = pair_gains(values)
        hopeful = [
            (float(gain), float(error))
            for gain, error in zip(pairs.ravel(), spreads.ravel(), strict=True)
            if gain > 0
        ]
        if not hopeful:
            return "No pair of participants is expected to gain: more evidence would not help."
        gains, errors = [max(hopeful)[0]], [max(hopeful)[1]]
        told = "the largest gain of a pair"
    else:
        told = "every one of these gains"
    times = max((SURE * error / gain) ** 2 for gain, error in zip(gains, errors, strict=True))
    if times <= 1:
        return ""
    if not math.isfinite(times) or times > MOST_TIMES:
        return f"The data is far too little to be 90 % sure of {told}."
    return (
        f"To be 90 % sure of {told}, about {math.ceil(times)} times the samples would be needed. "
        "The cheapest next experiment is more repeats (benefit.repeats); the next one is to train "
        "in these coalitions and keep the better model."
    )
