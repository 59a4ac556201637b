"""Metrics in units that a director knows: cases of a hundred, or the units of the target."""

import math
from dataclasses import dataclass, replace

from fedegoists.learning.estimates import Estimate, Interval
from fedegoists.learning.metric_words import metric_words

HUNDREDS = {
    "auc": "of 100 pairs of a positive and a negative case, ranked correctly",
    "c-index": "of 100 comparable pairs of cases, put in the right order",
    "accuracy": "of 100 cases, predicted correctly",
}


@dataclass(frozen=True)
class PlainUnit:
    """The unit in which a page shows results.

    Attributes
    ----------
    words : str
        What a number counts, for the caption of a table.
    noun : str
        The measure, for a sentence.
    metric : str
        The metric of the task.
    rooted : bool
        Whether the square root of the metric is shown.
    factor : float
        What values and gains are multiplied by.
    """

    words: str
    noun: str
    metric: str
    rooted: bool = False
    factor: float = 1.0

    @classmethod
    def of(cls, metric: str, higher_is_better: bool, target: str = "") -> "PlainUnit":
        """Return the unit of a metric.

        Parameters
        ----------
        target : str
            The column that is predicted; empty where errors are not in its units.

        Examples
        --------
        >>> PlainUnit.of("auc", True).value(0.83)
        83.0
        >>> one = PlainUnit.of("mse", False, "metres")
        >>> one.words, one.value(900.0)
        ('typical error of metres (root mean squared)', 30.0)
        >>> one.gain(Interval(500.0, 275.0, 675.0), 900.0)
        Interval(value=10.0, low=5.0, high=15.0)
        """
        if metric in HUNDREDS:
            noun = HUNDREDS[metric].partition(", ")[2]
            return cls(HUNDREDS[metric], noun, metric, factor=100.0)
        if metric == "mse" and target:
            return cls(
                f"typical error of {target} (root mean squared)", "typical error", metric, True
            )
        words = metric_words(metric)
        return cls(f"{words}, {'higher' if higher_is_better else 'lower'} is better", words, metric)

    def value(self, value: float) -> float:
        """Return a metric in this unit."""
        if self.rooted:
            return math.sqrt(value) if value >= 0 else math.nan
        return self.factor * value

    def gain(self, gain: Interval, alone: float) -> Interval:
        """Return a gain in this unit, over the metric alone."""
        return Interval(*(self._of_gain(one, alone) for one in (gain.value, gain.low, gain.high)))

    def _of_gain(self, gain: float, alone: float) -> float:
        if not self.rooted or math.isnan(gain):
            return self.factor * gain
        # An error cannot fall below zero, whatever an interval says.
        return self.value(alone) - self.value(max(alone - gain, 0.0))

    def estimate(self, gain: Estimate, alone: float) -> Estimate:
        """Return an estimated gain in this unit; for small changes a root is a straight line."""
        value = self._of_gain(gain.value, alone)
        if not self.rooted:
            return replace(gain, value=value, error=self.factor * gain.error)
        # √a − √b = (a − b) / (√a + √b)
        both = self.value(alone) + self.value(max(alone - gain.value, 0.0))
        return replace(gain, value=value, error=gain.error / both if both else math.nan)
