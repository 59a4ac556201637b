"""Coalition values from scores at home: learning curves, deviations and a trial coalition.

All scores are higher for better models. Losses tell *whether* a participant would gain, since they
are far less noisy than metrics; the learning curve of the metric tells *how much* that is in its
units. Losses count in parts of a participant's own loss.

*Learning curves.* With m samples of its own, participant i reaches

    S_i(m) = S_i(∞) − E_i · (m / n_i)^p,        p < 0,

where n_i are all of its samples. The *excess* E_i is what endless data would still bring; the
doubling from a quarter to a half of one's samples shows E_i · (4^−p − 2^−p).

*Deviations.* The model of j's half, judged on i's samples, beside i's model of a half, tells how
far j's task deviates from i's:

    δ_ji = S_i(n_j / 2) − S_ji.

By a quadratic approximation of the loss, a common model of coalition S, in which j has the part w_j
of all samples, deviates from i's task by its mean distance less half the distances within S:

    B_i(S) = Σ_j w_j δ_ji − ½ Σ_jk w_j w_k δ_jk.

*Trial.* Coalitions as large as competition allows train on halves of their samples. What a member
gains there, T_i, tells how much of the curve is true, and how much deviations cost:

    T_i = ρ_i · E_i · 2^−p · (1 − (1 + x_i)^p) − λ · B_i,

where x_i is the data of the others in units of i's own. ρ_i scatters around a common ρ. The excess
of the metric is multiplied by what the metric gained in the trial, over all participants, relative
to what its curves tell. With all of it,

    gain_i(S) = ρ_i · E_i · (1 − (1 + x_i(S))^p) − λ · B_i(S).

`CurveValues` has exchange rates instead of deviations: those with which its gains are nearest to
these, over all coalitions, or a sample of them if there are many.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedegoists.graphs import CurveValues

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Chosen on other repetitions than those of the results in `reproduction`.

POWER = -1.0
"""Of learning curves where a trial shows how much of them is true: the law of statistics."""

RIDGE_POWER = -0.8
"""The same where weight decay suits each number of samples, which makes curves less steep."""

UNTRIED_POWER = -0.3
"""Of learning curves without a trial: between that law and a logarithm."""

USUAL_TRUTH, TRUTH_SPREAD = 0.7, 0.5
"""The common ρ that is expected before a trial: strangers' samples are worth less than own ones."""

OWN_SPREAD = 0.25
"""How far ρ of single participants is from the common one."""

USUAL_COST, COST_SPREAD = 1.0, 1.0
"""The λ that is expected before a trial: that of a quadratic loss."""

WORTH_SPREAD, LEAST_WORTH = 1.0, 0.25
"""How far the metric gained in a trial may be from what curves tell, and what it is at least."""

MISFIT = 0.4
"""Relative standard error of any gain because of the model itself, beside that of the data."""

TRIAL_MISFIT = 0.1
"""The same for a trial: training ends a little differently each time."""

CLEAR = 3.0
"""Standard errors by which deviations must exceed noise as a whole, before small ones count; and a
single one, to count whatever the others are."""

PRIOR_FREEDOM = 3.0
"""Weight of the consortium's mean variance beside a participant's own, in degrees of freedom."""

MOST_ENUMERATED = 9
"""Participants up to which all coalitions are valued, instead of a sample."""

SAMPLED = 600
"""Coalitions in a sample."""

UNKNOWN = 1e6
"""The variance of a number that was not measured, in multiples of the largest known one."""

MEASURED = 1e5
"""Variances above this multiple of the median are of numbers that were not measured."""

TINY = 1e-12
"""Against division by zero."""

LARGEST_ERROR = 1e9
"""The largest standard error of an exchange rate: nothing at all is known about it."""


@dataclass(frozen=True)
class Measures:
    """Scores of the models of all participants in one measure, higher is better.

    NaN where one is not known. All are of models of a part of the samples on the other half.

    Attributes
    ----------
    quarter, half : array of shape (repeats, 2, n)
        Of a quarter and of a half of one's own samples.
    trial : array of shape (repeats, 2, n), optional
        Of a half of the samples of each member of a trial coalition.
    others : array of shape (repeats, 2, n, n), optional
        ``[..., i, j]``: of a half of j's samples, on i's.
    """

    quarter: Floats
    half: Floats
    trial: Floats | None = None
    others: Floats | None = None


