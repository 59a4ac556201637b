"""Estimates with standard errors: the one rule for intervals, verdicts and choices.

An estimate is a mean with a standard error and its degrees of freedom. All intervals of gains, all
marks such as "better", and the choice of the model that a member receives follow from these three
numbers by Student's t. What the error is over is part of the estimate, because it differs: test
samples, initialisations of training, or divisions of the data into training and test samples.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Groups = npt.NDArray[np.int64]
Over = Literal["test samples", "initialisations", "test samples and initialisations", "divisions"]
"""What an error is over; with divisions of the same data, it is that of Nadeau and Bengio."""
Verdict = Literal["better", "no clear difference", "worse", "uncertain"]

CONFIDENCE = 0.95
"""Of all intervals, two-sided, and so of verdicts."""
ROUNDING = 1e-9
"""Values that differ by less are the same."""


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its confidence interval; NaN where they are not known."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def verdict(self) -> Verdict:
        """Whether a gain is above or below zero, as far as that is certain.

        Examples
        --------
        >>> Interval(0.1, 0.05, 0.15).verdict, Interval(0.1, -0.05, 0.25).verdict
        ('better', 'no clear difference')
        >>> Interval(0.1).verdict
        'uncertain'
        """
        if not math.isfinite(self.low):
            return "uncertain"
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "no clear difference"


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and the degrees of freedom of the error; NaN if not known.

    Examples
    --------
    >>> one = Estimate(0.2, 0.1, 4.0)
    >>> round(one.lower(0.95), 3), one.interval().verdict  # 0.2 − 2.132 · 0.1
    (-0.013, 'no clear difference')
    """

    value: float
    error: float = math.nan
    degrees: float = 1.0

    @classmethod
    def summed(cls, value: float, parts: Sequence[tuple[float, int]]) -> "Estimate":
        """Return an estimate whose variance is a sum; degrees of freedom are Satterthwaite's.

        Parameters
        ----------
        parts : sequence of (float, int)
            Each variance of the mean, and its degrees of freedom.
        """
        total = sum(variance for variance, _ in parts)
        if not math.isfinite(total):
            return cls(value)
        if total <= 0:
            return cls(value, 0.0)
        inverse = sum((variance / total) ** 2 / count for variance, count in parts)
        return cls(value, math.sqrt(total), 1 / inverse)

    @classmethod
    def mean_of(cls, parts: Sequence["Estimate"]) -> "Estimate":
        """Return the mean of independent estimates, such as gains on different test samples.

        Examples
        --------
        >>> both = Estimate.mean_of([Estimate(1.0, 0.3, 10), Estimate(3.0, 0.4, 10)])
        >>> both.value, round(both.error, 3)  # √(0.09 + 0.16) / 2
        (2.0, 0.25)
        """
        if not parts:
            return cls(math.nan)
        count = len(parts)
        mean = statistics.fmean(one.value for one in parts)
        total = sum(one.error**2 for one in parts) / count**2
        if not math.isfinite(total):
            return cls(mean)
        if total <= 0:
            return cls(mean, 0.0)
        shares = ((one.error**2 / count**2 / total) ** 2 / one.degrees for one in parts)
        return cls(mean, math.sqrt(total), 1 / sum(shares))

    def lower(self, confidence: float) -> float:
        """Return the one-sided lower bound; minus infinity where the error is not known."""
        from scipy.stats import t

        if not (math.isfinite(self.value) and math.isfinite(self.error)):
            return -math.inf
        if self.error == 0:
            return self.value
        return self.value - float(t.ppf(confidence, self.degrees)) * self.error

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the two-sided interval."""
        if not math.isfinite(self.error):
            return Interval(self.value)
        reach = self.value - self.lower(0.5 + confidence / 2)
        return Interval(self.value, self.value - reach, self.value + reach)


def mean_variance(values: Numbers, groups: Groups | None = None) -> tuple[float, int]:
    """Return the variance of a mean, and its degrees of freedom; NaN for a single value or group.

    Parameters
    ----------
    groups : array of int, optional
        The group of each value, such as a patient. Values of a group are no independent evidence:
        the variance is that between groups (the linearised variance of a ratio, as in cluster
        sampling).

    Examples
    --------
    Copies tell nothing new:

    >>> mean_variance(np.array([1.0, 2.0, 6.0]))
    (2.3333333333333335, 2)
    >>> copies = np.array([1.0, 2.0, 6.0, 1.0, 2.0, 6.0])
    >>> mean_variance(copies, np.array([0, 1, 2, 0, 1, 2]))
    (2.3333333333333335, 2)
    """
    if groups is None:
        if len(values) < 2:
            return math.nan, 1
        return float(values.var(ddof=1)) / len(values), len(values) - 1
    return grouped_variance((values - values.mean()) / max(len(values), 1), groups)


def grouped_variance(influences: Numbers, groups: Groups) -> tuple[float, int]:
    """Return the variance of a statistic, and its degrees of freedom, over groups of samples.

    Parameters
    ----------
    influences : array
        How much each sample moves the statistic away from its value; they sum to 0.
    groups : array of int
        The group of each sample.
    """
    _, places = np.unique(groups, return_inverse=True)
    sums = np.bincount(places, weights=influences)
    count = len(sums)
    if count < 2:
        return math.nan, 1
    return float((sums**2).sum()) * count / (count - 1), count - 1


def over_initialisations(values: Sequence[float]) -> Estimate:
    """Return the mean over independent repetitions of training on the same data.

    The error is not known with a single repetition, nor where all have the same value other than
    zero, as a few test samples may give: that says nothing about the spread.
    """
    known = _finite(values)
    mean = statistics.fmean(known) if known else math.nan
    if len(known) < 2 or max(known) - min(known) < ROUNDING < abs(mean):
        return Estimate(mean)
    return Estimate.summed(mean, [mean_variance(np.array(known))])


def over_divisions(values: Sequence[float], ratio: float) -> Estimate:
    """Return the mean over divisions of the same data, with the error of Nadeau and Bengio.

    Divisions of the same samples overlap, so their results are not independent: the variance of
    their mean is taken to be (1/J + test/train) times the variance between the J divisions
    (Machine Learning 52, 2003, Section 3).

    Parameters
    ----------
    ratio : float
        Samples for test divided by those for training.

    Examples
    --------
    >>> one = over_divisions([0.0, 0.02, 0.04], 0.2).interval()
    >>> round(one.value, 3), round(one.high - one.value, 3)  # 4.303 · 0.02 · √(1/3 + 0.2)
    (0.02, 0.063)
    """
    known = _finite(values)
    if len(known) < 2:
        return Estimate(statistics.fmean(known) if known else math.nan)
    error = statistics.stdev(known) * math.sqrt(1 / len(known) + ratio)
    return Estimate(statistics.fmean(known), error, len(known) - 1)


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
