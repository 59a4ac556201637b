"""The seam between a method and the silos: requests go out, replies or failures come back.

A method never knows where silos are. It is server-side code that calls
``federation.call({participant: request})``; the silos may be arrays in this process or machines at
other organisations.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from pydantic import ValidationError
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.reasons import Reason
from fedegoists.federation.replies import Delivered, Problem, ReplyT, Trained
from fedegoists.federation.requests import Deliver, Personal, Request, Train
from fedegoists.federation.validated import explained
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

if TYPE_CHECKING:
    from fedegoists.federation.mixing import Mixed, Sum


@dataclass(frozen=True)
class Failure:
    """A silo that gave no usable answer: a value, not an exception.

    Attributes
    ----------
    participant : Participant
        The participant without an answer.
    reason : str
        ``timeout``, ``not finite``, ``wrong shape``, ``refused`` (by the silo's own limits) or
        ``error``.
    detail : str
        One line for the log.
    """

    participant: Participant
    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.participant}: {self.why}"

    @property
    def why(self) -> str:
        """The reason, with the detail if there is one."""
        return self.reason + (f" ({self.detail})" if self.detail else "")


class Federation(Protocol):
    """Silos that can be called, wherever they are.

    Examples
    --------
    A whole method, here one round of FedAvg without weights, is a function over a federation:

    >>> from fedegoists.federation import SimulatedFederation, Train, TrainSettings
    >>> from fedegoists.learning.datasets import load
    >>> from fedegoists.learning.models import build_model
    >>> def average(federation: Federation, model: Tensor) -> Tensor:
    ...     settings = TrainSettings(steps=5, learning_rate=0.1)
    ...     request = Train(parameters=model, settings=settings)
    ...     replies, failures = sorted_out(
    ...         federation.call(dict.fromkeys(federation.participants, request))
    ...     )
    ...     return torch.stack([reply.parameters for reply in replies.values()]).mean(0)
    >>> federation = SimulatedFederation(
    ...     load("synthetic-weak"), build_model("mlp", 0, features=20)
    ... )
    >>> average(federation, federation.schema.drawn(0)).shape
    torch.Size([2201])
    """

    @property
    def participants(self) -> tuple[Participant, ...]:
        """The participants that can be called."""

    @property
    def schema(self) -> ParameterSchema:
        """The parameters of the model that all silos train."""

    @property
    def task(self) -> Task:
        """The task that they train for."""

    @property
    def device(self) -> torch.device:
        """The device on which the server computes."""

    @property
    def deployed(self) -> bool:
        """Whether silos are machines of organisations, which see what they are sent."""

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each, and return all their replies.

        Participants that do not answer within `timeout` seconds, or not with a usable reply, are in
        the result with a `Failure`.
        """

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: "Sequence[Sum]",
        timeout: float | None = None,
    ) -> "Mixed":
        """Have participants train, and return weighted means of their models.

        Where `masks` is true for a coalition, neither the server nor a member learns more of a
        member's model than the means that it receives.

        Parameters
        ----------
        requests : mapping of Participant to Train
            The participants that train; those in no sum train for themselves.
        sums : sequence of Sum
            The means that are wanted; a participant receives at most one.
        """

    def masks(self, coalition: Sequence[Participant]) -> bool:
        """Return whether the models of a coalition's members are hidden from the server in `mix`.

        So they are also for a participant that is alone: its model stays at home.
        """

    def consents(self, participant: Participant) -> bool:
        """Return whether a participant lets the server see its single models and gradients."""

    def samples(self, participant: Participant) -> int:
        """Return a participant's training samples, by the description it has committed to."""

    def stream_name(self, participant: Participant) -> str:
        """Return the name by which random numbers are drawn for a participant: usually its own.

        The same silo of the same repetition, compared in several coalitions, draws the same in all.
        """


class MemoryKey(NamedTuple):
    """The key of a tensor in the memory of a silo, or of all silos together (None)."""

    participant: Participant | None
    slot: str


class Memory(Protocol):
    """The memory of silos, with their personal parameters, and the delivery of models to them."""

    def memory(self, owner: str) -> dict[MemoryKey, Tensor]:
        """Return the content of a method's slots, as far as it is known here, for a checkpoint."""

    def restore(self, owner: str, memory: Mapping[MemoryKey, Tensor]) -> None:
        """Restore a method's slots from a checkpoint, and empty its other slots."""

    def personal_model(
        self, participant: Participant, parameters: Tensor, personal: Personal
    ) -> Tensor | None:
        """Return a whole model with a silo's personal parameters; None if only the silo can."""

    def deliver(
        self, models: Mapping[Participant, Deliver]
    ) -> dict[Participant, Delivered | Failure]:
        """Have participants choose their models and keep them; return what they chose.

        The requests of a participant's repetitions belong together: it keeps one model of them.
        """


