"""One silo's samples, and the batches, rates, weights and noise of its steps.

All of it follows from a request and a seed, so that silos that are trained one at a time and at
once (`fedegoists.federation.module_trainer` and `fedegoists.federation.stacked`) take the same
steps.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import (
    SecretSeed,
    batch_at,
    batch_plan,
    poisson_plan,
    share_of,
    stream_seed,
)
from fedegoists.federation.gradient_privacy import gaussian_noise
from fedegoists.federation.replies import Described, PriorAdded, Split
from fedegoists.federation.requests import (
    AddPrior,
    Describe,
    Evaluate,
    Gradient,
    Train,
    TrainSettings,
)
from fedegoists.learning.model_registry import OUTPUT_BIAS
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Silo:
    """One silo's view of the samples: a pool, which silos in one process share, and its positions.

    Images are kept as bytes or, with 16 bits, as short integers, height × width × colour, and
    become numbers batch by batch.
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    splits: dict[Split, Tensor]
    classes: int | None = None
    spread: float = 1.0
    """What numbers to predict were divided by; metrics are in their own units."""
    weights: Tensor | None = None
    """How much each sample of the pool counts in losses; 1 on average in each split."""
    groups: Indices | None = None
    """The group of each sample of the pool, such as its patient; None if each is its own."""

    def batch(self, positions: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs ready for the model, and targets, for any shape of positions."""
        return tuple(_ready(values[positions]) for values in self.inputs), self.targets[positions]

    def factors(self, positions: Tensor, by_class: Tensor | None = None) -> Tensor | None:
        """Return how much samples count in the loss, 1 on average; None if all count alike.

        Parameters
        ----------
        by_class : Tensor, optional
            The weights of classes: one row, or one for each row of positions.
        """
        own = None if self.weights is None else self.weights[positions]
        if by_class is None:
            return own
        classes = self.targets[positions].long()
        each = by_class.expand(*classes.shape[:-1], -1).gather(-1, classes)
        return each if own is None else each * own

    def groups_in(self, split: Split) -> Indices | None:
        """Return the groups of a split's samples; None if each is a group by itself."""
        if self.groups is None:
            return None
        own = self.groups[self.splits[split].cpu().numpy()]
        return None if len(np.unique(own)) == len(own) else own

    def units(self, split: Split) -> int:
        """Return the number of a split's samples or, where they have groups, of their groups."""
        groups = self.groups_in(split)
        return len(self.splits[split]) if groups is None else len(np.unique(groups))

    def part(
        self, split: Split, share: float, number: int, seed: int, *, single: bool = False
    ) -> Indices:
        """Return which of a split's samples are in a random part of them.

        Consecutive parts of a share of 1/n are disjoint, and so are their groups: a patient is in
        one of them as a whole.

        Parameters
        ----------
        single : bool
            Draw samples one by one, without regard to groups, so that their number is known. What
            noise hides, and what it costs, depends on that number.
        """
        groups = None if single else self.groups_in(split)
        if groups is None:
            size = len(self.splits[split])
            return batch_at(size, share_of(size, share, None), number, seed)
        names, own = np.unique(groups, return_inverse=True)
        drawn = batch_at(len(names), share_of(len(names), share, None), number, seed)
        return np.flatnonzero(np.isin(own, drawn))


def weighted(weights: Tensor | None, factors: Tensor | None) -> Tensor | None:
    """Return the weights of samples in the sum of a batch; none if the mean is meant.

    Parameters
    ----------
    weights : Tensor, optional
        Of samples and padding, without regard to what they count; by default 1 / batch size.
    """
    if factors is None:
        return weights
    return factors / factors.shape[-1] if weights is None else factors * weights


def training_part(silo: Silo, request: Train, seed: int) -> Silo:
    """Return a silo with the training samples that a request is about."""
    if request.share is None:
        return silo
    rows = silo.splits["train"]
    single = request.settings.clip is not None
    part = silo.part("train", request.share, request.part, seed, single=single)
    drawn = torch.from_numpy(part)
    return replace(silo, splits={**silo.splits, "train": rows[drawn.to(rows.device)]})


def evaluated_part(silo: Silo, request: Evaluate, seed: int) -> Indices:
    """Return which samples of its split a request with a share is about."""
    assert request.share is not None
    single = request.bound is not None
    return silo.part(request.split, request.share, request.step, seed, single=single)


def _ready(values: Tensor) -> Tensor:
    """Turn images into numbers around zero with the colours in front."""
    if values.dtype == torch.int16 and values.dim() > 3:
        return values.float().add_(0.5).div_(32767.5).movedim(-1, -3)
    if values.dtype != torch.uint8:
        return values
    # A view with the colours in front of pixel-major memory is the fast "channels last" format.
    return values.float().div_(127.5).sub_(1.0).movedim(-1, -3)


def learning_rates(settings: TrainSettings, first_step: int) -> list[float]:
    """Return the learning rate of each step of a round that starts at a given step."""
    if settings.total_steps is None:
        return [settings.learning_rate] * settings.steps
    return [
        0.5 * settings.learning_rate * (1 + math.cos(math.pi * min(t / settings.total_steps, 1.0)))
        for t in range(first_step, first_step + settings.steps)
    ]


def frozen_names(schema: ParameterSchema, prefixes: tuple[str, ...]) -> dict[str, bool]:
    """Return for each parameter whether it is frozen.

    Raises
    ------
    SettingsError
        If a prefix is of no parameter, or nothing is left to train.
    """
    schema.mask(prefixes)  # reports a name that does not exist
    found = {name: bool(prefixes) and name.startswith(prefixes) for name in schema.names}
    if all(found.values()):
        raise SettingsError("all parameters are frozen; leave some to be trained")
    return found


def augmented(images: Tensor, draws: Tensor) -> Tensor:
    """Flip and shift a batch of images; `draws` holds a flip and two shifts for each."""
    flipped = torch.where(draws[:, 0, None, None, None] > 0, images.flip(-1), images)
    height, width = images.shape[-2:]
    padded = F.pad(flipped, (4, 4, 4, 4))
    rows = draws[:, 1, None] + torch.arange(height, device=images.device)
    columns = draws[:, 2, None] + torch.arange(width, device=images.device)
    picked = padded.gather(-2, rows[:, None, :, None].expand(-1, images.shape[1], -1, width + 8))
    return picked.gather(-1, columns[:, None, None, :].expand(-1, images.shape[1], height, -1))


def class_weights(
    silo: Silo, wanted: Literal["balanced"] | tuple[float, ...] | None
) -> Tensor | None:
    """Return the weight of each class in a silo's loss; none where all count alike.

    Balanced classes weigh n / (C · n_c), with n_c of the silo's own n training samples in class c.

    Raises
    ------
    SettingsError
        If there are no classes, or not as many as weights.
    """
    if wanted is None:
        return None
    if silo.classes is None:
        raise SettingsError("class_weights are for classes, and this task has none; remove them")
    if wanted != "balanced":
        if len(wanted) != silo.classes:
            raise SettingsError(f"{len(wanted)} class weights for {silo.classes} classes")
        return torch.tensor(wanted, device=silo.targets.device)
    labels = silo.targets[silo.splits["train"]].long()
    counts = torch.bincount(labels, minlength=silo.classes).float()
    return len(labels) / (silo.classes * counts.clamp_min(1.0))


def uninformed_loss(
    silo: Silo, task: Task, wanted: Literal["balanced"] | tuple[float, ...] | None = None
) -> float:
    """Return the loss of outputs of zero on a silo's training samples, or on many of them.

    Classes weigh as in training, see `class_weights`, and so do samples.
    """
    positions = silo.splits["train"][:4096]
    targets = silo.targets[positions]
    columns = silo.classes or 1 if task.name == "classification" else 1
    outputs = torch.zeros(len(targets), columns, device=targets.device)
    factors = silo.factors(positions, class_weights(silo, wanted))
    return task.loss(outputs, targets, weighted(None, factors)).item()


def training_plan(
    size: int, settings: TrainSettings, seed: int, repeat: int
) -> tuple[Tensor, Tensor | None]:
    """Return the samples of each step, and their weights where batches differ in size."""
    given = (size, settings.batch_size, settings.steps, seed, repeat)
    if not settings.noise:
        return torch.from_numpy(batch_plan(*given)), None
    plan, weights = poisson_plan(*given)
    return torch.from_numpy(plan), torch.from_numpy(weights)


def step_noise(
    settings: TrainSettings,
    shape: torch.Size,
    size: int,
    seed: int,
    step: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Return the noise of one step of private training with `size` samples."""
    assert settings.clip is not None  # checked with the settings
    spread = settings.noise * settings.clip / min(settings.batch_size, size)
    return gaussian_noise(shape, spread, seed, step, device)


def pass_slices(count: int, passes: int) -> list[slice]:
    """Return the parts of a batch that go through a network one after the other.

    Examples
    --------
    >>> pass_slices(10, 3)
    [slice(0, 4, None), slice(4, 7, None), slice(7, 10, None)]
    """
    parts = np.array_split(np.arange(count), min(passes, count))
    return [slice(int(part[0]), int(part[-1]) + 1) for part in parts]


TINY = 1e-12
"""Added to lengths that could be zero."""


def gradient_batch(
    size: int, request: Gradient, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32] | None, int]:
    """Return the batch of a request, the weights of its samples, and the number to be told.

    Where noise is added the batch is a Poisson sample, and its own size is not told.
    """
    count = share_of(size, request.share, request.batch_size)
    if not request.noise:
        batch = batch_at(size, count, request.step, seed)
        return batch, None, len(batch)
    count = size if count is None else min(count, size)
    own = seed if isinstance(seed, SecretSeed) else stream_seed(seed, request.step)
    plan, weights = poisson_plan(size, count, 1, own)
    return plan[0], weights[0], count


def described(silo: Silo, request: Describe, seed: int) -> Described:
    """Return the description of a silo's data."""
    rows = silo.splits["train"]
    labels = None
    if silo.classes is not None:
        counts = torch.bincount(silo.targets[rows].long(), minlength=silo.classes).cpu()
        if request.noise:
            noisy = counts + gaussian_noise(counts.shape, request.noise, seed, 0)
            counts = noisy.round().clamp_min(0.0)
            counts[0] += float(not counts.any())  # counts that are all zero are none
        labels = tuple(int(count) for count in counts)
    return Described(
        samples={split: len(positions) for split, positions in silo.splits.items()},
        labels=labels,
        direction=_direction(silo, rows) if request.direction else None,
    )


def prior_added(silo: Silo, schema: ParameterSchema, request: AddPrior, seed: int) -> PriorAdded:
    """Return a model whose output bias has the logarithms of the silo's label shares added.

    With one more sample of each class, so that none has a share of zero.
    """
    labels = described(silo, Describe(noise=request.noise), seed).labels
    parameters = request.parameters
    if labels is None or OUTPUT_BIAS not in schema.names:
        return PriorAdded(parameters=parameters)
    places = schema.mask([OUTPUT_BIAS]).to(parameters.device)
    if len(labels) == int(places.sum()):
        counts = torch.tensor(labels, dtype=torch.float64)
        shares = (counts + 1) / (counts.sum() + len(labels))
        parameters = parameters.clone()
        parameters[places] += shares.log().to(parameters)
    return PriorAdded(parameters=parameters)


def _direction(silo: Silo, rows: Tensor) -> Tensor:
    """Return the top left singular vector of the matrix with a column [x; onehot(y)] per sample."""
    inputs, targets = silo.batch(rows)
    if silo.classes is None:
        labels = targets[:, None].float()
    else:
        labels = F.one_hot(targets.long(), silo.classes).float()
    columns = torch.cat([*(part.flatten(1) for part in inputs), labels], 1).nan_to_num()
    vector = torch.ones(columns.shape[1], device=columns.device)
    for _ in range(POWER_STEPS):
        following = columns.T @ (columns @ vector)
        following = following / following.norm().clamp_min(TINY)
        if (following - vector).norm() < 1e-6:
            break
        vector = following
    return following


POWER_STEPS = 500
"""The most steps of the power iteration; usually a few dozen are enough."""
