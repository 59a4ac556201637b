"""Methods side by side on one data set: several trials at once, metrics and a summary as CSV."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedegoists.errors import FileError, SettingsError
from fedegoists.experiments.decisions import Decisions, decide
from fedegoists.experiments.defaults import Defaults, defaults_for, model_options
from fedegoists.experiments.summary import EVERYBODY, metrics_csv, summary_csv
from fedegoists.federation import SimulatedFederation
from fedegoists.files import read_text, write_all, write_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets import load
from fedegoists.learning.models import OUTPUT_LAYER, build_model
from fedegoists.methods import METHODS, Local, Method, Outcome, run
from fedegoists.methods.run import Observer, best_slot
from fedegoists.version import __version__

__all__ = ["Comparison", "compare"]


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
        ``all`` together, ``none`` (everybody alone), a CSV file with ``participant,coalition``, or
        a way to form them: ``published``, ``stable`` or ``best`` for everybody, or ``cliques``, as
        the paper compares: FedEgoists in published coalitions, all others in cliques of independent
        participants.
    benefit : str
        A CSV file with ``source,target,weight``: who benefits whom, for forming coalitions and for
        FedEgoists. Without it everybody benefits everybody.
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
        Parameters whose names start so never leave a silo, such as ``output.``.
    method_settings : mapping of str to mapping
        Settings of methods other than their defaults, such as ``{"fedprox": {"mu": 0.1}}``.
    timeout : float, optional
        How many seconds a silo has to answer.
    """

    data: str
    methods: tuple[str, ...] = ("local", "fedavg", "fedavg+ft")
    coalitions: str = "all"
    benefit: str = ""
    competition: str = ""
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    personal: tuple[str, ...] = ()
    method_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    timeout: float | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in self.methods:
            base = name.removesuffix("+ft")
            if base not in METHODS or (name != base and base == "local"):
                known = [m + ft for m in METHODS for ft in ("", "+ft") if m != "local" or not ft]
                raise SettingsError(f"unknown method {name!r}; methods are {', '.join(known)}")
        for name, given in self.method_settings.items():
            bases = {method.removesuffix("+ft") for method in self.methods}
            if name not in bases:
                raise SettingsError(f"settings for {name!r}, which is not among the methods")
            declared = [setting.name for setting in METHODS[name].declared()]
            for key in given:
                if key not in declared:
                    raise SettingsError(
                        f"{name} has no setting {key!r}; it has {', '.join(declared) or 'none'}"
                    )
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
    decisions = decide(comparison, trials)
    # Only now: a command that failed so far leaves nothing behind.
    _claim(out, comparison, trials, decisions, resume)
    outcomes: dict[str, Outcome] = {}
    for name in dict.fromkeys(method.removesuffix("+ft") for method in comparison.methods):
        method = _method(name, comparison, settings, decisions, federation)
        coalitions = decisions.final if name == "fedegoists" else decisions.baseline
        outcomes[name] = run(
            method,
            federation,
            coalitions,
            initial,
            rounds=settings.rounds,
            seed=0,
            evaluate_every=settings.evaluate_every,
            timeout=comparison.timeout,
            checkpoint=out / "checkpoint" / f"{name}.safetensors",
            observers=observers,
        )
        if f"{name}+ft" in comparison.methods:
            outcomes[f"{name}+ft"] = run(
                Local(settings.tune, method.personal, alias=f"{name}+ft"),
                federation,
                coalitions,
                outcomes[name].best,
                rounds=settings.tune_rounds,
                seed=1,
                evaluate_every=settings.evaluate_every,
                may_keep_start=True,
                begin_with=best_slot(method),
                timeout=comparison.timeout,
                checkpoint=out / "checkpoint" / f"{name}+ft.safetensors",
                observers=observers,
            )
    wanted = {name: outcomes[name] for name in comparison.methods}
    write_all(
        [
            (out / "metrics.csv", metrics_csv(wanted, outcomes)),
            (out / "summary.csv", summary_csv(wanted, outcomes, federation)),
        ]
    )
    return wanted


def _method(
    name: str,
    comparison: Comparison,
    settings: Defaults,
    decisions: Decisions,
    federation: SimulatedFederation,
) -> Method:
    """Return a method with its settings; Local alone has nothing that could leave a silo."""
    own: dict[str, Any] = dict(comparison.method_settings.get(name, {}))
    personal = () if name == "local" else comparison.personal
    if name == "fedegoists":
        own["benefit"] = decisions.benefit
        if not personal and federation.task.name == "classification":
            personal = (OUTPUT_LAYER,)  # as published for CIFAR
    method: Method = METHODS[name](settings.train, personal, **own)
    return method


def _loaded(
    comparison: Comparison, data_dir: str | os.PathLike[str] | None, seed: int
) -> SiloedData:
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
    decisions: Decisions,
    resume: bool,
) -> None:
    """Take a folder for a comparison; one that holds another comparison is left alone.

    What is compared includes the samples and the coalitions themselves, not only the names of the
    files they came from: these may have changed since.
    """
    content = hashlib.sha256(repr(decisions).encode())
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