@dataclass(frozen=True)
class HomeScores:
    """The evidence from which values are fitted.

    Attributes
    ----------
    participants : tuple of str
        The names.
    samples : array of shape (n,)
        Training samples.
    metric, loss : Measures
        Scores by the task's own metric, and by minus the loss.
    company : array of bool of shape (repeats, n, n), optional
        Who was in one trial coalition with whom.
    labels : array of shape (n, classes), optional
        Training samples of each class.
    apart : array of bool of shape (n, n), optional
        Pairs of competitors.
    ridge : bool
        Whether the weight decay was in proportion to one over the samples of each model.
    """

    participants: tuple[str, ...]
    samples: Floats
    metric: Measures
    loss: Measures
    company: Bools | None = None
    labels: Floats | None = None
    apart: Bools | None = None
    ridge: bool = False

    @property
    def power(self) -> float:
        """The power of all learning curves."""
        if self.loss.trial is None:
            return UNTRIED_POWER
        return RIDGE_POWER if self.ridge else POWER

    @property
    def ratios(self) -> Floats:
        """``[i, j]``: the samples of j that are like those of i, in units of i's own.

        With labels, others' samples are weighted by i's class mix s_i: M_j · s_i / M_i · s_i.
        """
        if self.labels is None:
            return np.asarray(self.samples[None, :] / self.samples[:, None])
        mixes = self.labels / self.labels.sum(1, keepdims=True)
        alike = mixes @ self.labels.T
        return np.asarray(alike / alike.diagonal()[:, None])

    @property
    def relative_loss(self) -> Measures:
        """Minus the losses in parts of a participant's own, where the metric is defined."""
        known = np.isfinite(self.metric.half)
        level = _mean(np.where(known, -self.loss.half, np.nan), (0, 1))
        usual = np.nanmedian(level) if np.isfinite(level).any() else 1.0
        level = np.where(np.isfinite(level) & (level > TINY), level, max(usual, TINY))

        def part(scores: Floats) -> Floats:
            return np.asarray(np.where(known, scores, np.nan) / level)

        one = self.loss
        others = one.others
        if others is not None:
            others = np.where(known[..., None], others, np.nan) / level[:, None]
        trial = None if one.trial is None else part(one.trial)
        return Measures(part(one.quarter), part(one.half), trial, others)


@dataclass(frozen=True)
class FittedCurves:
    """The learning curves of all participants: a common power, excesses and their variances."""

    power: float
    excess: Floats
    variance: Floats


@dataclass(frozen=True)
class FittedGains:
    """The model of gains, with everything that it was fitted to.

    Attributes
    ----------
    scores : HomeScores
        The evidence.
    metric, loss : FittedCurves
        The learning curves.
    deviations : array of shape (n, n)
        δ, ``[i, j]``, in parts of i's loss.
    truth, truth_variance : array of shape (n,)
        ρ, and its variance.
    cost, cost_variance : float
        λ, and its variance.
    harm : float
        The metric for a unit of the loss, where that is lost rather than gained.
    doubt : float
        Relative standard error of gains in the metric, beside those in the loss.
    """

    scores: HomeScores
    metric: FittedCurves
    loss: FittedCurves
    deviations: Floats
    truth: Floats
    truth_variance: Floats
    cost: float
    cost_variance: float
    harm: float
    doubt: float = 0.0

    def gains(self, coalitions: Bools) -> tuple[Floats, Floats]:
        """Return the gains of all members of coalitions, and their variances."""
        growth, deviation = coalition_parts(self.scores, self.deviations, self.loss, coalitions)
        excess = self.loss.excess
        gained = self.truth * excess * growth - self.cost * deviation
        unit = np.where(gained > 0, self.metric.excess / np.maximum(excess, TINY), self.harm)
        gains = unit * gained
        variances = (
            (unit * excess * growth) ** 2 * self.truth_variance
            + (unit * deviation) ** 2 * self.cost_variance
            + (MISFIT * gains) ** 2
            + growth**2 * self.metric.variance
            + (self.doubt * np.maximum(gains, 0.0)) ** 2
        )
        return np.where(coalitions, gains, 0.0), np.where(coalitions, variances, 0.0)


def curve_values(scores: HomeScores, unit: str) -> CurveValues:
    """Return the coalition values that scores at home tell."""
    return projected(fit_gains(scores), unit)


