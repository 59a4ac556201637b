"""Both halves of a participant's validation data, for knowing how sure an estimate is.

Every repeat divides the validation data at random into two halves and makes its estimate on each.
Their mean uses all the data. Half the difference between two such halves estimates the standard
error that comes from having so little data, which more repeats cannot reduce; the deviation between
repeats is that of training, which they do reduce.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.benefit.settings import LearnSettings
from fedegoists.errors import SettingsError

__all__ = ["HALVES", "half_of", "standard_error"]

HALVES = 2


def half_of(repeat: int, half: int, settings: LearnSettings) -> dict[str, Any]:
    """Return the part of a payload that names one half of the validation data."""
    return {
        "split": "validation",
        "share": 1 / HALVES,
        "step": HALVES * repeat + half,
        "seed": f"{settings.seed}/validation",
    }


def standard_error(runs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the standard error of the mean over (repeats, halves).

    Examples
    --------
    Without any difference between repeats, that between halves is left:

    >>> standard_error(np.array([[[1.0], [3.0]], [[3.0], [1.0]]]))
    array([1.])
    """
    repeats, halves = runs.shape[:2]
    if repeats * halves < 2:
        raise SettingsError("one repeat says nothing of its spread: use repeats of at least 2")
    data = ((runs[:, 0] - runs[:, 1]) / 2) ** 2 if halves == HALVES else np.zeros(runs[:, 0].shape)
    training = runs.mean(1).var(0, ddof=1) / repeats if repeats > 1 else np.zeros(data.shape[1:])
    error: npt.NDArray[np.float64] = np.sqrt(data.mean(0) + training)
    return error
