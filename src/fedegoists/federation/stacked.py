"""The operations of many silos at once: one `vmap`, replayed as a CUDA graph on a GPU."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from fedegoists.federation.batches import (
    augmentation_draws,
    batch_at,
    batch_plan,
    share_of,
    stream_seed,
)
from fedegoists.federation.gradient_privacy import (
    clipped_gradient,
    gaussian_noise,
    samples_at_once,
)
from fedegoists.federation.replies import (
    LARGEST,
    Evaluated,
    Gradients,
    Problem,
    Reply,
    Split,
    Trained,
)
from fedegoists.federation.requests import (
    Evaluate,
    Gradient,
    LocalTerms,
    Request,
    Train,
    TrainSettings,
)
from fedegoists.federation.silo_operations import (
    TINY,
    Network,
    Silo,
    augmented,
    learning_rates,
    loss_of,
    named_loss_of,
)
from fedegoists.learning.models import CifarCNN
from fedegoists.learning.stacked_cnn import StackedCNN
from fedegoists.learning.task import Task


class StackedSilos:
    """A set of silos whose operations run at once.

    Batches are gathered on the device from the one shared copy of the samples; nothing returns to
    the host before a round is over.

    Parameters
    ----------
    bf16 : bool
        Whether to compute activations with 16 bits.
    graphs : bool
        Whether to replay CUDA graphs on a GPU.
    """

    def __init__(
        self, network: Network, silos: Sequence[Silo], *, bf16: bool = False, graphs: bool = True
    ) -> None:
        self._network, self._silos = network, silos
        self._graphs = graphs and silos[0].targets.device.type == "cuda"
        # Batches are drawn on the host, so positions are needed there.
        self._positions = {
            split: [silo.splits[split].cpu().numpy() for silo in silos] for split in silos[0].splits
        }
        known: dict[bytes, int] = {}
        self._same = [
            known.setdefault(b"".join(own.tobytes() for own in splits), k)
            for k, splits in enumerate(zip(*self._positions.values(), strict=True))
        ]
        loss = loss_of(network, bf16=bf16)
        self._weighted = vmap(grad_and_value(loss), in_dims=(0, 0, 0, 0))
        self._even = vmap(grad_and_value(loss), in_dims=(0, 0, 0))
        self._cnn: StackedCNN | None = None
        # Kernels made for this network are faster than `vmap`.
        if isinstance(network.model, CifarCNN) and StackedCNN.suits(silos[0].inputs[0]):
            self._cnn = StackedCNN(network.model, network.schema, bf16=bf16)
        # Kernels need a quarter of the memory.
        self._per_pass = PER_PASS if self._cnn is None else 4 * PER_PASS
        self._captured: dict[object, _Captured] = {}
        self._splits: dict[Split, tuple[Tensor, list[int]]] = {}

    def carried_out(
        self, requests: Sequence[Request[Reply]], seeds: Sequence[int]
    ) -> Sequence[Reply | Problem]:
        """Carry out one request of each silo; they are alike but for their tensors."""
        if isinstance(requests[0], Train):
            return self.train(cast("Sequence[Train]", requests), seeds)
        if isinstance(requests[0], Gradient):
            return self.gradients(cast("Sequence[Gradient]", requests), seeds)
        return self.evaluate(cast("Sequence[Evaluate]", requests), seeds)

    def train(self, requests: Sequence[Train], seeds: Sequence[int]) -> list[Trained | Problem]:
        """Train every silo from its parameters."""
        settings = requests[0].settings
        parameters = torch.stack([request.parameters for request in requests])
        device = parameters.device
        terms = [request.terms or NO_TERMS for request in requests]
        inner = terms[0].inner_steps
        # The same silo in other coalitions draws the same.
        first, which = self._distinct(seeds)
        plans = [
            own[batch_plan(len(own), settings.batch_size, settings.steps, seeds[k], inner)]
            for k in first
            for own in [self._positions["train"][k]]
        ]
        plan, weights = _padded(plans)
        rows = which.to(device)
        state = {
            "parameters": parameters,
            "momentum": torch.zeros_like(parameters),
            "losses": torch.zeros(len(seeds), device=device),
            "plan": plan.to(device).index_select(0, rows).transpose(0, 1).contiguous(),
            "rates": torch.tensor(learning_rates(settings, requests[0].first_step), device=device),
            "step": torch.zeros(1, dtype=torch.int64, device=device),
        }
        if weights is not None:
            state["weights"] = weights.to(device).index_select(0, rows)
        if settings.augment:
            draws = torch.zeros(*plan.shape, 3, dtype=torch.uint8)
            for drawn, k, own in zip(draws, first, plans, strict=True):
                drawn[:, : own.shape[1]] = augmentation_draws(own.shape, seeds[k])
            state["draws"] = draws.to(device).index_select(0, rows).transpose(0, 1).contiguous()
        _add_terms(state, terms, settings.steps)
        key = ("train", settings.steps, settings.momentum, settings.weight_decay)
        state = self._repeated(key, lambda s: self._step(s, settings), state, settings.steps)
        anchors = state["anchor"].unbind() if "anchor_rates" in state else None
        momenta = None if terms[0].momentum is None else state["momentum"].unbind()
        fine = (state["parameters"].abs() < LARGEST).all(1)
        # One transfer for both: each waits for the device.
        usable, losses = torch.stack([fine.float(), state["losses"] / settings.steps]).tolist()
        sizes = [len(own) for own in self._positions["train"]]
        return [
            Trained(
                parameters=own,
                loss=losses[k],
                samples=sizes[k],
                sample_passes=settings.steps * min(settings.batch_size, sizes[k]),
                anchor=None if anchors is None else anchors[k],
                momentum=None if momenta is None else momenta[k],
            )
            if usable[k] and math.isfinite(losses[k])
            else ("not finite", "parameters")
            for k, own in enumerate(state["parameters"].unbind())
        ]

    def _distinct(self, seeds: Sequence[int]) -> tuple[list[int], Tensor]:
        """Return the silos that differ in samples or seed, and which of these each silo equals."""
        found: dict[tuple[int, int], int] = {}
        which = [found.setdefault(key, len(found)) for key in zip(self._same, seeds, strict=True)]
        first = dict(zip(reversed(which), reversed(range(len(which))), strict=True))
        return [first[number] for number in range(len(found))], torch.tensor(which)

    def _step(self, state: dict[str, Tensor], settings: TrainSettings) -> None:
        """Take one step of every silo, in place."""
        parameters, momentum, step = state["parameters"], state["momentum"], state["step"]
        plan = state["plan"].index_select(0, step)[0]
        draws = state["draws"].index_select(0, step)[0] if "draws" in state else None
        gradients, losses = self._gradients(parameters, plan, draws, state.get("weights"))
        if settings.weight_decay:
            gradients = gradients + settings.weight_decay * parameters
        if "anchor" in state:
            gradients = gradients + state["pull"] * (parameters - state["anchor"])
        if "towards" in state:
            gradients = gradients - state["attraction"] * _cosine_gradient(
                parameters, state["towards"]
            )
        if "correction" in state:
            gradients = gradients + state["correction"]
        momentum.mul_(settings.momentum).add_(gradients)
        parameters.sub_(state["rates"].index_select(0, step) * momentum)
        if "anchor_rates" in state:
            rate = state["anchor_rates"].index_select(0, step)
            state["anchor"].sub_(rate * state["pull"] * (state["anchor"] - parameters))
        state["losses"].add_(losses)
        step.add_(1)

    def gradients(
        self, requests: Sequence[Gradient], seeds: Sequence[int]
    ) -> list[Gradients | Problem]:
        """Return losses and gradients at each model of each silo."""
        request = requests[0]
        parameters = [one.rows for one in requests]
        counts = [rows.shape[0] for rows in parameters]
        step, clip = request.step, request.clip
        first, which = self._distinct(seeds)
        batches = [
            own[batch_at(len(own), count, step, seeds[k])]
            for k in first
            for own in [self._positions[request.split][k]]
            for count in [share_of(len(own), request.share, request.batch_size)]
        ]
        plan, weights = _padded([batch[None] for batch in batches])
        device = parameters[0].device
        rows = which.repeat_interleave(torch.tensor(counts)).to(device)
        together = torch.cat(list(parameters))
        state = {
            "parameters": together,
            "plan": plan[:, 0].to(device)[rows],
            "gradients": torch.empty_like(together),
            "losses": torch.empty(len(together), device=device),
        }
        if weights is not None:
            state["weights"] = weights.to(device)[rows]
        if request.augment:
            draws = torch.zeros(*plan[:, 0].shape, 3, dtype=torch.uint8)
            for drawn, batch, k in zip(draws, batches, first, strict=True):
                own_seed = stream_seed(seeds[k], step)
                drawn[: len(batch)] = augmentation_draws(batch.shape, own_seed)
            state["draws"] = draws.to(device)[rows]
        kind = ("loss_and_gradient", clip)
        per_pass = self._per_pass
        if clip is not None:  # gradients of single samples are made without kernels
            per_pass = min(PER_PASS, samples_at_once(self._network.schema, device))
        most = max(1, per_pass // plan.shape[-1])
        passes = [
            self._repeated(kind, lambda s: self._measure(s, clip), part, 1)
            for part in _divided(state, most)
        ]
        if len(passes) > 1:
            state = {name: torch.cat([done[name] for done in passes]) for name in state}
        else:
            state = passes[0]
        gradients = state["gradients"]
        sizes = [len(batches[k]) for k in which.tolist()]
        if clip is not None and request.noise:
            drawn_noise = [
                gaussian_noise(
                    torch.Size((count, gradients.shape[1])), request.noise * clip / size, seed, step
                )
                for count, size, seed in zip(counts, sizes, seeds, strict=True)
            ]
            gradients = gradients + torch.cat(drawn_noise).to(gradients)
        usable = (gradients.abs() < LARGEST).all(1)
        # One transfer for both: each waits for the device.
        flags, numbers = map(iter, torch.stack([usable.float(), state["losses"]]).tolist())
        return [
            Gradients(losses=losses, gradient=rows.reshape(one.shape), samples=size)
            if all(fine) and all(map(math.isfinite, losses))
            else ("not finite", "gradient")
            for one, rows, size in zip(requests, torch.split(gradients, counts), sizes, strict=True)
            for fine, losses in [tuple(tuple(islice(x, len(rows))) for x in (flags, numbers))]
        ]

    def _measure(self, state: dict[str, Tensor], clip: float | None) -> None:
        given = (state["parameters"], state["plan"], state.get("draws"), state.get("weights"))
        gradients, losses = self._gradients(*given) if clip is None else self._clipped(*given, clip)
        state["gradients"].copy_(gradients)
        state["losses"].copy_(losses)

    def _batch(self, plan: Tensor, draws: Tensor | None) -> tuple[tuple[Tensor, ...], Tensor]:
        inputs, targets = self._silos[0].batch(plan)
        return (inputs if draws is None else _augmented(inputs, draws)), targets

    def _gradients(
        self, parameters: Tensor, plan: Tensor, draws: Tensor | None, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        pair: tuple[Tensor, Tensor]
        if self._cnn is not None:
            silo = self._silos[0]
            images = self._cnn.images(silo.inputs[0], plan, draws)
            return self._cnn.gradients(parameters, images, silo.targets[plan], weights)
        inputs, targets = self._batch(plan, draws)
        if weights is None:
            pair = self._even(parameters, inputs, targets)
        else:
            pair = self._weighted(parameters, inputs, targets, weights)
        return pair

    def _clipped(
        self,
        parameters: Tensor,
        plan: Tensor,
        draws: Tensor | None,
        weights: Tensor | None,
        clip: float,
    ) -> tuple[Tensor, Tensor]:
        inputs, targets = self._batch(plan, draws)
        function = clipped_gradient(named_loss_of(self._network), self._network.schema, clip)
        given = (parameters, inputs, targets) + (() if weights is None else (weights,))
        pair: tuple[Tensor, Tensor] = vmap(function, in_dims=(0,) * len(given))(*given)
        return pair

    def _outputs(self, parameters: Tensor, positions: Tensor) -> Tensor:
        """Return the outputs of each model for the samples at its own positions."""
        if self._cnn is not None:
            images = self._cnn.images(self._silos[0].inputs[0], positions)
            return self._cnn.outputs(parameters, images)

        def outputs_of(vector: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
            values = self._network.schema.unflatten(vector)
            out: Tensor = functional_call(self._network.model, values, inputs)
            return out

        outputs: Tensor = vmap(outputs_of)(parameters, self._silos[0].batch(positions)[0])
        return outputs

    @torch.no_grad()
    def evaluate(
        self, requests: Sequence[Evaluate], seeds: Sequence[int]
    ) -> list[Evaluated | Problem]:
        """Return mean losses and metrics of each model of each silo."""
        request = requests[0]
        counts = [one.rows.shape[0] for one in requests]
        together = torch.cat([one.rows for one in requests])
        if request.share is None:
            positions, sizes = self._whole(request.split, together.device)
        else:
            positions, sizes = _beside(
                [
                    own[batch_at(len(own), share_of(len(own), request.share, None), step, seed)]
                    for own, seed in zip(self._positions[request.split], seeds, strict=True)
                    for step in [request.step]
                ],
                together.device,
            )
        silo_of = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        silo_of = silo_of.to(together.device)
        models = []
        for rows in torch.split(torch.arange(len(together)), self._per_pass // EVALUATED):
            columns = torch.split(positions[silo_of[rows]], EVALUATED, 1)
            models.append(torch.cat([self._outputs(together[rows], some) for some in columns], 1))
        outputs, targets = torch.cat(models), self._silos[0].targets[positions]
        own_sizes = [sizes[k] for k, count in enumerate(counts) for _ in range(count)]
        task = self._network.task
        if task.name == "classification":
            scored = _accuracies(task, outputs, targets[silo_of], own_sizes)
        else:
            # This is little work in many small steps, which a GPU would be slow at.
            outputs, targets = outputs.cpu(), targets.cpu()[silo_of.cpu()]
            scored = [
                (task.loss(row, target).item(), task.score(row, target))
                for size, rows, wide in zip(own_sizes, outputs, targets, strict=True)
                for row, target in [(rows[:size], wide[:size])]
            ]
        numbers = iter(scored)
        replies: list[Evaluated | Problem] = []
        for one, count, size in zip(requests, counts, sizes, strict=True):
            losses, scores = zip(*islice(numbers, count), strict=True)
            reply = Evaluated(losses=losses, scores=scores, samples=size)
            replies.append(reply.problem(one.shape) or reply)
        return replies

    def _whole(self, split: Split, device: torch.device) -> tuple[Tensor, list[int]]:
        """Return the positions of a split, one row for each silo, and the silos' sizes."""
        if split not in self._splits:
            self._splits[split] = _beside(self._positions[split], device)
        return self._splits[split]

    def _repeated(
        self,
        kind: object,
        function: Callable[[dict[str, Tensor]], None],
        state: dict[str, Tensor],
        times: int,
    ) -> dict[str, Tensor]:
        """Apply a function that works in place some times; on a GPU by replaying a capture."""
        if not self._graphs:
            for _ in range(times):
                function(state)
            return state
        key = (kind, tuple((name, tuple(value.shape)) for name, value in state.items()))
        if key not in self._captured:
            if len(self._captured) >= MOST_CAPTURED:
                self._captured.pop(next(iter(self._captured)))
            self._captured[key] = _Captured(function, state)
        return self._captured[key].replay(state, times)


