"""Small consortia whose benefit graph is known."""

import numpy as np
from torch import nn

from fedegoists.federation import SimulatedFederation
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets import load
from fedegoists.learning.models import build_model
from tests.silos import Line, simulated

FEATURES = 4


def regressions(
    coefficients: dict[str, list[float] | None],
    train: int = 80,
    validation: int = 60,
    noise: float = 0.5,
    seed: int = 0,
) -> SiloedData:
    """Linear tasks by name, 60 test samples each; without coefficients, the labels are random."""
    rng = np.random.default_rng(seed)
    size = train + validation + 60
    inputs, targets, silos = [], [], []
    for k, (name, own) in enumerate(coefficients.items()):
        x = rng.normal(size=(size, FEATURES))
        clean = x @ np.array(own) if own is not None else rng.normal(0, 2, size)
        inputs.append(x)
        targets.append(clean + rng.normal(0, noise, size))
        at = k * size + np.arange(size)
        silos.append(SiloIndices(name, *np.split(at, [train, train + validation])))
    samples = Samples(
        (np.concatenate(inputs).astype(np.float32),), np.concatenate(targets).astype(np.float32)
    )
    return SiloedData("linear", "regression", samples, tuple(silos), None, "linear tasks", ())


TASK = [1.0, -1.0, 0.5, 2.0]
OTHER = [-1.0, 1.0, 1.0, -2.0]


def federation(
    data: SiloedData | dict[str, SiloedData], model: nn.Module | None = None, **options
) -> SimulatedFederation:
    return simulated(data, model or Line(FEATURES), **options)


def synthetic(name: str, seeds: range) -> SimulatedFederation:
    """One of the paper's synthetic data sets, several seeds as repetitions."""
    data = {seed: load(name, seed=seed) for seed in seeds}
    return SimulatedFederation(data, build_model("mlp", 0, features=20))
