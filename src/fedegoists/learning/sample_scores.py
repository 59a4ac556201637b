"""Scores over test samples with confidence intervals, and what to show of a binary model.

All intervals are closed formulas that stay honest in small samples: an AUC of 1 from four patients
has an interval from 0.39 to 1, not one of length zero.

Samples of one patient, and copies, are no independent evidence. Where samples have groups, formulas
that know only a number of samples get the number of groups, and variances are those between groups.
So a file in which every patient is there three times has the intervals of one without copies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.learning.concordance import concordances
from fedegoists.learning.data import TaskName
from fedegoists.learning.estimates import (
    CONFIDENCE,
    Estimate,
    Groups,
    Interval,
    grouped_variance,
    mean_variance,
)

Numbers = npt.NDArray[np.float64]

FEWEST_OF_A_CLASS = 10
"""With fewer positive or negative test samples, a binary task has no result to speak of."""
FEWEST_SAMPLES = 20
"""With fewer test samples, no task has."""
MOST_BINS, FEWEST_IN_BIN = 10, 10
"""The most groups of a calibration curve, and the fewest samples in each."""
BISECTIONS = 60


def few_samples(
    samples: int,
    positives: int | None = None,
    negatives: int | None = None,
    noun: str = "test samples",
) -> str:
    """Return why a test set is too small for a result; empty if it is not.

    Parameters
    ----------
    samples : int
        The number of samples, or of their groups.
    positives, negatives : int, optional
        For a binary task, where it is known: the number of positive and of negative ones. A group
        may have both; by default, all that are not positive are negative.
    noun : str
        What is counted.

    Examples
    --------
    >>> few_samples(4, 2)
    '2 positive and 2 negative test samples, fewer than 10 of each'
    >>> few_samples(15)
    '15 test samples, fewer than 20'
    >>> few_samples(200, 40)
    ''
    """
    if positives is not None:
        others = samples - positives if negatives is None else negatives
        if min(positives, others) < FEWEST_OF_A_CLASS:
            return (
                f"{positives} positive and {others} negative {noun}, fewer than "
                f"{FEWEST_OF_A_CLASS} of each"
            )
    return f"{samples} {noun}, fewer than {FEWEST_SAMPLES}" if samples < FEWEST_SAMPLES else ""


def counted(places: Any, groups: Groups | None = None) -> int:
    """Return how many samples are marked or, where samples have groups, how many groups of them.

    Examples
    --------
    >>> marked = np.array([True, True, False, True])
    >>> counted(marked), counted(marked, np.array([0, 0, 1, 2]))
    (3, 2)
    """
    return int(places.sum()) if groups is None else len(np.unique(groups[places]))


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


def contributing_groups(
    task: TaskName, targets: Numbers, groups: Groups | None
) -> tuple[Groups, ...] | None:
    """Return the groups of the samples that `contributions` are of; None where there are none."""
    if groups is None:
        return None
    if task == "survival":
        return (groups[targets > 0],)
    positive = targets > 0.5
    return (groups[positive], groups[~positive]) if task == "binary" else (groups,)


def metric_interval(
    task: TaskName,
    parts: Sequence[tuple[Numbers, ...]],
    groups: tuple[Groups, ...] | None = None,
) -> Interval:
    """Return the mean of a metric over repetitions, with its interval over the test samples.

    Parameters
    ----------
    parts : sequence of tuples of arrays
        The `contributions` in each repetition, about the same samples.
    groups : tuple of arrays of int, optional
        Their `contributing_groups`.
    """
    means = _over_repetitions(parts)
    value = float(means[0].mean()) if len(means[0]) else math.nan
    counts = [
        len(one) if groups is None else len(np.unique(groups[k])) for k, one in enumerate(means)
    ]
    if task == "binary":
        return auc_interval(value, counts[0], counts[1])
    if task == "classification":
        return wilson(value, counts[0])
    own = None if groups is None or not len(means[0]) else groups[0]
    found = Estimate.summed(value, [mean_variance(means[0], own)]).interval()
    if not math.isfinite(found.low):
        return found
    highest = 1.0 if task == "survival" else found.high
    return Interval(value, max(0.0, found.low), min(found.high, highest))


def gain_estimate(
    own: Sequence[tuple[Numbers, ...]],
    others: Sequence[tuple[Numbers, ...]],
    sign: float,
    groups: tuple[Groups, ...] | None = None,
) -> Estimate:
    """Return the gain of one model over another on the same samples, with its error.

    Paired by sample and by repetition. The variance is the sum of that over samples and that over
    repetitions, with Student's t and Satterthwaite's degrees of freedom.

    Parameters
    ----------
    own, others : sequences of tuples of arrays
        The `contributions` of both models in each repetition.
    sign : float
        −1 where a lower metric is better, else 1.
    groups : tuple of arrays of int, optional
        Their `contributing_groups`.
    """
    differences = [
        tuple(sign * (here - there) for here, there in zip(one, two, strict=True))
        for one, two in zip(own, others, strict=True)
    ]
    means = _over_repetitions(differences)
    if not all(map(len, means)):
        return Estimate(math.nan)
    parts = _variances(means, groups)
    if len(differences) > 1:
        parts.append(mean_variance(np.array([float(one[0].mean()) for one in differences])))
    return Estimate.summed(float(means[0].mean()), parts)


def _variances(
    means: tuple[Numbers, ...], groups: tuple[Groups, ...] | None
) -> list[tuple[float, int]]:
    """Return the variances that add up to that of a metric, with their degrees of freedom."""
    if groups is None:
        return [mean_variance(part) for part in means]
    if len(groups) > 1 and len(np.intersect1d(groups[0], groups[1])):
        # Patients with samples of both classes: what they add to either mean goes together.
        influences = [(part - part.mean()) / len(part) for part in means]
        return [grouped_variance(np.concatenate(influences), np.concatenate(groups))]
    return [mean_variance(part, own) for part, own in zip(means, groups, strict=True)]


def _over_repetitions(parts: Sequence[tuple[Numbers, ...]]) -> tuple[Numbers, ...]:
    return tuple(np.mean(part, axis=0) for part in zip(*parts, strict=True))


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
        groups: Groups | None = None,
    ) -> "BinaryScores":
        """Judge the probabilities of test samples.

        Parameters
        ----------
        thresholds : sequence of float
            Where to measure sensitivity and specificity.
        validation : pair of arrays, optional
            Probabilities and targets of validation samples, to choose one more threshold by.
        groups : array of int, optional
            The group of each test sample, such as its patient.
        """
        positive = targets > 0.5
        up, down = int(positive.sum()), int((~positive).sum())
        above, _ = contributions("binary", probabilities, targets)
        area = float(above.mean()) if up and down else math.nan
        rows = [_at(probabilities, positive, one, "given", groups) for one in thresholds]
        of_each = counted(positive, groups), counted(~positive, groups)
        best = None if validation is None else youden(*validation)
        if best is not None:
            rows.append(_at(probabilities, positive, best, "by validation data", groups))
        return cls(
            up,
            down,
            auc_interval(area, *of_each),
            # Boyd, Eng and Page (ECML 2013): binomial, with the number of positives.
            wilson(average_precision(probabilities, positive), of_each[0]),
            float(((probabilities - positive) ** 2).mean()) if up + down else math.nan,
            float(probabilities.mean()) if up + down else math.nan,
            calibration_groups(probabilities, positive, groups),
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
    probabilities: Numbers, positive: npt.NDArray[np.bool_], groups: Groups | None = None
) -> tuple[CalibrationGroup, ...]:
    """Return samples in bins of equal size, by probability; none if two would be too small."""
    every = np.ones(len(probabilities), dtype=bool)
    count = min(MOST_BINS, counted(every, groups) // FEWEST_IN_BIN)
    if count < 2:
        return ()
    order = np.argsort(probabilities, kind="stable")
    return tuple(
        CalibrationGroup(
            float(probabilities[part].mean()),
            wilson(
                float(positive[part].mean()),
                len(part) if groups is None else len(np.unique(groups[part])),
            ),
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
    probabilities: Numbers,
    positive: npt.NDArray[np.bool_],
    threshold: float,
    chosen: str,
    groups: Groups | None,
) -> ThresholdScores:
    called = probabilities >= threshold

    def share(hits: Any, among: Any) -> Interval:
        count = int(among.sum())
        fraction = int((hits & among).sum()) / count if count else math.nan
        return wilson(fraction, counted(among, groups))

    return ThresholdScores(
        threshold,
        chosen,
        share(called, positive),
        share(~called, ~positive),
        share(positive, called),
        share(~positive, ~called),
    )
