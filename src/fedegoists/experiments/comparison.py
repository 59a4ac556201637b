"""Methods side by side on one data set: several trials at once, metrics and a summary as CSV."""

import hashlib
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedegoists.coalitions import form
from fedegoists.coalitions.principles import check_partition
from fedegoists.coalitions.tables import read_coalitions
from fedegoists.errors import FileError, SettingsError
from fedegoists.experiments.defaults import Defaults, defaults_for, model_options
from fedegoists.federation import SimulatedFederation
from fedegoists.files import read_text, write_all, write_bytes
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.interchange import csv_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets import available, load, load_own
from fedegoists.learning.models import build_model
from fedegoists.methods import METHODS, Local, Method, Outcome, run
from fedegoists.methods.run import Observer
from fedegoists.version import __version__

__all__ = ["Comparison", "compare"]

METRIC_COLUMNS = ("seed", "method", "participant", "round", "split", "metric", "value")
SUMMARY_COLUMNS = ("method", "participant", "metric", "mean", "std", "n")
EVERYBODY = "all"
"""The participant's name in rows that average over all of them."""


@dataclass(frozen=True)
class Comparison:
    """What to compare. The same comparison gives the same numbers on the same machine.

    Attributes
    ----------
    data : str
        A data set's name, see `fedegoists.learning.datasets.available`, or a folder with one's own
        silos, see `fedegoists.learning.datasets.load_own`.
    methods : tuple of str
        Names of `fedegoists.methods.METHODS`; ``+ft`` behind one adds fine-tuning on own data.
    coalitions : str
        ``all`` together, ``none`` (everybody alone), ``cliques`` of independent participants, or a
        CSV file with ``participant,coalition``.
    competition : str
        A CSV file with ``a,b``, or the probability with which any two compete, drawn anew for each
        seed; empty for no competition.
    seeds : tuple of int
        One trial each: its own partition, competition, initial model and batches.
    steps : int, optional
        Training steps in all; a default that suits the data if left out.
    options : mapping
        For the data set, such as ``partition`` and ``beta``.
    personal : tuple of str
        Parameters whose names start so are never averaged, such as ``output.``.
    """

    data: str
    methods: tuple[str, ...] = ("local", "fedavg", "fedavg+ft")
    coalitions: str = "all"
    competition: str = ""
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    personal: tuple[str, ...] = ()
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in self.methods:
            base = name.removesuffix("+ft")
            if base not in METHODS or (name != base and base == "local"):
                known = [m + ft for m in METHODS for ft in ("", "+ft") if m != "local" or not ft]
                raise SettingsError(f"unknown method {name!r}; methods are {', '.join(known)}")
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise SettingsError("name at least one method, and none twice")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise SettingsError("name at least one seed, and none twice")


def compare(
    comparison: Comparison,
    out: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    observers: tuple[Observer, ...] = (),
) -> dict[str, Outcome]:
    """Run a comparison and write ``metrics.csv`` and ``summary.csv`` to a folder.

    Parameters
    ----------
    resume : bool
        Continue what an earlier call with the same comparison left in the folder.

    Returns
    -------
    dict of Outcome by method
    """
    out = Path(out)
    trials = {str(seed): _loaded(comparison, data_dir, seed) for seed in comparison.seeds}
    first = next(iter(trials.values()))
    settings = defaults_for(first, comparison.steps)
    options = model_options(first)
    federation = SimulatedFederation(
        trials, build_model(settings.model, 0, **options), device=comparison.device
    )
    initial = _initial(federation, settings, options, comparison.seeds)
    coalitions = _coalitions(comparison, trials)
    # Only now: a command that failed so far leaves nothing behind.
    _claim(out, comparison, trials, coalitions, resume)
    outcomes: dict[str, Outcome] = {}
    for name in sorted({method.removesuffix("+ft") for method in comparison.methods}):
        method: Method = (
            Local(settings.train)
            if name == "local"
            else METHODS[name](settings.train, personal=comparison.personal)
        )
        outcomes[name] = run(
            method,
            federation,
            coalitions,
            initial,
            rounds=settings.rounds,
            seed=0,
            evaluate_every=settings.evaluate_every,
            checkpoint=out / "checkpoint" / f"{name}.safetensors",
            observers=observers,
        )
        if f"{name}+ft" in comparison.methods:
            outcomes[f"{name}+ft"] = run(
                Local(settings=settings.tune, name=f"{name}+ft"),
                federation,
                coalitions,
                outcomes[name].best,
                rounds=settings.tune_rounds,
                seed=1,
                evaluate_every=settings.evaluate_every,
                may_keep_start=True,
                checkpoint=out / "checkpoint" / f"{name}+ft.safetensors",
                observers=observers,
            )
    wanted = {name: outcomes[name] for name in comparison.methods}
    summary = _summary(wanted, outcomes, federation)
    write_all(
        [
            (out / "metrics.csv", csv_bytes(METRIC_COLUMNS, _metric_rows(wanted))),
            (out / "summary.csv", csv_bytes(SUMMARY_COLUMNS, summary)),
        ]
    )
    return wanted


