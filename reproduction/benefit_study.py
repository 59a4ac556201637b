"""A study of who benefits whom on one data set: learn, measure, compare, write down."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedegoists.benefit import (
    BenefitEstimate,
    LearnSettings,
    MeasuredBenefit,
    MeasureSettings,
    learn_repetitions,
    measure_repetitions,
)
from fedegoists.benefit.estimate import quantile
from fedegoists.benefit.privacy_account import privacy_spent
from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation, TrainSettings
from fedegoists.files import write_all
from fedegoists.graphs import CompetitionGraph
from fedegoists.graphs.interchange import csv_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.learning.models import build_model
from fedegoists.training.defaults import defaults_for, learn_settings, model_options
from fedegoists.training.repetitions import load_trainable
from reproduction.benefit_pictures import heat_map_png, sweep_png
from reproduction.benefit_report import report_markdown
from reproduction.threshold_sweep import threshold_sweep

if TYPE_CHECKING:
    from fedegoists.benefit.silo_queries import Apart

__all__ = ["BenefitStudy", "StudyResult", "study"]

Progress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class BenefitStudy:
    """What to learn. The same study gives the same numbers on the same machine.

    Attributes
    ----------
    data : str
        A data set's name, or a folder with one's own silos.
    estimators : tuple of str
        How to learn; the first one's graph is written, the others stand beside it in the report.
    seeds : tuple of int
        One trial each; the first one's graph is written, the others show how stable it is.
    threshold, confidence : float, optional
        The rule for edges, see `fedegoists.benefit.BenefitEstimate.graph`.
    measured : bool
        Whether to measure the truth as well: everybody alone, all pairs, all but one.
    options : mapping
        For the data set.
    settings : mapping
        Of `LearnSettings`, other than the defaults.
    measure_settings : mapping
        Of `MeasureSettings`, other than the defaults.
    competition : str, optional
        A CSV file with ``a,b``: a model of one is never shown to the other.
    """

    data: str
    estimators: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    threshold: float | None = None
    confidence: float | None = None
    measured: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    measure_settings: Mapping[str, Any] = field(default_factory=dict)
    competition: str | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if len(set(self.estimators)) < len(self.estimators):
            raise SettingsError("name no estimator twice")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise SettingsError("name at least one seed, and none twice")
        if self.threshold is not None and self.confidence is not None:
            raise SettingsError("give a threshold or a confidence, not both")
        if self.threshold is not None and not self.threshold >= 0:
            raise SettingsError(f"threshold is {self.threshold}; expected 0 or more")
        if self.confidence is not None:
            quantile(self.confidence, 1)  # so that a wrong one is reported before anything is done


@dataclass(frozen=True)
class StudyResult:
    """Estimates by estimator and seed, and the measured truth by seed where it was asked for."""

    estimates: Mapping[str, Mapping[str, BenefitEstimate]]
    measured: Mapping[str, MeasuredBenefit]


def study(
    plan: BenefitStudy,
    out: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Learn, and write ``benefit.csv``, ``weights.csv``, pictures and ``report.md`` to a folder."""
    trials = {
        str(seed): load_trainable(plan.data, data_dir=data_dir, seed=seed, **plan.options)
        for seed in plan.seeds
    }
    first = next(iter(trials.values()))
    settings = {
        name: learn_settings(first, name, **plan.settings)
        for name in plan.estimators or (learn_settings(first).estimator,)
    }
    _check(plan, next(iter(settings.values())))
    model = build_model(defaults_for(first).model, 0, **model_options(first))
    federation = SimulatedFederation(trials, model, device=plan.device)
    apart: Apart = {label: tuple(_rivals(plan, trial)) for label, trial in trials.items()}
    estimates: dict[str, Mapping[str, BenefitEstimate]] = {
        name: {
            str(seed): one
            for seed, one in learn_repetitions(
                federation, own, apart=apart, secret="", progress=progress
            ).items()
        }
        for name, own in settings.items()
    }
    measured = {}
    if plan.measured:
        truth = _truth(next(iter(settings.values())), first)
        wanted = MeasureSettings(train=truth).changed(**plan.measure_settings)
        measured = {
            str(seed): one
            for seed, one in measure_repetitions(
                federation, wanted, apart=apart, progress=progress
            ).items()
        }
    result = StudyResult(estimates, measured)
    _write(plan, Path(out), result, first, next(iter(settings.values())))
    return result


