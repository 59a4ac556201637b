"""Predicted against realised gains of members of random coalitions.

Coalitions are random partitions without competitors, so that nothing about them depends on the
estimate. All silos train alone and, with EgoMix, in their coalitions; the gain of a member is the
difference of its test metrics, at the steps that validation data chooses, turned so that higher is
better. The prediction uses training and validation data of single silos only, and no coalition was
trained for it. Its settings were chosen on repetitions 10 to 14; the results are of 0 to 9.

Test sets are small, too. The standard error that a realised gain has for this reason comes from
resampling its test samples, and is part of the intervals whose coverage is reported.

    python -m reproduction gains heart --out reproduction/results/gains
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedegoists.benefit import learn_repetitions
from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.files import csv_bytes
from fedegoists.graphs import CurveValues
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets import load
from fedegoists.learning.model_registry import AUTO, model_options
from fedegoists.learning.models import build_model
from fedegoists.learning.task import Task
from fedegoists.methods import Outcome, RunSettings, run
from fedegoists.methods.egomix import EgoMix
from fedegoists.plotting import plotting, saved
from fedegoists.training.defaults import Defaults, defaults_for, learn_settings
from fedegoists.training.summary import chosen_test_values

if TYPE_CHECKING:
    from fedegoists.benefit.silo_queries import Apart

__all__ = [
    "COLUMNS",
    "GAIN_STUDIES",
    "Gain",
    "GainStudy",
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
Loader = Callable[..., SiloedData]
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
    repeats : int
        Of the estimate, see `fedegoists.benefit.LearnSettings`.
    """

    load: Loader
    model: str = AUTO
    steps: int | None = None
    partitions: int = 3
    repeats: int = 2


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


GAIN_STUDIES = {
    "synthetic-weak": GainStudy(partial(load, "synthetic-weak"), partitions=2, repeats=1),
    "synthetic-strong": GainStudy(partial(load, "synthetic-strong"), partitions=2, repeats=1),
    "heart": GainStudy(partial(load, "heart"), "logistic", 400),
    "eicu-demo": GainStudy(icu_summaries, "logistic", 400),
    "tcga-brca": GainStudy(partial(load, "tcga-brca", test="hash"), "cox", 400),
    "digits": GainStudy(planted_digits, "logistic", 400),
    **{
        f"{data}-{division}": GainStudy(partial(load, data, partition=division))
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
    told: Callable[[str], None] = lambda _: None,
) -> list[Gain]:
    """Estimate, train, and return the gains of all members in company."""
    began = time.monotonic()
    data = {seed: study.load(data_dir=data_dir, seed=seed) for seed in repetitions}
    first = next(iter(data.values()))
    defaults = defaults_for(first, study.steps, study.model)
    values = _estimated(study, data, defaults, device)
    told(f"estimated after {time.monotonic() - began:.0f} s")
    names = first.participants
    partitions: dict[tuple[int, int], Partition] = {}
    for seed, one in data.items():
        place = {name: k for k, name in enumerate(names)}
        rivals = {frozenset((place[a], place[b])) for a, b in one.competition_pairs}
        rng = np.random.default_rng([seed, 7])
        for number in range(study.partitions):
            partitions[seed, number] = random_partition(len(names), rivals, rng)
    realised = _trained(data, partitions, defaults, device)
    told(f"trained after {time.monotonic() - began:.0f} s")
    gains = []
    for (seed, number), groups in partitions.items():
        for group in groups:
            if len(group) < 2:
                continue
            members = np.zeros((1, len(names)), dtype=np.bool_)
            members[0, group] = True
            expected, errors = (
                of(members)[0] for of in (values[seed].gains, values[seed].standard_errors)
            )
            for k in group:
                gain, noise = realised[seed, number, names[k]]
                own = (float(expected[k]), float(errors[k]), gain, noise)
                gains.append(Gain(seed, number, names[k], len(group), *own))
    return gains


def _estimated(
    study: GainStudy, data: Mapping[int, SiloedData], defaults: Defaults, device: str
) -> dict[int, CurveValues]:
    """Learn the coalition values of all repetitions at once."""
    first = next(iter(data.values()))
    options = model_options(first, study.model)
    federation = SimulatedFederation(data, build_model(defaults.model, 0, **options), device=device)
    settings = learn_settings(first, "curves", model=study.model, repeats=study.repeats)
    apart: Apart = {seed: one.competition_pairs for seed, one in data.items()}
    estimates = learn_repetitions(federation, settings, apart=apart, secret="")
    values = {}
    for seed in data:
        found = estimates[seed].values
        assert found is not None  # this estimator learns them
        values[seed] = found
    return values


def _trained(
    data: Mapping[int, SiloedData],
    partitions: Mapping[tuple[int, int], Partition],
    defaults: Defaults,
    device: str,
) -> dict[tuple[int, int, str], tuple[float, float]]:
    """Train alone and in all partitions at once; return gains and their errors."""
    first = next(iter(data.values()))
    names, options = first.participants, model_options(first, defaults.model)
    alone = {f"{seed} alone": seed for seed in data}
    drawn_as = alone | {f"{seed} in {number}": seed for seed, number in partitions}
    federation = SimulatedFederation(
        {label: data[seed] for label, seed in drawn_as.items()},
        build_model(defaults.model, 0, **options),
        device=device,
        drawn_as=drawn_as,
    )
    coalitions: list[tuple[Participant, ...]] = [
        (Participant(name, label),) for label in alone for name in names
    ]
    for (seed, number), groups in partitions.items():
        label = f"{seed} in {number}"
        coalitions += [tuple(Participant(names[k], label) for k in group) for group in groups]
    models = {
        seed: federation.schema.flatten(
            dict(build_model(defaults.model, seed, **options).named_parameters())
        )
        for seed in data
    }
    initial = torch.stack(
        [models[drawn_as[str(one.repetition)]] for one in federation.participants]
    )
    method = EgoMix(defaults.train)
    settings = RunSettings(rounds=defaults.rounds, seed=0, evaluate_every=defaults.evaluate_every)
    outcome = run(method, federation, coalitions, initial.to(federation.device), settings)
    tested = chosen_test_values(outcome, federation)
    sign = 1.0 if federation.task.higher_is_better else -1.0
    found = {}
    for seed, number in partitions:
        for name in names:
            both = Participant(name, f"{seed} in {number}"), Participant(name, f"{seed} alone")
            gain = sign * (tested.get(both[0], math.nan) - tested.get(both[1], math.nan))
            found[seed, number, name] = gain, _test_noise(federation, outcome, both)
    return found


def _test_noise(
    federation: SimulatedFederation, outcome: Outcome, both: tuple[Participant, Participant]
) -> float:
    """Return the standard error of a difference of test metrics, by resampling test samples."""
    place = {name: k for k, name in enumerate(federation.participants)}
    one, other = (federation.outputs(name, outcome.best[place[name]], "test") for name in both)
    targets, task = one[1].cpu(), federation.task
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


def gain_page(name: str, gains: list[Gain], origin: str) -> str:
    """Return the results as a page."""
    known, usable = _usable(gains), "members in company"
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
        f"| mean standard error of a realised gain, by its test data | {noise.mean():.4f} |",
        "",
        f"![predicted against realised gains]({name}.png)",
        "",
        origin,
        "",
    ]
    return "\n".join(lines)


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
