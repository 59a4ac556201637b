"""What a silo can be asked: pure functions of parameters, one silo's data, settings and a seed.

Each operation exists for one silo at a time and for many stacked; both draw the same batches and
give the same numbers up to rounding.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedegoists.errors import SettingsError
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

__all__ = [
    "Silo",
    "StackedTrainer",
    "TrainSettings",
    "batch_plan",
    "evaluate",
    "evaluate_stacked",
    "learning_rates",
    "loss_and_gradient",
    "loss_and_gradient_stacked",
    "stream_seed",
    "train",
]

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
        As usual; the momentum starts at zero unless it is handed on.
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


@dataclass(frozen=True)
class Silo:
    """One silo's view of the samples: a pool, which silos in one process share, and its positions.

    Images are kept as bytes, height × width × colour, and become numbers batch by batch.
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    splits: dict[str, Tensor]

    def batch(self, positions: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs ready for the model, and targets, for any shape of positions."""
        return tuple(_ready(values[positions]) for values in self.inputs), self.targets[positions]


def _ready(values: Tensor) -> Tensor:
    """Turn bytes of images into numbers around zero with the colours in front."""
    if values.dtype != torch.uint8:
        return values
    # A view with the colours in front of pixel-major memory is the fast "channels last" format.
    return values.float().div_(127.5).sub_(1.0).movedim(-1, -3)


def stream_seed(*parts: object) -> int:
    """Return a seed from words and numbers; the same everywhere, unlike Python's hash."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def batch_plan(size: int, batch_size: int, steps: int, seed: int) -> Tensor:
    """Return which of `size` samples each step uses: one pass after the other in a new order.

    Examples
    --------
    >>> batch_plan(5, 2, 3, seed=0).shape
    torch.Size([3, 2])
    """
    batch = min(batch_size, size)
    rng = np.random.default_rng(seed)
    passes = -(-batch * steps // size)
    order = np.concatenate([rng.permutation(size) for _ in range(passes)])
    return torch.from_numpy(order[: steps * batch].reshape(steps, batch))


def learning_rates(settings: TrainSettings, first_step: int) -> list[float]:
    """Return the learning rate of each step of a round that starts at a given step."""
    if settings.total_steps is None:
        return [settings.learning_rate] * settings.steps
    return [
        0.5 * settings.learning_rate * (1 + math.cos(math.pi * min(t / settings.total_steps, 1.0)))
        for t in range(first_step, first_step + settings.steps)
    ]


def _augmented(images: Tensor, draws: Tensor) -> Tensor:
    """Flip and shift a batch of images; `draws` holds a flip and two shifts for each."""
    flipped = torch.where(draws[:, 0, None, None, None] > 0, images.flip(-1), images)
    height, width = images.shape[-2:]
    padded = F.pad(flipped, (4, 4, 4, 4))
    rows = draws[:, 1, None] + torch.arange(height, device=images.device)
    columns = draws[:, 2, None] + torch.arange(width, device=images.device)
    picked = padded.gather(-2, rows[:, None, :, None].expand(-1, images.shape[1], -1, width + 8))
    return picked.gather(-1, columns[:, None, None, :].expand(-1, images.shape[1], height, -1))


def _augmentation_draws(shape: tuple[int, ...], seed: int) -> Tensor:
    rng = np.random.default_rng(stream_seed(seed, "augment"))
    flips = rng.integers(0, 2, (*shape, 1))
    return torch.from_numpy(np.concatenate([flips, rng.integers(0, 9, (*shape, 2))], -1))


# One silo at a time ----------------------------------------------------------------------------


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
    momentum: Tensor | None = None,
) -> tuple[Tensor, Tensor, float]:
    """Train from some parameters; return parameters, momentum, and the mean loss of the steps.

    The module is a workspace: its parameters are overwritten.
    """
    named = dict(model.named_parameters())
    tensors: list[Tensor] = [named[name] for name in schema.names]
    # In the memory format of the parameters, or every update would have to convert.
    speeds = [torch.zeros_like(tensor, requires_grad=False) for tensor in tensors]
    with torch.no_grad():
        for tensor, value in zip(tensors, schema.unflatten(parameters).values(), strict=True):
            tensor.copy_(value)
        if momentum is not None:
            for speed, value in zip(speeds, schema.unflatten(momentum).values(), strict=True):
                speed.copy_(value)
    positions = silo.splits["train"]
    plan = batch_plan(len(positions), settings.batch_size, settings.steps, seed).to(
        positions.device
    )
    draws = _draws(plan, settings, seed)
    total = torch.zeros((), device=parameters.device)
    for step, rate in enumerate(learning_rates(settings, first_step)):
        inputs, targets = silo.batch(positions[plan[step]])
        if draws is not None:
            inputs = (_augmented(inputs[0], draws[step]), *inputs[1:])
        loss = task.loss(model(*inputs), targets)
        gradients = torch.autograd.grad(loss, tensors)
        with torch.no_grad():
            total += loss
            if settings.weight_decay:
                gradients = torch._foreach_add(gradients, tensors, alpha=settings.weight_decay)
            torch._foreach_mul_(speeds, settings.momentum)
            torch._foreach_add_(speeds, gradients)
            torch._foreach_add_(tensors, speeds, alpha=-rate)
    return (
        schema.flatten(dict(zip(schema.names, tensors, strict=True))),
        schema.flatten(dict(zip(schema.names, speeds, strict=True))),
        (total / settings.steps).item(),
    )


def _draws(plan: Tensor, settings: TrainSettings, seed: int) -> Tensor | None:
    if not settings.augment:
        return None
    return _augmentation_draws(tuple(plan.shape), seed).to(plan.device)


def loss_and_gradient(
    model: nn.Module,
    schema: ParameterSchema,
    task: Task,
    parameters: Tensor,
    silo: Silo,
    *,
    split: str,
    batch_size: int | None,
    seed: int,
) -> tuple[float, Tensor]:
    """Return the loss and its gradient on one batch, or on the whole split."""
    inputs, targets = silo.batch(_one_batch(silo, split, batch_size, seed))
    gradient, loss = grad_and_value(_loss_of(model, schema, task))(parameters, inputs, targets)
    return float(loss.item()), gradient


def _one_batch(silo: Silo, split: str, batch_size: int | None, seed: int) -> Tensor:
    positions = silo.splits[split]
    if batch_size is None or batch_size >= len(positions):
        return positions
    return positions[batch_plan(len(positions), batch_size, 1, seed)[0].to(positions.device)]


def _loss_of(  # type: ignore[no-untyped-def]
    model: nn.Module, schema: ParameterSchema, task: Task, *, bf16: bool = False
):
    def loss(
        vector: Tensor,
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        with torch.autocast(vector.device.type, torch.bfloat16, enabled=bf16):
            outputs = functional_call(model, schema.unflatten(vector), inputs)
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
) -> tuple[float, float, int]:
    """Return mean loss, metric and number of samples on a split."""
    values = schema.unflatten(parameters)
    outputs, targets = [], []
    for positions in torch.split(silo.splits[split], CHUNK):
        inputs, target = silo.batch(positions)
        outputs.append(functional_call(model, values, inputs))
        targets.append(target)
    output, target = torch.cat(outputs), torch.cat(targets)
    return task.loss(output, target).item(), task.score(output, target), len(target)


# Many silos stacked ----------------------------------------------------------------------------


def _padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return rows of positions as a matrix, and the weight of each entry where lengths differ."""
    lengths = [len(row) for row in rows]
    if len(set(lengths)) == 1:
        return torch.stack(list(rows)), None
    matrix = torch.zeros(len(rows), max(lengths), dtype=torch.int64, device=rows[0].device)
    weights = torch.zeros(matrix.shape, device=rows[0].device)
    for k, row in enumerate(rows):
        # Padding repeats the silo's own first sample: with another silo's, a broken number there
        # would reach this one in spite of its weight of zero.
        matrix[k] = row[0]
        matrix[k, : len(row)] = row
        weights[k, : len(row)] = 1 / len(row)
    return matrix, weights


class StackedTrainer:
    """Trains all silos at once: one pass of `vmap` a step, replayed as a CUDA graph on a GPU.

    `bf16` computes activations with 16 bits; `graphs` can be switched off to see what they bring.

    Batches are gathered on the device from the one shared copy of the samples; nothing returns to
    the host before the round is over.
    """

    def __init__(
        self,
        model: nn.Module,
        schema: ParameterSchema,
        task: Task,
        silos: Sequence[Silo],
        *,
        bf16: bool = False,
        graphs: bool = True,
    ) -> None:
        self.graphs = graphs
        self.schema = schema
        self.silos = silos
        self.pool = silos[0]
        self.positions = [silo.splits["train"] for silo in silos]
        loss = _loss_of(model, schema, task, bf16=bf16)
        self.gradients = vmap(grad_and_value(loss), in_dims=(0, 0, 0, 0))
        self.unweighted = vmap(grad_and_value(loss), in_dims=(0, 0, 0))
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured: object = None

    def train(
        self,
        parameters: Tensor,
        settings: TrainSettings,
        *,
        seeds: Sequence[int],
        first_step: int = 0,
        momentum: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Train every silo from its row; return parameters, momentum and mean losses by row."""
        device = parameters.device
        rows = [
            batch_plan(len(own), settings.batch_size, settings.steps, seed)
            for own, seed in zip(self.positions, seeds, strict=True)
        ]
        width = max(row.shape[1] for row in rows)
        plan = torch.zeros(settings.steps, len(rows), width, dtype=torch.int64)
        weights = torch.zeros(len(rows), width)
        for k, row in enumerate(rows):
            own = self.positions[k].cpu()
            plan[:, k] = own[0]  # padding, as in `_padded`
            plan[:, k, : row.shape[1]] = own[row]
            weights[k, : row.shape[1]] = 1 / row.shape[1]
        even = all(row.shape[1] == width for row in rows)
        draws = None
        if settings.augment:
            draws = torch.zeros(settings.steps, len(rows), width, 3, dtype=torch.int64)
            for k, (row, seed) in enumerate(zip(rows, seeds, strict=True)):
                draws[:, k, : row.shape[1]] = _augmentation_draws(tuple(row.shape), seed)
            draws = draws.to(device)
        state = {
            "parameters": parameters.clone(),
            "momentum": torch.zeros_like(parameters) if momentum is None else momentum.clone(),
            "losses": torch.zeros(len(rows), device=device),
            "plan": plan.to(device),
            "rates": torch.tensor(learning_rates(settings, first_step), device=device),
            "step": torch.zeros(1, dtype=torch.int64, device=device),
        }
        if not even:
            state["weights"] = weights.to(device)
        if draws is not None:
            state["draws"] = draws
        if device.type == "cuda" and self.graphs:
            state = self._replayed(state, settings)
        else:
            for _ in range(settings.steps):
                self._step(state, settings)
        return state["parameters"], state["momentum"], state["losses"] / settings.steps

    def _step(self, state: dict[str, Tensor], settings: TrainSettings) -> None:
        """Take one step of every silo, in place."""
        parameters, momentum = state["parameters"], state["momentum"]
        inputs, targets = self.pool.batch(state["plan"].index_select(0, state["step"])[0])
        if "draws" in state:
            draws = state["draws"].index_select(0, state["step"])[0]
            images = inputs[0]
            flat = _augmented(images.flatten(0, 1), draws.flatten(0, 1))
            inputs = (flat.reshape(images.shape), *inputs[1:])
        if "weights" in state:
            gradients, losses = self.gradients(parameters, inputs, targets, state["weights"])
        else:
            gradients, losses = self.unweighted(parameters, inputs, targets)
        if settings.weight_decay:
            gradients = gradients + settings.weight_decay * parameters
        momentum.mul_(settings.momentum).add_(gradients)
        parameters.sub_(state["rates"].index_select(0, state["step"]) * momentum)
        state["losses"].add_(losses)
        state["step"].add_(1)

    def _replayed(self, state: dict[str, Tensor], settings: TrainSettings) -> dict[str, Tensor]:
        """Run the steps as replays of one captured step; capture it anew when shapes change."""
        key = (settings, tuple((name, tuple(value.shape)) for name, value in state.items()))
        if self._graph is None or self._captured != key:
            self._static = {name: value.clone() for name, value in state.items()}
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # warm up, as capturing demands
                for _ in range(3):
                    self._static["step"].zero_()
                    self._step(self._static, settings)
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            self._static["step"].zero_()
            with torch.cuda.graph(self._graph):
                self._step(self._static, settings)
            self._captured = key
        for name, value in state.items():
            self._static[name].copy_(value)
        for _ in range(settings.steps):
            self._graph.replay()
        return {name: value.clone() for name, value in self._static.items()}


def loss_and_gradient_stacked(
    trainer: StackedTrainer,
    parameters: Tensor,
    *,
    split: str,
    batch_size: int | None,
    seeds: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Return losses and gradients of all silos, each at its own row of parameters."""
    rows = [
        _one_batch(silo, split, batch_size, seed)
        for silo, seed in zip(trainer.silos, seeds, strict=True)
    ]
    positions, weights = _padded(rows)
    inputs, targets = trainer.pool.batch(positions)
    if weights is None:
        gradients, losses = trainer.unweighted(parameters, inputs, targets)
    else:
        gradients, losses = trainer.gradients(parameters, inputs, targets, weights)
    return losses, gradients


@torch.no_grad()
def evaluate_stacked(
    model: nn.Module,
    schema: ParameterSchema,
    task: Task,
    parameters: Tensor,
    silos: Sequence[Silo],
    split: str,
) -> list[tuple[float, float, int]]:
    """Return mean loss, metric and number of samples of every silo."""

    def outputs_of(vector: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
        out: Tensor = functional_call(model, schema.unflatten(vector), inputs)
        return out

    rows = [silo.splits[split] for silo in silos]
    positions, _ = _padded(rows)
    parts = []
    for chunk in torch.split(positions, max(CHUNK // 4, CHUNK * 10 // len(silos)), 1):
        inputs, _ = silos[0].batch(chunk)
        parts.append(vmap(outputs_of)(parameters, inputs))
    outputs = torch.cat(parts, 1)
    results = []
    for k, row in enumerate(rows):
        output, target = outputs[k, : len(row)], silos[k].targets[row]
        results.append((task.loss(output, target).item(), task.score(output, target), len(row)))
    return results
