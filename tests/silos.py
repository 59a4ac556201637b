"""Small silos for tests of training."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.learning import model_registry
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods import Callbacks, Outcome, RunSettings
from fedegoists.methods import run as run_method
from fedegoists.methods.method_registry import methods_for

MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"features": 20},
    "cifar10-cnn": {},
    "cifar100-cnn": {},
    "icu-transformer": {"hourly": 6, "static": 3, "hours": 5},
}
SIZES = (110, 60, 90)
FOR_NETWORKS = methods_for("network", "regression")
"""Those for networks with any task."""


def silos(model: str, seed: int = 0, sizes: tuple[int, ...] = SIZES) -> SiloedData:
    """Random samples of the kind a model takes; the second silo has fewer than a batch."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    classes: int | None = None
    kind = model_registry.MODELS[model].inputs
    if kind == "table":
        inputs: tuple[np.ndarray, ...] = (
            rng.normal(size=(n, MODELS[model]["features"])).astype(np.float32),
        )
        task, targets = "regression", rng.normal(size=n).astype(np.float32)
    elif kind == "hourly":
        hourly = rng.normal(size=(n, MODELS[model]["hours"], MODELS[model]["hourly"])).astype(
            np.float32
        )
        hourly[rng.random(hourly.shape) < 0.4] = np.nan
        inputs = (hourly, rng.normal(size=(n, MODELS[model]["static"])).astype(np.float32))
        task, targets, classes = "binary", rng.integers(0, 2, n), 2
    else:
        inputs = (rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8),)
        classes = model_registry.MODELS[model].most_classes or 10
        task, targets = "classification", rng.integers(0, classes, n)
    parts, start = [], 0
    for k, size in enumerate(sizes):
        own = np.arange(start, start + size)
        parts.append(SiloIndices(f"s{k}", own[:-30], own[-30:-15], own[-15:]))
        start += size
    return SiloedData(model, task, Samples(inputs, targets), tuple(parts), classes, "random", ())


def participant(name: Any) -> Participant:
    """The participant of a name, where nothing is repeated."""
    return name if isinstance(name, Participant) else Participant(name)


def groups(coalitions: Iterable[Iterable[Any]]) -> list[tuple[Participant, ...]]:
    """Coalitions of names as coalitions of participants."""
    return [tuple(map(participant, group)) for group in coalitions]


def named(values: dict[Participant, Any]) -> dict[str, Any]:
    """Values by name, where nothing is repeated."""
    assert all(one.repetition is None for one in values)
    return {one.name: value for one, value in values.items()}


def simulated(data: Any, model: nn.Module, behaviours: Any = None, **options: Any) -> Any:
    """A federation some of whose silos, by name, behave in their own way."""
    by_participant = {participant(name): one for name, one in (behaviours or {}).items()}
    return SimulatedFederation(data, model, behaviours=by_participant, **options)


def federation(model: str, data: Any = None, **options: Any) -> SimulatedFederation:
    network = build_model(model, 0, **MODELS[model])
    return simulated(silos(model) if data is None else data, network, **options)


def run(
    method: Any,
    silos_: SimulatedFederation,
    coalitions: Iterable[Iterable[Any]],
    start: Tensor,
    *,
    checkpoint: Any = None,
    save_every: float = 0.0,
    stop: Any = None,
    **settings: Any,
) -> Outcome:
    """Run a method in coalitions of names."""
    callbacks = Callbacks(checkpoint, save_every, stop=stop)
    return run_method(method, silos_, groups(coalitions), start, RunSettings(**settings), callbacks)


def initial(model: str, count: int = 3, seed: int = 1) -> Tensor:
    module = build_model(model, seed, **MODELS[model])
    vector = ParameterSchema.of(module).flatten(dict(module.named_parameters()))
    return torch.stack([vector] * count)


class Line(nn.Module):
    """y = w · x + b, for computations by hand."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.output = nn.Linear(features, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(x)
