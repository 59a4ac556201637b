"""Predicted against realised gains of members of random coalitions.

Coalitions are random partitions without competitors, so that nothing about them depends on the
estimate. All silos train alone and, with EgoMix, in their coalitions; the gain of a member is the
difference of its test metrics, at the steps that validation data chooses, turned so that higher is
better. The prediction uses training and validation data only, and no such coalition was trained for
it. Its settings were chosen on repetitions 10 to 14; the results are of 0 to 9.

Test sets are small, and training ends differently each time. The standard error that a realised
gain has for these reasons comes from resampling its test samples, and from training alone twice,
from two initial models; it is part of the intervals whose coverage is reported.

*Decisions.* Besides random coalitions, three that are chosen: by ``curves``, by the
benefit graph of the estimator ``transfer`` at its confidence of 95 % (``graph``), and as large as
competition allows (``everybody``). Their mean gains over training alone tell the regret of the
first. All repetitions divide the same samples anew, so that the standard error of a mean is that
of Nadeau and Bengio.

    python -m reproduction gains heart --out reproduction/results/gains
"""

import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedegoists.benefit import BenefitEstimate, learn_repetitions
from fedegoists.benefit.estimator_registry import CURVES
from fedegoists.coalitions import form
from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, SimulatedFederation, TrainSettings
from fedegoists.files import csv_bytes
from fedegoists.graphs import CompetitionGraph, CurveValues
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets import load
from fedegoists.learning.model_registry import AUTO, model_for, model_options
from fedegoists.learning.models import build_model
from fedegoists.learning.task import Task
from fedegoists.methods import Outcome, RunSettings, run
from fedegoists.methods.egomix import EgoMix
from fedegoists.plotting import plotting, saved
from fedegoists.training.decay_search import searched_decays, searched_decays_together
from fedegoists.training.decisions import random_competition
from fedegoists.training.defaults import Defaults, defaults_for, learn_settings
from fedegoists.training.repetitions import Repetitions
from fedegoists.training.summary import chosen_test_values

if TYPE_CHECKING:
    from fedegoists.benefit.silo_queries import Apart
    from fedegoists.graphs.coalition_values import Benefits

__all__ = [
    "COLUMNS",
    "GAIN_STUDIES",
    "Decided",
    "Gain",
    "GainStudy",
    "StudyResult",
    "decisions_csv",
    "gain_page",
    "gain_picture",
    "gains_csv",
    "gains_of",
]

REPORTED_ON = tuple(range(10))
RESAMPLES = 50
COVERAGE = 0.9
QUANTILE = 1.6449
"""Of the normal distribution, for two-sided intervals with `COVERAGE`."""

DIGIT_SILOS = 8

IMAGE_COMPETITION = 0.2
"""The probability that two owners of images compete."""

AGAIN = 1000
"""Added to the seed of an initial model, for another one."""

Loader = Callable[..., SiloedData]
Simulate = Callable[..., SimulatedFederation]
Partition = list[list[int]]


@dataclass(frozen=True)
class GainStudy:
    """A data set, the network that is trained on it, and how long.

    Attributes
    ----------
    steps : int, optional
        Training steps alone and in coalitions; the usual number if left out.
    partitions : int
        Random partitions of each repetition.
    """

    load: Loader
    model: str = AUTO
    steps: int | None = None
    partitions: int = 3


@dataclass(frozen=True)
class Gain:
    """The gain of one member: predicted and realised, with standard errors."""

    repetition: int
    partition: int
    participant: str
    members: int
    predicted: float
    predicted_error: float
    realised: float
    realised_error: float


COLUMNS = tuple(Gain.__dataclass_fields__)

CHOICES = (CURVES, "graph", "everybody")
"""The partitions that are chosen rather than drawn, by their names."""

TEST_SHARE = 1 / 3
"""Test samples for each training sample, about, for the correction of Nadeau and Bengio."""


@dataclass(frozen=True)
class Decided:
    """The coalitions of one choice in one repetition, and what they brought.

    Attributes
    ----------
    coalitions : tuple of tuple of str
        Those of two or more.
    gain : float
        The mean gain over training alone, over all participants.
    """

    choice: str
    repetition: int
    coalitions: tuple[tuple[str, ...], ...]
    gain: float


