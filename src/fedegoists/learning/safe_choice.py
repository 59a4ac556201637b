"""The choice of a member's model on its own validation data, such that it is not worse than alone.

Every candidate is compared with the member's own model, which it trained alone, sample by sample:
both are measured on the same validation samples, so what makes a sample hard cancels out. A
candidate counts by the lower bound of its gain, one standard error below the estimate (in Student's
sense, further for few samples), and the own model by zero, which is its gain over itself without
any error. The largest bound wins, and ties go home.

So doubt is always in favour of the own model: on thirty patients a gain that one or two of them
make does not count. How the bound was chosen, and what others would cost, is in
``reproduction/results/participation``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from fedegoists.learning.estimates import Estimate, Groups, mean_variance

Numbers = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
Name = TypeVar("Name")
ChooseBy = Literal["metric", "loss"]
"""What of a participant's validation data decides which model it keeps."""

SURE = 0.8413
"""One-sided confidence of the bound: one standard error of the normal distribution."""
MOST_PARTS = 100
"""Parts into which samples are divided for the jackknife; single ones where there are fewer."""


def pseudo_values(
    metric: Callable[[Positions], float], samples: int, groups: Groups | None = None
) -> Numbers:
    """Return the contributions of samples to any metric, by the jackknife.

    The mean of the values is the metric, less its bias; their variance is that of the metric times
    their number. For a metric that is a mean over samples, they are what it is the mean of.

    Parameters
    ----------
    metric : function
        The metric over some of the samples, given by their positions.
    groups : array of int, optional
        The group of each sample, such as its patient; a group is left out as a whole.

    Examples
    --------
    >>> data = np.array([1.0, 4.0, 7.0])
    >>> pseudo_values(lambda rows: float(data[rows].mean()), 3).round(6)
    array([1., 4., 7.])
    """
    own = np.arange(samples) if groups is None else np.unique(groups, return_inverse=True)[1]
    parts = min(int(own.max(initial=-1)) + 1, MOST_PARTS)
    if parts < 2:
        return np.full(parts, math.nan)
    part = own % parts
    whole = metric(np.arange(samples))
    without = np.array([metric(np.flatnonzero(part != k)) for k in range(parts)])
    values: Numbers = parts * whole - (parts - 1) * without
    return values


def paired_gain(
    own: Sequence[Numbers], candidate: Sequence[Numbers], informative: int | None = None
) -> Estimate:
    """Return the gain of a candidate over the own model, with its error over samples.

    Parameters
    ----------
    own, candidate : sequence of arrays
        For each initialisation of training, the `pseudo_values` of the same samples; higher is
        better.
    informative : int, optional
        The number of samples, or groups, that the metric rests on, if it is smaller than that of
        all: of the rarer class, or of events. The error is known no better than these allow.
    """
    differences = np.array([one - other for one, other in zip(candidate, own, strict=True)])
    means = differences.mean(0)
    if not len(means) or not np.isfinite(means).all():
        return Estimate(math.nan)
    variance, degrees = mean_variance(means)
    if informative is not None and informative - 1 < degrees:
        variance, degrees = (variance if informative > 1 else math.nan), max(informative - 1, 1)
    parts = [(variance, degrees)]
    if len(differences) > 1:
        parts.append(mean_variance(differences.mean(1)))
    return Estimate.summed(float(means.mean()), parts)


def safe_choice(
    own: Sequence[Numbers],
    candidates: Mapping[Name, Sequence[Numbers]],
    informative: int | None = None,
    *,
    sure: float = SURE,
) -> Name | None:
    """Return the candidate with the largest lower bound of its gain; None for the own model.

    Parameters are those of `paired_gain`. Of candidates with equal bounds, the first is chosen.

    Examples
    --------
    Of 30 patients, the first candidate is right about two more than the own model. The second is
    right about six more, and wrong about one.

    >>> own = np.repeat([0.0, 1.0], 15)
    >>> two, six = own.copy(), own.copy()
    >>> two[:2], six[:6], six[-1] = 1.0, 1.0, 0.0
    >>> safe_choice([own], {"two": [two], "six": [six]})
    'six'
    >>> safe_choice([own], {"same": [own.copy()], "worse": [own - 0.1]}) is None
    True
    """
    chosen: Name | None = None
    highest = 0.0
    for name, values in candidates.items():
        bound = paired_gain(own, values, informative).lower(sure)
        if bound > highest:
            chosen, highest = name, bound
    return chosen
