"""Which engine trains a network: one silo after the other, or all silos at once."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from fedegoists.errors import SettingsError
from fedegoists.federation.silo_operations import Silo
from fedegoists.federation.stacked_network import StackedNetwork
from fedegoists.learning.network import Inputs, Network, flops_of
from fedegoists.learning.own_task import OwnTask
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

Execution = Literal["auto", "looped", "stacked"]

STACKED_FLOPS = 40_000
"""On the CPU, networks with less work for a sample are stacked: their time goes into starting
operations, of which stacking saves most. Larger ones are computed faster one at a time, most of all
convolutions, whose weights would differ within a batch."""

THREADS_FLOPS = 5_000_000
"""On the CPU, networks with less work for a sample are computed by one thread. A batch of 32 takes
so little time that several threads mostly wait for one another: on two cores that others use, too,
they took twenty times as long at 300 thousand operations, and as long at five million."""


@dataclass(frozen=True)
class ChosenEngine:
    """The engine of a simulation, and why it was chosen."""

    name: Literal["looped", "stacked"]
    reason: str
    beside: bool = False
    """Whether stacked models are computed side by side."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def examined_network(
    model: nn.Module,
    task: Task,
    silos: Iterable[Silo],
    device: torch.device,
    augment: Callable[..., Any] | None = None,
    schema: ParameterSchema | None = None,
) -> Network:
    """Return a module as a network on a device, tried on a few samples.

    Raises
    ------
    SettingsError
        If it fails on them, or its outputs do not fit the task.
    """
    model = model.to(device)
    if any(isinstance(module, nn.Conv2d) for module in model.modules()):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network = Network(model, task, augment, schema)
    silo = next(iter(silos))
    inputs, targets = _few(silo)
    network.examine(inputs, targets, silo.classes)
    if silo.weights is not None and isinstance(task, OwnTask):
        task.losses(_few_outputs(network, inputs), targets)  # refuses one number for a batch
    return network


def chosen_engine(
    network: Network | None, silos: Iterable[Silo], execution: Execution
) -> ChosenEngine:
    """Return the engine for a network, or for a trainer of another kind.

    Raises
    ------
    SettingsError
        If silos shall be stacked, and cannot be.
    """
    if execution == "looped":
        return ChosenEngine("looped", "as asked")
    silo = next(iter(silos))
    if network is None:
        obstacle = "only PyTorch modules can be stacked"
    elif execution == "auto" and not _on_gpu(silo):
        network.set_mode("evaluation")
        work = flops_of(network.model, _few(silo)[0])
        if work > STACKED_FLOPS:
            return ChosenEngine(
                "looped", f"{work:,} operations for a sample, faster one silo at a time on a CPU"
            )
        obstacle = _obstacle(network, silo)
    else:
        obstacle = _obstacle(network, silo)
    if not obstacle:
        why = "as asked" if execution == "stacked" else "the faster one"
        # On a GPU, models with convolutions are computed faster side by side.
        return ChosenEngine("stacked", why, _convolves(network) and _on_gpu(silo))
    if network is not None and _on_gpu(silo) and not _obstacle(network, silo, beside=True):
        return ChosenEngine("stacked", f"side by side, since vmap cannot ({obstacle})", True)
    if execution == "stacked":
        raise SettingsError(f"this model cannot be stacked ({obstacle}); use the engine looped")
    return ChosenEngine("looped", f"cannot be stacked ({obstacle})")


def threads_of(network: Network | None, silos: Iterable[Silo]) -> int:
    """Return with how many threads a network is computed, one silo after the other.

    It follows from the network alone, so that the same seed gives the same numbers.
    """
    silo = next(iter(silos))
    if network is None or _on_gpu(silo):
        return torch.get_num_threads()
    network.set_mode("evaluation")
    small = flops_of(network.model, _few(silo)[0]) < THREADS_FLOPS
    return 1 if small else torch.get_num_threads()


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Context manager in which PyTorch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _convolves(network: Network | None) -> bool:
    return network is not None and any(
        isinstance(module, _ConvNd) for module in network.model.modules()
    )


def _on_gpu(silo: Silo) -> bool:
    return silo.targets.device.type == "cuda"


def _few(silo: Silo) -> tuple[Inputs, torch.Tensor]:
    return silo.batch(silo.splits["train"].repeat(2)[:2])


def _few_outputs(network: Network, inputs: Inputs) -> torch.Tensor:
    network.set_mode("evaluation")
    with torch.no_grad():
        return network.shaped(network.model(*inputs))


def _obstacle(network: Network, silo: Silo, *, beside: bool = False) -> str:
    """Return why many models of a network cannot be computed at once; empty if they can."""
    if network.draws:
        return "it draws random numbers outside of dropout layers"
    if isinstance(network.task, OwnTask):
        inputs, targets = _few(silo)
        if not network.task.of_each_sample(_few_outputs(network, inputs), targets):
            return "its loss is one number for a batch"
    if network.untracked:
        return "batch normalisation without running statistics"
    if any(getattr(module, "sparse", False) for module in network.model.modules()):
        return "sparse gradients"
    models = StackedNetwork(network, silo, beside=beside)
    vector = network.schema.flatten(network.model.state_dict())
    rows = torch.stack([vector, vector])
    plan = silo.splits["train"].repeat(2)[:2].expand(2, 2)
    seeds = torch.zeros(2, dtype=torch.int64, device=rows.device) if network.seeds else None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")
            fixed = models.statistics(rows, plan[:, None])
            network.set_mode("training")
            models.gradients(rows, plan, None, None, None, seeds, clip=None)
            network.set_mode("evaluation")
            models.outputs(rows, plan, fixed)
    except Exception as error:  # it is the user's own code: anything can happen
        text = (str(error).strip() or type(error).__name__).split("\n")[0]
        return text[:200]
    return ""
