"""Coalition values from scores at home: learning curves, and exchange rates between participants.

Scores are metrics, turned so that higher is better. With m samples of its own, participant i
reaches

    S_i(m) = S_i(∞) − E_i · (m / n_i)^p,        p < 0,

where n_i are all of its samples, and the *excess* E_i is what endless data would still bring. So
x times as much data on top of its own brings E_i · (1 − (1 + x)^p), which is a curve of
`fedegoists.graphs.CurveValues` with the slope −p · ln 2 · E_i. Two doublings are measured at home:

    from a quarter to a half:  E_i · (4^−p − 2^−p),     from a half to all:  E_i · (2^−p − 1).

The score of j's model on i's samples, beside i's own curve, tells how much j's task deviates:

    δ_ji = S_i(n_j) − S_ji:   what i's own model would reach with n_j samples, minus what j's does.

Where a model is trained on the samples of both, by a quadratic approximation of the loss, the
variance falls as if all samples were i's, and the deviation enters with the square of j's part:

    gain_i({i, j}) = E_i · (1 − (1 + r)^p) − (r / (1 + r))² · δ_ji,        r = n_j / n_i.

The exchange rate κ_ji is such that i's curve has this gain at x = κ_ji · r: one where nothing
deviates, below that where something does, negative where the coalition would do harm.

Single silos are small, so all of this is pooled: excesses and deviations are shrunk towards the
consortium's mean by empirical Bayes, the power is common to all, and an excess is known to be
positive. Without any sign of a deviation, there is none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedegoists.graphs import CurveValues

Floats = npt.NDArray[np.float64]

POWERS = np.linspace(-1.5, -0.05, 30)
"""The powers that are weighed by their likelihood."""

USUAL_POWER, POWER_SPREAD = -0.3, 0.3
"""The power that is expected before anything is measured: between the power law of statistics (−1)
and a logarithm (0). Chosen, like `MISFIT`, on other repetitions than those of the results."""

MISFIT = 0.3
"""Relative standard error of any gain because of the model itself, beside that of the data."""

PRIOR_FREEDOM = 3.0
"""Weight of the consortium's mean variance beside a participant's own, in degrees of freedom."""

UNKNOWN = 1e6
"""The variance of a number that was not measured, in multiples of the largest known one."""

MEASURED = 1e5
"""Variances above this multiple of the median are of numbers that were not measured."""


@dataclass(frozen=True)
class HomeScores:
    """The scores from which values are fitted, higher is better; NaN where one is not known.

    Attributes
    ----------
    participants : tuple of str
        The names.
    samples, validation : array of shape (n,)
        Training and validation samples.
    quarter, half : array of shape (repeats, 2, n)
        Of models of a quarter and of a half of one's samples, on the half that they did not see.
    checked_half, checked_all : array of shape (repeats, n)
        Of models of a half (the mean over both) and of all samples, on validation data.
    others : array of shape (repeats, 2, n, n), optional
        ``[..., i, j]``: of j's model of all its samples on i's halves; nothing without transfers.
    labels : array of shape (n, classes), optional
        Training samples of each class.
    """

    participants: tuple[str, ...]
    samples: Floats
    validation: Floats
    quarter: Floats
    half: Floats
    checked_half: Floats
    checked_all: Floats
    others: Floats | None = None
    labels: Floats | None = None

    @property
    def ratios(self) -> Floats:
        """``[i, j]``: the samples of j that are like those of i, in units of i's own.

        With labels, others' samples are weighted by i's class mix s_i: M_j · s_i / M_i · s_i.
        """
        if self.labels is None:
            return _ratio(self.samples)
        mixes = self.labels / self.labels.sum(1, keepdims=True)
        alike = mixes @ self.labels.T
        return np.asarray(alike / alike.diagonal()[:, None])


@dataclass(frozen=True)
class FittedCurves:
    """The learning curves of all participants: a common power, excesses and their variances."""

    power: float
    excess: Floats
    variance: Floats


def curve_values(scores: HomeScores, unit: str) -> CurveValues:
    """Return the coalition values that scores at home tell."""
    curves = fit_curves(scores)
    power, ratios, n = curves.power, scores.ratios, len(scores.participants)
    steepness = -power * math.log(2) * curves.excess  # the slope of `CurveValues`
    deviations, variances = np.zeros((n, n)), np.zeros((n, n))
    if scores.others is not None:
        deviations, variances = fit_deviations(scores, curves)
    part = scores.samples[None, :] / (scores.samples[None, :] + scores.samples[:, None])
    gains = curves.excess[:, None] * -np.expm1(power * np.log1p(ratios)) - part**2 * deviations
    doublings = gains / np.maximum(steepness, TINY)[:, None]
    worth = np.minimum(inverse_doublings(doublings, power), ratios)
    # By the delta method: a deviation changes the gain, and that the place on the curve.
    rise = np.maximum(steepness, TINY)[:, None] * derivative(worth, power)
    errors = part**2 * np.sqrt(variances) / rise
    size = scores.samples[:, None] / scores.samples[None, :]
    # Errors of worth that has no effect are none: without a curve, nothing is gained or lost.
    flat = (curves.excess <= TINY)[:, None] | np.eye(n, dtype=bool)
    return CurveValues(
        scores.samples,
        steepness,
        np.where(flat, 0.0, worth * size).T,
        scores.participants,
        slope_errors=np.hypot(-power * math.log(2) * np.sqrt(curves.variance), MISFIT * steepness),
        rate_errors=np.where(flat, 0.0, np.minimum(errors * size, LARGEST_ERROR)).T,
        powers=power,
        unit=unit,
    )


def pair_gains(values: CurveValues) -> tuple[Floats, Floats]:
    """Return what i gains with j alone, ``[j, i]``, and the standard errors."""
    n = len(values.participants)
    first, second = (index.ravel() for index in np.indices((n, n)))
    rows = np.arange(n * n)
    pairs = np.zeros((n * n, n), dtype=np.bool_)
    pairs[rows, first] = pairs[rows, second] = True
    gains, errors = values.gains(pairs), values.standard_errors(pairs)
    return gains[rows, second].reshape(n, n), errors[rows, second].reshape(n, n)


def with_absent(
    values: CurveValues, names: Sequence[str], apart: npt.NDArray[np.bool_] | None = None
) -> CurveValues:
    """Return values for more participants: those without values gain and give nothing.

    Parameters
    ----------
    apart : array of bool, optional
        Pairs of competitors, between which there are no rates either.
    """
    places = [names.index(name) for name in values.participants]
    curves = np.zeros((4, len(names)))
    curves[:, places] = values.samples, values.slopes, values.slope_errors, values.powers
    rates = np.zeros((2, len(names), len(names)))
    rates[np.ix_([0, 1], places, places)] = values.rates, values.rate_errors
    if apart is not None:
        rates[:, apart] = 0.0
    return CurveValues(
        curves[0],
        curves[1],
        rates[0],
        names,
        slope_errors=curves[2],
        rate_errors=rates[1],
        powers=curves[3],
        unit=values.unit,
    )


def fit_curves(scores: HomeScores) -> FittedCurves:
    """Fit the power that all share, and the excess of each participant.

    Powers are weighed by the likelihood of both doublings, with a normal prior.
    """
    first, variance = _measured(scores.half - scores.quarter, scores.samples)
    second = _mean(scores.checked_all - scores.checked_half, 0)
    fewer = scores.samples / np.maximum(scores.validation, 1.0)
    later = np.where(np.isfinite(second), variance * fewer, UNKNOWN * variance.max())
    doublings = np.stack([first, np.nan_to_num(second)])
    variances = np.stack([variance, later])
    likelihood = [
        _likelihood(power, doublings, _scaled(power, doublings, variances), scores.samples)
        - 0.5 * ((power - USUAL_POWER) / POWER_SPREAD) ** 2
        for power in POWERS
    ]
    weights = np.exp(np.array(likelihood) - max(likelihood))
    power = float(weights @ POWERS / weights.sum())
    excess, spread = _excesses(power, doublings, _scaled(power, doublings, variances))
    scale = scores.samples**-power  # an excess falls with the samples; this does not
    found, uncertain = shrunk(excess * scale, spread * scale**2, positive=True)
    return FittedCurves(power, found / scale, uncertain / scale**2)


def fit_deviations(scores: HomeScores, curves: FittedCurves) -> tuple[Floats, Floats]:
    """Fit the deviations δ, ``[i, j]``, and their variances.

    All deviations of a target are measured against the same model of its own: their errors are
    taken to be the same one, so that the mean over pairs is not more certain than it is.
    """
    assert scores.others is not None
    n, samples = len(scores.participants), scores.samples
    behind = scores.half[..., None] - scores.others
    mean = _mean(behind, (0, 1))
    known = np.isfinite(mean) & ~np.eye(n, dtype=bool)
    deviations, variances = np.zeros((n, n)), np.zeros((n, n))
    if not known.any():
        return deviations, variances
    # What i's own curve gains from half of its samples to as many as j has.
    own = curves.excess[:, None] * (2**-curves.power - _ratio(samples) ** curves.power)
    error = _pair_variances(scores, behind, np.where(known, mean, 0.0))
    error = error + (curves.variance * (2**-curves.power - 1) ** 2)[:, None]
    targets = known.any(1)
    of_target = np.where(known, error, 0.0).sum(1) / np.maximum(known.sum(1), 1)
    mean_error = float(of_target.sum() / targets.sum() ** 2)
    found, uncertain = shrunk((mean + own)[known], error[known], mean_error=mean_error)
    deviations[known], variances[known] = np.maximum(found, 0.0), uncertain
    return deviations, variances


def _pair_variances(scores: HomeScores, behind: Floats, mean: Floats) -> Floats:
    """Return the variances of how far others' models are behind, ``[i, j]``.

    Scores of models that are alike differ by as much as two of one's own do. The difference to a
    model of another task has a noise of its own, in proportion to its size.
    """
    _, alike = _measured(scores.half - scores.quarter, scores.samples)
    squares = _half_squares(behind)
    beyond = np.where(np.isfinite(squares), squares - alike[:, None], 0.0) * scores.samples[:, None]
    np.fill_diagonal(beyond, 0.0)
    share = max(0.0, float(beyond.sum())) / max(float((mean**2).sum()), TINY)
    return np.asarray(alike[:, None] + share * mean**2 / scores.samples[:, None])


def shrunk(
    values: Floats,
    variances: Floats,
    *,
    positive: bool = False,
    mean_error: float | None = None,
) -> tuple[Floats, Floats]:
    """Shrink values towards their mean by empirical Bayes; return them and their variances.

    The variance between values is that of Hedges: theirs, less the mean of their errors'. It counts
    all values alike; with weights by their errors, a few large values would be overlooked.

    Parameters
    ----------
    positive : bool
        Whether all values are known to be positive: the mean, and then each value, is the mean of
        its normal distribution above zero.
    mean_error : float, optional
        The variance of the mean, where errors are not independent. The mean is then taken to be
        zero as far as it may be.

    Examples
    --------
    Without any difference beyond the errors, all are the mean, which is more certain than each:

    >>> shrunk(np.array([1.0, 3.0]), np.array([4.0, 4.0]))
    (array([2., 2.]), array([2., 2.]))

    With small errors, nothing changes much:

    >>> shrunk(np.array([1.0, 3.0]), np.array([0.01, 0.01]))[0].round(2)
    array([1., 3.])
    """
    mean, error, between = _between(values, variances)
    if mean_error is not None:
        error = mean_error
        mean *= max(0.0, 1 - error / mean**2) if mean > 0 else 0.0
    if positive:
        mean, error = (float(one) for one in above_zero(np.array(mean), np.array(error)))
    own = between / (between + variances)
    found: Floats = own * values + (1 - own) * mean
    uncertain: Floats = own * variances + (1 - own) ** 2 * error
    return above_zero(found, uncertain) if positive else (found, uncertain)


def _between(values: Floats, variances: Floats) -> tuple[float, float, float]:
    """Return the mean, its variance, and the variance between values beyond their errors."""
    measured = variances < MEASURED * np.median(variances)
    between = 0.0
    if measured.sum() > 1:
        between = max(0.0, float(values[measured].var(ddof=1) - variances[measured].mean()))
    weights = 1 / (variances + between)
    total = float(weights.sum())
    return float((weights * values).sum()) / total, 1 / total, between


def above_zero(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the part of a normal distribution that is above zero.

    Examples
    --------
    >>> mean, variance = above_zero(np.array([0.0, 5.0]), np.array([1.0, 1.0]))
    >>> mean.round(3), variance.round(3)
    (array([0.798, 5.   ]), array([0.363, 1.   ]))
    """
    from scipy.stats import norm

    spread = np.sqrt(variance)
    place = mean / spread
    # The quotient of density and probability, which does not vanish far below zero.
    hazard = np.exp(norm.logpdf(place) - norm.logcdf(place))
    left = np.maximum(1 - hazard * (hazard + place), TINY)
    return np.maximum(mean + spread * hazard, 0.0), variance * left