NO_TERMS = LocalTerms()

PER_PASS = 32_768
"""Samples, counted once for each model, that go through networks at once; a bound on memory."""

EVALUATED = 256
"""Samples of each silo among them in an evaluation."""

MOST_CAPTURED = 4
"""Captured steps hold memory; a method uses three at most."""


class _Captured:
    """A function on named tensors, in place, captured once and replayed on others like them."""

    def __init__(
        self, function: Callable[[dict[str, Tensor]], None], state: dict[str, Tensor]
    ) -> None:
        self._static = {name: value.clone() for name, value in state.items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # warm up, as capturing demands
            for _ in range(3):
                self._copy(state)
                function(self._static)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        self._copy(state)
        with torch.cuda.graph(self._graph):
            function(self._static)

    def _copy(self, state: dict[str, Tensor]) -> None:
        for name, value in state.items():
            self._static[name].copy_(value)

    def replay(self, state: dict[str, Tensor], times: int) -> dict[str, Tensor]:
        self._copy(state)
        for _ in range(times):
            self._graph.replay()
        return {name: value.clone() for name, value in self._static.items()}


def _add_terms(state: dict[str, Tensor], terms: Sequence[LocalTerms], steps: int) -> None:
    """Add the tensors of local terms of one kind to the state of training."""
    like = state["parameters"]

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]

    first = terms[0]
    if first.anchor is not None:
        state["anchor"] = torch.stack([t.anchor for t in terms if t.anchor is not None]).to(like)
        state["pull"] = column([t.pull for t in terms])
        if first.anchor_rate:
            rates = [
                first.anchor_rate * ((step + 1) % first.inner_steps == 0) for step in range(steps)
            ]
            state["anchor_rates"] = column(rates)[:, 0]
    if first.towards is not None:
        state["towards"] = torch.stack([t.towards for t in terms if t.towards is not None]).to(like)
        state["attraction"] = column([t.attraction for t in terms])
    if first.correction is not None:
        corrections = [t.correction for t in terms if t.correction is not None]
        state["correction"] = torch.stack(corrections).to(like)
    if first.momentum is not None:
        state["momentum"] = torch.stack([t.momentum for t in terms if t.momentum is not None])