def fit_gains(scores: HomeScores) -> FittedGains:
    """Fit curves, deviations and the trial."""
    n = len(scores.participants)
    power = scores.power
    loss = scores.relative_loss
    metric_curves = fit_curves(scores.metric, scores.samples, power)
    curves = fit_curves(loss, scores.samples, power)
    usual = float(np.median(metric_curves.excess / np.maximum(curves.excess, TINY)))
    if loss.trial is None or scores.metric.trial is None or scores.company is None:
        deviations = fit_deviations(loss, scores, curves)
        truth, spread = (
            np.ones(n),
            np.full(n, curves.variance / np.maximum(curves.excess, TINY) ** 2),
        )
        return FittedGains(
            scores,
            metric_curves,
            curves,
            deviations,
            truth,
            spread,
            USUAL_COST,
            COST_SPREAD**2,
            usual,
        )
    change, variance = measured(loss.trial - loss.half, scores.samples)
    for clear in (CLEAR, 0.0):
        deviations = fit_deviations(loss, scores, curves, clear)
        tried = np.zeros((2, n))
        for together in scores.company:
            parts = coalition_parts(scores, deviations, curves, together)
            tried += np.array([part.diagonal() for part in parts]) / len(scores.company)
        truth, spread, cost, cost_variance = fit_trial(change, variance, curves, *tried)
        if np.median(truth) > 0 or np.median(deviations[~np.eye(n, dtype=np.bool_)]) > 0:
            break  # else most members lost in the trial, although deviations did not count
    metric_change, metric_variance = measured(
        scores.metric.trial - scores.metric.half, scores.samples
    )
    harm = _harm(usual, change, metric_change, metric_variance)
    told = truth * 2**-power * tried[0] * curves.excess - cost * tried[1]
    told = np.maximum(told, 0.0) * metric_curves.excess / np.maximum(curves.excess, TINY)
    worth, doubt = _worth(told, metric_change, metric_variance)
    return FittedGains(
        scores,
        FittedCurves(power, worth * metric_curves.excess, worth**2 * metric_curves.variance),
        curves,
        deviations,
        truth,
        spread,
        cost,
        cost_variance,
        harm,
        doubt,
    )


def fit_curves(scores: Measures, samples: Floats, power: float) -> FittedCurves:
    """Fit the excess of each participant, shrunk towards that of the consortium.

    An excess falls with the samples, so that E_i · n_i^−p is the same for similar participants.
    """
    doubling, variance = measured(scores.half - scores.quarter, samples)
    unit, scale = 4**-power - 2**-power, samples**-power
    excess, spread = shrunk(doubling / unit * scale, variance / unit**2 * scale**2, positive=True)
    return FittedCurves(power, excess / scale, spread / scale**2)


def fit_deviations(
    loss: Measures, scores: HomeScores, curves: FittedCurves, clear: float = CLEAR
) -> Floats:
    """Fit the deviations δ, ``[i, j]``: none where noise explains them.

    What i's own model would reach with more samples than it has is not known, and not counted.
    Deviations are shrunk towards zero by empirical Bayes: where most pairs clearly deviate by more
    than noise, a small deviation is taken at its word; where most do not, it is none. The usual
    square is a median, so that a few large ones do not make all others credible; and large ones
    count, whatever the others are. Deviations of one target share its noise, so there are only as
    many independent squares as targets: with n of them, the noise of a mean is √(2 / n) of it.
    Where most members lose in the trial, this is not demanded, see `fit_gains`.

    Parameters
    ----------
    clear : float
        Standard errors by which deviations must exceed noise as a whole.
    """
    n, samples, power = len(scores.participants), scores.samples, curves.power
    if loss.others is None:
        return np.zeros((n, n))
    behind = loss.half[..., None] - loss.others
    mean = _mean(behind, (0, 1))
    squares = _half_squares(behind) * samples[:, None]
    known = np.isfinite(mean) & np.isfinite(squares) & ~np.eye(n, dtype=np.bool_)
    if scores.apart is not None:
        known &= ~scores.apart
    deviations = np.zeros((n, n))
    if not known.any():
        return deviations
    fewer = np.minimum(samples[None, :] / samples[:, None], 1.0) / 2
    own = 2**-power - fewer**power
    constant, share = _noise(squares[known], mean[known] ** 2)
    error = (constant + share * np.where(known, mean, 0.0) ** 2) / samples[:, None]
    error = error + own**2 * curves.variance[:, None] + TINY
    found = (mean + own * curves.excess[:, None])[known]
    noise = error[known]
    beyond = found**2 - noise * (1 + clear * math.sqrt(2 / known.any(1).sum()))
    usual = max(0.0, float(np.median(beyond)))
    shrunken = found * usual / (usual + noise)
    large = found - CLEAR**2 * noise / np.maximum(found, TINY)
    deviations[known] = np.where(found > 0, np.maximum(shrunken, large), 0.0)
    return deviations