def _loaded(
    comparison: Comparison, data_dir: str | os.PathLike[str] | None, seed: int
) -> SiloedData:
    """Load a data set by name, or one's own silos from a folder with a schema.toml."""
    known = {info.name for info in available()}
    if comparison.data not in known and Path(comparison.data).is_dir():
        if comparison.options:
            raise SettingsError("one's own silos have no options; the schema.toml describes them")
        data = load_own(comparison.data, seed=seed)
    else:
        data = load(comparison.data, data_dir=data_dir, seed=seed, **comparison.options)
    if EVERYBODY in data.participants:
        raise SettingsError(f"no organisation can be called {EVERYBODY!r}, which stands for all")
    first = data.samples.inputs[0]
    if first.ndim == 2 and first.dtype.kind == "f" and np.isnan(first).any():
        raise SettingsError(
            f"{data.name}: its network cannot handle missing values; have them filled in"
        )
    return data


def _claim(
    out: Path,
    comparison: Comparison,
    trials: Mapping[str, SiloedData],
    coalitions: Sequence[Sequence[str]],
    resume: bool,
) -> None:
    """Take a folder for a comparison; one that holds another comparison is left alone.

    What is compared includes the samples and the coalitions themselves, not only the names of the
    files they came from: these may have changed since.
    """
    content = hashlib.sha256(repr(coalitions).encode())
    seen: set[int] = set()
    for trial in trials.values():
        for array in (*trial.samples.inputs, trial.samples.targets):
            if array.__array_interface__["data"][0] not in seen:
                seen.add(array.__array_interface__["data"][0])
                content.update(np.ascontiguousarray(array).data)
        for silo in trial.silos:
            content.update(
                np.concatenate([silo.train, [-1], silo.validation, [-1], silo.test]).data
            )
    about = {**asdict(comparison), "sha256": content.hexdigest(), "fedegoists": __version__}
    fingerprint = json.dumps(about, sort_keys=True, indent=1) + "\n"
    path = out / "comparison.json"
    if path.exists():
        if not resume:
            raise FileError(f"{out} holds results already; use --resume or another folder")
        if read_text(path) != fingerprint:
            raise FileError(
                f"{path}: written for other settings, data or coalitions than these; resume with "
                "what it names, or use another folder"
            )
    write_bytes(path, fingerprint.encode())


def _initial(
    federation: SimulatedFederation,
    settings: Defaults,
    options: Mapping[str, Any],
    seeds: Sequence[int],
) -> Tensor:
    """Return the same initial model for everybody in a trial, one row each."""
    models = {
        str(seed): federation.schema.flatten(
            dict(build_model(settings.model, seed, **options).named_parameters())
        )
        for seed in seeds
    }
    rows = [models[name.split("/", 1)[0]] for name in federation.participants]
    return torch.stack(rows).to(federation.device)


