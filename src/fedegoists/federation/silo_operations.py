"""What a silo can be asked: pure functions of parameters, one silo's data, settings and a seed.

`fedegoists.federation.stacked` has the same operations for many silos at once; both draw the same
batches and give the same numbers up to rounding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import (
    augmentation_draws,
    batch_at,
    batch_plan,
    share_of,
    stream_seed,
)
from fedegoists.federation.gradient_privacy import check_privacy, clipped_gradient, gaussian_noise
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

__all__ = [
    "OPERATIONS",
    "LocalTerms",
    "Silo",
    "TrainSettings",
    "Trained",
    "describe",
    "evaluate",
    "learning_rates",
    "loss_and_gradient",
    "train",
]

OPERATIONS = ("train", "loss_and_gradient", "evaluate", "describe", "keep")
"""All operations of a silo; ``keep`` is about its memory, `fedegoists.federation.silo_memory`."""

CHUNK = 1024
"""Samples a silo evaluates at once."""


@dataclass(frozen=True)
class TrainSettings:
    """How a silo trains locally: stochastic gradient descent with momentum.

    Attributes
    ----------
    steps : int
        Steps a round.
    batch_size : int
        Samples a step; all of them where a silo has fewer.
    learning_rate, momentum, weight_decay : float
        As usual; the momentum starts at zero in every round unless `LocalTerms` bring one.
    total_steps : int, optional
        If given, the learning rate falls to zero over so many steps along a cosine.
    augment : bool
        Whether training images are flipped and shifted by up to four pixels at random.
    """

    steps: int = 20
    batch_size: int = 64
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    total_steps: int | None = None
    augment: bool = False

    def __post_init__(self) -> None:
        for name, value, low in (
            ("steps", self.steps, 1),
            ("batch_size", self.batch_size, 1),
            ("learning_rate", self.learning_rate, 0),
            ("momentum", self.momentum, 0),
            ("weight_decay", self.weight_decay, 0),
        ):
            if not low <= value < math.inf:
                raise SettingsError(f"{name} is {value}; expected a number of at least {low}")
        for name, count in (
            ("steps", self.steps),
            ("batch_size", self.batch_size),
            ("total_steps", self.total_steps),
        ):
            if count is not None and (int(count) != count or count < 1):
                raise SettingsError(f"{name} is {count}; expected a whole number of at least 1")


@dataclass(frozen=True)
class LocalTerms:
    """What a method adds to a silo's own loss ℓ(w) while it trains.

    Attributes
    ----------
    anchor, pull : Tensor and float
        Add pull/2 ‖w − anchor‖².
    inner_steps, anchor_rate : int and float
        So many steps in a row use one batch; after them the anchor moves too:
        anchor ← anchor − anchor_rate · pull · (anchor − w).
    towards, attraction : Tensor and float
        Subtract attraction · cos(w, towards).
    correction : Tensor
        Add this to every gradient.
    momentum : Tensor
        Start with this momentum, and give back the one at the end.
    """

    anchor: Tensor | None = None
    pull: float = 0.0
    inner_steps: int = 1
    anchor_rate: float = 0.0
    towards: Tensor | None = None
    attraction: float = 0.0
    correction: Tensor | None = None
    momentum: Tensor | None = None

    @property
    def kind(self) -> tuple[object, ...]:
        """Which terms there are; silos whose terms have one kind can be stacked."""
        tensors = (self.anchor, self.towards, self.correction, self.momentum)
        return (*(tensor is None for tensor in tensors), self.inner_steps, self.anchor_rate)


@dataclass(frozen=True)
class Trained:
    """What training leaves: parameters, the anchor where it moved, and the steps' mean loss.

    And the momentum, where one was brought.
    """

    parameters: Tensor
    anchor: Tensor | None
    loss: float
    momentum: Tensor | None = None


@dataclass(frozen=True)
class Silo:
    """One silo's view of the samples: a pool, which silos in one process share, and its positions.

    Images are kept as bytes, height × width × colour, and become numbers batch by batch.
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    splits: dict[str, Tensor]
    classes: int | None = None

    def batch(self, positions: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs ready for the model, and targets, for any shape of positions."""
        return tuple(_ready(values[positions]) for values in self.inputs), self.targets[positions]


def _ready(values: Tensor) -> Tensor:
    """Turn bytes of images into numbers around zero with the colours in front."""
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


def augmented(images: Tensor, draws: Tensor) -> Tensor:
    """Flip and shift a batch of images; `draws` holds a flip and two shifts for each."""
    flipped = torch.where(draws[:, 0, None, None, None] > 0, images.flip(-1), images)
    height, width = images.shape[-2:]
    padded = F.pad(flipped, (4, 4, 4, 4))
    rows = draws[:, 1, None] + torch.arange(height, device=images.device)
    columns = draws[:, 2, None] + torch.arange(width, device=images.device)
    picked = padded.gather(-2, rows[:, None, :, None].expand(-1, images.shape[1], -1, width + 8))
    return picked.gather(-1, columns[:, None, None, :].expand(-1, images.shape[1], height, -1))


def train(
    model: nn.Module,
    schema: ParameterSchema,
    task: Task,
    parameters: Tensor,
    silo: Silo,
    settings: TrainSettings,
    *,
    seed: int,
    first_step: int = 0,
    terms: LocalTerms | None = None,
) -> Trained:
    """Train from some parameters on the silo's training data.

    The module is a workspace: its parameters are overwritten.
    """
    terms = terms or LocalTerms()
    named = dict(model.named_parameters())
    tensors: list[Tensor] = [named[name] for name in schema.names]
    # In the memory format of the parameters, or every update would have to convert.
    speeds = [torch.zeros_like(tensor, requires_grad=False) for tensor in tensors]
    with torch.no_grad():
        for tensor, value in zip(tensors, schema.unflatten(parameters).values(), strict=True):
            tensor.copy_(value)
        if terms.momentum is not None:
            views = schema.unflatten(terms.momentum).values()
            for speed, value in zip(speeds, views, strict=True):
                speed.copy_(value)
    added = _AddedGradient(terms, schema, tensors)
    positions = silo.splits["train"]
    plan = torch.from_numpy(
        batch_plan(len(positions), settings.batch_size, settings.steps, seed, terms.inner_steps)
    ).to(positions.device)
    draws = None
    if settings.augment:
        draws = augmentation_draws(tuple(plan.shape), seed).to(plan.device)
    total = torch.zeros((), device=parameters.device)
    for step, rate in enumerate(learning_rates(settings, first_step)):
        inputs, targets = silo.batch(positions[plan[step]])
        if draws is not None:
            inputs = (augmented(inputs[0], draws[step]), *inputs[1:])
        loss = task.loss(model(*inputs), targets)
        gradients = torch.autograd.grad(loss, tensors)
        with torch.no_grad():
            total += loss
            if settings.weight_decay:
                gradients = torch._foreach_add(gradients, tensors, alpha=settings.weight_decay)
            gradients = added.to(gradients, tensors)
            torch._foreach_mul_(speeds, settings.momentum)
            torch._foreach_add_(speeds, gradients)
            torch._foreach_add_(tensors, speeds, alpha=-rate)
            if terms.anchor_rate and (step + 1) % terms.inner_steps == 0:
                added.move_anchor(tensors)
    return Trained(
        schema.flatten(dict(zip(schema.names, tensors, strict=True))),
        schema.flatten(added.anchor) if added.anchor and terms.anchor_rate else None,
        (total / settings.steps).item(),
        None
        if terms.momentum is None
        else schema.flatten(dict(zip(schema.names, speeds, strict=True))),
    )


class _AddedGradient:
    """The gradient of a method's terms, tensor by tensor."""

    def __init__(self, terms: LocalTerms, schema: ParameterSchema, tensors: list[Tensor]) -> None:
        def like_parameters(vector: Tensor | None) -> dict[str, Tensor] | None:
            if vector is None:
                return None
            views = schema.unflatten(vector).items()
            return {
                name: torch.empty_like(tensor, requires_grad=False).copy_(view)
                for (name, view), tensor in zip(views, tensors, strict=True)
            }

        self.terms = terms
        self.anchor = like_parameters(terms.anchor)
        self.towards = like_parameters(terms.towards)
        self.correction = like_parameters(terms.correction)

    def to(self, gradients: tuple[Tensor, ...], tensors: list[Tensor]) -> tuple[Tensor, ...]:
        if self.anchor is not None:
            away = torch._foreach_sub(tensors, list(self.anchor.values()))
            gradients = torch._foreach_add(gradients, away, alpha=self.terms.pull)
        if self.towards is not None:
            target = list(self.towards.values())
            product = torch.stack(
                [(a * b).sum() for a, b in zip(tensors, target, strict=True)]
            ).sum()
            length, other = (
                torch.stack([(a * a).sum() for a in vectors]).sum().sqrt().clamp_min(TINY)
                for vectors in (tensors, target)
            )
            # The gradient of the cosine is b/|a||b| − cos · a/|a|².
            along = self.terms.attraction / (length * other)
            gradients = torch._foreach_sub(gradients, torch._foreach_mul(target, along))
            back = self.terms.attraction * product / (length**3 * other)
            gradients = torch._foreach_add(gradients, torch._foreach_mul(tensors, back))
        if self.correction is not None:
            gradients = torch._foreach_add(gradients, list(self.correction.values()))
        return gradients

    def move_anchor(self, tensors: list[Tensor]) -> None:
        assert self.anchor is not None
        anchors = list(self.anchor.values())
        away = torch._foreach_sub(anchors, tensors)
        torch._foreach_add_(anchors, away, alpha=-self.terms.anchor_rate * self.terms.pull)


TINY = 1e-12
"""Added to lengths that could be zero."""


def loss_and_gradient(
    model: nn.Module,
    schema: ParameterSchema,
    task: Task,
    parameters: Tensor,
    silo: Silo,
    *,
    split: str = "train",
    batch_size: int | None = None,
    share: float | None = None,
    step: int = 0,
    augment: bool = False,
    clip: float | None = None,
    noise: float = 0.0,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Return losses and gradients at each row of `parameters`, all on one batch of a split.

    Parameters
    ----------
    share : float, optional
        The batch as a part of the silo's samples, instead of `batch_size`.
    clip : float, optional
        Shorten each sample's gradient to this norm, and tell no loss.
    noise : float
        Add Gaussian noise of so many times what one sample can change, see
        `fedegoists.federation.gradient_privacy`.
    """
    check_privacy(clip, noise)
    positions = silo.splits[split]
    count = share_of(len(positions), share, batch_size)
    batch = torch.from_numpy(batch_at(len(positions), count, step, seed))
    inputs, targets = silo.batch(positions[batch.to(positions.device)])
    if augment:
        draws = augmentation_draws((len(batch),), stream_seed(seed, step)).to(positions.device)
        inputs = (augmented(inputs[0], draws), *inputs[1:])
    differentiate = (
        grad_and_value(loss_of(model, schema, task))
        if clip is None
        else clipped_gradient(named_loss_of(model, task), schema, clip)
    )
    pairs = [differentiate(row, inputs, targets) for row in parameters]
    losses, gradients = torch.stack([ell for _, ell in pairs]), torch.stack([g for g, _ in pairs])
    if clip is not None and noise:
        drawn = gaussian_noise(gradients.shape, noise * clip / len(batch), seed, step)
        gradients = gradients + drawn.to(gradients)
    return losses, gradients


def loss_of(  # type: ignore[no-untyped-def]
    model: nn.Module, schema: ParameterSchema, task: Task, *, bf16: bool = False
):
    """Return the loss as a function of a vector of parameters and a batch."""
    named = named_loss_of(model, task, bf16=bf16)

    def loss(
        vector: Tensor,
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        return named(schema.unflatten(vector), inputs, targets, weights)

    return loss


def named_loss_of(model: nn.Module, task: Task, *, bf16: bool = False) -> Callable[..., Tensor]:
    """Return the loss as a function of named parameters and a batch."""

    def loss(
        values: dict[str, Tensor],
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        with torch.autocast(targets.device.type, torch.bfloat16, enabled=bf16):
            outputs = functional_call(model, values, inputs)
        return task.loss(outputs.float(), targets, weights)

    return loss


@torch.no_grad()
def evaluate(
    model: nn.Module,
    schema: ParameterSchema,
    task: Task,
    parameters: Tensor,
    silo: Silo,
    split: str,
    *,
    share: float | None = None,
    step: int = 0,
    seed: int = 0,
) -> tuple[float, float, int]:
    """Return mean loss, metric and number of samples on a split, or on a share drawn from it."""
    values = schema.unflatten(parameters)
    positions = silo.splits[split]
    if share is not None:
        count = share_of(len(positions), share, None)
        drawn = torch.from_numpy(batch_at(len(positions), count, step, seed))
        positions = positions[drawn.to(positions.device)]
    outputs, targets = [], []
    for part in torch.split(positions, CHUNK):
        inputs, target = silo.batch(part)
        outputs.append(functional_call(model, values, inputs))
        targets.append(target)
    output, target = torch.cat(outputs), torch.cat(targets)
    return task.loss(output, target).item(), task.score(output, target), len(target)


@dataclass(frozen=True)
class Description:
    """What a silo says about its data.

    Attributes
    ----------
    samples : dict
        How many there are in each split.
    labels : list of int, optional
        How many training samples each class has; none in regression.
    direction : Tensor, optional
        The direction in which training samples, with their labels, vary most; only where asked.
    """

    samples: dict[str, int]
    labels: list[int] | None = None
    direction: Tensor | None = field(default=None, compare=False)


def describe(silo: Silo, *, direction: bool = False) -> Description:
    """Describe a silo's data in a few numbers."""
    rows = silo.splits["train"]
    labels = None
    if silo.classes is not None:
        counts = torch.bincount(silo.targets[rows].long(), minlength=silo.classes)
        labels = [int(count) for count in counts]
    return Description(
        {split: len(positions) for split, positions in silo.splits.items()},
        labels,
        _direction(silo, rows) if direction else None,
    )


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
"""Multiplications until the direction is taken as found; usually a few dozen are enough."""
