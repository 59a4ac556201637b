"""Modules as users write them, one for each thing that can go wrong, and silos to train them on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedegoists.learning.data import Samples, SiloedData, SiloIndices

FEATURES, CLASSES = 6, 3


class Tied(nn.Module):
    """One layer under two names, and one matrix in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES)
        self.second = self.first
        self.third = nn.Linear(FEATURES, FEATURES, bias=False)
        self.third.weight = self.first.weight
        self.output = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.output(self.third(self.second(torch.tanh(self.first(x)))))
        return out


class TwoInputs(nn.Module):
    """A sequence and a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Linear(2, 4)
        self.still = nn.Linear(FEATURES, 4)
        self.output = nn.Linear(8, CLASSES)

    def forward(self, steps: Tensor, still: Tensor) -> Tensor:
        both = torch.cat([self.steps(steps).mean(-2), self.still(still)], -1)
        out: Tensor = self.output(torch.relu(both))
        return out


class Adapter(nn.Module):
    """A frozen layer with batch normalisation, and a low-rank adapter that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU())
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(False)
        self.down, self.up = nn.Linear(FEATURES, 2, bias=False), nn.Linear(2, 8, bias=False)
        self.output = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.output(self.backbone(x) + self.up(self.down(x)))
        return out


class Recurrent(nn.Module):
    """An LSTM over a sequence; it cannot be stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 5, num_layers=2, dropout=0.3, batch_first=True)
        self.output = nn.Linear(5 + FEATURES, CLASSES)

    def forward(self, steps: Tensor, still: Tensor) -> Tensor:
        last = self.lstm(steps)[0][:, -1]
        out: Tensor = self.output(torch.cat([last, still], -1))
        return out


class Words(nn.Module):
    """An embedding with sparse gradients, of which a batch uses a part."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, sparse=True)
        self.unused = nn.Linear(3, 3)
        self.output = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        places = (x * 2).round().long().clamp(-3, 3) + 3
        out: Tensor = self.output(self.embedding(places).mean(-2))
        return out


class Counting(nn.Module):
    """A module that counts its own training batches in a buffer, and draws noise."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(FEATURES))
        self.output = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.centre.mul_(0.5).add_(0.5 * x.detach().mean(0))  # type: ignore[operator]
            x = x + 0.1 * torch.randn_like(x)
        out: Tensor = self.output(x - self.centre)
        return out


def residual() -> nn.Module:
    """A small residual network with batch normalisation."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
                nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x + self.body(x))

    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, CLASSES),
    )  # fmt: skip


MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(FEATURES, CLASSES),
    "dropout": lambda: nn.Sequential(
        nn.Linear(FEATURES, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, CLASSES)
    ),
    "batch norm": lambda: nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, CLASSES)
    ),
    "group norm": lambda: nn.Sequential(
        nn.Linear(FEATURES, 8), nn.GroupNorm(2, 8), nn.ReLU(), nn.Linear(8, CLASSES)
    ),
    "residual": residual,
    "tied": Tied,
    "two inputs": TwoInputs,
    "adapter": Adapter,
    "words": Words,
    "lstm": Recurrent,
    "counting": Counting,
}
LOOPED_ONLY = {
    "lstm": "random numbers",
    "counting": "random numbers",
    "words": "sparse gradients",
}
"""Modules that cannot be stacked, with a word of the reason."""
TWO_INPUTS = ("two inputs", "lstm")
IMAGES = ("residual",)


def module(name: str, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODULES[name]()


def own_silos(name: str, sizes: tuple[int, ...] = (70, 50, 90), seed: int = 0) -> SiloedData:
    """Samples that can be learned, of the kind that a module takes; silos differ in their data."""
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    targets = rng.integers(0, CLASSES, count)
    shift = np.repeat(np.arange(len(sizes)), sizes)
    table = rng.normal(size=(count, FEATURES)) + targets[:, None] + 0.5 * shift[:, None]
    inputs: tuple[Any, ...] = (table.astype(np.float32),)
    if name in TWO_INPUTS:
        inputs = (rng.normal(size=(count, 4, 2)).astype(np.float32), *inputs)
    if name in IMAGES:
        pixels = rng.normal(100 + 30 * targets[:, None, None, None], 20, (count, 8, 8, 3))
        inputs = (pixels.clip(0, 255).astype(np.uint8),)
    parts, start = [], 0
    for k, size in enumerate(sizes):
        own = np.arange(start, start + size)
        parts.append(SiloIndices(f"s{k}", own[:-20], own[-20:-10], own[-10:]))
        start += size
    samples = Samples(inputs, targets)
    return SiloedData(name, "classification", samples, tuple(parts), CLASSES, "", ())