def inverse_doublings(gains: Floats, power: float) -> Floats:
    """Return the x at which a curve of `CurveValues` with slope 1 has given gains.

    Examples
    --------
    >>> values = CurveValues([1, 1], [1, 1], [[0, 0.7], [-3, 0]], powers=-0.5)
    >>> inverse_doublings(values.gains([[True, True]])[0], -0.5).round(6).tolist()
    [-3.0, 0.7]
    """
    from fedegoists.graphs.curve_values import LOWEST

    lowest = math.expm1(power * math.log1p(LOWEST)) / (power * math.log(2))
    base = np.maximum(1 + power * math.log(2) * np.maximum(gains, lowest), TINY)
    inside = np.expm1(np.log(base) / power)
    return np.where(gains < lowest, LOWEST + (gains - lowest) / _steep(LOWEST, power), inside)


def derivative(x: Floats, power: float) -> Floats:
    """Return the derivative of a curve of `CurveValues` with slope 1."""
    from fedegoists.graphs.curve_values import LOWEST

    return _steep(np.maximum(x, LOWEST), power)


def _steep(x: Floats | float, power: float) -> Floats:
    return np.asarray(np.exp((power - 1) * np.log1p(x)) / math.log(2))


def _measured(halves: Floats, samples: Floats) -> tuple[Floats, Floats]:
    """Return means over (repeats, halves), and their variances; large ones where unknown."""
    mean = _mean(halves, (0, 1))
    variances = _moderated(_half_squares(halves), samples, len(halves))
    unknown = ~np.isfinite(mean)
    return np.nan_to_num(mean), np.where(unknown, UNKNOWN * variances.max(), variances)