class StatefulFederation(Federation, Memory, Protocol):
    """A federation with memory and delivery."""


class WithTimeout:
    """A federation in which no call waits longer than some seconds."""

    def __init__(self, federation: StatefulFederation, seconds: float) -> None:
        if not seconds > 0:
            raise SettingsError(f"a timeout of {seconds} s; expected a positive number")
        self._federation, self._seconds = federation, seconds
        self.participants, self.schema = federation.participants, federation.schema
        self.task, self.device = federation.task, federation.device
        self.deployed = federation.deployed
        self.stream_name, self.samples = federation.stream_name, federation.samples
        self.masks, self.consents = federation.masks, federation.consents
        self.memory, self.restore = federation.memory, federation.restore
        self.personal_model, self.deliver = federation.personal_model, federation.deliver

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each; see `Federation.call`."""
        return self._federation.call(requests, self._at_most(timeout))

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: "Sequence[Sum]",
        timeout: float | None = None,
    ) -> "Mixed":
        """Have participants train, and return means of their models; see `Federation.mix`."""
        return self._federation.mix(requests, sums, self._at_most(timeout))

    def _at_most(self, timeout: float | None) -> float:
        return self._seconds if timeout is None else min(timeout, self._seconds)


class PartOfFederation:
    """Some participants of a federation, as a federation of their own; the others do not notice."""

    def __init__(self, federation: Federation, names: Container[str]) -> None:
        self._federation = federation
        self.participants = tuple(one for one in federation.participants if one.name in names)
        self.schema, self.task, self.device = federation.schema, federation.task, federation.device
        self.deployed = federation.deployed
        self.stream_name, self.samples = federation.stream_name, federation.samples
        self.masks, self.consents = federation.masks, federation.consents

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each; see `Federation.call`."""
        check_known(requests, self.participants)
        return self._federation.call(requests, timeout)

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: "Sequence[Sum]",
        timeout: float | None = None,
    ) -> "Mixed":
        """Have participants train, and return means of their models; see `Federation.mix`."""
        check_known(requests, self.participants)
        return self._federation.mix(requests, sums, timeout)


def sorted_out(
    replies: Mapping[Participant, ReplyT | Failure],
) -> tuple[dict[Participant, ReplyT], tuple[Failure, ...]]:
    """Return the replies of a call, and its failures."""
    answers = {name: one for name, one in replies.items() if not isinstance(one, Failure)}
    return answers, tuple(one for one in replies.values() if isinstance(one, Failure))


def check_known(called: Iterable[Participant], participants: Container[Participant]) -> None:
    """Refuse to call participants outside a federation."""
    for participant in called:
        if participant not in participants:
            raise SettingsError(f"{participant!r} is not in this federation")


def accepted(
    participant: Participant,
    request: Request[ReplyT],
    answer: object,
    samples: int | None = None,
) -> ReplyT | Failure:
    """Return an answer if it is a usable reply to a request, and otherwise the failure.

    Whatever one silo answers must not stop the others. Fields that no reply has are dropped.

    Parameters
    ----------
    samples : int, optional
        The training samples that the participant has committed to. A reply that claims others, with
        which it would weigh more than it may, is a failure.
    """
    kind = request.reply_type
    if not isinstance(answer, kind):
        given = f"a {type(answer).__name__} instead of a {kind.__name__}"
        return Failure(participant, "error", given)
    fields = {name: value for name, value in vars(answer).items() if name in kind.model_fields}
    try:
        reply = kind.model_validate(fields)  # it may be a changed copy
    except ValidationError as error:
        wrong = error.errors(include_input=False)[0]["type"] == "wrong shape"
        return Failure(participant, "wrong shape" if wrong else "error", explained(error, kind))
    problem = reply.problem(request.shape)
    if problem is None and isinstance(reply, Trained) and isinstance(request, Train):
        problem = _misfit(request, reply) or _claim(request, reply, samples)
    return reply if problem is None else Failure(participant, *problem)


def _misfit(request: Train, reply: Trained) -> Problem | None:
    """Return what is wrong with the length of a shift, or nothing; a silo may keep it."""
    within = None if request.terms is None else request.terms.representation
    sent = None if within is None else within.shift
    if reply.shift is None or (sent is not None and sent.shape == reply.shift.shape):
        return None
    wanted = "none" if sent is None else tuple(sent.shape)
    return "wrong shape", f"shift: {tuple(reply.shift.shape)} where {wanted} is expected"


def _claim(request: Train, reply: Trained, samples: int | None) -> Problem | None:
    """Return what is wrong with the counts that a silo claims to have trained with, or nothing."""
    if samples is None:
        return None
    if reply.samples != samples:
        return "error", f"claims {reply.samples} training samples; it described {samples}"
    passes = request.settings.sample_passes(samples)
    if reply.sample_passes > passes:
        return "error", f"claims {reply.sample_passes} sample passes; there are {passes} in a round"
    return None