def _augmented(inputs: tuple[Tensor, ...], draws: Tensor) -> tuple[Tensor, ...]:
    """Flip and shift the images of every silo."""
    images = inputs[0]
    flat = augmented(images.flatten(0, 1), draws.flatten(0, 1))
    return (flat.reshape(images.shape), *inputs[1:])


def _cosine_gradient(rows: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient of cos(w, t) for each row w: t/|w||t| − cos · w/|w|²."""
    length = rows.norm(dim=1, keepdim=True).clamp_min(TINY)
    other = targets.norm(dim=1, keepdim=True).clamp_min(TINY)
    product = (rows * targets).sum(1, keepdim=True)
    gradient: Tensor = targets / (length * other) - product / (length**3 * other) * rows
    return gradient


def _divided(state: dict[str, Tensor], most: int) -> Iterator[dict[str, Tensor]]:
    """Yield parts of at most `most` rows."""
    for parts in zip(*(torch.split(value, most) for value in state.values()), strict=True):
        yield dict(zip(state, parts, strict=True))


def _padded(plans: Sequence[npt.NDArray[np.int64]]) -> tuple[Tensor, Tensor | None]:
    """Return plans (steps × batch) as one tensor, and the weight of each entry of uneven batches.

    Padding repeats a silo's own first sample: with another silo's, a broken number there would
    reach this one in spite of its weight of zero.
    """
    widths = [plan.shape[1] for plan in plans]
    if len(set(widths)) == 1:
        return torch.from_numpy(np.stack(plans)), None
    positions = np.empty((len(plans), plans[0].shape[0], max(widths)), dtype=np.int64)
    weights = torch.zeros(len(plans), max(widths))
    for k, plan in enumerate(plans):
        positions[k] = plan[0, 0]
        positions[k, :, : widths[k]] = plan
        weights[k, : widths[k]] = 1 / widths[k]
    return torch.from_numpy(positions), weights


def _beside(
    chosen: Sequence[npt.NDArray[np.int64]], device: torch.device
) -> tuple[Tensor, list[int]]:
    """Return every silo's positions as a row, and how many of them are its own."""
    plan, _ = _padded([own[None] for own in chosen])
    return plan[:, 0].to(device), [len(own) for own in chosen]


def _accuracies(
    task: Task, outputs: Tensor, targets: Tensor, sizes: Sequence[int]
) -> list[tuple[float, float]]:
    """Return mean loss and accuracy for each row of models, all of them at once."""
    many = torch.tensor(sizes, device=outputs.device)[:, None]
    own = torch.arange(targets.shape[1], device=outputs.device) < many
    losses = task.losses(outputs.flatten(0, 1), targets.flatten()).reshape(targets.shape)
    right = (outputs.argmax(-1) == targets) & own
    sums = torch.stack([torch.where(own, losses, 0.0).double().sum(1), right.double().sum(1)])
    loss, score = (sums / many[:, 0]).tolist()
    return list(zip(loss, score, strict=True))