@dataclass(frozen=True)
class StudyResult:
    """The results of a study.

    Attributes
    ----------
    cost : float
        What the evidence cost a silo, as a multiple of training alone, in sample passes.
    """

    gains: list[Gain]
    decisions: list[Decided]
    cost: float


def planted_digits(*, seed: int, data_dir: str | os.PathLike[str] | None = None) -> SiloedData:
    """Return scikit-learn's digits in eight silos, four of which have permuted labels."""
    del data_dir  # nothing is read
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError:
        raise SettingsError(
            "the digits are those of scikit-learn, which is not installed; run: "
            "pip install scikit-learn"
        ) from None
    images, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    # No digit keeps its name, so that the two groups have nothing in common.
    permuted = (np.arange(10) + rng.integers(1, 10)) % 10
    targets, silos = digits.astype(np.int64), []
    for k, rows in enumerate(np.array_split(rng.permutation(len(digits)), DIGIT_SILOS)):
        if k >= DIGIT_SILOS // 2:
            targets[rows] = permuted[digits[rows]]
        parts = np.split(rows, [int(0.6 * len(rows)), int(0.8 * len(rows))])
        silos.append(SiloIndices(f"d{k + 1}", *parts))
    samples = Samples((((images - 8) / 8).astype(np.float32),), targets)
    return SiloedData(
        "digits", "classification", samples, tuple(silos), 10, "digits in two groups", ()
    )


def icu_summaries(*, seed: int, data_dir: str | os.PathLike[str] | None = None) -> SiloedData:
    """Return the eICU demo with the mean, minimum, maximum and last value of every series.

    Each silo standardises by its own training samples; what was never measured is the mean.
    """
    data = load("eicu-demo", data_dir=data_dir, seed=seed)
    hourly, static = data.samples.inputs
    known = np.isfinite(hourly)
    count = known.sum(1)
    last = hourly.shape[1] - 1 - known[:, ::-1].argmax(1)
    features = np.concatenate(
        [
            np.where(known, hourly, 0.0).sum(1) / np.maximum(count, 1),
            np.where(known, hourly, np.inf).min(1),
            np.where(known, hourly, -np.inf).max(1),
            np.take_along_axis(hourly, last[:, None], 1)[:, 0],
        ],
        1,
        dtype=np.float64,
    )
    features[np.tile(count == 0, 4)] = np.nan
    features = np.concatenate([features, static], 1)
    for silo in data.silos:
        own = np.ma.masked_invalid(features[silo.train])
        center, spread = own.mean(0).filled(0.0), own.std(0).filled(1.0)
        rows = np.concatenate([silo.train, silo.validation, silo.test])
        features[rows] = (features[rows] - center) / np.where(spread > 1e-6, spread, 1.0)
    features = np.nan_to_num(features).clip(-8, 8).astype(np.float32)
    return replace(data, samples=replace(data.samples, inputs=(features,)), preparation=())


def competing_images(
    data: str, division: str, *, seed: int, data_dir: str | os.PathLike[str] | None = None
) -> SiloedData:
    """Return images with the competitors that tables have at `IMAGE_COMPETITION`."""
    images = load(data, data_dir=data_dir, seed=seed, partition=division)
    rivals = random_competition(images.participants, IMAGE_COMPETITION, seed)
    return replace(images, competition_pairs=rivals.pairs)


GAIN_STUDIES = {
    "synthetic-weak": GainStudy(partial(load, "synthetic-weak"), partitions=2),
    "synthetic-strong": GainStudy(partial(load, "synthetic-strong"), partitions=2),
    "heart": GainStudy(partial(load, "heart"), "logistic"),
    "eicu-demo": GainStudy(icu_summaries, "logistic"),
    "tcga-brca": GainStudy(partial(load, "tcga-brca", test="hash"), "cox"),
    "digits": GainStudy(planted_digits, "logistic"),
    **{
        f"{data}-{division}": GainStudy(partial(competing_images, data, division))
        for data in ("cifar10", "cifar100")
        for division in ("dirichlet", "pathological")
    },
}
"""The studies by name. Those of images need a GPU."""


