"""All silos in this process, one at a time or stacked on one device."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError
from fedegoists.federation import operations
from fedegoists.federation.federation import Failure, Payload, Reply, accepted
from fedegoists.federation.operations import Silo, StackedTrainer, TrainSettings
from fedegoists.learning.data import SiloedData
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import TASKS, Task

__all__ = ["SimulatedFederation"]

Execution = Literal["auto", "looped", "stacked"]


class SimulatedFederation:
    """Silos simulated in this process; all of them share one copy of the samples.

    Parameters
    ----------
    data : SiloedData, or mapping of str to SiloedData
        The silos; or those of several trials, which run at once as one larger federation: the silo
        ``v1`` of the trial ``7`` is called ``7/v1``. Samples that trials share are kept once.
    model : torch.nn.Module
        The network all silos train; a workspace, its parameters do not matter.
    device : str
        ``cpu``, ``cuda`` or ``cuda:1``.
    execution : {"auto", "looped", "stacked"}
        One silo after the other, or all in one pass. ``auto`` stacks on a GPU, and on the CPU where
        the network is small: convolutions are faster one silo at a time there.
    bf16 : bool
        Whether stacked training computes activations with 16 bits: faster, less exact.
    graphs : bool
        Whether stacked training on a GPU replays CUDA graphs; without them it is slower.
    """

    def __init__(
        self,
        data: SiloedData | Mapping[str, SiloedData],
        model: nn.Module,
        *,
        device: str = "cpu",
        execution: Execution = "auto",
        bf16: bool = False,
        graphs: bool = True,
    ) -> None:
        trials = {"": data} if isinstance(data, SiloedData) else dict(data)
        if not trials:
            raise SettingsError("a federation needs at least one trial")
        self._device = _checked_device(device)
        self._task = TASKS[next(iter(trials.values())).task]
        self._schema = ParameterSchema.of(model)
        self._model = model.to(self._device)
        if any(isinstance(module, nn.Conv2d) for module in model.modules()):
            self._model = self._model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._silos = _silos(trials, self._device)
        self._stacked = execution == "stacked" or (
            execution == "auto" and (self._device.type == "cuda" or self._schema.size < 20_000)
        )
        self._bf16, self._graphs = bf16, graphs
        self._trainers: dict[tuple[str, ...], StackedTrainer] = {}

    @property
    def participants(self) -> tuple[str, ...]:
        """Who can be called."""
        return tuple(self._silos)

    @property
    def schema(self) -> ParameterSchema:
        """The parameters of the model."""
        return self._schema

    @property
    def task(self) -> Task:
        """What the silos train for."""
        return self._task

    @property
    def device(self) -> torch.device:
        """Where parameters live."""
        return self._device

    def call(
        self, operation: str, payloads: Mapping[str, Payload], timeout: float | None = None
    ) -> dict[str, Reply | Failure]:
        """Ask some participants, each with a payload of its own; see `Federation.call`."""
        known = {"train", "loss_and_gradient", "evaluate", "describe"}
        if operation not in known:
            raise SettingsError(f"unknown operation {operation!r}; operations are {sorted(known)}")
        for participant in payloads:
            if participant not in self._silos:
                raise SettingsError(f"{participant!r} is not in this federation")
        if not payloads:
            return {}
        if operation == "describe":
            return {participant: self._describe(participant) for participant in payloads}
        # Only calls that ask the same of everybody can be stacked.
        alike = len({_same_for_all(payload) for payload in payloads.values()}) == 1
        if self._stacked and alike and timeout is None:
            # The networks stacked on a CPU are small: threads would only wait for one another.
            with _threads(1 if self._device.type == "cpu" else torch.get_num_threads()):
                replies = self._call_stacked(operation, payloads)
        else:
            replies = self._call_looped(operation, payloads, timeout)
        return {
            participant: reply
            if isinstance(reply, Failure)
            else accepted(participant, reply, self._schema)
            for participant, reply in replies.items()
        }

    def _describe(self, participant: str) -> Reply:
        silo = self._silos[participant]
        reply: Reply = {f"{split}_samples": len(rows) for split, rows in silo.splits.items()}
        if self._task.name != "regression":
            labels = silo.targets[silo.splits["train"]].long()
            classes = int(silo.targets.max().item()) + 1
            reply["labels"] = torch.bincount(labels, minlength=classes).tolist()
        return reply

    def _call_looped(
        self, operation: str, payloads: Mapping[str, Payload], timeout: float | None
    ) -> dict[str, Reply | Failure]:
        replies: dict[str, Reply | Failure] = {}
        for participant, payload in payloads.items():
            began = time.perf_counter()
            try:
                replies[participant] = self._one(operation, participant, payload)
            except (RuntimeError, SettingsError) as error:
                replies[participant] = Failure(participant, "error", str(error).split("\n")[0])
            if timeout is not None and time.perf_counter() - began > timeout:
                replies[participant] = Failure(participant, "timeout", f"{timeout:g} s")
        return replies

    def _one(self, operation: str, participant: str, payload: Payload) -> Reply:
        silo = self._silos[participant]
        parameters = self._checked(payload["parameters"])
        seed = operations.stream_seed(payload.get("seed", 0), participant)
        common = (self._model, self._schema, self._task, parameters, silo)
        if operation == "train":
            momentum = payload.get("momentum")
            trained, speed, loss = operations.train(
                *common,
                payload["settings"],
                seed=seed,
                first_step=payload.get("first_step", 0),
                momentum=None if momentum is None else self._checked(momentum),
            )
            return _train_reply(trained, speed, loss, silo, payload["settings"], payload)
        if operation == "evaluate":
            loss, score, samples = operations.evaluate(*common, payload["split"])
            return {"loss": loss, "score": score, "samples": samples}
        loss, gradient = operations.loss_and_gradient(
            *common,
            split=payload.get("split", "train"),
            batch_size=payload.get("batch_size"),
            seed=seed,
        )
        return {"loss": loss, "gradient": gradient}

    def _call_stacked(
        self, operation: str, payloads: Mapping[str, Payload]
    ) -> dict[str, Reply | Failure]:
        names = tuple(payloads)
        first = next(iter(payloads.values()))
        parameters = torch.stack([self._checked(p["parameters"]) for p in payloads.values()])
        seeds = [operations.stream_seed(first.get("seed", 0), name) for name in names]
        silos = [self._silos[name] for name in names]
        if operation == "evaluate":
            results = operations.evaluate_stacked(
                self._model, self._schema, self._task, parameters, silos, first["split"]
            )
            return {
                name: {"loss": loss, "score": score, "samples": samples}
                for name, (loss, score, samples) in zip(names, results, strict=True)
            }
        if names not in self._trainers:
            self._trainers.clear()  # a captured graph holds memory
            self._trainers[names] = StackedTrainer(
                self._model,
                self._schema,
                self._task,
                silos,
                bf16=self._bf16,
                graphs=self._graphs,
            )
        trainer = self._trainers[names]
        if operation == "loss_and_gradient":
            losses, gradients = operations.loss_and_gradient_stacked(
                trainer,
                parameters,
                split=first.get("split", "train"),
                batch_size=first.get("batch_size"),
                seeds=seeds,
            )
            return {
                name: {"loss": loss, "gradient": gradient}
                for name, loss, gradient in zip(names, losses.tolist(), gradients, strict=True)
            }
        momentum = None
        if first.get("momentum") is not None:
            momentum = torch.stack([self._checked(p["momentum"]) for p in payloads.values()])
        trained, speeds, means = trainer.train(
            parameters,
            first["settings"],
            seeds=seeds,
            first_step=first.get("first_step", 0),
            momentum=momentum,
        )
        return {
            name: _train_reply(vector, speed, loss, silo, first["settings"], first)
            for name, vector, speed, loss, silo in zip(
                names, trained, speeds, means.tolist(), silos, strict=True
            )
        }

    def _checked(self, vector: Tensor) -> Tensor:
        if vector.shape != (self._schema.size,):
            raise SettingsError(
                f"{tuple(vector.shape)} parameters where ({self._schema.size},) are expected"
            )
        return vector.to(self._device, torch.float32)


def _train_reply(
    trained: Tensor,
    speed: Tensor,
    loss: float,
    silo: Silo,
    settings: TrainSettings,
    payload: Payload,
) -> Reply:
    size = len(silo.splits["train"])
    reply: Reply = {
        "parameters": trained,
        "loss": loss,
        "samples": size,
        "sample_passes": settings.steps * min(settings.batch_size, size),
    }
    if payload.get("keep_momentum"):
        reply["momentum"] = speed
    return reply


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _same_for_all(payload: Payload) -> tuple[Any, ...]:
    return tuple(
        (key, value is not None if isinstance(value, Tensor) else value)
        for key, value in sorted(payload.items())
        if key != "parameters"
    )


def _checked_device(device: str) -> torch.device:
    try:
        found = torch.device(device)
    except RuntimeError:
        raise SettingsError(f"unknown device {device!r}; use cpu, cuda or cuda:1") from None
    if found.type not in ("cpu", "cuda"):
        raise SettingsError(f"device {device!r} is not supported; use cpu, cuda or cuda:1")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError("there is no usable GPU here; use --device cpu")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise SettingsError(f"there are {torch.cuda.device_count()} GPUs here, none is {device!r}")
    return found


def _silos(trials: Mapping[str, SiloedData], device: torch.device) -> dict[str, Silo]:
    """Return all silos over one pool; samples that several trials share are kept once."""
    pools: dict[tuple[int, ...], int] = {}
    parts: list[SiloedData] = []
    offsets: list[int] = []
    total = 0
    for trial in trials.values():
        # Trials made from the same arrays have samples of their own around them.
        arrays = (*trial.samples.inputs, trial.samples.targets)
        key = tuple(array.__array_interface__["data"][0] for array in arrays)
        if key not in pools:
            pools[key] = total
            total += len(trial.samples.targets)
            parts.append(trial)
        offsets.append(pools[key])
    count = len(parts[0].samples.inputs)
    inputs = tuple(
        _tensor([part.samples.inputs[k] for part in parts]).to(device) for k in range(count)
    )
    targets = _tensor([part.samples.targets for part in parts])
    classes = parts[0].task == "classification"
    targets = (targets.long() if classes else targets.float()).to(device)
    silos = {}
    for (label, trial), offset in zip(trials.items(), offsets, strict=True):
        for silo in trial.silos:
            name = f"{label}/{silo.name}" if label else silo.name
            silos[name] = Silo(
                inputs,
                targets,
                {
                    split: torch.from_numpy(np.array(rows) + offset).to(device)
                    for split, rows in (
                        ("train", silo.train),
                        ("validation", silo.validation),
                        ("test", silo.test),
                    )
                },
            )
    return silos


def _tensor(arrays: list[np.ndarray[Any, Any]]) -> Tensor:
    """Return arrays one after the other as a tensor; a single one without a copy."""
    array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    if not array.flags.writeable:
        array = array.view()
    return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)
