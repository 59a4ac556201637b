"""Learning the benefit graph of a data set, and writing graph, pictures and report."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedegoists.benefit import BenefitEstimate, LearnSettings, learn_repetitions
from fedegoists.benefit.estimate import DEFAULT_CONFIDENCE, quantile
from fedegoists.benefit.privacy_account import privacy_spent
from fedegoists.benefit.silo_queries import Apart
from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation
from fedegoists.files import csv_bytes
from fedegoists.folder_swap import write_folder
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.learning.data import SiloedData
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.models import build_model
from fedegoists.training.benefit_pictures import heat_map_png, sweep_png
from fedegoists.training.benefit_report import Estimates, report_markdown
from fedegoists.training.defaults import defaults_for, learn_settings
from fedegoists.training.repetitions import load_trainable
from fedegoists.training.threshold_sweep import threshold_sweep

LearningProgress = Callable[[str, int, int, float], None]
"""Called with a stage, the steps done, all steps and the mean loss."""


@dataclass(frozen=True)
class BenefitPlan:
    """What to learn. The same plan gives the same numbers on the same machine.

    Attributes
    ----------
    data : str
        A data set's name, or a folder with one's own silos.
    estimators : tuple of str
        How to learn; the first one's graph is written, and the report compares all of them.
        Without any, the default for the data.
    seeds : tuple of int
        One repetition each; the first one's graph is written, the others show how stable it is.
    threshold, confidence : float, optional
        The rule for edges, see `fedegoists.benefit.BenefitEstimate.graph`.
    options : mapping
        Options of the data set.
    settings : mapping
        Settings of `LearnSettings` other than the defaults.
    competition : str, optional
        A CSV file with ``a,b``: a model of one is never shown to the other.
    """

    data: str
    estimators: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    threshold: float | None = None
    confidence: float | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
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
            quantile(self.confidence, 1)  # refuses a wrong one before anything is learned

    @property
    def rule(self) -> str:
        """The rule for edges in words."""
        if self.threshold is not None:
            return f"an edge where the weight is above ε = {self.threshold:g}"
        confidence = DEFAULT_CONFIDENCE if self.confidence is None else self.confidence
        return f"an edge where the benefit is above none with confidence {confidence:g}"

    def competitors(self, data: SiloedData) -> Iterable[tuple[str, str]]:
        """Return the pairs of the competition file."""
        if self.competition is None:
            return ()
        return CompetitionGraph.from_csv(self.competition, data.participants).pairs


@dataclass(frozen=True)
class LearnedBenefits:
    """The estimates of a plan, and the federation they were learned over.

    Attributes
    ----------
    data : SiloedData
        The first seed's data.
    apart : mapping of seed to pairs of names
        The competitors in each repetition.
    settings : mapping of str to LearnSettings
        By estimator.
    estimates : mapping of str to mapping of str to BenefitEstimate
        By estimator and seed.
    """

    plan: BenefitPlan
    data: SiloedData
    federation: SimulatedFederation
    apart: Apart
    settings: Mapping[str, LearnSettings]
    estimates: Estimates

    @property
    def first_settings(self) -> LearnSettings:
        """The settings of the first estimator."""
        return next(iter(self.settings.values()))

    @property
    def first(self) -> BenefitEstimate:
        """The first estimator's estimate for the first seed."""
        return next(iter(next(iter(self.estimates.values())).values()))

    @property
    def graph(self) -> BenefitGraph:
        """The benefit graph of the first estimate, by the plan's rule."""
        return self.first.graph(self.plan.threshold, confidence=self.plan.confidence)


def learn_benefits(
    plan: BenefitPlan,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    progress: LearningProgress | None = None,
) -> LearnedBenefits:
    """Learn with every estimator of a plan, all seeds at once."""
    repetitions = {
        seed: load_trainable(plan.data, data_dir=data_dir, seed=seed, **plan.options)
        for seed in plan.seeds
    }
    first = next(iter(repetitions.values()))
    settings = {
        # All silos are simulated, so that nobody sees anything.
        name: learn_settings(first, name, mingling=True, **dict[str, Any](plan.settings))
        for name in plan.estimators or (learn_settings(first).estimator,)
    }
    _check(plan, next(iter(settings.values())))
    model = build_model(defaults_for(first).model, 0, **model_options(first))
    federation = SimulatedFederation(repetitions, model, device=plan.device)
    apart: Apart = {seed: tuple(plan.competitors(one)) for seed, one in repetitions.items()}
    estimates = {
        name: {
            str(seed): one
            for seed, one in learn_repetitions(
                federation, own, apart=apart, secret="", progress=progress
            ).items()
        }
        for name, own in settings.items()
    }
    return LearnedBenefits(plan, first, federation, apart, settings, estimates)


def _check(plan: BenefitPlan, settings: LearnSettings) -> None:
    """Refuse before learning what could not be written afterwards."""
    if plan.threshold is None and not settings.certain:
        raise SettingsError(
            "one repeat does not say how sure an edge is: use repeats of at least 2, or a threshold"
        )
    if settings.clip is not None:
        privacy_spent(settings, 1)  # needs a library that may be missing


def write_benefits(
    learned: LearnedBenefits,
    out: str | os.PathLike[str],
    *,
    sections: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    replace: bool = False,
) -> None:
    """Write ``benefit.csv``, ``weights.csv``, pictures and ``report.md`` to a folder.

    Of an estimator that learns coalition values, also ``values.json``.

    Parameters
    ----------
    sections : sequence of str
        Lines of further sections of the report.
    files : mapping of str to bytes
        Further files by name.
    replace : bool
        Whether earlier files of the same names may be replaced.
    """
    plan, estimate, graph, data = learned.plan, learned.first, learned.graph, learned.data
    pairs = data.competition_pairs if plan.competition is None else plan.competitors(data)
    points = threshold_sweep(estimate, competition=CompetitionGraph(pairs, estimate.participants))
    title = f"{plan.data}, seed {plan.seeds[0]}: {estimate.estimator}"
    report = report_markdown(
        plan.data,
        learned.estimates,
        graph,
        points,
        rule=plan.rule,
        settings=learned.first_settings,
        sizes={name: tuple(sizes) for name, sizes in data.sizes().items()},
        sections=sections,
    )
    heat_map = heat_map_png(estimate.weights, estimate.participants, graph.weights > 0, title)
    contents = {
        "benefit.csv": graph.csv_bytes(),
        "weights.csv": estimate.weights_csv(),
        "estimates.csv": _estimates_csv(learned.estimates),
        "heatmap.png": heat_map,
        "thresholds.png": sweep_png(points, title),
        "report.md": report.encode(),
        **(files or {}),
    }
    if estimate.certain and estimate.values is None:
        contents["benefit_errors.csv"] = estimate.uncertain().csv_bytes()
    if estimate.values is not None:
        contents["values.json"] = estimate.values.to_json().encode()
    # Competitors have weights of zero, since nothing is learned between them: keep these private.
    write_folder(out, contents, replace=replace)


def _estimates_csv(estimates: Estimates) -> bytes:
    """Return the weights of all estimators and seeds, and the edges by the confident rule.

    A single run has no spread: all of its weights above zero are edges.
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