def random_partition(
    count: int, rivals: set[frozenset[int]], rng: np.random.Generator
) -> Partition:
    """Draw a partition: members in random order join a random admissible group, or a new one."""
    groups: Partition = []
    for one in rng.permutation(count).tolist():
        open_to = [
            group for group in groups if not any(frozenset((one, k)) in rivals for k in group)
        ]
        place = int(rng.integers(len(open_to) + 1))
        if place == len(open_to):
            groups.append([one])
        else:
            open_to[place].append(one)
    return [sorted(group) for group in groups]


def gains_of(
    study: GainStudy,
    *,
    repetitions: Iterable[int] = REPORTED_ON,
    data_dir: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    bf16: bool = False,
    told: Callable[[str], None] = lambda _: None,
) -> StudyResult:
    """Estimate, decide, train, and return what all members gained."""
    began = time.monotonic()
    data = {seed: study.load(data_dir=data_dir, seed=seed) for seed in repetitions}
    first = next(iter(data.values()))
    names = first.participants
    defaults = _with_decays(study, data, defaults_for(first, study.steps, study.model), device)
    simulate = partial(SimulatedFederation, device=device, bf16=bf16)
    found = _estimated(study, data, defaults, simulate, CURVES)
    graphs = _estimated(study, data, defaults, simulate, "transfer")
    told(f"estimated after {time.monotonic() - began:.0f} s")
    partitions: dict[tuple[int, str], Partition] = {}
    for seed, one in data.items():
        competition = CompetitionGraph(one.competition_pairs, names)
        place = {name: k for k, name in enumerate(names)}
        rivals = {frozenset((place[a], place[b])) for a, b in one.competition_pairs}
        rng = np.random.default_rng([seed, 7])
        for number in range(study.partitions):
            partitions[seed, str(number)] = random_partition(len(names), rivals, rng)
        benefits: tuple[Benefits, ...] = (_values(found[seed]), graphs[seed].graph())
        for choice, benefit in zip(CHOICES[:2], benefits, strict=True):
            groups = form(benefit, competition).coalitions
            partitions[seed, choice] = [[place[name] for name in group] for group in groups]
        partitions[seed, CHOICES[2]] = widest_partition(len(names), rivals)
    realised = _trained(data, partitions, defaults, simulate)
    told(f"trained after {time.monotonic() - began:.0f} s")
    alone = [
        defaults.rounds * defaults.train.steps * min(defaults.train.batch_size, len(silo.train))
        for one in data.values()
        for silo in one.silos
    ]
    spent = float(np.mean([one.cost.sample_passes for one in found.values()]))
    return StudyResult(
        _gains(found, partitions, names, realised),
        [
            Decided(
                choice,
                seed,
                tuple(tuple(names[k] for k in group) for group in groups if len(group) > 1),
                float(np.nanmean([realised[seed, choice, name][0] for name in names])),
            )
            for (seed, choice), groups in partitions.items()
            if choice in CHOICES
        ],
        spent / float(np.mean(alone)),
    )


def _with_decays(
    study: GainStudy, data: Mapping[int, SiloedData], defaults: Defaults, device: str
) -> Defaults:
    """Return settings with the weight decays of linear models that validation data prefers.

    As in a consortium: one alone, and one in coalitions, here as large as competition allows. But
    both are the medians over repetitions, so that all can be trained at once.
    """
    first = next(iter(data.values()))
    if model_for(first, study.model).recipe != "linear":
        return defaults
    repetitions = Repetitions.simulated(data, steps=study.steps, device=device, model=study.model)
    place = {name: k for k, name in enumerate(first.participants)}
    groups = []
    for seed, one in data.items():
        rivals = {frozenset((place[a], place[b])) for a, b in one.competition_pairs}
        widest = widest_partition(len(place), rivals)
        names = [[one.participants[k] for k in group] for group in widest]
        groups += Participant.groups(names, seed)
    alone = statistics.median_low(searched_decays(repetitions).values())
    together = statistics.median_low(searched_decays_together(repetitions, groups).values())
    return replace(
        defaults,
        train=defaults.train.changed(weight_decay=alone),
        tune=defaults.tune.changed(weight_decay=alone),
        together_decay=together,
    )