def _check(plan: BenefitStudy, settings: LearnSettings) -> None:
    """Refuse what could not be written down in the end, before anything is learned."""
    if plan.threshold is None and not settings.certain:
        raise SettingsError(
            "one repeat does not say how sure an edge is: use repeats of at least 2, or a threshold"
        )
    if settings.clip is not None:
        privacy_spent(settings, 1)  # needs a library that may be missing


def _truth(settings: LearnSettings, data: SiloedData) -> TrainSettings:
    """Return how models are trained for the truth: twice as long as for an estimate."""
    local = settings.local
    steps = local.steps if data.samples.inputs[0].ndim == 3 else 2 * local.steps
    return local.changed(steps=steps, total_steps=steps)


def _rivals(plan: BenefitStudy, trial: SiloedData) -> Iterable[tuple[str, str]]:
    if plan.competition is None:
        return ()
    return CompetitionGraph.from_csv(plan.competition, trial.participants).pairs


def _write(
    plan: BenefitStudy, out: Path, result: StudyResult, data: SiloedData, settings: LearnSettings
) -> None:
    seed = str(plan.seeds[0])
    estimate = result.estimates[settings.estimator][seed]
    graph = estimate.graph(plan.threshold, confidence=plan.confidence)
    pairs = data.competition_pairs if plan.competition is None else _rivals(plan, data)
    competition = CompetitionGraph(pairs, estimate.participants)
    points = threshold_sweep(estimate, competition=competition)
    title = f"{plan.data}, seed {seed}: {estimate.estimator}"
    report = report_markdown(
        plan.data,
        result.estimates,
        result.measured,
        graph,
        points,
        rule=_rule(plan),
        settings=settings,
        sizes={name: tuple(sizes) for name, sizes in data.sizes().items()},
    )
    contents = [
        (out / "benefit.csv", graph.csv_bytes()),
        (out / "weights.csv", estimate.weights_csv()),
        (out / "estimates.csv", _estimates_csv(result.estimates)),
        (
            out / "heatmap.png",
            heat_map_png(estimate.weights, estimate.participants, graph.weights > 0, title),
        ),
        (out / "thresholds.png", sweep_png(points, title)),
        (out / "report.md", report.encode()),
    ]
    if result.measured:
        contents.append((out / "measured.csv", _measured_csv(result.measured)))
    # Between competitors nothing is learned, so weights of zero would give them away.
    write_all(contents, private=True)


def _rule(plan: BenefitStudy) -> str:
    if plan.threshold is not None:
        return f"an edge where the weight is above ε = {plan.threshold:g}"
    confidence = 0.95 if plan.confidence is None else plan.confidence
    return f"an edge where the benefit is above none with confidence {confidence:g}"


def _estimates_csv(estimates: Mapping[str, Mapping[str, BenefitEstimate]]) -> bytes:
    """Return the weights of all estimators and seeds, and where the confident rule has edges.

    With a single run, which says nothing of its spread, all weights above zero are edges.
    """
    rows = [
        (name, seed, source, target, f"{estimate.weights[j, i]:.6g}", str(int(edges[j, i] > 0)))
        for name, by_seed in estimates.items()
        for seed, estimate in by_seed.items()
        for edges in [estimate.graph(None if estimate.certain else 0.0).weights]
        for j, source in enumerate(estimate.participants)
        for i, target in enumerate(estimate.participants)
        if i != j
    ]
    return csv_bytes(("estimator", "seed", "source", "target", "weight", "edge"), rows)


def _measured_csv(measured: Mapping[str, MeasuredBenefit]) -> bytes:
    """Return the measured gains, repeat by repeat, and what leaving somebody out costs."""

    def rows() -> Sequence[Sequence[str]]:
        found = []
        for seed, truth in measured.items():
            names = truth.participants
            for repeat, gains in enumerate(truth.gains):
                for j, i in np.argwhere(~np.eye(len(names), dtype=bool)).tolist():
                    without = _cell(truth.losses_without, repeat, j, i)
                    found.append(
                        (seed, str(repeat), names[j], names[i], f"{gains[j, i]:.6g}", without)
                    )
        return found

    return csv_bytes(("seed", "repeat", "source", "target", "gain", "cost_without"), rows())


def _cell(values: npt.NDArray[np.float64] | None, repeat: int, j: int, i: int) -> str:
    return "" if values is None else f"{values[repeat, j, i]:.6g}"
