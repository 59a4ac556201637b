"""Training with several methods over several repetitions, for comparisons and consortia."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation import Repetition, SimulatedFederation, StatefulFederation
from fedegoists.federation.robust_sums import RobustSettings
from fedegoists.learning.data import SiloedData
from fedegoists.learning.data_description import DataFacts
from fedegoists.learning.datasets import load
from fedegoists.learning.model_registry import AUTO, model_named, model_options
from fedegoists.learning.own_models import initial_parameters, model_parts
from fedegoists.learning.safe_choice import ChooseBy
from fedegoists.methods.method import Coalitions, Method
from fedegoists.methods.method_registry import (
    METHOD_ENTRIES,
    TUNED,
    base_of,
    check_method,
    check_suits,
)
from fedegoists.methods.method_run import Callbacks, Observer, RunSettings, fine_tune, run
from fedegoists.methods.outcome import Outcome
from fedegoists.training.decisions import Decisions
from fedegoists.training.defaults import Defaults, defaults_for
from fedegoists.training.summary import EVERYBODY


@dataclass(frozen=True)
class Wanted:
    """Which methods to train with, and how.

    Attributes
    ----------
    methods : tuple of str
        Names of `fedegoists.methods.METHODS`; ``+ft`` behind one adds fine-tuning on own data.
    settings : mapping of str to mapping
        Settings of methods other than their defaults, such as ``{"fedprox": {"mu": 0.1}}``.
    personal : tuple of str, optional
        Parameters whose names start so never leave a silo, such as ``output.``. If left out, none
        do, but for FedEgoists in a classification, where output layers are personal as published.
    """

    methods: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    personal: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.methods:
            check_method(name)
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise SettingsError("name at least one method, and none twice")
        for name, given in self.settings.items():
            if name not in self.bases:
                raise SettingsError(f"settings for {name!r}, which is not among the methods")
            method = METHOD_ENTRIES[name].load()
            declared = [setting.name for setting in method.declared()]
            for key in given:
                if key in method.removed:
                    raise SettingsError(
                        f"{name}: the setting {key!r} was removed: {method.removed[key]}; leave it "
                        "out"
                    )
                if key not in declared:
                    raise SettingsError(
                        f"{name} has no setting {key!r}; it has {', '.join(declared) or 'none'}"
                    )
            method(**given)  # checks the values
        if "" in (self.personal or ()):
            raise SettingsError("personal parameters need a name, such as output.")

    @property
    def bases(self) -> tuple[str, ...]:
        """The methods without fine-tuning, each once."""
        return tuple(dict.fromkeys(map(base_of, self.methods)))

    @property
    def with_bases(self) -> tuple[str, ...]:
        """The methods to train, in order: the bases of fine-tuned methods included."""
        return tuple(
            name
            for base in self.bases
            for name in (base, f"{base}{TUNED}")
            if name == base or name in self.methods
        )


@dataclass(frozen=True)
class Repetitions:
    """Several repetitions as one federation, with the initial model of each.

    Attributes
    ----------
    warm : Tensor, optional
        Where methods that train together start instead: from models of an earlier run. They may
        hold something of others' data, so training alone does not start from them.
    """

    federation: StatefulFederation
    initial: Tensor
    defaults: Defaults
    options: Mapping[str, Any]
    warm: Tensor | None = None

    @classmethod
    def simulated(
        cls,
        data: Mapping[int, SiloedData],
        *,
        steps: int | None,
        device: str,
        bf16: bool = False,
        model: str = AUTO,
        methods: Iterable[str] = (),
    ) -> "Repetitions":
        """Return one repetition for each seed; its participants start with the same model.

        Raises
        ------
        SettingsError
            If one of the methods cannot train the model.
        """
        first = next(iter(data.values()))
        parts = model_parts(first, model)
        check_suits(methods, parts.kind)
        federation = SimulatedFederation(data, parts, device=device, bf16=bf16)
        return cls.over(federation, first, list(data), steps=steps, model=model)

    @classmethod
    def over(
        cls,
        federation: StatefulFederation,
        data: DataFacts,
        seeds: Iterable[int],
        *,
        steps: int | None,
        model: str = AUTO,
        changes: Mapping[str, Any] | None = None,
    ) -> "Repetitions":
        """Return the repetitions of any federation, one for each seed.

        Parameters
        ----------
        changes : mapping, optional
            Settings of local training other than the defaults, see `defaults_for`.
        """
        defaults = defaults_for(data, steps, model, changes)
        options = model_options(data, model)
        models: dict[Repetition | None, Tensor] = {
            seed: initial_parameters(defaults.model, seed, options, federation.schema)
            for seed in seeds
        }
        rows = [models[participant.repetition] for participant in federation.participants]
        return cls(federation, torch.stack(rows).to(federation.device), defaults, options)


def method_of(name: str, wanted: Wanted, repetitions: Repetitions, decisions: Decisions) -> Method:
    """Return a method with its settings, and with the benefit graph if it needs one."""
    entry = METHOD_ENTRIES[name]
    own = {**wanted.settings.get(name, {})}
    if entry.benefit != "unused":
        own["benefit"] = decisions.edges
    personal = wanted.personal
    if personal is None:
        classifies = repetitions.federation.task.name == "classification"
        layer = model_named(repetitions.defaults.model).output_layer
        wants = entry.splits or (entry.personal_output and classifies)
        personal = (layer,) if wants and layer else ()
    repetitions.federation.schema.mask(personal)  # reports a name that does not exist
    if entry.coalitions == "alone":
        personal = ()  # nothing could leave a silo
    defaults = repetitions.defaults
    train = defaults.train if entry.coalitions == "alone" else defaults.together
    if entry.plain_steps:
        train = defaults.plain(train)
    return entry.load()(train, personal, **own)


def train_methods(
    wanted: Wanted,
    repetitions: Repetitions,
    decisions: Decisions,
    checkpoint: Callable[[str], Path | None],
    observers: tuple[Observer, ...] = (),
    robust: RobustSettings | None = None,
    patience: int | None = None,
    choose_by: ChooseBy = "metric",
) -> dict[str, Outcome]:
    """Train with all methods, those that are only fine-tuned included.

    Parameters
    ----------
    checkpoint : function from a method's name to a path
        What is there of an earlier run is continued. Without a path nothing is written.
    robust : RobustSettings, optional
        What protects coalitions from one bad member; nothing if left out.
    patience : int, optional
        Evaluations without an improvement for anybody, after which a method stops.
    choose_by : {"metric", "loss"}
        What of their validation data decides which round's model participants keep.
    """
    federation, defaults = repetitions.federation, repetitions.defaults
    groups: dict[str, Coalitions] = {
        "baseline": decisions.baseline,
        "final": decisions.final,
        "alone": [(name,) for name in federation.participants],
    }
    settings = RunSettings(
        rounds=defaults.rounds,
        seed=0,
        evaluate_every=defaults.evaluate_every,
        robust=robust,
        patience=patience,
        choose_by=choose_by,
    )
    outcomes: dict[str, Outcome] = {}
    methods = {name: method_of(name, wanted, repetitions, decisions) for name in wanted.bases}
    for method in methods.values():
        method.check_model(federation)  # before others have trained it
    for name, method in methods.items():
        coalitions = groups[METHOD_ENTRIES[name].coalitions]
        callbacks = Callbacks(checkpoint(name), observers=observers)
        alone = METHOD_ENTRIES[name].coalitions == "alone"
        start = repetitions.initial if alone or repetitions.warm is None else repetitions.warm
        # The guard's bounds on norms are for parameters; trees are judged by their receivers.
        trees = METHOD_ENTRIES[name].models == ("trees",)
        own = settings.changed(robust=None) if trees else settings
        outcome = run(method, federation, coalitions, start, own, callbacks)
        outcomes[name] = outcome
        tuned = f"{name}{TUNED}"
        if tuned in wanted.methods:
            callbacks = Callbacks(checkpoint(tuned), observers=observers)
            rounds = defaults.tune_rounds
            outcomes[tuned] = fine_tune(
                method, federation, outcome, defaults.tune, rounds, callbacks, choose_by
            )
    return outcomes


def load_trainable(
    name: str, *, data_dir: str | os.PathLike[str] | None, seed: int, **options: Any
) -> SiloedData:
    """Load a data set, or one's own silos, and check that they can be trained on."""
    data = load(name, data_dir=data_dir, seed=seed, **options)
    if EVERYBODY in data.participants:
        raise SettingsError(f"no organisation can be called {EVERYBODY!r}, which stands for all")
    first = data.samples.inputs[0]
    if first.ndim == 2 and first.dtype.kind == "f" and np.isnan(first).any():
        raise SettingsError(
            f"{data.name}: its network cannot handle missing values; have them filled in"
        )
    return data


def data_digest(*repetitions: SiloedData) -> str:
    """Return a hash of all samples and of their division among silos.

    It tells whether files of the same names have changed.
    """
    content = hashlib.sha256()
    seen: set[int] = set()
    for repetition in repetitions:
        for array in repetition.samples.arrays:
            if array.__array_interface__["data"][0] not in seen:
                seen.add(array.__array_interface__["data"][0])
                content.update(np.ascontiguousarray(array).data)
        for silo in repetition.silos:
            content.update(
                np.concatenate([silo.train, [-1], silo.validation, [-1], silo.test]).data
            )
            content.update(silo.name.encode())
        # The same scaled numbers can stand for others.
        content.update(repr(repetition.target_scales).encode() if repetition.target_scales else b"")
    return content.hexdigest()
