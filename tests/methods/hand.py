"""A few silos with a linear model, small enough to work out rounds in numpy."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedegoists.federation import Personal, SimulatedFederation
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.methods import RoundReport, State
from tests.silos import Line, groups, named, simulated

Vector = npt.NDArray[np.float64]

START = np.array([0.3, -0.2, 0.1])
"""Two weights and a bias."""


@dataclass(frozen=True)
class Lines:
    """Silos called a, b, c, … with a linear model of two features, and their numbers in numpy.

    Attributes
    ----------
    data : SiloedData
        What a federation is made of.
    designs, targets : dict of str to list of arrays
        By split: each silo's samples, with a column of ones for the bias, and what to predict.
    """

    data: SiloedData
    designs: dict[str, list[Vector]]
    targets: dict[str, list[Vector]]

    @property
    def names(self) -> list[str]:
        return [silo.name for silo in self.data.silos]

    def loss(self, k: int, w: Vector, split: str = "train") -> float:
        """The mean loss of silo k: squared error, or the logistic loss of binary labels."""
        z, t = self.designs[split][k] @ w, self.targets[split][k]
        if self.data.task == "regression":
            return float(np.mean((z - t) ** 2))
        return float(np.mean(np.log1p(np.exp(z)) - t * z))

    def gradient(self, k: int, w: Vector, split: str = "train") -> Vector:
        """2 Xᵀ(Xw − y)/n, or Xᵀ(sigmoid(Xw) − y)/n for binary labels."""
        x, t = self.designs[split][k], self.targets[split][k]
        if self.data.task == "regression":
            return 2 * x.T @ (x @ w - t) / len(t)
        return x.T @ (1 / (1 + np.exp(-x @ w)) - t) / len(t)

    def federations(self, **options: Any) -> Iterator[SimulatedFederation]:
        """The same silos, looped and stacked."""
        for execution in ("looped", "stacked"):
            yield simulated(self.data, Line(2), execution=execution, **options)


class Chain(nn.Module):
    """y = o · (b · x) + c: a body of two weights, and a head of a weight and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 1, bias=False)
        self.output = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.body(x))


CHAIN_START = np.array([0.3, -0.2, 0.8, 0.1])
"""Two weights of the body, and weight and bias of the head."""
BODY, HEAD = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0])


def chain_gradient(silos: Lines, k: int, w: Vector, split: str = "train") -> Vector:
    """The gradient of the mean squared error of o (b · x) + c, by the chain rule."""
    x, t = silos.designs[split][k][:, :2], silos.targets[split][k]
    inner = x @ w[:2]
    error = 2 * (w[2] * inner + w[3] - t) / len(t)
    return np.array([*(w[2] * x.T @ error), error @ inner, error.sum()])


def chains(silos: Lines, **options: Any) -> Iterator[SimulatedFederation]:
    """The same silos with a chain as their model, looped and stacked."""
    for execution in ("looped", "stacked"):
        yield simulated(silos.data, Chain(), execution=execution, **options)


def lines(
    sizes: Sequence[int] = (6, 3),
    *,
    seed: int = 1,
    slopes: Sequence[Sequence[float]] | None = None,
    positives: Sequence[int] | None = None,
) -> Lines:
    """Draw silos with so many training samples, and three for validation and for test each.

    Targets are noise, or follow each silo's slopes; or they are labels, of which so many are 1.
    """
    rng = np.random.default_rng(seed)
    inputs, targets, parts, start = [], [], [], 0
    for k, size in enumerate(sizes):
        x = rng.normal(size=(size + 6, 2)).astype(np.float32)
        y = rng.normal(size=size + 6)
        if slopes is not None:
            y = x @ np.array(slopes[k]) + 0.1 * y
        if positives is not None:
            y = np.concatenate([np.arange(size) < positives[k], np.arange(6) % 2])
        rows = np.arange(start, start + size + 6)
        parts.append(SiloIndices("abcdef"[k], rows[:size], rows[size:-3], rows[-3:]))
        inputs.append(x)
        targets.append(y.astype(np.float32 if positives is None else np.int64))
        start += size + 6
    x, y = np.concatenate(inputs), np.concatenate(targets)
    design = np.hstack([x, np.ones((len(x), 1))]).astype(np.float64)
    task, classes = ("regression", None) if positives is None else ("binary", 2)
    data = SiloedData("line", task, Samples((x,), y), tuple(parts), classes, "", ())
    splits = ("train", "validation", "test")
    return Lines(
        data,
        {split: [design[getattr(part, split)] for part in parts] for split in splits},
        {split: [y[getattr(part, split)].astype(float) for part in parts] for split in splits},
    )


def descended(
    gradient: Callable[[Vector], Vector],
    w: Vector,
    rates: Sequence[float],
    momentum: float = 0.0,
) -> Vector:
    """Where descent with momentum ends after one step for each rate."""
    speed = np.zeros_like(w)
    for rate in rates:
        speed = momentum * speed + gradient(w)
        w = w - rate * speed
    return w


def starts(count: int, start: Vector = START) -> torch.Tensor:
    return torch.tensor(np.tile(start, (count, 1)), dtype=torch.float32)


def played(
    method: Any,
    silos: SimulatedFederation,
    coalitions: Sequence[Sequence[str]],
    rounds: int,
    start: Vector = START,
) -> tuple[list[State], list[Any]]:
    """The states before the first and after every round, and the rounds' reports by name."""
    coalitions = groups(coalitions)
    states = [method.start(silos, coalitions, starts(len(silos.participants), start), 5)]
    reports = []
    for _ in range(rounds):
        state, report = method.round(silos, coalitions, states[-1], 5)
        states.append(state)
        reports.append(by_name(report))
    return states, reports


def whole_models(method: Any, silos: SimulatedFederation, state: State) -> list[Vector]:
    """The models with the personal parameters that silos keep."""
    found = []
    for name, row in zip(silos.participants, state.parameters, strict=True):
        personal = Personal(prefixes=method.personal, slot=method.name)
        whole = silos.personal_model(name, row, personal)
        found.append((row if whole is None else whole).numpy())
    return found


def by_name(report: RoundReport) -> RoundReport:
    """A report whose amounts are by name."""
    kinds = ("losses", "sample_passes", "bytes_sent", "bytes_received")
    return replace(report, **{kind: named(dict(getattr(report, kind))) for kind in kinds})


def assert_close(actual: torch.Tensor, expected: Any) -> None:
    """Equal up to the rounding of 32 bits."""
    np.testing.assert_allclose(actual.numpy(), np.asarray(expected), rtol=2e-4, atol=2e-6)