def widest_partition(count: int, rivals: set[frozenset[int]]) -> Partition:
    """Return coalitions as large as competition allows: each joins the largest that is open."""
    groups: Partition = []
    for one in range(count):
        open_to = [
            group for group in groups if not any(frozenset((one, k)) in rivals for k in group)
        ]
        if open_to:
            max(open_to, key=len).append(one)
        else:
            groups.append([one])
    return groups


def _gains(
    estimates: Mapping[int, BenefitEstimate],
    partitions: Mapping[tuple[int, str], Partition],
    names: tuple[str, ...],
    realised: Mapping[tuple[int, str, str], tuple[float, float]],
) -> list[Gain]:
    """Return the gains of all members of random coalitions.

    Resampling a test set with a single patient of a class shows no spread. So the error of a
    realised gain is at least half of the usual one.
    """
    drawn = [error for (_, number, _), (_, error) in realised.items() if number not in CHOICES]
    least = float(np.nanmedian(drawn)) / 2
    gains = []
    for (seed, number), groups in partitions.items():
        if number in CHOICES:
            continue
        values = _values(estimates[seed])
        for group in groups:
            if len(group) < 2:
                continue
            members = np.zeros((1, len(names)), dtype=np.bool_)
            members[0, group] = True
            expected, errors = values.gains(members)[0], values.standard_errors(members)[0]
            for k in group:
                gain, noise = realised[seed, number, names[k]]
                own = (float(expected[k]), float(errors[k]), gain, max(noise, least))
                gains.append(Gain(seed, int(number), names[k], len(group), *own))
    return gains


def _values(estimate: BenefitEstimate) -> CurveValues:
    assert estimate.values is not None  # this estimator learns them
    return estimate.values


def _estimated(
    study: GainStudy,
    data: Mapping[int, SiloedData],
    defaults: Defaults,
    simulate: Simulate,
    estimator: str,
) -> dict[int, BenefitEstimate]:
    """Learn the benefits of all repetitions at once."""
    first = next(iter(data.values()))
    options = model_options(first, study.model)
    federation = simulate(data, build_model(defaults.model, 0, **options))
    training = {"weight_decay": defaults.train.weight_decay}
    settings = learn_settings(
        first,
        estimator,
        model=study.model,
        training=training,
        ridge=defaults.together_decay is not None,
    )
    apart: Apart = {seed: one.competition_pairs for seed, one in data.items()}
    estimates = learn_repetitions(federation, settings, apart=apart, secret="")
    return {seed: estimates[seed] for seed in data}


def _trained(
    data: Mapping[int, SiloedData],
    partitions: Mapping[tuple[int, str], Partition],
    defaults: Defaults,
    simulate: Simulate,
) -> dict[tuple[int, str, str], tuple[float, float]]:
    """Train alone, alone again and in all partitions at once; return gains and their errors."""
    first = next(iter(data.values()))
    names = first.participants
    alone = {f"{seed} {again}": seed for seed in data for again in ("alone", "again")}
    together = {f"{seed} in {number}": seed for seed, number in partitions}
    # Two runs, since weight decays differ.
    runs = [
        _TrainedCoalitions.of(
            {label: data[seed] for label, seed in alone.items()},
            alone,
            [(Participant(name, label),) for label in alone for name in names],
            defaults,
            defaults.train,
            simulate,
        )
    ]
    coalitions: list[tuple[Participant, ...]] = []
    for (seed, number), groups in partitions.items():
        label = f"{seed} in {number}"
        coalitions += [tuple(Participant(names[k], label) for k in group) for group in groups]
    runs.append(
        _TrainedCoalitions.of(
            {label: data[seed] for label, seed in together.items()},
            together,
            coalitions,
            defaults,
            defaults.together,
            simulate,
        )
    )
    tested = runs[0].tested | runs[1].tested
    federation = runs[0].federation
    sign = 1.0 if federation.task.higher_is_better else -1.0

    def test(name: str, label: str) -> float:
        return sign * tested.get(Participant(name, label), math.nan)

    by_training = {
        name: float(
            np.nanmean(
                [(test(name, f"{one} alone") - test(name, f"{one} again")) ** 2 for one in data]
            )
        )
        for name in names
    }
    found = {}
    for (seed, number), groups in partitions.items():
        company = {names[k] for group in groups if len(group) > 1 for k in group}
        for name in names:
            gain = test(name, f"{seed} in {number}") - test(name, f"{seed} alone")
            if name not in company and math.isfinite(gain):
                gain = 0.0  # it keeps its own model, whatever the weight decay of coalitions
            noise = 0.0
            if number not in CHOICES:
                noise = _test_noise(
                    federation.task,
                    runs[1].outputs(Participant(name, f"{seed} in {number}")),
                    runs[0].outputs(Participant(name, f"{seed} alone")),
                )
            found[seed, number, name] = gain, math.hypot(noise, math.sqrt(by_training[name]))
    return found


