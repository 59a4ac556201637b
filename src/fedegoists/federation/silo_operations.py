"""The operations of a silo: pure functions of a network, one silo's data, a request and a seed.

`fedegoists.federation.stacked` has the same operations for many silos at once; both draw the same
batches and give the same numbers up to rounding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from fedegoists.federation.batches import (
    augmentation_draws,
    batch_at,
    batch_plan,
    share_of,
    stream_seed,
)
from fedegoists.federation.gradient_privacy import clipped_gradient, gaussian_noise
from fedegoists.federation.replies import (
    Described,
    Evaluated,
    Gradients,
    Reply,
    ReplyT,
    Split,
    Trained,
)
from fedegoists.federation.requests import (
    Describe,
    Evaluate,
    Gradient,
    LocalTerms,
    Request,
    Train,
    TrainSettings,
)
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

CHUNK = 1024
"""Samples a silo evaluates at once."""


@dataclass(frozen=True)
class Network:
    """The model that all silos train, its parameters and its task.

    The module is a workspace: training overwrites its parameters.
    """

    model: nn.Module
    schema: ParameterSchema
    task: Task


@dataclass(frozen=True)
class Silo:
    """One silo's view of the samples: a pool, which silos in one process share, and its positions.

    Images are kept as bytes, height × width × colour, and become numbers batch by batch.
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    splits: dict[Split, Tensor]
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


def carried_out(network: Network, silo: Silo, request: Request[ReplyT], seed: int) -> Reply:
    """Carry out a request that concerns a silo's data."""
    if isinstance(request, Train):
        return _trained(network, silo, request, seed)
    if isinstance(request, Gradient):
        return _gradients(network, silo, request, seed)
    if isinstance(request, Evaluate):
        return _evaluated(network, silo, request, seed)
    assert isinstance(request, Describe)
    return _described(silo, request)


def _trained(network: Network, silo: Silo, request: Train, seed: int) -> Trained:
    model, schema, settings = network.model, network.schema, request.settings
    parameters, terms = request.parameters, request.terms or LocalTerms()
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
    for step, rate in enumerate(learning_rates(settings, request.first_step)):
        inputs, targets = silo.batch(positions[plan[step]])
        if draws is not None:
            inputs = (augmented(inputs[0], draws[step]), *inputs[1:])
        loss = network.task.loss(model(*inputs), targets)
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
        parameters=schema.flatten(dict(zip(schema.names, tensors, strict=True))),
        loss=(total / settings.steps).item(),
        samples=len(positions),
        sample_passes=settings.steps * plan.shape[1],
        anchor=schema.flatten(added.anchor) if added.anchor and terms.anchor_rate else None,
        momentum=None
        if terms.momentum is None
        else schema.flatten(dict(zip(schema.names, speeds, strict=True))),
    )


class _AddedGradient:
    """The gradient of a method's local terms, tensor by tensor."""

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


def _gradients(network: Network, silo: Silo, request: Gradient, seed: int) -> Gradients:
    positions, step, clip = silo.splits[request.split], request.step, request.clip
    count = share_of(len(positions), request.share, request.batch_size)
    batch = torch.from_numpy(batch_at(len(positions), count, step, seed))
    inputs, targets = silo.batch(positions[batch.to(positions.device)])
    if request.augment:
        draws = augmentation_draws((len(batch),), stream_seed(seed, step)).to(positions.device)
        inputs = (augmented(inputs[0], draws), *inputs[1:])
    differentiate = (
        grad_and_value(loss_of(network))
        if clip is None
        else clipped_gradient(named_loss_of(network), network.schema, clip)
    )
    pairs = [differentiate(row, inputs, targets) for row in request.rows]
    gradients = torch.stack([gradient for gradient, _ in pairs])
    if clip is not None and request.noise:
        drawn = gaussian_noise(gradients.shape, request.noise * clip / len(batch), seed, step)
        gradients = gradients + drawn.to(gradients)
    return Gradients(
        losses=tuple(torch.stack([loss for _, loss in pairs]).tolist()),
        gradient=gradients.reshape(request.parameters.shape),
        samples=len(batch),
    )


def loss_of(network: Network, *, bf16: bool = False) -> Callable[..., Tensor]:
    """Return the loss as a function of a vector of parameters and a batch."""
    named = named_loss_of(network, bf16=bf16)

    def loss(
        vector: Tensor,
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        return named(network.schema.unflatten(vector), inputs, targets, weights)

    return loss


def named_loss_of(network: Network, *, bf16: bool = False) -> Callable[..., Tensor]:
    """Return the loss as a function of named parameters and a batch."""

    def loss(
        values: dict[str, Tensor],
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        with torch.autocast(targets.device.type, torch.bfloat16, enabled=bf16):
            outputs = functional_call(network.model, values, inputs)
        return network.task.loss(outputs.float(), targets, weights)

    return loss


@torch.no_grad()
def _evaluated(network: Network, silo: Silo, request: Evaluate, seed: int) -> Evaluated:
    positions = silo.splits[request.split]
    if request.share is not None:
        count = share_of(len(positions), request.share, None)
        drawn = torch.from_numpy(batch_at(len(positions), count, request.step, seed))
        positions = positions[drawn.to(positions.device)]
    losses, scores = [], []
    for row in request.rows:
        values = network.schema.unflatten(row)
        outputs, targets = [], []
        for part in torch.split(positions, CHUNK):
            inputs, target = silo.batch(part)
            outputs.append(functional_call(network.model, values, inputs))
            targets.append(target)
        output, target = torch.cat(outputs), torch.cat(targets)
        losses.append(network.task.loss(output, target).item())
        scores.append(network.task.score(output, target))
    return Evaluated(losses=tuple(losses), scores=tuple(scores), samples=len(positions))


def _described(silo: Silo, request: Describe) -> Described:
    rows = silo.splits["train"]
    labels = None
    if silo.classes is not None:
        counts = torch.bincount(silo.targets[rows].long(), minlength=silo.classes)
        labels = tuple(int(count) for count in counts)
    return Described(
        samples={split: len(positions) for split, positions in silo.splits.items()},
        labels=labels,
        direction=_direction(silo, rows) if request.direction else None,
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
"""The most steps of the power iteration; usually a few dozen are enough."""