def fit_trial(
    change: Floats, variance: Floats, curves: FittedCurves, growth: Floats, deviation: Floats
) -> tuple[Floats, Floats, float, float]:
    """Fit ρ and λ to the changes in a trial; return ρ_i and variances, λ and its variance.

    Least squares with normal priors; then each ρ_i is shrunk towards the common one.
    """
    expected = 2**-curves.power * growth * curves.excess + TINY
    relative = curves.variance / np.maximum(curves.excess, TINY) ** 2 + OWN_SPREAD**2
    # Beside a large deviation, the little that a curve tells is lost in what a model may miss.
    noise = variance + (TRIAL_MISFIT * change) ** 2
    total = noise + expected**2 * relative
    design = np.stack([expected, -deviation], 1)
    prior = np.diag([TRUTH_SPREAD**-2, COST_SPREAD**-2])
    usual = np.array([USUAL_TRUTH, USUAL_COST])
    covariance = np.linalg.inv(design.T @ (design / total[:, None]) + prior)
    common, cost = covariance @ (design.T @ (change / total) + prior @ usual)
    if cost < 0:  # deviations do not help
        cost = 0.0
        precision = float((expected**2 / total).sum()) + TRUTH_SPREAD**-2
        common = (
            float((expected * change / total).sum()) + USUAL_TRUTH / TRUTH_SPREAD**2
        ) / precision
        covariance[0, 0] = 1 / precision
    own = relative * expected / total
    truth = common + own * (change - common * expected + cost * deviation)
    known = own * expected
    spread = relative * (1 - known) + (1 - known) ** 2 * covariance[0, 0]
    return truth, spread, float(cost), float(covariance[1, 1])


def _worth(told: Floats, change: Floats, variance: Floats) -> tuple[float, float]:
    """Return the metric gained in a trial for what curves tell, and its relative standard error.

    A metric such as AUC of few samples hardly shows a learning curve, which is then shrunk; over
    all participants, the trial shows how much more, or less, there is to gain. Least squares with
    a normal prior around 1.

    Parameters
    ----------
    told : array of shape (n,)
        The gains in the trial by the curves; none where a loss is told.
    """
    weights = told / np.maximum(variance, TINY)
    precision = float((weights * told).sum()) + WORTH_SPREAD**-2
    found = (float((weights * change).sum()) + WORTH_SPREAD**-2) / precision
    worth = max(found, LEAST_WORTH)
    return worth, precision**-0.5 / worth


def _harm(usual: float, change: Floats, metric_change: Floats, variance: Floats) -> float:
    """Return the metric lost for a unit of the loss, by those that lost in the trial."""
    weights = (change < 0) / np.maximum(variance, TINY)
    found = (float((weights * metric_change * change).sum()) + usual) / (
        float((weights * change**2).sum()) + 1.0
    )
    return max(found, usual / 4)


def coalition_parts(
    scores: HomeScores, deviations: Floats, curves: FittedCurves, coalitions: Bools
) -> tuple[Floats, Floats]:
    """Return how far members of coalitions get on their curves, 1 − (1 + x)^p, and B."""
    rows = coalitions.astype(np.float64)
    ratios = scores.ratios.copy()
    np.fill_diagonal(ratios, 0.0)
    weights = rows * scores.samples
    weights = weights / np.maximum(weights.sum(1, keepdims=True), TINY)
    among = np.einsum("mj,jk,mk->m", weights, (deviations + deviations.T) / 2, weights)
    most = np.where(coalitions[:, None, :], deviations[None], 0.0).max(2)
    deviation = np.clip(weights @ deviations.T - among[:, None] / 2, 0.0, most)
    return np.asarray(-np.expm1(curves.power * np.log1p(rows @ ratios.T))), deviation