@dataclass(frozen=True)
class _TrainedCoalitions:
    """Training of some coalitions with EgoMix, and the test metrics at the chosen steps."""

    federation: SimulatedFederation
    outcome: Outcome
    tested: dict[Participant, float]

    @classmethod
    def of(
        cls,
        data: Mapping[str, SiloedData],
        drawn_as: Mapping[str, int],
        coalitions: list[tuple[Participant, ...]],
        defaults: Defaults,
        train: TrainSettings,
        simulate: Simulate,
    ) -> "_TrainedCoalitions":
        """Train; a label that ends with *again* starts from another initial model."""
        first = next(iter(data.values()))
        options = model_options(first, defaults.model)
        federation = simulate(data, build_model(defaults.model, 0, **options), drawn_as=drawn_as)
        seeds = {label: seed + AGAIN * label.endswith("again") for label, seed in drawn_as.items()}
        models = {
            seed: federation.schema.flatten(
                dict(build_model(defaults.model, seed, **options).named_parameters())
            )
            for seed in set(seeds.values())
        }
        initial = torch.stack(
            [models[seeds[str(one.repetition)]] for one in federation.participants]
        )
        settings = RunSettings(
            rounds=defaults.rounds, seed=0, evaluate_every=defaults.evaluate_every
        )
        start = initial.to(federation.device)
        outcome = run(EgoMix(train), federation, coalitions, start, settings)
        return cls(federation, outcome, chosen_test_values(outcome, federation))

    def outputs(self, participant: Participant) -> tuple[Tensor, Tensor]:
        """Return a participant's outputs on its test samples, and their targets."""
        place = self.federation.participants.index(participant)
        return self.federation.outputs(participant, self.outcome.best[place], "test")


