"""A report on a benefit graph, for people: what was learned, how sure it is, what it cost."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fedegoists.benefit.estimate import BenefitEstimate
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.measured_pairs import MeasuredBenefit
from fedegoists.benefit.privacy_account import privacy_spent
from fedegoists.graphs import BenefitGraph
from reproduction.agreement import Agreement, agreement, stability
from reproduction.threshold_sweep import SweepPoint

__all__ = ["agreements", "report_markdown"]

Estimates = Mapping[str, Mapping[str, BenefitEstimate]]


def report_markdown(
    data: str,
    estimates: Estimates,
    measured: Mapping[str, MeasuredBenefit],
    graph: BenefitGraph,
    points: Sequence[SweepPoint],
    *,
    rule: str,
    settings: LearnSettings,
    sizes: Mapping[str, tuple[int, ...]],
) -> str:
    """Return the report on the first estimator's first seed, and on all of them side by side."""
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
    ]
    if measured:
        lines += _agreement(estimates, measured)
    lines += _privacy(settings, sizes, seeds=len(by_seed), measured=bool(measured))
    for failure in estimate.failures:
        gone = failure.startswith(tuple(f"{name}: " for name in estimate.absent))
        lines.append(f"- {'left out' if gone else 'did not always answer'}: {_plain(failure)}")
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
        yield f"| {_plain(name)} | {_plain(', '.join(shown)) or 'nobody'} |"
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
            yield f"| {point.threshold:.4f} | {point.edges} | {_plain(shown)} |"
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
        yield f"| {name} | {_number(float(np.mean(between)))} | {_number(across)} |"
    yield ""


def agreements(
    estimates: Mapping[str, BenefitEstimate], measured: Mapping[str, MeasuredBenefit]
) -> tuple[Agreement, Agreement]:
    """Return an estimator's agreement with the truth: the mean over seeds, and of the means.

    The second compares the mean over seeds of the estimate with that of the truth. It tells more
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


def _edges(estimate: BenefitEstimate) -> npt.NDArray[np.bool_]:
    edges: npt.NDArray[np.bool_] = estimate.graph(None if estimate.certain else 0.0).weights > 0
    return edges


def _true_edges(truths: Sequence[MeasuredBenefit]) -> npt.NDArray[np.bool_]:
    """Return where the gain over all repeats and seeds is above zero with confidence."""
    first = truths[0]
    gains = np.concatenate([truth.gains for truth in truths])
    if len(gains) < 2:
        edges: npt.NDArray[np.bool_] = gains[0] > 0
        return edges
    return MeasuredBenefit(first.participants, first.alone, gains).edges()


def _agreement(estimates: Estimates, measured: Mapping[str, MeasuredBenefit]) -> Iterator[str]:
    repeats = len(next(iter(measured.values())).gains)
    yield "## Agreement with the measured truth"
    yield ""
    yield (
        f"Everybody trained alone and with each other participant, {repeats} times for each of "
        f"{len(measured)} seeds. 'Within' is Spearman's correlation of one target's sources, in "
        "the mean over targets. First line: mean over seeds; second: means over seeds compared."
    )
    yield ""
    yield "| estimator | Spearman | Kendall | within | edge precision | edge recall |"
    yield "|---|---|---|---|---|---|"
    for name, by_seed in estimates.items():
        for label, a in zip(("", ", of means"), agreements(by_seed, measured), strict=True):
            cells = (a.spearman, a.kendall, a.within, a.precision, a.recall)
            yield f"| {name}{label} | " + " | ".join(map(_number, cells)) + " |"
    yield ""
    for seed, truth in measured.items():
        yield from (f"- not measured, seed {seed}: {_plain(line)}" for line in truth.failures)
    yield ""


def _privacy(
    settings: LearnSettings, sizes: Mapping[str, tuple[int, ...]], *, seeds: int, measured: bool
) -> Iterator[str]:
    if settings.clip is None:
        return
    yield "## Privacy"
    yield ""
    yield f"Each sample's gradient shortened to {settings.clip:g}, noise {settings.noise:g}."
    yield ""
    yield "| participant | ε | δ | answers a training / validation sample is in |"
    yield "|---|---|---|---|"
    for name, (training, *_) in sizes.items():
        spent = privacy_spent(settings, training)
        answers = f"{spent.training} / {spent.validation}"
        yield f"| {_plain(name)} | {spent.epsilon:.3g} | {spent.delta:g} | {answers} |"
    yield ""
    if seeds > 1:
        yield f"This is what one seed costs. All {seeds} cost more where they share samples."
        yield ""
    if measured:
        yield "Measuring the truth is not in it: it took gradients without clipping or noise."
        yield ""


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "–"


def _plain(text: str) -> str:
    """Return text that does not end a cell of a table."""
    return text.replace("|", r"\|").replace("\n", " ")