def _half_squares(halves: Floats) -> Floats:
    """Return estimates of the variance of means over (repeats, halves), from both halves."""
    return _mean(((halves[:, 0] - halves[:, 1]) / 2) ** 2, 0)


def _moderated(squares: Floats, samples: Floats, repeats: int) -> Floats:
    """Return variances of means over samples: a participant's own and the consortium's together.

    Two halves tell little about a variance. Per sample it is taken to be similar everywhere.
    """
    known = np.isfinite(squares)
    per_sample = float((squares * samples)[known].mean()) if known.any() else 1.0
    pooled = per_sample / samples
    both = (PRIOR_FREEDOM * pooled + repeats * np.nan_to_num(squares)) / (PRIOR_FREEDOM + repeats)
    found: Floats = np.where(known, both, pooled) + TINY
    return found


def _excesses(power: float, doublings: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """Return the excesses that both doublings tell by least squares, and their variances."""
    unit = _units(power)[:, None]
    weight = (unit**2 / variances).sum(0)
    return (unit * doublings / variances).sum(0) / weight, 1 / weight


def _likelihood(power: float, doublings: Floats, variances: Floats, samples: Floats) -> float:
    """Return the logarithm of the likelihood of both doublings, with excesses around one mean."""
    scale = samples**-power
    excess, spread = _excesses(power, doublings, variances)
    values, errors = excess * scale, spread * scale**2
    mean, _, between = _between(values, errors)
    unit = _units(power)[:, None]
    distance = doublings - unit * max(mean, 0.0) / scale
    # A participant has one excess: its two doublings deviate from the mean together. The inverse
    # of their covariance V + t u uᵀ is by Sherman and Morrison.
    together = between / scale**2
    precision = 1 + together * (unit**2 / variances).sum(0)
    common = (unit * distance / variances).sum(0)
    squares = (distance**2 / variances).sum(0) - together * common**2 / precision
    return float(-0.5 * (squares + np.log(variances).sum(0) + np.log(precision)).sum())


def _scaled(power: float, doublings: Floats, variances: Floats) -> Floats:
    """Return the variances, that of the second doubling as far from a curve as it is.

    It is known from that of the first one only as an expectation, which counts as `PRIOR_FREEDOM`
    measurements; the others are the distances from curves through both.
    """
    excess, _ = _excesses(power, doublings, variances)
    squares = (doublings[1] - _units(power)[1] * excess) ** 2 / variances[1]
    noise = (PRIOR_FREEDOM + squares.sum()) / (PRIOR_FREEDOM + len(squares))
    return np.stack([variances[0], noise * variances[1]])


def _units(power: float) -> Floats:
    """Return both doublings, from a quarter and from a half, of a curve with an excess of one."""
    return np.array([4**-power - 2**-power, 2**-power - 1])


def _ratio(samples: Floats) -> Floats:
    found: Floats = samples[None, :] / samples[:, None]
    return found


def _mean(values: Floats, axes: int | tuple[int, ...]) -> Floats:
    """Return means without the values that are not known; NaN where none is."""
    known = np.isfinite(values)
    count = known.sum(axes)
    total = np.where(known, values, 0.0).sum(axes)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


TINY = 1e-12
"""Against division by zero."""

LARGEST_ERROR = 1e9
"""The largest standard error of an exchange rate: nothing at all is known about it."""
