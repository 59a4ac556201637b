"""The report on a learned benefit graph: edges, thresholds, cost, stability and privacy."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedegoists.benefit.estimate import BenefitEstimate
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.privacy_account import privacy_spent
from fedegoists.graphs import BenefitGraph
from fedegoists.training.threshold_sweep import SweepPoint

Matrix = npt.NDArray[np.float64]
Estimates = Mapping[str, Mapping[str, BenefitEstimate]]


def report_markdown(
    data: str,
    estimates: Estimates,
    graph: BenefitGraph,
    points: Sequence[SweepPoint],
    *,
    rule: str,
    settings: LearnSettings,
    sizes: Mapping[str, tuple[int, ...]],
    sections: Sequence[str] = (),
) -> str:
    """Return the report on the first estimator's first seed, beside all other ones.

    Parameters
    ----------
    estimates : mapping of str to mapping of str to BenefitEstimate
        By estimator and seed.
    sections : sequence of str
        Lines of further sections, before the one on privacy.
    """
    by_seed = next(iter(estimates.values()))
    seed, estimate = next(iter(by_seed.items()))
    lines = [
        f"# Who benefits whom: {data}",
        "",
        f"Estimator `{estimate.estimator}`, seed {seed}, {estimate.repeats} repeats. Rule: {rule}.",
        "",
        "![Weights](heatmap.png)",
        "",
        *_helpers(estimate, graph),
        *_sweep(points),
        *_cost(estimates),
        *_stability(estimates),
        *sections,
        *_privacy(settings, sizes, seeds=len(by_seed)),
    ]
    for failure in estimate.failures:
        gone = failure.startswith(tuple(f"{name}: " for name in estimate.absent))
        lines.append(f"- {'left out' if gone else 'did not always answer'}: {plain_cell(failure)}")
    return "\n".join(lines).rstrip() + "\n"


def _helpers(estimate: BenefitEstimate, graph: BenefitGraph) -> Iterator[str]:
    yield "| participant | benefits from (weight ± standard error) |"
    yield "|---|---|"
    names = estimate.participants
    spread = estimate.spread if estimate.runs[:, :, 0, 0].size > 1 else None
    for i, name in enumerate(names):
        sources = sorted(np.flatnonzero(graph.weights[:, i]), key=lambda j: -graph.weights[j, i])
        shown = [
            f"{names[j]} {estimate.weights[j, i]:.3f}"
            + ("" if spread is None else f" ± {spread[j, i]:.3f}")
            for j in sources
        ]
        yield f"| {plain_cell(name)} | {plain_cell(', '.join(shown)) or 'nobody'} |"
    yield ""


def _sweep(points: Sequence[SweepPoint]) -> Iterator[str]:
    yield "## Edges and coalitions over the threshold ε"
    yield ""
    yield "![Edges over thresholds](thresholds.png)"
    yield ""
    yield "| ε | edges | coalitions of more than one |"
    yield "|---|---|---|"
    last = None
    for point in points:
        groups = [group for group in point.coalitions if len(group) > 1]
        shown = "; ".join(", ".join(group) for group in groups) or "none"
        if shown != last:
            yield f"| {point.threshold:.4f} | {point.edges} | {plain_cell(shown)} |"
        last = shown
    yield ""


def _cost(estimates: Estimates) -> Iterator[str]:
    yield "## Cost of one silo"
    yield ""
    yield "| estimator | rounds | MB sent | MB received | sample passes |"
    yield "|---|---|---|---|---|"
    for name, by_seed in estimates.items():
        cost = next(iter(by_seed.values())).cost
        sent, received = cost.bytes_sent / 1e6, cost.bytes_received / 1e6
        yield f"| {name} | {cost.rounds} | {sent:.2f} | {received:.2f} | {cost.sample_passes:,} |"
    yield ""


def _stability(estimates: Estimates) -> Iterator[str]:
    seeds = len(next(iter(estimates.values())))
    yield "## Stability: mean rank correlation of the weights"
    yield ""
    yield f"| estimator | between repeats | between {seeds} seeds |"
    yield "|---|---|---|"
    for name, by_seed in estimates.items():
        between = [stability(list(e.runs.mean(1))) for e in by_seed.values()]
        across = stability([e.weights for e in by_seed.values()])
        yield f"| {name} | {shown_number(float(np.mean(between)))} | {shown_number(across)} |"
    yield ""


def _privacy(
    settings: LearnSettings, sizes: Mapping[str, tuple[int, ...]], *, seeds: int
) -> Iterator[str]:
    if settings.clip is None:
        return
    yield "## Privacy"
    yield ""
    yield f"Each sample's gradient shortened to {settings.clip:g}, noise {settings.noise:g}."
    yield ""
    yield "| participant | ε | δ | ε of a training / validation sample |"
    yield "|---|---|---|---|"
    for name, (training, *_) in sizes.items():
        spent = privacy_spent(settings, training)
        answers = f"{spent.training:.3g} / {spent.validation:.3g}"
        yield f"| {plain_cell(name)} | {spent.epsilon:.3g} | {spent.delta:g} | {answers} |"
    yield ""
    if seeds > 1:
        yield f"This is what one seed costs. All {seeds} cost more where they share samples."
        yield ""


def stability(matrices: Sequence[Matrix]) -> float:
    """Return the mean rank correlation (Spearman) between any two of several matrices."""
    if len(matrices) < 2:
        return math.nan
    off = ~np.eye(len(matrices[0]), dtype=bool)
    both = combinations([matrix[off] for matrix in matrices], 2)
    return float(np.mean([rank_correlation(one, other) for one, other in both]))


def rank_correlation(
    one: Matrix, other: Matrix, kind: Literal["spearman", "kendall"] = "spearman"
) -> float:
    """Return a rank correlation: 0 where all numbers of one are equal and so have no order."""
    from scipy.stats import kendalltau, spearmanr

    if len(one) < 2:
        return math.nan
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float((spearmanr if kind == "spearman" else kendalltau)(one, other).statistic)


def shown_number(value: float) -> str:
    """Return a statistic with two digits, or a dash where it is undefined."""
    return f"{value:.2f}" if math.isfinite(value) else "–"


def plain_cell(text: str) -> str:
    """Return text that cannot end a cell of a Markdown table."""
    return text.replace("|", r"\|").replace("\n", " ")
