"""How well an estimate agrees with the measured truth, and with itself from seed to seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

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
    from scipy.stats import kendalltau

    if weights.shape != gains.shape:
        raise SettingsError(f"{weights.shape} weights beside {gains.shape} measured gains")
    n = len(weights)
    pairs = ~np.eye(n, dtype=bool) & np.isfinite(gains)
    columns = [
        _spearman(weights[pairs[:, i], i], gains[pairs[:, i], i])
        for i in range(n)
        if pairs[:, i].sum() > 2
    ]
    found, true = edges[pairs], true_edges[pairs]
    both = (found & true).sum()
    return Agreement(
        _spearman(weights[pairs], gains[pairs]),
        float(kendalltau(weights[pairs], gains[pairs]).statistic),
        float(np.mean(columns)) if columns else float("nan"),
        float(both / found.sum()) if found.any() else float("nan"),
        float(both / true.sum()) if true.any() else float("nan"),
    )


def stability(matrices: Sequence[Matrix]) -> float:
    """Return the mean rank correlation (Spearman) between any two of several matrices."""
    if len(matrices) < 2:
        return float("nan")
    off = ~np.eye(len(matrices[0]), dtype=bool)
    return float(np.mean([_spearman(a[off], b[off]) for a, b in combinations(matrices, 2)]))


def _spearman(one: Matrix, other: Matrix) -> float:
    from scipy.stats import spearmanr

    # Equal numbers have no order to agree with.
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(spearmanr(one, other).statistic)
