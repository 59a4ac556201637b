"""Scaling features and filling in missing values, for each silo by its own statistics.

Means and deviations come from a silo's own training samples only. Statistics of its validation or
test samples would leak into the model that is judged on them; statistics of other silos would have
to leave those silos before anything has been agreed.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedegoists.learning.data import Array, SiloIndices
from fedegoists.learning.preparation import Preparation, TargetScale, usual_range

MOST_VALUES = 4_000_000
"""Values that are prepared at a time."""

Inputs = npt.NDArray[np.float32]
Statistics = npt.NDArray[np.float64]


def standardised(
    values: Array, silos: Sequence[SiloIndices], columns: Sequence[int] | None = None
) -> Inputs:
    """Scale features to mean 0 and deviation 1 over each silo's training samples.

    Missing values (NaN) stay NaN and do not count. A feature that is constant in a silo's training
    samples becomes 0 in the whole silo; one that is never measured in them becomes NaN.

    Parameters
    ----------
    values : array, samples × … × features
        Axes in between, such as hours, are measurements of the same feature.
    silos : sequence of SiloIndices
        Samples that belong to none of them stay as they are.
    columns : sequence of int, optional
        The features to scale; all by default.

    Examples
    --------
    >>> silo = SiloIndices("a", np.array([0, 1]), np.array([2]), np.array([], dtype=int))
    >>> standardised(np.array([[1.0, 5.0], [3.0, 5.0], [6.0, np.nan]]), [silo])
    array([[-1.,  0.],
           [ 1.,  0.],
           [ 4., nan]], dtype=float32)
    """
    scaled = np.array(values, dtype=np.float32)
    chosen = np.arange(values.shape[-1]) if columns is None else np.asarray(columns, dtype=np.int64)
    for silo in silos:
        center, deviation = _statistics(values[silo.train][..., chosen])
        # The deviation of a constant is infinite, so that dividing by it gives 0.
        own = (values[silo.all][..., chosen].astype(np.float64) - center) / deviation
        part = scaled[silo.all]
        part[..., chosen] = own
        scaled[silo.all] = part
    return scaled


def mean_filled(values: Array, silos: Sequence[SiloIndices]) -> Inputs:
    """Replace NaN by the mean of the feature over the silo's training samples, or by 0 without one.

    Examples
    --------
    >>> silo = SiloIndices("a", np.array([0, 1]), np.array([2]), np.array([], dtype=int))
    >>> mean_filled(np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, 7.0]]), [silo])
    array([[1., 0.],
           [3., 0.],
           [2., 7.]], dtype=float32)
    """
    filled = np.array(values, dtype=np.float32)
    for silo in silos:
        center, _ = _statistics(values[silo.train])
        part = filled[silo.all]
        filled[silo.all] = np.where(np.isnan(part), np.nan_to_num(center, nan=0.0), part)
    return filled


def prepared(
    name: str,
    columns: Sequence[str],
    values: Array,
    silos: Sequence[SiloIndices],
    *,
    scaled: Sequence[int] | None = None,
    filled: bool = True,
    clip: float | None = None,
) -> tuple[Inputs, Preparation]:
    """Scale, fill and clip values; return the inputs, and the preparation for other values.

    Parameters
    ----------
    columns : sequence of str
        The names of the features.
    values : array, samples × … × features
        As measured.
    scaled : sequence of int, optional
        The features to scale; all by default.
    filled : bool
        Whether missing values are filled in, see `mean_filled`.
    clip : float, optional
        The largest absolute value of an input.

    Examples
    --------
    >>> silo = SiloIndices("a", np.array([0, 1]), np.array([2]), np.array([], dtype=int))
    >>> values = np.array([[1.0, 5.0], [3.0, 5.0], [6.0, np.nan]])
    >>> prepared("features", ("x", "y"), values, [silo])[1].of(0).factor
    (1.0, 0.0)
    """
    every = np.arange(values.shape[-1])
    chosen = np.isin(every, every if scaled is None else np.asarray(scaled, dtype=np.int64))
    # Columns do not depend on one another, and intermediate results are several times their size.
    width = max(1, MOST_VALUES // max(1, len(values))) if values.ndim == 2 else len(every)
    inputs = np.empty(values.shape, dtype=np.float32)
    parts = []
    for start in range(0, len(every), width):
        some = every[start : start + width]
        own = _prepared(values[..., some], silos, chosen[some], filled=filled)
        inputs[..., some] = own[0] if clip is None else np.clip(own[0], -clip, clip)
        parts.append(own[1:])
    center, factor, missing, ranges = (
        None if part[0] is None else np.concatenate(part, axis=1)
        for part in zip(*parts, strict=True)
    )
    assert center is not None
    assert factor is not None
    assert missing is not None
    return inputs, Preparation(name, tuple(columns), center, factor, missing, clip, ranges)


def _prepared(
    values: Array,
    silos: Sequence[SiloIndices],
    chosen: npt.NDArray[np.bool_],
    *,
    filled: bool,
) -> tuple[Inputs, Statistics, Statistics, Statistics, Statistics | None]:
    """Return the inputs, and center, factor, missing and ranges, of some columns."""
    inputs = (
        standardised(values, silos, np.flatnonzero(chosen).tolist()) if chosen.any() else values
    )
    if filled:
        inputs = mean_filled(inputs, silos)
    centers, factors, missing = [], [], []
    for silo in silos:
        mean, deviation = _statistics(values[silo.train])
        known = np.nan_to_num(mean, nan=0.0)
        # A feature that was never measured has no scale; filled in, it is 0 for any value.
        factor = np.where(np.isnan(mean), 0.0 if filled else np.nan, 1 / deviation)
        centers.append(np.where(chosen, known, 0.0))
        factors.append(np.where(chosen, factor, 1.0))
        missing.append(known if filled else np.full(len(known), np.nan))
    return (
        inputs.astype(np.float32, copy=False),
        np.array(centers),
        np.array(factors),
        np.array(missing),
        _ranges(values, silos),
    )


def _ranges(values: Array, silos: Sequence[SiloIndices]) -> npt.NDArray[np.float64] | None:
    """Return the usual range of each column in each silo's training samples.

    Not of columns with several values of a sample, whose largest five may be one person's.
    """
    if values.ndim != 2:
        return None
    return np.array([[usual_range(column) for column in values[silo.train].T] for silo in silos])


def scaled_targets(
    targets: Array, silos: Sequence[SiloIndices]
) -> tuple[Inputs, tuple[TargetScale, ...]]:
    """Scale numbers to predict to mean 0 and deviation 1 over each silo's training samples.

    Training with numbers like 150 or 50,000 diverges. Where they are constant, the deviation counts
    as 1.

    Examples
    --------
    >>> silo = SiloIndices("a", np.array([0, 1]), np.array([2]), np.array([], dtype=int))
    >>> scaled_targets(np.array([100.0, 300.0, 400.0]), [silo])
    (array([-1.,  1.,  2.], dtype=float32), (TargetScale(center=200.0, spread=100.0),))
    """
    scaled = np.array(targets, dtype=np.float64)
    scales = []
    for silo in silos:
        (center,), (deviation,) = _statistics(scaled[silo.train][:, None])
        spread = deviation if np.isfinite(deviation) else 1.0
        scaled[silo.all] = (scaled[silo.all] - center) / spread
        scales.append(TargetScale(center=float(center), spread=float(spread)))
    return scaled.astype(np.float32), tuple(scales)


def _statistics(values: Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return each feature's mean and deviation; NaN and infinity where there is none."""
    rows = values.reshape(-1, values.shape[-1]).astype(np.float64)
    measured = ~np.isnan(rows)
    count = measured.sum(axis=0)
    center = np.full(rows.shape[1], np.nan)
    np.divide(np.where(measured, rows, 0).sum(axis=0), count, out=center, where=count > 0)
    square = np.where(measured, rows - center, 0) ** 2
    deviation = np.sqrt(square.sum(axis=0) / np.maximum(count, 1))
    lowest = np.min(rows, axis=0, where=measured, initial=np.inf)
    highest = np.max(rows, axis=0, where=measured, initial=-np.inf)
    # Compares the values themselves, since rounding gives constants a tiny deviation.
    differs = (lowest < highest) & (deviation > 0)
    return center, np.where(differs, deviation, np.inf)
