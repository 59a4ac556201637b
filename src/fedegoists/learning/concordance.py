"""Survival times as single numbers, and the concordance index.

A time to an event is positive; a time after which nothing more is known (censored) is negative.
"""

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def survival_targets(times: Numbers, events: Numbers) -> Numbers:
    """Return times with the sign of what happened: positive for events, negative if censored."""
    return np.where(events > 0.5, times, -times)


def concordances(risks: Numbers, targets: Numbers) -> Numbers:
    """Return the contribution of each event to the concordance index, which is their mean.

    Harrell's index: the fraction of comparable pairs in which the one whose event came first has
    the higher risk; equal risks count half. A pair is comparable if the earlier time is an event,
    or both times are the same and one of them is an event.

    Examples
    --------
    The event at 2 precedes both others, and has a higher risk than one of them.

    >>> concordances(np.array([0.5, 0.9, 0.1]), np.array([2.0, -3.0, 5.0])).mean()
    np.float64(0.5)
    """
    times, event = np.abs(targets), targets > 0
    right, pairs = [], []
    for k in np.flatnonzero(event).tolist():
        later = (times > times[k]) | ((times == times[k]) & ~event)
        below = np.sum(risks[later] < risks[k]) + 0.5 * np.sum(risks[later] == risks[k])
        right.append(float(below))
        pairs.append(int(later.sum()))
    total = sum(pairs)
    if not total:
        return np.empty(0)
    # Events with more comparable pairs count more, as they do in the index.
    return np.array(right) * len(right) / total
