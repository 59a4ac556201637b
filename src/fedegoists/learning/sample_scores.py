"""Scores over test samples with confidence intervals, and what to show of a binary model.

All intervals are closed formulas that stay honest in small samples: an AUC of 1 from four patients
has an interval from 0.39 to 1, not one of length zero.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.learning.concordance import concordances
from fedegoists.learning.data import TaskName
from fedegoists.learning.estimates import CONFIDENCE, Estimate, Interval, mean_variance

Numbers = npt.NDArray[np.float64]

FEWEST_OF_A_CLASS = 10
"""With fewer positive or negative test samples, a binary task has no result to speak of."""
FEWEST_SAMPLES = 20
"""With fewer test samples, no task has."""
MOST_BINS, FEWEST_IN_BIN = 10, 10
"""The most groups of a calibration curve, and the fewest samples in each."""
BISECTIONS = 60


def few_samples(samples: int, positives: int | None = None) -> str:
    """Return why a test set is too small for a result; empty if it is not.

    Parameters
    ----------
    positives : int, optional
        For a binary task, where it is known: the number of positive samples.

    Examples
    --------
    >>> few_samples(4, 2)
    '2 positive and 2 negative test samples, fewer than 10 of each'
    >>> few_samples(15)
    '15 test samples, fewer than 20'
    >>> few_samples(200, 40)
    ''
    """
    if positives is not None and min(positives, samples - positives) < FEWEST_OF_A_CLASS:
        return (
            f"{positives} positive and {samples - positives} negative test samples, fewer than "
            f"{FEWEST_OF_A_CLASS} of each"
        )
    return (
        f"{samples} test samples, fewer than {FEWEST_SAMPLES}" if samples < FEWEST_SAMPLES else ""
    )


def wilson(fraction: float, count: float) -> Interval:
    """Return Wilson's score interval of a fraction of `count` samples.

    Examples
    --------
    >>> one = wilson(1.0, 4)
    >>> round(one.low, 3), one.high
    (0.51, 1.0)
    """
    if count <= 0 or not math.isfinite(fraction):
        return Interval(math.nan)
    z = _normal()
    middle = fraction + z * z / (2 * count)
    reach = z * math.sqrt(fraction * (1 - fraction) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return Interval(
        fraction, max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)
    )


def auc_interval(auc: float, positives: int, negatives: int) -> Interval:
    """Return an area under the ROC curve with its interval.

    Newcombe's method 5 (Statistics in Medicine 25, 2006): the values whose distance from the
    estimate is at most z times the standard error that they would have, by Hanley and McNeil's
    formula. It has a length also where the estimate is 1.

    Examples
    --------
    >>> one = auc_interval(1.0, 2, 2)
    >>> round(one.low, 2), one.high
    (0.39, 1.0)
    """
    if positives < 1 or negatives < 1 or not math.isfinite(auc):
        return Interval(auc)
    z, more = _normal(), (positives + negatives) / 2 - 1

    def inside(value: float) -> bool:
        spread = 1 + more * ((1 - value) / (2 - value) + value / (1 + value))
        variance = value * (1 - value) * spread / (positives * negatives)
        return abs(value - auc) <= z * math.sqrt(variance)

    def end(outer: float) -> float:
        inner = auc
        for _ in range(BISECTIONS):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if inside(middle) else (inner, middle)
        return inner

    return Interval(auc, end(0.0), end(1.0))


def contributions(task: TaskName, scores: Numbers, targets: Numbers) -> tuple[Numbers, ...]:
    """Return groups of samples' contributions to a metric: it is the mean of each group.

    Parameters
    ----------
    scores : array
        Logits or probabilities of a binary task; 1 where a classification is right and 0 where it
        is wrong; predicted values of a regression.

    Examples
    --------
    >>> up, down = contributions("binary", np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
    >>> up.tolist(), down.tolist()
    ([0.5, 1.0], [1.0, 0.5])
    """
    if task == "classification":
        return (scores,)
    if task == "regression":
        return ((scores - targets) ** 2,)
    if task == "survival":
        return (concordances(scores, targets),)
    # DeLong, DeLong and Clarke-Pearson (Biometrics 44, 1988): the fraction of the other class that
    # a sample is ranked above, or below; ties count half.
    from scipy.stats import rankdata

    positive = targets > 0.5
    up, down = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(scores)
    above = (ranks[positive] - rankdata(scores[positive])) / max(down, 1)
    below = 1 - (ranks[~positive] - rankdata(scores[~positive])) / max(up, 1)
    return above, below


def metric_interval(task: TaskName, groups: Sequence[tuple[Numbers, ...]]) -> Interval:
    """Return the mean of a metric over repetitions, with its interval over the test samples.

    Parameters
    ----------
    groups : sequence of tuples of arrays
        The `contributions` in each repetition, about the same samples.
    """
    means = _over_repetitions(groups)
    value = float(means[0].mean()) if len(means[0]) else math.nan
    if task == "binary":
        return auc_interval(value, len(means[0]), len(means[1]))
    if task == "classification":
        return wilson(value, len(means[0]))
    found = Estimate.summed(value, [mean_variance(means[0])]).interval()
    if not math.isfinite(found.low):
        return found
    highest = 1.0 if task == "survival" else found.high
    return Interval(value, max(0.0, found.low), min(found.high, highest))


def gain_estimate(
    groups: Sequence[tuple[Numbers, ...]], others: Sequence[tuple[Numbers, ...]], sign: float
) -> Estimate:
    """Return the gain of one model over another on the same samples, with its error.

    Paired by sample and by repetition. The variance is the sum of that over samples and that over
    repetitions, with Student's t and Satterthwaite's degrees of freedom.

    Parameters
    ----------
    sign : float
        −1 where a lower metric is better, else 1.
    """
    differences = [
        tuple(sign * (own - other) for own, other in zip(one, two, strict=True))
        for one, two in zip(groups, others, strict=True)
    ]
    means = _over_repetitions(differences)
    if not all(map(len, means)):
        return Estimate(math.nan)
    parts = [mean_variance(group) for group in means]
    if len(differences) > 1:
        parts.append(mean_variance(np.array([float(one[0].mean()) for one in differences])))
    return Estimate.summed(float(means[0].mean()), parts)


def _over_repetitions(groups: Sequence[tuple[Numbers, ...]]) -> tuple[Numbers, ...]:
    return tuple(np.mean(group, axis=0) for group in zip(*groups, strict=True))


def _normal() -> float:
    from scipy.stats import norm

    return float(norm.ppf(0.5 + CONFIDENCE / 2))


@dataclass(frozen=True)
class CalibrationGroup:
    """Samples with similar predicted probabilities: their mean, and how many were positive."""

    predicted: float
    observed: Interval
    samples: int


@dataclass(frozen=True)
class ThresholdScores:
    """The quality of a binary model where probabilities from a threshold on count as positive."""

    threshold: float
    chosen: str
    sensitivity: Interval
    specificity: Interval
    precision: Interval
    negative_value: Interval


@dataclass(frozen=True)
class BinaryScores:
    """What is to be known of a binary model, over one participant's test samples.

    Attributes
    ----------
    positives, negatives : int
        Test samples of each class.
    auc, auprc : Interval
        Areas under the ROC curve and under the precision-recall curve (average precision).
    brier : float
        Mean squared error of the probabilities.
    predicted : float
        Their mean; the fraction of positives is `prevalence`.
    calibration : tuple of CalibrationGroup
        Groups of equal size by probability; empty in small samples.
    thresholds : tuple of ThresholdScores
        At the wanted thresholds, and at the one that validation data prefers.
    """

    positives: int
    negatives: int
    auc: Interval
    auprc: Interval
    brier: float
    predicted: float
    calibration: tuple[CalibrationGroup, ...]
    thresholds: tuple[ThresholdScores, ...]

    @property
    def prevalence(self) -> float:
        """The fraction of positive samples."""
        return self.positives / max(self.positives + self.negatives, 1)

    @classmethod
    def of(
        cls,
        probabilities: Numbers,
        targets: Numbers,
        thresholds: Sequence[float] = (0.5,),
        validation: tuple[Numbers, Numbers] | None = None,
    ) -> "BinaryScores":
        """Judge the probabilities of test samples.

        Parameters
        ----------
        thresholds : sequence of float
            Where to measure sensitivity and specificity.
        validation : pair of arrays, optional
            Probabilities and targets of validation samples, to choose one more threshold by.
        """
        positive = targets > 0.5
        up, down = int(positive.sum()), int((~positive).sum())
        above, _ = contributions("binary", probabilities, targets)
        area = float(above.mean()) if up and down else math.nan
        rows = [_at(probabilities, positive, one, "given") for one in thresholds]
        best = None if validation is None else youden(*validation)
        if best is not None:
            rows.append(_at(probabilities, positive, best, "by validation data"))
        return cls(
            up,
            down,
            auc_interval(area, up, down),
            # Boyd, Eng and Page (ECML 2013): binomial, with the number of positives.
            wilson(average_precision(probabilities, positive), up),
            float(((probabilities - positive) ** 2).mean()) if up + down else math.nan,
            float(probabilities.mean()) if up + down else math.nan,
            calibration_groups(probabilities, positive),
            tuple(rows),
        )


def average_precision(scores: Numbers, positive: npt.NDArray[np.bool_]) -> float:
    """Return the area under the precision-recall curve; NaN without positives.

    Examples
    --------
    >>> scores, positive = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    >>> round(average_precision(scores, positive), 4)
    0.8333
    """
    if not positive.any():
        return math.nan
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(positive[order])
    # Samples with equal scores are found together.
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    precision = found[last] / (last + 1)
    recall = np.diff(found[last], prepend=0) / found[-1]
    return float((precision * recall).sum())


def calibration_groups(
    probabilities: Numbers, positive: npt.NDArray[np.bool_]
) -> tuple[CalibrationGroup, ...]:
    """Return groups of equal size, by probability; none if two would be too small."""
    count = min(MOST_BINS, len(probabilities) // FEWEST_IN_BIN)
    if count < 2:
        return ()
    order = np.argsort(probabilities, kind="stable")
    return tuple(
        CalibrationGroup(
            float(probabilities[part].mean()),
            wilson(float(positive[part].mean()), len(part)),
            len(part),
        )
        for part in np.array_split(order, count)
    )


def youden(probabilities: Numbers, targets: Numbers) -> float | None:
    """Return the threshold with the largest sum of sensitivity and specificity.

    None without samples of both classes.

    Examples
    --------
    >>> youden(np.array([0.1, 0.3, 0.6, 0.9]), np.array([0, 0, 1, 1]))
    0.6
    """
    positive = targets > 0.5
    if positive.all() or not positive.any():
        return None
    values = np.unique(probabilities)
    # The fractions of each class below every value: missed positives, and negatives told apart.
    missed, apart = (
        np.searchsorted(np.sort(probabilities[some]), values) / some.sum()
        for some in (positive, ~positive)
    )
    return float(values[int(np.argmax(apart - missed))])


def _at(
    probabilities: Numbers, positive: npt.NDArray[np.bool_], threshold: float, chosen: str
) -> ThresholdScores:
    called = probabilities >= threshold

    def share(hits: Any, among: Any) -> Interval:
        count = int(among.sum())
        return wilson(int((hits & among).sum()) / count if count else math.nan, count)

    return ThresholdScores(
        threshold,
        chosen,
        share(called, positive),
        share(~called, ~positive),
        share(positive, called),
        share(~positive, ~called),
    )
