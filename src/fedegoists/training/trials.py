"""Training with several methods over several trials: what comparisons and consortia share."""

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
from fedegoists.federation import Federation, SimulatedFederation
from fedegoists.learning.data import SiloedData
from fedegoists.learning.data_description import DataFacts
from fedegoists.learning.datasets import load
from fedegoists.learning.model_registry import AUTO, model_for, model_options
from fedegoists.learning.models import OUTPUT_LAYER, build_model
from fedegoists.methods import METHODS, Local, Method, Outcome, run
from fedegoists.methods.run import Observer, best_slot
from fedegoists.training.decisions import Decisions
from fedegoists.training.defaults import Defaults, defaults_for
from fedegoists.training.summary import EVERYBODY

__all__ = ["Trials", "Wanted", "data_digest", "load_trainable", "method_of", "train_methods"]


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
            base = name.removesuffix("+ft")
            if base not in METHODS or (name != base and base == "local"):
                known = [m + ft for m in METHODS for ft in ("", "+ft") if m != "local" or not ft]
                raise SettingsError(f"unknown method {name!r}; methods are {', '.join(known)}")
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise SettingsError("name at least one method, and none twice")
        for name, given in self.settings.items():
            if name not in self.bases:
                raise SettingsError(f"settings for {name!r}, which is not among the methods")
            declared = [setting.name for setting in METHODS[name].declared()]
            for key in given:
                if key not in declared:
                    raise SettingsError(
                        f"{name} has no setting {key!r}; it has {', '.join(declared) or 'none'}"
                    )
            METHODS[name](**given)  # checks the values
        if "" in (self.personal or ()):
            raise SettingsError("personal parameters need a name, such as output.")

    @property
    def bases(self) -> tuple[str, ...]:
        """The methods without fine-tuning, each once."""
        return tuple(dict.fromkeys(name.removesuffix("+ft") for name in self.methods))

    @property
    def with_bases(self) -> tuple[str, ...]:
        """Everything that is trained, in this order: what is only tuned from is trained too."""
        return tuple(
            name
            for base in self.bases
            for name in (base, f"{base}+ft")
            if name == base or name in self.methods
        )


@dataclass(frozen=True)
class Trials:
    """Several trials as one federation, with the initial model of each."""

    federation: Federation
    initial: Tensor
    defaults: Defaults
    options: Mapping[str, Any]

    @classmethod
    def simulated(
        cls,
        data: Mapping[int, SiloedData],
        *,
        steps: int | None,
        device: str,
        model: str = AUTO,
    ) -> "Trials":
        """Return the trials of some seeds; everybody in one starts with the same model."""
        first = next(iter(data.values()))
        federation = SimulatedFederation(
            {str(seed): one for seed, one in data.items()},
            build_model(model_for(first, model).name, 0, **model_options(first, model)),
            device=device,
        )
        return cls.over(federation, first, list(data), steps=steps, model=model)

    @classmethod
    def over(
        cls,
        federation: Federation,
        data: DataFacts,
        seeds: Iterable[int],
        *,
        steps: int | None,
        model: str = AUTO,
    ) -> "Trials":
        """Return trials over any federation whose participants are called ``seed/name``."""
        defaults, options = defaults_for(data, steps, model), model_options(data, model)
        models = {
            str(seed): federation.schema.flatten(
                dict(build_model(defaults.model, seed, **options).named_parameters())
            )
            for seed in seeds
        }
        rows = [models[name.split("/", 1)[0]] for name in federation.participants]
        return cls(federation, torch.stack(rows).to(federation.device), defaults, options)


IN_FINAL_COALITIONS = ("fedegoists", "egomix")
"""Methods that follow the benefit graph, and so train in the coalitions made from it."""


def method_of(name: str, wanted: Wanted, trials: Trials, decisions: Decisions) -> Method:
    """Return a method with its settings; Local alone has nothing that could leave a silo."""
    own: dict[str, Any] = dict(wanted.settings.get(name, {}))
    personal = wanted.personal
    if name == "fedegoists":
        own["benefit"] = decisions.edges
        if personal is None and trials.federation.task.name == "classification":
            personal = (OUTPUT_LAYER,)  # as published for CIFAR
    elif name == "egomix":
        own["benefit"] = decisions.benefit
    trials.federation.schema.mask(personal or ())  # reports a name that does not exist
    method: Method = METHODS[name](
        trials.defaults.train, () if name == "local" else personal or (), **own
    )
    return method


def train_methods(
    wanted: Wanted,
    trials: Trials,
    decisions: Decisions,
    checkpoint: Callable[[str], Path],
    observers: tuple[Observer, ...] = (),
) -> dict[str, Outcome]:
    """Train with all methods, those that are only fine-tuned included.

    Parameters
    ----------
    checkpoint : function from a method's name to a path
        What is there of an earlier run is continued.
    """
    defaults = trials.defaults
    alone: list[tuple[str, ...]] = [(name,) for name in trials.federation.participants]
    outcomes: dict[str, Outcome] = {}
    for name in wanted.bases:
        method = method_of(name, wanted, trials, decisions)
        coalitions = decisions.final if name in IN_FINAL_COALITIONS else decisions.baseline
        if name == "local":
            coalitions = alone  # so that what it gives can be kept whatever is decided
        outcomes[name] = run(
            method,
            trials.federation,
            coalitions,
            trials.initial,
            rounds=defaults.rounds,
            seed=0,
            evaluate_every=defaults.evaluate_every,
            checkpoint=checkpoint(name),
            observers=observers,
        )
        tuned = f"{name}+ft"
        if tuned in wanted.methods:
            outcomes[tuned] = run(
                Local(defaults.tune, method.personal, alias=tuned),
                trials.federation,
                alone,
                outcomes[name].best,
                rounds=defaults.tune_rounds,
                seed=1,
                may_keep_start=True,
                begin_with=best_slot(method),
                checkpoint=checkpoint(tuned),
                observers=observers,
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


def data_digest(*trials: SiloedData) -> str:
    """Return a hash of all samples and of who has which; the same files may have changed."""
    content = hashlib.sha256()
    seen: set[int] = set()
    for trial in trials:
        for array in (*trial.samples.inputs, trial.samples.targets):
            if array.__array_interface__["data"][0] not in seen:
                seen.add(array.__array_interface__["data"][0])
                content.update(np.ascontiguousarray(array).data)
        for silo in trial.silos:
            content.update(
                np.concatenate([silo.train, [-1], silo.validation, [-1], silo.test]).data
            )
            content.update(silo.name.encode())
    return content.hexdigest()