def projected(fitted: FittedGains, unit: str) -> CurveValues:
    """Return the learning curves and exchange rates whose gains are nearest to those fitted."""
    scores, power = fitted.scores, fitted.metric.power
    n, samples = len(scores.participants), scores.samples
    coalitions = sampled_coalitions(n, scores.apart)
    gains, variances = fitted.gains(coalitions)
    slopes, worst = np.zeros(n), np.zeros(n)
    rates, errors = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        rows, others = coalitions[:, i], np.arange(n) != i
        worth = scores.ratios[i, others] * coalitions[np.ix_(rows, others)]
        if not len(worth):
            continue
        slopes[i], found, error = _target(
            worth, gains[rows, i], variances[rows, i], power, fitted.metric.excess[i]
        )
        size = samples[i] / samples[others]
        effects = found * scores.ratios[i, others]
        spread = np.sqrt(error * scores.ratios[i, others])
        spread = np.maximum(spread, MISFIT * np.maximum(-effects, 0.0))
        rates[others, i] = effects * size
        errors[others, i] = np.minimum(spread * size, LARGEST_ERROR)
        worst[i] = _worst(coalitions[rows], gains[rows, i], samples, rates[:, i])
    return CurveValues(
        samples,
        slopes,
        rates,
        scores.participants,
        slope_errors=MISFIT * slopes,
        rate_errors=errors,
        powers=power,
        worst=worst,
        unit=unit,
    )


def _target(
    worth: Floats, gains: Floats, variances: Floats, power: float, excess: float
) -> tuple[float, Floats, float]:
    """Return a target's slope, the worth of a similar sample of each other, and its variance.

    Parameters
    ----------
    worth : array of shape (coalitions, others)
        The similar samples of the others in coalitions with the target, in units of its own.
    """
    growth = -np.expm1(power * np.log1p(worth.sum(1)))
    most = float((gains / np.maximum(growth, TINY)).max(initial=0.0))
    slope = max(-power * math.log(2) * max(excess, most), TINY)
    if excess <= TINY and most <= TINY:
        return 0.0, np.zeros(worth.shape[1]), 0.0
    places = inverse_doublings(gains / slope, power)
    # Least squares of gains, in the place x; large harm counts no more than its sign does.
    weights = np.minimum(derivative(places, power), derivative(np.zeros(1), power))
    design = worth * weights[:, None]
    square = design.T @ design
    ridge = 1e-4 * max(float(np.trace(square)) / len(square), TINY) * np.eye(len(square))
    found = np.minimum(np.linalg.solve(square + ridge, design.T @ (places * weights)), 1.0)
    steep = slope * derivative(worth @ found, power)
    per_sample = variances / steep**2 / np.maximum(worth.sum(1), TINY)
    return slope, np.asarray(found), float(np.median(per_sample))


def _worst(coalitions: Bools, gains: Floats, samples: Floats, rates: Floats) -> float:
    """Return the harm from a model of harmful members alone, by the harm of those in part."""
    rows = coalitions * samples
    part = (rows * (rates < 0)).sum(1) / np.maximum(rows.sum(1), TINY)
    lost = np.maximum(-gains, 0.0)
    found = float((lost * part**2).sum()) / max(float((part**4).sum()), TINY)
    return min(found, 1e9)


def sampled_coalitions(n: int, apart: Bools | None = None) -> Bools:
    """Return all coalitions of two or more without competitors, or a sample of them.

    Examples
    --------
    >>> apart = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)
    >>> sampled_coalitions(3, apart).astype(int).tolist()
    [[1, 0, 1], [0, 1, 1]]
    """
    if n <= MOST_ENUMERATED:
        rows = (np.arange(1, 2**n)[:, None] >> np.arange(n) & 1).astype(np.bool_)
    else:
        random = np.random.default_rng(0)
        first, second = np.triu_indices(n, 1)
        pairs = np.zeros((len(first), n), dtype=np.bool_)
        pairs[np.arange(len(first)), first] = pairs[np.arange(len(first)), second] = True
        order = random.random((SAMPLED, n)).argsort(1)
        size = random.integers(2, n + 1, SAMPLED)
        rows = np.concatenate([pairs, _without_rivals(order, size, apart)])
    counts = rows.astype(np.float64)
    fine = rows.sum(1) > 1
    if apart is not None:
        fine &= np.einsum("mi,ij,mj->m", counts, apart.astype(np.float64), counts) == 0
    found: Bools = rows[fine]
    return found