def _test_noise(task: Task, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> float:
    """Return the standard error of a difference of test metrics, by resampling test samples."""
    targets = one[1].cpu()
    rng = np.random.default_rng(0)
    differences = [
        _difference(task, one[0].cpu()[rows], other[0].cpu()[rows], targets[rows])
        for _ in range(RESAMPLES)
        for rows in [torch.from_numpy(rng.integers(0, len(targets), len(targets)))]
    ]
    usable = np.array(differences)
    usable = usable[np.isfinite(usable)]
    return float(usable.std(ddof=1)) if len(usable) > 1 else math.nan


def _difference(task: Task, one: Tensor, other: Tensor, targets: Tensor) -> float:
    return task.score(one, targets) - task.score(other, targets)


def gain_page(name: str, result: StudyResult, origin: str) -> str:
    """Return the results as a page."""
    known, usable = _usable(result.gains), "members in company"
    predicted, error, realised, noise = known
    inside = np.abs(predicted - realised) <= QUANTILE * np.hypot(error, noise)
    helpful = predicted > 0
    lines = [
        f"# Gains on {name}",
        "",
        "Predicted by the estimator `curves` before any coalition was trained, and realised with "
        "EgoMix in random coalitions; in units of the metric, higher is better.",
        "",
        "| | |",
        "|---|---|",
        f"| {usable} | {len(predicted)} |",
        f"| rank agreement (Spearman) | {_rank(predicted, realised):.2f} |",
        f"| mean gain, predicted | {predicted.mean():+.4f} |",
        f"| mean gain, realised | {realised.mean():+.4f} |",
        f"| mean absolute error | {np.abs(predicted - realised).mean():.4f} |",
        f"| {COVERAGE:.0%} intervals with test noise cover | {inside.mean():.0%} |",
        f"| predicted to gain | {int(helpful.sum())} |",
        f"| their mean gain, predicted | {_mean(predicted[helpful])} |",
        f"| their mean gain, realised | {_mean(realised[helpful])} |",
        f"| mean gain of the others, realised | {_mean(realised[~helpful])} |",
        f"| mean standard error of a prediction | {error.mean():.4f} |",
        f"| the same of a realised gain, by test data and training | {noise.mean():.4f} |",
        f"| cost of the evidence, in trainings alone | {result.cost:.1f} |",
        "",
        f"![predicted against realised gains]({name}.png)",
        "",
        "## Decisions",
        "",
        "Mean gain over training alone of all participants; the standard error has the correction "
        "of Nadeau and Bengio.",
        "",
        "| coalitions | mean gain | standard error | repetitions without company |",
        "|---|---|---|---|",
        *(_choice_row(choice, result.decisions) for choice in CHOICES),
        "",
        "Coalitions by curves, and in how many repetitions:",
        "",
        *_coalition_rows(result.decisions),
        "",
        origin,
        "",
    ]
    return "\n".join(lines)


def choice_gains(choice: str, decisions: Iterable[Decided]) -> tuple[float, float]:
    """Return the mean gain of a choice, and its corrected standard error."""
    gains = np.array([one.gain for one in decisions if one.choice == choice])
    spread = float(gains.std(ddof=1)) if len(gains) > 1 else math.nan
    return float(gains.mean()), spread * math.sqrt(1 / len(gains) + TEST_SHARE)


def _choice_row(choice: str, decisions: list[Decided]) -> str:
    mean, error = choice_gains(choice, decisions)
    nobody = sum(not one.coalitions for one in decisions if one.choice == choice)
    return f"| {choice} | {mean:+.4f} | {error:.4f} | {nobody} |"


def _coalition_rows(decisions: list[Decided]) -> list[str]:
    counted = Counter(one.coalitions for one in decisions if one.choice == CHOICES[0])
    return [
        f"- {'; '.join(' + '.join(group) for group in groups) or 'nobody with anybody'}: {count}"
        for groups, count in counted.most_common()
    ]


def _usable(gains: list[Gain]) -> npt.NDArray[np.float64]:
    """Return predictions and realisations with their errors, where the metric is defined."""
    table = np.array(
        [(one.predicted, one.predicted_error, one.realised, one.realised_error) for one in gains]
    ).T
    return table[:, np.isfinite(table).all(0)]


def _rank(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(one, other).statistic)


def _mean(values: npt.NDArray[np.float64]) -> str:
    return f"{values.mean():+.4f}" if len(values) else "none"


def gain_picture(name: str, gains: list[Gain]) -> bytes:
    """Return a picture of realised gains over predicted ones."""
    predicted, error, realised, noise = _usable(gains)
    with plotting():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 5), layout="constrained")
        axes = figure.subplots()
        width, height = QUANTILE * error, QUANTILE * noise
        axes.errorbar(
            predicted, realised, height, width, fmt="o", markersize=3, linewidth=0.5, alpha=0.5
        )
        low, high = float(min(predicted.min(), 0)), float(max(predicted.max(), 0))
        axes.plot([low, high], [low, high], color="black", linewidth=1)
        axes.axhline(0, color="grey", linewidth=0.5)
        axes.axvline(0, color="grey", linewidth=0.5)
        axes.locator_params("x", nbins=6)
        axes.set_xlabel("predicted gain")
        axes.set_ylabel("realised gain")
        axes.set_title(f"{name}: {len(predicted)} members of random coalitions", size=10)
        return saved(figure, "png")


def gains_csv(gains: list[Gain]) -> bytes:
    """Return the gains as CSV."""
    rows = [
        tuple(
            repr(value) if isinstance(value, float) else value
            for value in (getattr(one, column) for column in COLUMNS)
        )
        for one in gains
    ]
    return csv_bytes(COLUMNS, rows)


def decisions_csv(decisions: list[Decided]) -> bytes:
    """Return the decisions as CSV."""
    rows = [
        (
            one.choice,
            one.repetition,
            "; ".join(" + ".join(group) for group in one.coalitions),
            repr(one.gain),
        )
        for one in decisions
    ]
    return csv_bytes(("choice", "repetition", "coalitions", "gain"), rows)
