"""Agreement of benefit estimates with the measured truth."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedegoists.benefit import BenefitEstimate
from fedegoists.errors import SettingsError
from fedegoists.training.benefit_report import (
    Estimates,
    plain_cell,
    rank_correlation,
    shown_number,
)
from reproduction.measured_pairs import MeasuredBenefit

__all__ = ["Agreement", "agreement", "agreement_section", "agreements"]

Matrix = npt.NDArray[np.float64]
Edges = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Agreement:
    """Agreement of estimated weights with measured gains, over all ordered pairs.

    Attributes
    ----------
    spearman, kendall : float
        Rank correlation over all pairs (Kendall's τ-b).
    within : float
        Spearman's correlation of the sources of one target, mean over targets: whether each
        participant's helpers are in the right order.
    precision, recall : float
        Of the estimated edges against the measured ones; NaN where there are none.
    """

    spearman: float
    kendall: float
    within: float
    precision: float
    recall: float


def agreement(weights: Matrix, gains: Matrix, edges: Edges, true_edges: Edges) -> Agreement:
    """Compare weights with gains, and edges with measured edges, without the diagonal.

    Examples
    --------
    >>> gains = np.array([[0.0, 0.3], [0.1, 0.0]])
    >>> agreement(gains, gains, gains > 0.2, gains > 0).recall
    0.5
    """
    if weights.shape != gains.shape:
        raise SettingsError(f"{weights.shape} weights beside {gains.shape} measured gains")
    n = len(weights)
    pairs = ~np.eye(n, dtype=bool) & np.isfinite(gains)
    columns = [
        rank_correlation(weights[pairs[:, i], i], gains[pairs[:, i], i])
        for i in range(n)
        if pairs[:, i].sum() > 2
    ]
    found, true = edges[pairs], true_edges[pairs]
    both = (found & true).sum()
    return Agreement(
        rank_correlation(weights[pairs], gains[pairs]),
        rank_correlation(weights[pairs], gains[pairs], "kendall"),
        float(np.mean(columns)) if columns else math.nan,
        float(both / found.sum()) if found.any() else math.nan,
        float(both / true.sum()) if true.any() else math.nan,
    )


def agreements(
    estimates: Mapping[str, BenefitEstimate], measured: Mapping[str, MeasuredBenefit]
) -> tuple[Agreement, Agreement]:
    """Return an estimator's agreement with the truth: the mean over seeds, and of the means.

    The second compares the mean estimate over seeds with the mean truth over seeds. It tells more
    where seeds only divide the same organisations' data differently.
    """
    off = ~np.eye(len(next(iter(estimates.values())).participants), dtype=bool)
    each = [
        agreement(e.weights, t.mean, _edges(e), _true_edges([t]))
        for e, t in ((estimates[seed], measured[seed]) for seed in measured)
    ]
    found = np.mean([_edges(estimates[seed]) for seed in measured], axis=0) > 0.5
    pooled = agreement(
        np.mean([estimates[seed].weights for seed in measured], axis=0),
        np.mean([truth.mean for truth in measured.values()], axis=0),
        found & off,
        _true_edges(list(measured.values())),
    )
    mean = Agreement(*(_mean([getattr(a, key) for a in each]) for key in vars(pooled)))
    return mean, pooled


def _edges(estimate: BenefitEstimate) -> Edges:
    edges: Edges = estimate.graph(None if estimate.certain else 0.0).weights > 0
    return edges


def _true_edges(truths: Sequence[MeasuredBenefit]) -> Edges:
    """Return where the gain over all repeats and seeds is above zero with confidence."""
    first = truths[0]
    gains = np.concatenate([truth.gains for truth in truths])
    if len(gains) < 2:
        edges: Edges = gains[0] > 0
        return edges
    return MeasuredBenefit(first.participants, first.alone, gains).edges()


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def agreement_section(
    estimates: Estimates, measured: Mapping[str, MeasuredBenefit], *, private: bool
) -> Iterator[str]:
    """Yield the lines of the report's section on agreement.

    Parameters
    ----------
    private : bool
        Whether the estimates were learned with clipping or noise, unlike the truth.
    """
    repeats = len(next(iter(measured.values())).gains)
    yield "## Agreement with the measured truth"
    yield ""
    yield (
        f"Every participant trained alone and with each other participant, {repeats} times for "
        f"each of {len(measured)} seeds. 'Within' is Spearman's correlation of one target's "
        "sources, mean over targets. First line: mean over seeds; second: means over seeds "
        "compared."
    )
    yield ""
    yield "| estimator | Spearman | Kendall | within | edge precision | edge recall |"
    yield "|---|---|---|---|---|---|"
    for name, by_seed in estimates.items():
        for label, a in zip(("", ", of means"), agreements(by_seed, measured), strict=True):
            cells = (a.spearman, a.kendall, a.within, a.precision, a.recall)
            yield f"| {name}{label} | " + " | ".join(map(shown_number, cells)) + " |"
    yield ""
    for seed, truth in measured.items():
        yield from (f"- not measured, seed {seed}: {plain_cell(line)}" for line in truth.failures)
    yield ""
    if private:
        yield "The account of privacy does not cover the measurement of the truth, which took "
        yield "gradients without clipping or noise."
        yield ""