def _coalitions(comparison: Comparison, trials: Mapping[str, SiloedData]) -> list[tuple[str, ...]]:
    """Return the coalitions of all trials, with the names the federation uses."""
    result = []
    for label, trial in trials.items():
        names = trial.participants
        competition = _competition(comparison.competition, names, int(label))
        if comparison.coalitions == "all":
            groups: Sequence[Sequence[str]] = [names]
        elif comparison.coalitions == "none":
            groups = [[name] for name in names]
        elif comparison.coalitions == "cliques":
            everybody_helps = np.ones((len(names), len(names))) - np.eye(len(names))
            groups = form(BenefitGraph(everybody_helps, names), competition, "cliques").coalitions
        else:
            groups = read_coalitions(comparison.coalitions)
        groups = check_partition(groups, names)
        for group in groups:
            rivals = [p for p in competition.pairs if set(p) <= set(group)]
            if rivals:
                raise SettingsError(
                    f"{rivals[0][0]!r} and {rivals[0][1]!r} compete but share a coalition; "
                    "use --coalitions cliques"
                )
        result += [tuple(f"{label}/{name}" for name in group) for group in groups]
    return result


def _competition(text: str, names: Sequence[str], seed: int) -> CompetitionGraph:
    if not text:
        return CompetitionGraph([], names)
    try:
        probability = float(text)
    except ValueError:
        return CompetitionGraph.from_csv(text, names)
    if not 0 <= probability <= 1:
        raise SettingsError(f"the probability of competition is {text}; expected 0 to 1")
    draws = np.random.default_rng([seed, 2]).random((len(names), len(names)))
    rivals = np.triu(draws < probability, 1)
    return CompetitionGraph.from_numpy(rivals | rivals.T, names)


def _metric_rows(outcomes: Mapping[str, Outcome]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for method, outcome in outcomes.items():
        for row in outcome.rows:
            seed, participant = row.participant.split("/", 1)
            rows.append(
                (seed, method, participant, row.round, row.split, row.metric, repr(row.value))
            )
    return rows


def _summary(
    wanted: Mapping[str, Outcome],
    outcomes: Mapping[str, Outcome],
    federation: SimulatedFederation,
) -> list[tuple[object, ...]]:
    """Average over seeds the test metric of the step that validation chose, and what it cost."""
    rows: list[tuple[object, ...]] = []
    metric = federation.task.metric
    for method, outcome in wanted.items():
        chosen = {
            name: number
            for name, number, score in zip(
                federation.participants, outcome.best_round, outcome.best_score, strict=True
            )
            if score[0] > -math.inf  # who was never validated has no result
        }
        values: dict[str, dict[str, float]] = {
            name.split("/", 1)[1]: {} for name in federation.participants
        }
        for row in outcome.rows:
            if (row.split, row.metric, row.round) == (
                "test",
                metric,
                chosen.get(row.participant),
            ):
                seed, participant = row.participant.split("/", 1)
                values[participant][seed] = row.value
        rows += [
            (method, participant, metric, *_statistics(list(by_seed.values())))
            for participant, by_seed in values.items()
        ]
        # A mean over everybody only where everybody has a value, or it would not be comparable.
        complete = set.intersection(*(set(by_seed) for by_seed in values.values()))
        means = [
            statistics.fmean([by_seed[seed] for by_seed in values.values()])
            for seed in sorted(complete, key=int)
        ]
        rows.append((method, EVERYBODY, metric, *_statistics(means)))
        rows += _costs(method, outcomes, federation.participants)
    return rows


def _costs(
    method: str, outcomes: Mapping[str, Outcome], participants: Sequence[str]
) -> list[tuple[object, ...]]:
    """Return what a participant spent on average; fine-tuning counts on top of its method."""
    runs = [outcomes[name] for name in {method, method.removesuffix("+ft")}]
    rows: list[tuple[object, ...]] = []
    for kind in ("sample_passes", "bytes_sent", "bytes_received"):
        totals: dict[str, float] = dict.fromkeys(participants, 0.0)
        for outcome in runs:
            for name, amount in outcome.spent.get(kind, {}).items():
                totals[name] += amount
        rows.append((method, EVERYBODY, kind, *_statistics(list(totals.values()))))
    return rows


def _statistics(values: Sequence[float]) -> tuple[str, str, int]:
    """Return mean, sample standard deviation and number of the values that are defined."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "nan", "nan", 0
    spread = statistics.stdev(finite) if len(finite) > 1 else 0.0
    return f"{statistics.fmean(finite):.6g}", f"{spread:.6g}", len(finite)
