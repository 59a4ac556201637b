"""All silos in this process, one at a time or stacked on one device."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError
from fedegoists.federation import silo_operations as operations
from fedegoists.federation.batches import share_of, stream_seed
from fedegoists.federation.behaviours import Behaviour, misbehaved
from fedegoists.federation.payloads import (
    asked_alike,
    batch_options,
    evaluate_reply,
    shape_of,
    share_options,
    train_reply,
)
from fedegoists.federation.pool import checked_device, pooled_silos
from fedegoists.federation.seam import LARGEST, Failure, Payload, Reply, accepted
from fedegoists.federation.silo_memory import (
    SiloMemory,
    as_rows,
    fill_all,
    owner_of,
    step_all,
    withhold_all,
)
from fedegoists.federation.silo_operations import OPERATIONS
from fedegoists.federation.stacked import StackedSilos
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
        Whether stacked silos compute activations with 16 bits: faster, less exact.
    graphs : bool
        Whether stacked training on a GPU replays CUDA graphs; without them it is slower.
    behaviours : mapping of str to Behaviour
        Silos that answer in their own way, to see what faults and lies do to the others: late,
        never, with what is no number, or with something invented.
    drawn_as : mapping of str to str
        Trials that draw the same batches as another label would: the same data, to be compared in
        other coalitions.
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
        behaviours: Mapping[str, Behaviour] | None = None,
        drawn_as: Mapping[str, str] | None = None,
    ) -> None:
        trials = {"": data} if isinstance(data, SiloedData) else dict(data)
        if not trials:
            raise SettingsError("a federation needs at least one trial")
        self._device = checked_device(device)
        self._task = TASKS[next(iter(trials.values())).task]
        self._schema = ParameterSchema.of(model)
        self._model = model.to(self._device)
        if any(isinstance(module, nn.Conv2d) for module in model.modules()):
            self._model = self._model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._silos = pooled_silos(trials, self._device)
        self._stacked = execution == "stacked" or (
            execution == "auto" and (self._device.type == "cuda" or self._schema.size < 20_000)
        )
        self._bf16, self._graphs = bf16, graphs
        self._stacks: dict[tuple[str, ...], StackedSilos] = {}
        self._memories = {name: SiloMemory(self._schema) for name in self._silos}
        self._behaviours = dict(behaviours or {})
        self._drawn_as = dict(drawn_as or {})
        self._samples = {
            name: b"".join(hashlib.sha256(rows.cpu().numpy().tobytes()).digest() for rows in splits)
            for name, silo in (self._silos.items() if self._drawn_as else ())
            for splits in [silo.splits.values()]
        }
        unknown = self._behaviours.keys() - self._silos.keys()
        if unknown:
            raise SettingsError(f"{min(unknown)!r} is not in this federation")

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
        if operation not in OPERATIONS:
            raise SettingsError(f"unknown operation {operation!r}; operations are {OPERATIONS}")
        for participant in payloads:
            if participant not in self._silos:
                raise SettingsError(f"{participant!r} is not in this federation")
        replies: dict[str, Reply | Failure] = {}
        # Only silos that are asked the same can be stacked.
        alone = not self._stacked or operation in ("describe", "keep")
        groups: list[dict[str, Payload]] = []
        kinds: list[dict[str, object]] = []
        for participant, payload in payloads.items():
            try:
                prepared = self._prepared(operation, participant, payload)
            except SettingsError as error:
                replies[participant] = Failure(participant, "error", str(error))
                continue
            asked = {} if alone else asked_alike(prepared)
            if alone or asked not in kinds:
                kinds.append(asked)
                groups.append({})
            groups[-1 if alone else kinds.index(asked)][participant] = prepared
        for group in map(self._filled, groups):
            if not alone:
                # The networks stacked on a CPU are small: threads would only wait for one another.
                with _threads(1 if self._device.type == "cpu" else torch.get_num_threads()):
                    replies |= self._call_leaders(operation, group)
            else:
                replies |= {name: self._call_one(operation, name, group[name]) for name in group}
        shapes = {name: shape_of(payload) for name, payload in payloads.items()}
        replies |= misbehaved(self._behaviours, operation, replies, shapes, timeout)
        for group in groups:
            replies |= self._withheld(group, replies)
        return {name: replies[name] for name in payloads}

    def stream_name(self, participant: str) -> str:
        """Return the name by which numbers are drawn for a participant."""
        label, slash, name = participant.partition("/")
        return f"{self._drawn_as.get(label, label)}{slash}{name}"

    def memory(self, owner: str) -> dict[str, Tensor]:
        """Return what the silos keep to themselves in a method's slots."""
        return {
            f"{name}\n{slot}": value
            for name, memory in self._memories.items()
            for slot, value in memory.slots.items()
            if owner_of(slot) == owner
        }

    def restore(self, owner: str, memory: Mapping[str, Tensor]) -> None:
        """Give the silos back what they kept in a method's slots; what came later is gone."""
        for one in self._memories.values():
            one.empty(owner)
        for key, value in memory.items():
            name, slot = key.split("\n")
            self._memories[name].slots[slot] = value.to(self._device)

    def personal_model(
        self, participant: str, parameters: Tensor, personal: tuple[str, ...], slot: str
    ) -> Tensor:
        """Return a whole model: shared parameters, and the silo's own from its memory.

        Possible here because all silos are in this process; elsewhere only the silo can do it.
        """
        payload = {"personal": personal, "slot": slot}
        return self._memories[participant].fill(parameters, payload)

    def deliver(self, models: Mapping[str, Payload]) -> dict[str, Failure]:  # noqa: ARG002
        """Do nothing: whoever is in this process has its model in the run's folder."""
        return {}

    def _seed(self, payload: Payload, participant: str) -> int:
        return stream_seed(payload.get("seed", 0), self.stream_name(participant))

    def _filled(self, payloads: dict[str, Payload]) -> dict[str, Payload]:
        """Put silos' personal parameters in their places; the payloads are alike."""
        first = next(iter(payloads.values()))
        if not first.get("personal") or "parameters" not in first:
            return payloads
        filled = fill_all(
            [self._memories[name] for name in payloads],
            [payload["parameters"] for payload in payloads.values()],
            first,
        )
        return {
            name: {**payload, "parameters": parameters}
            for (name, payload), parameters in zip(payloads.items(), filled, strict=True)
        }

    def _withheld(
        self, payloads: Mapping[str, Payload], replies: Mapping[str, Reply | Failure]
    ) -> dict[str, Reply]:
        """Return the replies to payloads that are alike, without what silos keep to themselves."""
        first = next(iter(payloads.values()))
        given = {
            name: reply
            for name in (payloads if first.get("personal") else ())
            for reply in [replies[name]]
            if not isinstance(reply, Failure)
        }
        if not given:
            return {}
        shown = withhold_all([self._memories[name] for name in given], list(given.values()), first)
        return dict(zip(given, shown, strict=True))

    def _prepared(self, operation: str, participant: str, payload: Payload) -> Payload:
        """Check a payload's tensors."""
        if operation in ("describe", "keep"):
            return payload
        memory = self._memories[participant]
        parameters = self._checked(payload["parameters"])
        if parameters.ndim > 1 and operation == "train":
            raise SettingsError("train takes one vector of parameters")
        share, split = payload.get("share"), payload.get("split", "train")
        if share is not None and share * len(self._silos[participant].splits[split]) < 1:
            # All that there is would be in every share, which others take for different samples.
            size = len(self._silos[participant].splits[split])
            raise SettingsError(f"a share of {share:g} of {size} {split} samples is none")
        terms = payload.get("terms")
        if terms is None and parameters is payload["parameters"]:
            return payload
        prepared = {**payload, "parameters": parameters}
        if terms is not None:
            checked = {
                key: self._checked(getattr(terms, key))
                for key in ("anchor", "towards", "correction", "momentum")
                if getattr(terms, key) is not None
            }
            # What pulls at personal parameters is where they start.
            for key in checked.keys() - {"correction", "momentum"}:
                checked[key] = memory.fill(checked[key], payload)
            prepared["terms"] = replace(terms, **checked)
        return prepared

    def _checked(self, tensor: Tensor) -> Tensor:
        if tensor.ndim not in (1, 2) or tensor.shape[-1] != self._schema.size:
            raise SettingsError(
                f"{tuple(tensor.shape)} parameters where ({self._schema.size},) are expected"
            )
        return tensor.to(self._device, torch.float32)

    def _call_one(self, operation: str, participant: str, payload: Payload) -> Reply | Failure:
        try:
            reply = self._one(operation, participant, payload)
        except (RuntimeError, SettingsError) as error:
            return Failure(participant, "error", str(error).split("\n")[0])
        return accepted(operation, participant, reply, shape_of(payload))

    def _one(self, operation: str, participant: str, payload: Payload) -> Reply:
        silo = self._silos[participant]
        if operation == "describe":
            about = operations.describe(silo, direction=payload.get("direction", False))
            return {key: value for key, value in vars(about).items() if value is not None}
        if operation == "keep":
            self._memories[participant].keep(payload["slot"], payload.get("source"))
            return {}
        parameters = payload["parameters"]
        common = (self._model, self._schema, self._task, parameters, silo)
        if operation == "train":
            trained = operations.train(
                *common,
                payload["settings"],
                seed=self._seed(payload, participant),
                first_step=payload.get("first_step", 0),
                terms=payload.get("terms"),
            )
            return train_reply(trained, silo, payload["settings"])
        if operation == "evaluate":
            rows = parameters.reshape(-1, self._schema.size)
            return evaluate_reply(
                [
                    operations.evaluate(
                        self._model,
                        self._schema,
                        self._task,
                        row,
                        silo,
                        payload["split"],
                        **share_options(payload),
                        seed=self._seed(payload, participant),
                    )
                    for row in rows
                ],
                payload,
            )
        losses, gradients = operations.loss_and_gradient(
            self._model,
            self._schema,
            self._task,
            parameters.reshape(-1, self._schema.size),
            silo,
            **batch_options(payload),
            seed=self._seed(payload, participant),
        )
        self._step_personal({participant: payload}, [gradients])
        return self._gradient_reply(participant, payload, losses.tolist(), gradients)

    def _step_personal(self, payloads: Mapping[str, Payload], gradients: Sequence[Tensor]) -> None:
        """Let silos whose payloads are alike step with their personal parameters, if so asked."""
        first = next(iter(payloads.values()), None)
        if first and first.get("personal") and "personal_rate" in first:
            step_all(
                [self._memories[name] for name in payloads],
                # A silo's own model comes first.
                torch.stack([as_rows(p["parameters"])[0] for p in payloads.values()]),
                torch.stack([rows[0] for rows in gradients]),
                first,
            )

    def _gradient_reply(
        self, participant: str, payload: Payload, losses: list[float], gradients: Tensor
    ) -> Reply:
        parameters = payload["parameters"]
        size = self._silos[participant].splits[payload.get("split", "train")].shape[0]
        asked = share_of(size, payload.get("share"), payload.get("batch_size"))
        samples = min(asked or size, size)
        if parameters.ndim == 1:
            return {"loss": losses[0], "gradient": gradients[0], "samples": samples}
        return {"loss": losses, "gradient": gradients, "samples": samples}

    def _call_leaders(
        self, operation: str, payloads: Mapping[str, Payload]
    ) -> dict[str, Reply | Failure]:
        """Ask silos that would compute the very same only once, and give each the answer."""
        leaders = self._leaders(operation, payloads)
        asked = {name: payload for name, payload in payloads.items() if name not in leaders}
        replies = self._call_stacked(operation, asked)
        for name, leader in leaders.items():
            reply = replies[leader]
            if isinstance(reply, Failure):
                replies[name] = replace(reply, participant=name)
            else:
                # Only a silo that answers in its own way could change a tensor.
                replies[name] = deepcopy(reply) if self._behaviours else dict(reply)
        return replies

    def _leaders(self, operation: str, payloads: Mapping[str, Payload]) -> dict[str, str]:
        """Return who evaluates the same as another: the same samples, draws and parameters."""
        first = next(iter(payloads.values()))
        if not self._drawn_as or operation != "evaluate" or first["parameters"].ndim != 1:
            return {}
        known: dict[tuple[str, bytes], str] = {}
        leaders = {
            name: leader
            for name in payloads
            for leader in [known.setdefault((self.stream_name(name), self._samples[name]), name)]
            if leader != name and payloads[name]["parameters"].ndim == 1
        }
        if leaders:
            own, other = (
                torch.stack([payloads[name]["parameters"] for name in some]).view(torch.int32)
                for some in (leaders.keys(), leaders.values())
            )
            same = (own == other).all(1).tolist()
            leaders = dict(pair for pair, yes in zip(leaders.items(), same, strict=True) if yes)
        return leaders

    def _call_stacked(
        self, operation: str, payloads: Mapping[str, Payload]
    ) -> dict[str, Reply | Failure]:
        names = tuple(payloads)
        first = next(iter(payloads.values()))
        seeds = [self._seed(payload, name) for name, payload in payloads.items()]
        silos = [self._silos[name] for name in names]
        stack = self._stack(names)
        if operation == "loss_and_gradient":
            matrices = [as_rows(p["parameters"]) for p in payloads.values()]
            try:
                losses, gradients = stack.loss_and_gradient(
                    matrices, **batch_options(first), seeds=seeds
                )
            except SettingsError as error:
                return {name: Failure(name, "error", str(error)) for name in names}
            usable = (gradients.abs() < LARGEST).all(1)
            # One transfer for both: every one waits for the device.
            finite, numbers = torch.stack([usable.to(losses.dtype), losses]).tolist()
            replies: dict[str, Reply | Failure] = {}
            fine: dict[str, Tensor] = {}
            start = 0
            counts = [matrix.shape[0] for matrix in matrices]
            for name, rows, count in zip(
                names, torch.split(gradients, counts), counts, strict=True
            ):
                own = numbers[start : start + count]
                if all(finite[start : start + count]) and all(map(math.isfinite, own)):
                    fine[name] = rows
                    replies[name] = self._gradient_reply(name, payloads[name], own, rows)
                else:
                    replies[name] = Failure(name, "not finite", "gradient")
                start += count
            self._step_personal({name: payloads[name] for name in fine}, list(fine.values()))
            return replies
        if operation == "evaluate":
            matrices = [as_rows(p["parameters"]) for p in payloads.values()]
            results = stack.evaluate(matrices, first["split"], **share_options(first), seeds=seeds)
            return {
                name: accepted(operation, name, evaluate_reply(one, payload), shape_of(payload))
                for (name, payload), one in zip(payloads.items(), results, strict=True)
            }
        parameters = torch.stack([p["parameters"] for p in payloads.values()])
        trained = stack.train(
            parameters,
            first["settings"],
            seeds=seeds,
            first_step=first.get("first_step", 0),
            terms=[p["terms"] for p in payloads.values()] if first.get("terms") else (),
        )
        finite = (trained.parameters.abs() < LARGEST).all(1).tolist()
        return {
            name: train_reply(
                operations.Trained(
                    trained.parameters[k],
                    None if trained.anchor is None else trained.anchor[k],
                    loss,
                    None if trained.momentum is None else trained.momentum[k],
                ),
                silos[k],
                first["settings"],
            )
            if finite[k] and math.isfinite(loss)
            else Failure(name, "not finite", "parameters")
            for k, (name, loss) in enumerate(zip(names, trained.losses.tolist(), strict=True))
        }

    def _stack(self, names: tuple[str, ...]) -> StackedSilos:
        if names not in self._stacks:
            if len(self._stacks) >= MOST_STACKS:
                self._stacks.pop(next(iter(self._stacks)))
            self._stacks[names] = StackedSilos(
                self._model,
                self._schema,
                self._task,
                [self._silos[name] for name in names],
                bf16=self._bf16,
                graphs=self._graphs,
            )
        return self._stacks[names]


MOST_STACKS = 4
"""Different sets of silos that stay ready to run at once."""


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
