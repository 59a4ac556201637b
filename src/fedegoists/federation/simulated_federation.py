"""All silos in this process, one at a time or stacked on one device."""

import hashlib
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError
from fedegoists.federation.array_trainer import ArrayTrainer
from fedegoists.federation.batches import SecretSeed, share_of, stream_seed
from fedegoists.federation.behaviours import Behaviour, misbehaved
from fedegoists.federation.delivery import choose_at_home
from fedegoists.federation.execution import (
    Execution,
    chosen_engine,
    examined_network,
    limited_threads,
    threads_of,
)
from fedegoists.federation.mixing import Mixed, Sum, mix_plain
from fedegoists.federation.module_trainer import STATISTICS_BATCH, ModuleTrainer
from fedegoists.federation.participant import Participant, Repetition
from fedegoists.federation.pool import checked_device, pooled_silos
from fedegoists.federation.replies import (
    Delivered,
    Gradients,
    Kept,
    Reply,
    ReplyT,
    Split,
    Trained,
)
from fedegoists.federation.requests import (
    AddPrior,
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
from fedegoists.federation.silo_operations import Indices, training_part, uninformed_loss
from fedegoists.federation.stacked import StackedSilos
from fedegoists.federation.trainer import Trainer, carried_out
from fedegoists.federation.tree_trainer import TreeTrainer
from fedegoists.learning.array_models import ArrayNetwork
from fedegoists.learning.data import SiloedData
from fedegoists.learning.forest import Forest
from fedegoists.learning.network import Network
from fedegoists.learning.own_models import ModelParts, is_trainer
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import TASKS, Task

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
    model : torch.nn.Module, ModelParts or Trainer
        The network all silos train. It is a workspace: its trainable parameters do not matter, its
        frozen ones do. `ModelParts` bring its task and augmentation along. For anything but a
        PyTorch module, a `Trainer`.
    task : Task, optional
        Loss and metric; by default those of the data's task.
    augment : function, optional
        Changes the inputs of a training batch at random, with PyTorch's global generator.
    device : str
        ``cpu``, ``cuda`` or ``cuda:1``.
    execution : {"auto", "looped", "stacked"}
        One silo after the other, or all in one pass. ``auto`` stacks on a GPU where the network
        can be stacked, and on the CPU where it is also small; `engine` says which, and why.
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
    secrets : mapping of str to bytes
        By a participant's name: a secret from which its batches are drawn besides the seed of a
        request. Deployed silos have one; simulated ones usually have none, so that runs can be
        repeated.

    Attributes
    ----------
    engine : ChosenEngine
        How silos are computed, and why.
    halved : dict of Participant to int
        Silos whose training diverged, and how often they halved the learning rate in a round.
    """

    def __init__(
        self,
        data: SiloedData | Repeated,
        model: nn.Module | ModelParts | Trainer,
        *,
        task: Task | None = None,
        augment: Callable[..., Any] | None = None,
        device: str = "cpu",
        execution: Execution = "auto",
        bf16: bool = False,
        graphs: bool = True,
        behaviours: Mapping[Participant, Behaviour] | None = None,
        drawn_as: Mapping[str, int] | None = None,
        secrets: Mapping[str, bytes] | None = None,
    ) -> None:
        repetitions: dict[Repetition | None, SiloedData] = (
            {None: data} if isinstance(data, SiloedData) else dict(data.items())
        )
        if not repetitions:
            raise SettingsError("a federation needs at least one repetition")
        self._device = checked_device(device)
        self._silos = pooled_silos(repetitions, self._device)
        if isinstance(model, nn.Module):
            task = TASKS[next(iter(repetitions.values())).task] if task is None else task
            model = ModelParts(model, task, augment)
        self._network: Network | None = None
        self._schema = model.schema
        if isinstance(model, ModelParts) and not is_trainer(model.module):
            parts = (model.module, model.task, self._silos.values(), self._device, model.augment)
            network = examined_network(*parts, self._schema)
            model = module_trainer_of(network)
            self._network = network if type(model) is ModuleTrainer else None
        elif isinstance(model, ModelParts):
            model = cast("Trainer", model.module)
        self._trainer: Trainer = model
        self.engine = chosen_engine(self._network, self._silos.values(), execution)
        self._stacked = self.engine.name == "stacked"
        self._threads = threads_of(self._network, self._silos.values())
        self._bf16, self._graphs = bf16, graphs
        self._stacks: dict[tuple[tuple[Participant, ...], bool], StackedSilos] = {}
        self._memories = {name: SiloMemory(self.schema) for name in self._silos}
        self._behaviours = dict(behaviours or {})
        self.halved: dict[Participant, int] = {}
        self._uninformed: dict[tuple[Participant, object], float] = {}
        self._drawn_as = dict(drawn_as or {})
        self._secrets = dict(secrets or {})
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
        return self._schema

    @property
    def task(self) -> Task:
        """The task that the silos train for."""
        return self._trainer.task

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self._device

    @property
    def deployed(self) -> bool:
        """False: nobody sees what simulated silos are sent."""
        return False

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
            kind = self._kind(participant, prepared) if self._stacked else None
            if kind is None or kind not in kinds:
                kinds.append(kind)
                groups.append({})
            groups[-1 if kind is None else kinds.index(kind)][participant] = prepared
        for group in map(self._filled, groups):
            replies |= self._carried_out(group)
        given = cast("dict[Participant, ReplyT | Failure]", replies)
        given |= misbehaved(self._behaviours, requests, given, timeout, self.samples)
        for group in groups:
            given |= self._withheld(group, given)
        return {name: given[name] for name in requests}

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: Sequence[Sum],
        timeout: float | None = None,
    ) -> Mixed:
        """Have participants train, and return means of their models; see `Federation.mix`."""
        return mix_plain(self, requests, sums, timeout)

    def masks(self, coalition: Sequence[Participant]) -> bool:  # noqa: ARG002
        """Return that nothing is hidden: all silos are in this process."""
        return False

    def consents(self, participant: Participant) -> bool:  # noqa: ARG002
        """Return that every participant consents: nothing leaves this process."""
        return True

    def samples(self, participant: Participant) -> int:
        """Return the training samples of a participant."""
        return len(self._silos[participant].splits["train"])

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

    def whole_state(self, participant: Participant, parameters: Tensor) -> dict[str, Tensor]:
        """Return all tensors of a model as they are stored, those that never travel included."""
        here = parameters.to(self._device, torch.float32)
        return self._trainer.state(self._silos[participant], here)

    def outputs(
        self, participant: Participant, parameters: Tensor, split: Split
    ) -> tuple[Tensor, Tensor]:
        """Return a whole model's outputs for single samples and the targets: here alone."""
        here = parameters.to(self._device, torch.float32)
        return self._trainer.outputs(self._silos[participant], here, split)

    def groups(self, participant: Participant, split: Split) -> Indices | None:
        """Return the groups of a silo's samples, such as patients; None without groups."""
        return self._silos[participant].groups_in(split)

    def silo_memory(self, participant: Participant) -> SiloMemory:
        """Return the memory of a silo in this process."""
        return self._memories[participant]

    def deliver(
        self, models: Mapping[Participant, Deliver]
    ) -> dict[Participant, Delivered | Failure]:
        """Have silos choose their models, and keep them in their memory; see `Memory.deliver`."""
        check_known(models, self._silos)
        replies: dict[Participant, Delivered | Failure] = {}
        for name in dict.fromkeys(one.name for one in models):
            own = {one: request for one, request in models.items() if one.name == name}
            try:
                replies |= choose_at_home(self, own).replies
            except SettingsError as error:
                replies |= {one: Failure(one, "refused", str(error)) for one in own}
        return replies

    def _seed(self, participant: Participant, request: Request[Reply]) -> int:
        seed = request.seed if isinstance(request, Train | Gradient | Evaluate) else 0
        secret, name = self._secrets.get(participant.name), self.stream_name(participant)
        if secret is None:
            return stream_seed(seed, name)
        # Noise that two different requests shared would vanish from the difference of the answers,
        # and batches that they shared would not be the independent ones that are accounted for. The
        # same request again gets the same answer, which tells nothing new.
        own = request.digest() if request.noisy else ""
        return SecretSeed.of(secret, seed, name, own)

    def _prepared(self, participant: Participant, request: Request[Reply]) -> Request[Reply]:
        """Return a request with its tensors on the device, and check what only the data tells."""
        if not isinstance(request, OfModels):
            return request
        check_size(request, self.schema.size)
        if isinstance(request, Train | Gradient | Evaluate) and request.share is not None:
            split = "train" if isinstance(request, Train) else request.split
            size = self._silos[participant].units(split)
            if request.share * size < 1:
                # Every share would hold all there is; the caller takes shares for disjoint.
                raise SettingsError(
                    f"a share of {request.share:g} of {size} {split} samples is none"
                )

        def ready(name: str, tensor: Tensor) -> Tensor:
            here = tensor.to(self._device, torch.float32)
            memory = self._memories[participant]
            return memory.own_term(name, here, request.parameters, request.personal)

        return request.mapped(ready)

    def _kind(self, participant: Participant, request: Request[Reply]) -> object:
        """Return what must be equal for silos to be stacked; None if a request is not."""
        if not isinstance(request, OfModels):
            return None
        assert self._network is not None
        if not self._network.mixes_samples:
            return request.alike
        # Padding would change the statistics of a batch, so batches must have the same size.
        sizes = {split: len(own) for split, own in self._silos[participant].splits.items()}
        width = min(sizes["train"], STATISTICS_BATCH)
        if isinstance(request, Train):
            seed = self._seed(participant, cast("Request[Reply]", request))
            part = training_part(self._silos[participant], request, seed)
            own = min(request.settings.batch_size, len(part.splits["train"]))
            if self._network.schema.statistics:  # which are computed after training
                return (*request.alike, own, width)
            width = own
        elif isinstance(request, Gradient) and request.split == "train":
            count = share_of(sizes["train"], request.share, request.batch_size)
            width = min(count or sizes["train"], sizes["train"])
        return (*request.alike, width)

    def _filled(self, group: Requests) -> Requests:
        """Put silos' personal parameters in their places, in requests that are alike.

        A prior is added to what was sent, so that adding it again changes nothing.
        """
        first = next(iter(group.values()))
        if not isinstance(first, OfModels) or isinstance(first, AddPrior):
            return group
        if first.personal is None:
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
        alone = isinstance(first, Evaluate) and first.bound is not None
        if isinstance(first, Train) and first.settings.precision == "bf16" and self._network:
            # `vmap` cannot normalise batches of 16 bits, by fixed statistics neither.
            alone = self._network.normalises_batches and not self.engine.beside
        alone = alone or isinstance(first, AddPrior)  # which goes through no network
        stacked = self._stacked and isinstance(first, OfModels) and not alone
        replies = self._computed(group, stacked=stacked)
        if isinstance(first, Train) and first.settings.halve and not first.noisy:
            replies |= self._slower(cast("dict[Participant, Train]", group), replies, stacked)
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

    def _computed(self, group: Requests, *, stacked: bool) -> Replies:
        """Carry out requests that are alike, at once or one after the other."""
        if not stacked:
            with limited_threads(self._threads):
                return {name: self._looped(name, request) for name, request in group.items()}
        # The networks stacked on a CPU are small: threads would only wait for one another.
        threads = 1 if self._device.type == "cpu" else torch.get_num_threads()
        with limited_threads(threads), warnings.catch_warnings():
            # That an operation cannot be stacked is a matter of speed, not of the user's doing.
            warnings.filterwarnings("ignore", "There is a performance drop")
            return self._of_leaders(group)

    def _slower(self, group: dict[Participant, Train], replies: Replies, stacked: bool) -> Replies:
        """Train silos again whose training diverged, each time with half of the learning rate.

        Not with noise: every attempt would cost privacy.
        """
        found: Replies = {}
        names = [name for name, one in group.items() if self._diverged(name, one, replies[name])]
        for halvings in range(1, MOST_HALVINGS + 1):
            if not names:
                break
            settings = group[names[0]].settings
            lower = settings.changed(learning_rate=settings.learning_rate / 2**halvings)
            again = {name: group[name].model_copy(update={"settings": lower}) for name in names}
            tried = self._computed(cast("Requests", again), stacked=stacked)
            names = [name for name in names if self._diverged(name, again[name], tried[name])]
            for name in tried.keys() - set(names):
                found[name] = tried[name]
                self.halved[name] = max(self.halved.get(name, 0), halvings)
                if self._secrets:  # a simulation's run tells it in its own log
                    _LOG.warning(
                        "%s: training diverged; the learning rate was halved %d times in a round",
                        name,
                        halvings,
                    )
        return found

    def _diverged(self, participant: Participant, request: Train, reply: Reply | Failure) -> bool:
        """Return whether a model got lost in training, by its numbers or by its loss."""
        if isinstance(reply, Failure):
            return reply.reason == "not finite"
        assert isinstance(reply, Trained)
        weights = request.settings.class_weights
        known = (participant, weights)
        if known not in self._uninformed:
            silo = self._silos[participant]
            self._uninformed[known] = uninformed_loss(silo, self.task, weights)
        return reply.loss > DIVERGED * self._uninformed[known]

    def _looped(self, participant: Participant, request: Request[Reply]) -> Reply | Failure:
        if isinstance(request, Keep):
            self._memories[participant].keep(request.slot, request.source)
            return Kept()
        silo, seed = self._silos[participant], self._seed(participant, request)
        try:
            reply = carried_out(self._trainer, silo, request, seed)
        except Exception as error:  # a user's module may raise anything
            return Failure(participant, "error", self._in_words(error))
        return accepted(participant, request, reply)

    def _in_words(self, error: Exception) -> str:
        """Return the first line of an error, with its kind where that is not obvious.

        A deployed silo tells its kind only: the text could hold numbers of a sample. Its own log
        has all of it.
        """
        text = str(error).strip().split("\n")[0]
        if isinstance(error, SettingsError):
            return text
        if self._secrets:
            _LOG.error("failed", exc_info=error)
            return f"the silo failed ({type(error).__name__})"
        if isinstance(error, RuntimeError) and text:
            return text
        return f"{type(error).__name__}: {text}" if text else type(error).__name__

    def _of_leaders(self, group: Requests) -> Replies:
        """Call silos that would compute the very same only once, and give each the reply."""
        leaders = self._leaders(group)
        called = {name: request for name, request in group.items() if name not in leaders}
        seeds = [self._seed(name, request) for name, request in called.items()]
        try:
            requests = list(called.values())
            bf16 = isinstance(requests[0], Train) and requests[0].settings.precision == "bf16"
            stack = self._stack(tuple(called), bf16=self._bf16 or bf16)
            results = stack.carried_out(requests, seeds)
        except Exception as error:  # a user's module may raise anything
            detail = self._in_words(error)
            return {name: Failure(name, "error", detail) for name in group}
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

    def _stack(self, names: tuple[Participant, ...], *, bf16: bool) -> StackedSilos:
        key = (names, bf16)
        if key not in self._stacks:
            if len(self._stacks) >= MOST_STACKS:
                self._stacks.pop(next(iter(self._stacks)))
            assert self._network is not None  # other trainers are not stacked
            silos = [self._silos[name] for name in names]
            how = {"bf16": bf16, "graphs": self._graphs, "beside": self.engine.beside}
            self._stacks[key] = StackedSilos(self._network, silos, **how)
        return self._stacks[key]


def module_trainer_of(network: Network) -> ModuleTrainer:
    """Return the trainer of a network, by the kind of its module."""
    if isinstance(network.model, Forest):
        return TreeTrainer(network)
    if isinstance(network.model, ArrayNetwork):
        return ArrayTrainer(network)
    return ModuleTrainer(network)


_LOG = logging.getLogger("fedegoists.silo")

MOST_HALVINGS = 6
"""Attempts to train with a lower rate, before a silo counts as failed."""

DIVERGED = 100.0
"""A mean loss in training so many times that of outputs of zero is no training."""

MOST_STACKS = 4
"""Different sets of silos that stay ready to run at once."""
