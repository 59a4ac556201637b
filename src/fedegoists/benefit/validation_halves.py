"""Halves of the validation data, for the standard errors and confidences of estimates.

Every repeat divides the validation data at random into two halves and makes its estimate on each.
Their mean uses all the data. Half the difference between two such halves estimates the standard
error due to the amount of data, which more repeats cannot reduce; the deviation between repeats is
due to training, which more repeats do reduce.
"""

from functools import partial

import numpy as np
import numpy.typing as npt

from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate

HALVES = 2


def half_of(repeat: int, half: int, settings: LearnSettings) -> "partial[Evaluate]":
    """Return a request about one half of the validation data, but for its parameters."""
    return partial(
        Evaluate,
        split="validation",
        share=1 / HALVES,
        step=HALVES * repeat + half,
        seed=f"{settings.seed}/validation",
    )


def standard_error(runs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the standard error of the mean over (repeats, halves).

    Examples
    --------
    Without any difference between repeats, that between halves is left:

    >>> standard_error(np.array([[[1.0], [3.0]], [[3.0], [1.0]]]))
    array([1.])
    """
    data, training = _variances(runs)
    error: npt.NDArray[np.float64] = np.sqrt(data + training)
    return error


def degrees_of_freedom(runs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the degrees of freedom of `standard_error`, by Welch and Satterthwaite.

    The difference between halves has one for each repeat, which divides the data again; the
    deviation between repeats has one less, since it is around their own mean.

    Examples
    --------
    >>> degrees_of_freedom(np.array([[[1.0], [3.0]], [[3.0], [1.0]]]))
    array([2.])
    >>> degrees_of_freedom(np.array([[[1.0]], [[3.0]]]))
    array([1.])
    """
    repeats = len(runs)
    data, training = _variances(runs)
    both = data + training
    # As parts of their sum, which neither overflow nor vanish. Without any error all is certain.
    parts = data / np.where(both > 0, both, 1.0), training / np.where(both > 0, both, 1.0)
    inverse = parts[0] ** 2 / repeats + parts[1] ** 2 / max(repeats - 1, 1)
    degrees: npt.NDArray[np.float64] = 1 / np.where(both > 0, inverse, 1 / repeats)
    return degrees


def check_confidence(confidence: float) -> None:
    """Refuse a confidence outside the range of the rule."""
    if not 0.5 <= confidence < 1:
        raise SettingsError(f"confidence is {confidence}; expected 0.5 to below 1")


def confidence_above_zero(runs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the (one-sided) confidence with which the mean over (repeats, halves) is above zero.

    By Student's t with `standard_error` and `degrees_of_freedom`. This is the one rule by which
    benefits count.

    Examples
    --------
    >>> confidence_above_zero(np.array([[[0.8]], [[1.2]]])).round(4)  # t = 5 with one degree
    array([0.9372])
    """
    from scipy.stats import t

    error, mean = standard_error(runs), runs.mean((0, 1))
    # Without any spread a gain is as sure as it can be.
    ratio = np.divide(mean, error, out=np.where(mean > 0, np.inf, -np.inf), where=error > 0)
    found: npt.NDArray[np.float64] = t.cdf(ratio, degrees_of_freedom(runs))
    return found


def _variances(
    runs: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the variances of the mean due to the data, and due to training."""
    repeats, halves = runs.shape[:2]
    if repeats * halves < 2:
        raise SettingsError("one repeat says nothing of its spread: use repeats of at least 2")
    nothing = np.zeros(runs.shape[2:])
    data = (((runs[:, 0] - runs[:, 1]) / 2) ** 2).mean(0) if halves == HALVES else nothing
    training = runs.mean(1).var(0, ddof=1) / repeats if repeats > 1 else nothing
    return data, training
