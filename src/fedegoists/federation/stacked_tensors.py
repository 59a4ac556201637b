"""The tensors of many silos at once: padded plans, added terms, and steps captured on a GPU."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedegoists.federation.requests import LocalTerms
from fedegoists.federation.silo_operations import TINY, augmented, frozen_names
from fedegoists.learning.parameters import ParameterSchema


class CapturedStep:
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
        """Return what a state becomes when the function is applied to it some times."""
        self._copy(state)
        for _ in range(times):
            self._graph.replay()
        return {name: value.clone() for name, value in self._static.items()}


def add_terms(
    state: dict[str, Tensor], terms: Sequence[LocalTerms], steps: int, schema: ParameterSchema
) -> None:
    """Add the tensors of local terms of one kind to the state of training."""
    like = state["parameters"]

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]

    first = terms[0]
    if first.frozen or first.frozen_first:
        for prefixes in (first.frozen, first.frozen_first):
            frozen_names(schema, prefixes)  # refuses names that do not exist
        masks = [schema.mask(first.frozen), schema.mask(first.frozen_first)]
        state["frozen"] = torch.stack(masks).to(like.device)
        early = torch.tensor([int(step < first.first_steps) for step in range(steps)])
        state["early"] = early.to(like.device)
    if any(t.pace != 1 for t in terms):
        state["pace"] = column([t.pace for t in terms])
    if first.anchor is not None:
        state["anchor"] = torch.stack([t.anchor for t in terms if t.anchor is not None]).to(like)
        state["aside" if first.decoupled else "pull"] = column([t.pull for t in terms])
        if first.anchor_rate:
            state["outward"] = column([t.pull for t in terms])
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


def augmented_stack(inputs: tuple[Tensor, ...], draws: Tensor) -> tuple[Tensor, ...]:
    """Flip and shift the images of every silo."""
    images = inputs[0]
    flat = augmented(images.flatten(0, 1), draws.flatten(0, 1))
    return (flat.reshape(images.shape), *inputs[1:])


def cosine_gradient(rows: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient of cos(w, t) for each row w: t/|w||t| − cos · w/|w|².

    It is zero where w or t is zero, which has no direction.
    """
    length, other = (some.norm(dim=1, keepdim=True) for some in (rows, targets))
    product = (rows * targets).sum(1, keepdim=True)
    gradient = targets / (length * other) - product / (length**3 * other) * rows
    return torch.where((length > TINY) & (other > TINY), gradient, 0.0)


def descend_at_once(
    parameters: Tensor,
    momentum: Tensor,
    gradients: Tensor,
    rate: Tensor,
    keep: float,
    decay: float,
) -> None:
    """Take a step of gradient descent with momentum and weight decay, in place, in one kernel."""
    from fedegoists.learning.cnn_kernels import descend

    size, block = parameters.numel(), 1024
    given = (parameters, momentum, gradients.contiguous(), rate)
    descend[(-(-size // block),)](*given, size, keep, decay, BLOCK=block)


def divided(state: dict[str, Tensor], most: int) -> Iterator[dict[str, Tensor]]:
    """Yield parts of at most `most` rows."""
    for parts in zip(*(torch.split(value, most) for value in state.values()), strict=True):
        yield dict(zip(state, parts, strict=True))


def padded(plans: Sequence[npt.NDArray[np.int64]]) -> tuple[Tensor, Tensor | None]:
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


def padded_weights(weights: Sequence[Tensor | None], shape: torch.Size) -> Tensor:
    """Return the weights (steps × batch) of Poisson samples beside plans padded to a shape."""
    padded = torch.zeros(shape)
    for own, given in zip(padded, weights, strict=True):
        assert given is not None
        own[:, : given.shape[1]] = given
    return padded


def beside(
    chosen: Sequence[npt.NDArray[np.int64]], device: torch.device
) -> tuple[Tensor, list[int]]:
    """Return every silo's positions as a row, and how many of them are its own."""
    plan, _ = padded([own[None] for own in chosen])
    return plan[:, 0].to(device), [len(own) for own in chosen]
