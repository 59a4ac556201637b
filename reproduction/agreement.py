"""How well an estimate agrees with the measured truth, and with itself from seed to seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.errors import SettingsError

__all__ = ["Agreement", "agreement", "stability"]

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """Agreement of estimated weights with measured gains, over all ordered pairs.

    Attributes
    ----------
    spearman, kendall : float
        Rank correlation over all pairs (Kendall's τ-b).
    within : float
        Spearman's correlation of the sources of one target, in the mean over targets: whether each
        participant's helpers stand in the right order, whoever gains most of all.
    precision, recall : float
        Of the edges, against those that were measured; not a number where there are none.
    """

    spearman: float
    kendall: float
    within: float
    precision: float
    recall: float


def agreement(
    weights: Matrix,
    gains: Matrix,
    edges: npt.NDArray[np.bool_],
    true_edges: npt.NDArray[np.bool_],
) -> Agreement:
    """Compare weights with gains, and edges with measured edges; the diagonal does not count.

    Examples
    --------
    >>> gains = np.array([[0.0, 0.3], [0.1, 0.0]])
    >>> agreement(gains, gains, gains > 0.2, gains > 0).recall
    0.5
    """
    from scipy.stats import kendalltau, spearmanr

    if weights.shape != gains.shape:
        raise SettingsError(f"{weights.shape} weights beside {gains.shape} measured gains")
    n = len(weights)
    pairs = ~np.eye(n, dtype=bool) & np.isfinite(gains)
    columns = [
        _correlation(spearmanr, weights[pairs[:, i], i], gains[pairs[:, i], i])
        for i in range(n)
        if pairs[:, i].sum() > 2
    ]
    found, true = edges[pairs], true_edges[pairs]
    both = (found & true).sum()
    return Agreement(
        _correlation(spearmanr, weights[pairs], gains[pairs]),
        _correlation(kendalltau, weights[pairs], gains[pairs]),
        float(np.mean(columns)) if columns else float("nan"),
        float(both / found.sum()) if found.any() else float("nan"),
        float(both / true.sum()) if true.any() else float("nan"),
    )


def stability(matrices: Sequence[Matrix]) -> float:
    """Return the mean rank correlation (Spearman) between any two of several matrices."""
    from scipy.stats import spearmanr

    if len(matrices) < 2:
        return float("nan")
    off = ~np.eye(len(matrices[0]), dtype=bool)
    both = combinations([matrix[off] for matrix in matrices], 2)
    return float(np.mean([_correlation(spearmanr, one, other) for one, other in both]))


def _correlation(statistic: Callable[..., Any], one: Matrix, other: Matrix) -> float:
    if len(one) < 2:
        return float("nan")
    # Equal numbers have no order to agree with.
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(statistic(one, other).statistic)