def _without_rivals(
    order: npt.NDArray[np.int64], size: npt.NDArray[np.int64], apart: Bools | None
) -> Bools:
    """Return coalitions that members join in a given order unless a competitor is there."""
    rows = np.zeros(order.shape, dtype=np.bool_)
    rivals = np.zeros((order.shape[1],) * 2) if apart is None else apart.astype(np.float64)
    places = np.arange(len(rows))
    for one in order.T:
        welcome = (np.einsum("mj,mj->m", rows.astype(np.float64), rivals[one]) == 0) & (
            rows.sum(1) < size
        )
        rows[places[welcome], one[welcome]] = True
    return rows


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
    curves = np.zeros((5, len(names)))
    worst = np.zeros(len(places)) if values.worst is None else values.worst
    curves[:, places] = values.samples, values.slopes, values.slope_errors, values.powers, worst
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
        worst=None if values.worst is None else curves[4],
        unit=values.unit,
    )


def shrunk(values: Floats, variances: Floats, *, positive: bool = False) -> tuple[Floats, Floats]:
    """Shrink values towards their mean by empirical Bayes; return them and their variances.

    The variance between values is that of Hedges: theirs, less the mean of their errors'. It counts
    all values alike; with weights by their errors, a few large values would be overlooked.

    Parameters
    ----------
    positive : bool
        Whether all values are known to be positive: the mean, and then each value, is the mean of
        its normal distribution above zero.

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
    if positive:
        mean, error = (float(one) for one in above_zero(np.array(mean), np.array(error)))
    own = between / (between + variances)
    found: Floats = own * values + (1 - own) * mean
    uncertain: Floats = own * variances + (1 - own) ** 2 * error
    return above_zero(found, uncertain) if positive else (found, uncertain)


def _between(values: Floats, variances: Floats) -> tuple[float, float, float]:
    """Return the mean, its variance, and the variance between values beyond their errors."""
    known = variances < MEASURED * np.median(variances)
    between = 0.0
    if known.sum() > 1:
        between = max(0.0, float(values[known].var(ddof=1) - variances[known].mean()))
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


def measured(halves: Floats, samples: Floats) -> tuple[Floats, Floats]:
    """Return means over (repeats, halves), and their variances; large ones where unknown.

    Both halves have no sample in common, so their difference tells the variance of their mean.
    Repeats divide the same samples again, and make only this estimate more certain. The
    consortium's variance per sample, as a geometric mean, counts beside a participant's own.
    """
    mean = _mean(halves, (0, 1))
    squares = ((halves[:, 0] - halves[:, 1]) / 2) ** 2 * samples
    count = np.isfinite(squares).sum(0)
    own = np.nan_to_num(_mean(squares, 0))
    used = count * (own > 0)
    logs = np.log(np.where(own > 0, own, 1.0))
    usual = math.exp(float((logs * used).sum()) / float(used.sum())) if used.any() else 0.0
    variances = (PRIOR_FREEDOM * usual + count * own) / (PRIOR_FREEDOM + count) / samples + TINY
    unknown = ~np.isfinite(mean)
    return np.nan_to_num(mean), np.where(unknown, UNKNOWN * variances.max(), variances)


def _half_squares(halves: Floats) -> Floats:
    """Return estimates of the variance of means over (repeats, halves), from both halves."""
    return _mean(((halves[:, 0] - halves[:, 1]) / 2) ** 2, 0)


def _noise(squares: Floats, sizes: Floats) -> tuple[float, float]:
    """Return a and b, not negative, with which squares are nearest to a + b · sizes.

    Large differences vary more than small ones. Weights are those of squares of normal errors.
    """
    from scipy.optimize import nnls

    constant, share = float(np.median(squares)), 0.0
    design = np.stack([np.ones_like(sizes), sizes], 1)
    for _ in range(5):
        weights = 1 / np.maximum(constant + share * sizes, TINY)
        weights = weights / weights.max()
        constant, share = (
            float(one) for one in nnls(design * weights[:, None], squares * weights)[0]
        )
    return constant, share


def _mean(values: Floats, axes: int | tuple[int, ...]) -> Floats:
    """Return means without the values that are not known; NaN where none is."""
    known = np.isfinite(values)
    count = known.sum(axes)
    total = np.where(known, values, 0.0).sum(axes)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))
