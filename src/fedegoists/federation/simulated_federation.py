"""All silos in this process, one at a time or stacked on one device."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, cast

import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.behaviours import Behaviour, misbehaved
from fedegoists.federation.participant import Participant, Repetition
from fedegoists.federation.pool import checked_device, pooled_silos
from fedegoists.federation.replies import Gradients, Kept, Reply, ReplyT
from fedegoists.federation.requests import (
    Deliver,
    Evaluate,
    Gradient,
    Keep,
    OfModels,
    Personal,
    Request,
    Train,
    check_size,
    owner_of,
)
from fedegoists.federation.seam import Failure, MemoryKey, accepted, check_known
from fedegoists.federation.silo_memory import SiloMemory, fill_all, step_all, withhold_all
from fedegoists.federation.silo_operations import Network, carried_out
from fedegoists.federation.stacked import StackedSilos
from fedegoists.learning.data import SiloedData
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import TASKS, Task

Execution = Literal["auto", "looped", "stacked"]
Repeated = (
    Mapping[int, SiloedData] | Mapping[str, SiloedData] | Mapping[Repetition | None, SiloedData]
)
Requests = dict[Participant, Request[Reply]]
Replies = dict[Participant, Reply | Failure]


class SimulatedFederation:
    """Silos simulated in this process; all of them share one copy of the samples.

    Parameters
    ----------
    data : SiloedData, or mapping of repetitions to SiloedData
        The silos; or those of several repetitions, which run at once as one larger federation.
        Samples that repetitions share are kept once.
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
    behaviours : mapping of Participant to Behaviour
        Silos that misbehave, to see how faults and lies affect the others: late or silent silos,
        replies that are not finite, or invented ones.
    drawn_as : mapping of str to int
        Repetitions that draw the same batches as another one would: the same data, to be compared
        in other coalitions.
    """

    def __init__(
        self,
        data: SiloedData | Repeated,
        model: nn.Module,
        *,
        device: str = "cpu",
        execution: Execution = "auto",
        bf16: bool = False,
        graphs: bool = True,
        behaviours: Mapping[Participant, Behaviour] | None = None,
        drawn_as: Mapping[str, int] | None = None,
    ) -> None:
        repetitions: dict[Repetition | None, SiloedData] = (
            {None: data} if isinstance(data, SiloedData) else dict(data.items())
        )
        if not repetitions:
            raise SettingsError("a federation needs at least one repetition")
        self._device = checked_device(device)
        schema = ParameterSchema.of(model)
        model = model.to(self._device)
        if any(isinstance(module, nn.Conv2d) for module in model.modules()):
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._network = Network(model, schema, TASKS[next(iter(repetitions.values())).task])
        self._silos = pooled_silos(repetitions, self._device)
        self._stacked = execution == "stacked" or (
            execution == "auto" and (self._device.type == "cuda" or schema.size < 20_000)
        )
        self._bf16, self._graphs = bf16, graphs
        self._stacks: dict[tuple[Participant, ...], StackedSilos] = {}
        self._memories = {name: SiloMemory(schema) for name in self._silos}
        self._behaviours = dict(behaviours or {})
        self._drawn_as = dict(drawn_as or {})
        self._samples = {
            name: b"".join(hashlib.sha256(rows.cpu().numpy().tobytes()).digest() for rows in splits)
            for name, silo in (self._silos.items() if self._drawn_as else ())
            for splits in [silo.splits.values()]
        }
        check_known(self._behaviours, self._silos)

    @property
    def participants(self) -> tuple[Participant, ...]:
        """The participants that can be called."""
        return tuple(self._silos)

    @property
    def schema(self) -> ParameterSchema:
        """The parameters of the model."""
        return self._network.schema

    @property
    def task(self) -> Task:
        """The task that the silos train for."""
        return self._network.task

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self._device

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each; see `Federation.call`."""
        check_known(requests, self._silos)
        replies: Replies = {}
        # Only silos whose requests are alike can be stacked. There are few kinds, whose parts are
        # mostly the same objects: comparing them is quicker than hashing.
        groups: list[Requests] = []
        kinds: list[object] = []
        for participant, request in requests.items():
            asked = cast("Request[Reply]", request)
            try:
                prepared = self._prepared(participant, asked)
            except SettingsError as error:
                replies[participant] = Failure(participant, "error", str(error))
                continue
            kind = asked.alike if isinstance(asked, OfModels) and self._stacked else None
            if kind is None or kind not in kinds:
                kinds.append(kind)
                groups.append({})
            groups[-1 if kind is None else kinds.index(kind)][participant] = prepared
        for group in map(self._filled, groups):
            replies |= self._carried_out(group)
        given = cast("dict[Participant, ReplyT | Failure]", replies)
        given |= misbehaved(self._behaviours, requests, given, timeout)
        for group in groups:
            given |= self._withheld(group, given)
        return {name: given[name] for name in requests}

    def stream_name(self, participant: Participant) -> str:
        """Return the name by which random numbers are drawn for a participant."""
        drawn_as = self._drawn_as.get(str(participant.repetition))
        return str(participant if drawn_as is None else Participant(participant.name, drawn_as))

    def memory(self, owner: str) -> dict[MemoryKey, Tensor]:
        """Return the personal parameters of all silos in a method's slots."""
        return {
            MemoryKey(name, slot): value
            for name, memory in self._memories.items()
            for slot, value in memory.slots.items()
            if owner_of(slot) == owner
        }

    def restore(self, owner: str, memory: Mapping[MemoryKey, Tensor]) -> None:
        """Restore a method's slots, and empty its others."""
        for one in self._memories.values():
            one.empty(owner)
        for (name, slot), value in memory.items():
            if name is not None:
                self._memories[name].slots[slot] = value.to(self._device)

    def personal_model(
        self, participant: Participant, parameters: Tensor, personal: Personal
    ) -> Tensor:
        """Return a whole model: shared parameters, and the silo's own from its memory.

        Possible here because all silos are in this process; elsewhere only the silo can do it.
        """
        return self._memories[participant].fill(parameters, personal)

    def deliver(self, models: Mapping[Participant, Deliver]) -> dict[Participant, Failure]:  # noqa: ARG002
        """Do nothing: the models of silos in this process are in the run's folder."""
        return {}

    def _seed(self, participant: Participant, request: Request[Reply]) -> int:
        seed = request.seed if isinstance(request, Train | Gradient | Evaluate) else 0
        return stream_seed(seed, self.stream_name(participant))

    def _prepared(self, participant: Participant, request: Request[Reply]) -> Request[Reply]:
        """Return a request with its tensors on the device, and check what only the data tells."""
        if not isinstance(request, OfModels):
            return request
        check_size(request, self.schema.size)
        if isinstance(request, Gradient | Evaluate) and request.share is not None:
            size = len(self._silos[participant].splits[request.split])
            if request.share * size < 1:
                # Every share would hold all there is; the caller takes shares for disjoint.
                raise SettingsError(
                    f"a share of {request.share:g} of {size} {request.split} samples is none"
                )

        def ready(name: str, tensor: Tensor) -> Tensor:
            here = tensor.to(self._device, torch.float32)
            # What pulls at personal parameters is where they start.
            pulls = name in ("anchor", "towards")
            return self._memories[participant].fill(here, request.personal) if pulls else here

        return request.mapped(ready)

    def _filled(self, group: Requests) -> Requests:
        """Put silos' personal parameters in their places, in requests that are alike."""
        first = next(iter(group.values()))
        if not isinstance(first, OfModels) or first.personal is None:
            return group
        models = cast("dict[Participant, OfModels[Reply]]", group)
        filled = fill_all(
            [self._memories[name] for name in group],
            [request.parameters for request in models.values()],
            first.personal,
        )
        return {
            name: request.model_copy(update={"parameters": parameters})
            for (name, request), parameters in zip(models.items(), filled, strict=True)
        }

    def _withheld(
        self, group: Requests, replies: Mapping[Participant, ReplyT | Failure]
    ) -> dict[Participant, ReplyT]:
        """Return the replies to requests that are alike, without personal parameters."""
        first = next(iter(group.values()))
        if not isinstance(first, OfModels) or first.personal is None:
            return {}
        given = {
            name: reply
            for name in group
            for reply in [replies[name]]
            if not isinstance(reply, Failure)
        }
        if not given:
            return {}
        memories = [self._memories[name] for name in given]
        shown = withhold_all(memories, list(given.values()), first.personal)
        return dict(zip(given, shown, strict=True))

    def _carried_out(self, group: Requests) -> Replies:
        """Carry out requests that are alike, and the steps of personal parameters."""
        first = next(iter(group.values()))
        if self._stacked and isinstance(first, OfModels):
            # The networks stacked on a CPU are small: threads would only wait for one another.
            with _threads(1 if self._device.type == "cpu" else torch.get_num_threads()):
                replies = self._of_leaders(group)
        else:
            replies = {name: self._looped(name, request) for name, request in group.items()}
        if isinstance(first, Gradient) and first.personal and first.personal.rate is not None:
            fine = {name: one for name, one in replies.items() if isinstance(one, Gradients)}
            models = cast("dict[Participant, Gradient]", group)
            if fine:
                step_all(
                    [self._memories[name] for name in fine],
                    # A silo's own model comes first.
                    torch.stack([models[name].rows[0] for name in fine]),
                    torch.stack(
                        [
                            one.gradient.reshape(models[name].rows.shape)[0]
                            for name, one in fine.items()
                        ]
                    ),
                    first.personal,
                )
        return replies

    def _looped(self, participant: Participant, request: Request[Reply]) -> Reply | Failure:
        if isinstance(request, Keep):
            self._memories[participant].keep(request.slot, request.source)
            return Kept()
        silo, seed = self._silos[participant], self._seed(participant, request)
        try:
            reply = carried_out(self._network, silo, request, seed)
        except (RuntimeError, SettingsError) as error:
            return Failure(participant, "error", str(error).split("\n")[0])
        return accepted(participant, request, reply)

    def _of_leaders(self, group: Requests) -> Replies:
        """Call silos that would compute the very same only once, and give each the reply."""
        leaders = self._leaders(group)
        called = {name: request for name, request in group.items() if name not in leaders}
        seeds = [self._seed(name, request) for name, request in called.items()]
        try:
            results = self._stack(tuple(called)).carried_out(list(called.values()), seeds)
        except SettingsError as error:
            return {name: Failure(name, "error", str(error)) for name in group}
        replies: Replies = {
            name: Failure(name, *one) if isinstance(one, tuple) else one
            for name, one in zip(called, results, strict=True)
        }
        for name, leader in leaders.items():
            reply = replies[leader]
            replies[name] = (
                replace(reply, participant=name) if isinstance(reply, Failure) else reply
            )
        return replies

    def _leaders(self, group: Requests) -> dict[Participant, Participant]:
        """Return silos that evaluate the same as another: the same samples, draws, parameters."""
        if not self._drawn_as or not isinstance(next(iter(group.values())), Evaluate):
            return {}
        models = {
            name: request.parameters
            for name, request in group.items()
            if isinstance(request, Evaluate) and request.parameters.ndim == 1
        }
        known: dict[tuple[str, bytes], Participant] = {}
        leaders = {
            name: leader
            for name in models
            for leader in [known.setdefault((self.stream_name(name), self._samples[name]), name)]
            if leader != name
        }
        if leaders:
            own, other = (
                torch.stack([models[name] for name in some]).view(torch.int32)
                for some in (leaders.keys(), leaders.values())
            )
            same = (own == other).all(1).tolist()
            leaders = dict(pair for pair, yes in zip(leaders.items(), same, strict=True) if yes)
        return leaders

    def _stack(self, names: tuple[Participant, ...]) -> StackedSilos:
        if names not in self._stacks:
            if len(self._stacks) >= MOST_STACKS:
                self._stacks.pop(next(iter(self._stacks)))
            silos = [self._silos[name] for name in names]
            self._stacks[names] = StackedSilos(
                self._network, silos, bf16=self._bf16, graphs=self._graphs
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
