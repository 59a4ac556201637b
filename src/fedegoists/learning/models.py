"""The networks of the paper; none has dropout or batch statistics."""

import math
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedegoists.learning.model_registry import Value, model_named

SLOPE = 0.2
"""Slope of the leaky rectifiers below zero, as in the authors' settings."""


class TabularMLP(nn.Module):
    """One hidden layer: the paper's network for synthetic data is 20 → 100 → 1."""

    def __init__(self, features: int, outputs: int = 1, hidden: int = 100) -> None:
        super().__init__()
        self.hidden = nn.Linear(features, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, outputs) for (batch, features)."""
        out: Tensor = self.output(F.leaky_relu(self.hidden(x), SLOPE))
        return out


class CifarCNN(nn.Module):
    """Two 5×5 convolutions with pooling and three linear layers.

    For CIFAR-10 the convolutions are linear and the rectifiers leaky (121,182 parameters); for
    CIFAR-100 there are plain rectifiers after the convolutions too.

    Parameters
    ----------
    classes : int
        The number of outputs.
    rectified : bool
        Whether there are rectifiers after the convolutions, and plain ones everywhere.
    """

    def __init__(self, classes: int, *, rectified: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5)
        self.fc1 = nn.Linear(800, 120)
        self.fc2 = nn.Linear(120, 84)
        self.output = nn.Linear(84, classes)
        self.rectified = rectified

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, classes) for images (batch, 3, 32, 32)."""
        for conv in (self.conv1, self.conv2):
            x = conv(x)
            if self.rectified:
                x = F.relu(x)
            x = F.max_pool2d(x, 2)
        x = x.flatten(1)
        for layer in (self.fc1, self.fc2):
            x = layer(x)
            x = F.relu(x) if self.rectified else F.leaky_relu(x, SLOPE)
        out: Tensor = self.output(x)
        return out


class PFLlibCNN(nn.Module):
    """The four-layer network that PFLlib trains on CIFAR: two 5×5 convolutions, two linear layers.

    Zhang et al., "PFLlib: A Beginner-Friendly and Comprehensive Personalized Federated Learning
    Library and Benchmark", 2023; 878,538 parameters with ten classes.

    Parameters
    ----------
    outputs : int
        The number of classes.
    """

    rectified = True

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 5)
        self.conv2 = nn.Conv2d(32, 64, 5)
        self.fc1 = nn.Linear(1600, 512)
        self.output = nn.Linear(512, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, outputs) for images (batch, 3, 32, 32)."""
        for conv in (self.conv1, self.conv2):
            x = F.max_pool2d(F.relu(conv(x)), 2)
        return self.output(F.relu(self.fc1(x.flatten(1))))  # type: ignore[no-any-return]


cifar10_cnn = partial(CifarCNN, 10, rectified=False)
cifar100_cnn = partial(CifarCNN, 100, rectified=True)


class IcuTransformer(nn.Module):
    """A transformer encoder over hourly features, with the static features as one more token.

    A missing value (NaN) counts as the mean, which is zero, and a second input per feature says
    whether it was measured. Attention runs over the hours of one stay.

    Parameters
    ----------
    hourly, static : int
        The numbers of features.
    hours : int
        The longest stay.
    """

    def __init__(
        self,
        hourly: int,
        static: int,
        hours: int,
        *,
        width: int = 128,
        heads: int = 8,
        layers: int = 2,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        self.hourly = nn.Linear(2 * hourly, width)
        self.static = nn.Linear(2 * static, width)
        self.position = nn.Parameter(torch.randn(hours + 1, width) * 0.02)
        self.layers = nn.ModuleList(_EncoderLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, outputs)

    def forward(self, hourly: Tensor, static: Tensor) -> Tensor:
        """Return (batch, outputs) for (batch, hours, features) and (batch, features)."""
        tokens = torch.cat(
            [self.static(with_mask(static)).unsqueeze(-2), self.hourly(with_mask(hourly))], -2
        )
        tokens = tokens + self.position[: tokens.shape[-2]]
        for layer in self.layers:
            tokens = layer(tokens)
        out: Tensor = self.output(self.norm(tokens[..., 0, :]))
        return out


class _EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, count, width = tokens.shape
        query, key, value = (
            part.reshape(batch, count, self.heads, -1).transpose(1, 2)
            for part in self.attend(self.norm1(tokens)).split(width, -1)
        )
        # Written out rather than fused, so that it can be stacked over silos.
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, count, width)
        tokens = tokens + self.project(mixed)
        out: Tensor = tokens + self.narrow(F.gelu(self.widen(self.norm2(tokens))))
        return out


def with_mask(values: Tensor) -> Tensor:
    """Return values with zeros in place of NaN, followed by the mask of measured values."""
    missing = values.isnan()
    zero = torch.zeros((), dtype=values.dtype, device=values.device)
    return torch.cat([torch.where(missing, zero, values), (~missing).to(values.dtype)], -1)


def build_model(name: str, seed: int, **options: Value) -> nn.Module:
    """Return a new network with parameters drawn from a seed; global randomness is left alone.

    Examples
    --------
    >>> model = build_model("cifar10-cnn", seed=0)
    >>> sum(p.numel() for p in model.parameters())
    121182
    """
    entry = model_named(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return entry.build(**options)
