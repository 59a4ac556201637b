"""The federation of silos at their organisations, over NVIDIA FLARE."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.flare.masked_mixing import MaskedMixing
from fedegoists.federation.flare.messages import (
    MOST_ROLLBACKS,
    About,
    Answers,
    Call,
    Lineage,
    RepeatedRequest,
    Rollback,
    SiloRequest,
)
from fedegoists.federation.flare.relay_connection import Lost, RelayConnection
from fedegoists.federation.flare.wire import OldVersionError, WireError, pack, schema_digest, unpack
from fedegoists.federation.mixing import Mixed, Sum, check_sums, in_order, mix_plain
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Delivered, Failed, ReplyT, Trained
from fedegoists.federation.requests import (
    Deliver,
    Keep,
    Personal,
    Request,
    Train,
    check_size,
    owner_of,
)
from fedegoists.federation.seam import Failure, MemoryKey, accepted, check_known
from fedegoists.learning.data import TaskName
from fedegoists.learning.models import build_model
from fedegoists.learning.own_models import (
    ModelParts,
    is_own,
    own_entry,
    travelling_name,
    weights_in,
)
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import TASKS, Task
from fedegoists.version import __version__

LINEAGE = "checkpoint"
"""The name of a method's lineage in a checkpoint of the run."""

KEEPERS = "keepers"
"""The name of the positions of the silos that keep something for a method."""


def ask_about(link: RelayConnection, sites: Mapping[str, str]) -> dict[str, About]:
    """Ask silos to describe themselves; silos that do not answer are left out.

    Parameters
    ----------
    sites : mapping of str to str
        The site of each participant.

    Raises
    ------
    SettingsError
        If a silo is not the participant its certificate is for, or another version runs there.
    """
    message = pack(Call(operation="about"))
    answers = link.ask(dict.fromkeys(sites.values(), message))
    found: dict[str, About] = {}
    for participant, site in sites.items():
        answer = answers[site]
        if isinstance(answer, Lost):
            continue
        try:
            given = unpack(Answers, answer)
        except OldVersionError as error:
            raise SettingsError(f"{participant} {error}") from None
        except WireError as error:
            raise SettingsError(f"{participant} cannot be understood: {error}") from None
        about = given.about
        if about is None:
            raise SettingsError(f"{participant} does not say what it has: {given.refused}")
        if about.participant != participant:
            raise SettingsError(
                f"the silo with the certificate of {participant!r} calls itself "
                f"{about.participant!r}; its silo.toml names the wrong participant"
            )
        if about.version != __version__:
            raise SettingsError(
                f"{participant} runs version {about.version}, the coordinator {__version__}; "
                "install the same everywhere"
            )
        found[participant] = about
    return found


class FlareFederation:
    """Silos of organisations, reached over a `RelayConnection`.

    Parameters
    ----------
    sites : mapping of str to str
        The participants, and their names in certificates.
    model : str
        The network that all silos train, by name; every silo builds its own.
    options : mapping
        Options of the network that depend on the data.
    task : str
        The task of the network.
    parts : ModelParts, optional
        The network, if it is a user's own.
    repetitions : int, optional
        If given, all participants take part in this number of repetitions at once.
    samples : mapping of str to int
        The participants' training samples, as their silos described them.
    consenting : collection of str
        Participants whose silos let the server see single models and gradients.
    masked : bool
        Whether sums of three members or more are masked.
    """

    def __init__(
        self,
        link: RelayConnection,
        sites: Mapping[str, str],
        *,
        model: str,
        options: Mapping[str, Any],
        task: TaskName,
        parts: ModelParts | None = None,
        repetitions: int | None = None,
        samples: Mapping[str, int],
        consenting: Collection[str] = (),
        masked: bool = True,
    ) -> None:
        self._link, self._sites, self._samples = link, dict(sites), dict(samples)
        self._consenting = frozenset(consenting)
        if parts is None:
            parts = ModelParts(build_model(model, 0, **options), TASKS[task])
        self._schema, self._task = parts.schema, parts.task
        numbers = [None] if repetitions is None else range(repetitions)
        self._participants = tuple(
            Participant(name, number) for number in numbers for name in self._sites
        )
        self._call = Call(
            operation="about",
            run=link.run,
            model=travelling_name(model),
            code=own_entry(model).digest if is_own(model) else "",
            weights=(weights_in(options) or ("", ""))[1],
            schema_is=schema_digest(self._schema),
            repetitions=repetitions or 0,
        )
        self._lineages: dict[str, Lineage] = {}
        self._keepers: dict[str, set[str]] = {}
        self._last = 0
        self._masked = masked
        self._mixing = MaskedMixing(
            self,
            self._sites,
            self._schema,
            run=link.run,
            schema_is=self._call.schema_is,
            tell=link.tell,
        )

    @property
    def participants(self) -> tuple[Participant, ...]:
        """The participants that can be called."""
        return self._participants

    @property
    def schema(self) -> ParameterSchema:
        """The parameters of the model."""
        return self._schema

    @property
    def task(self) -> Task:
        """The learning task of the silos."""
        return self._task

    @property
    def device(self) -> torch.device:
        """The device on which the coordinator computes."""
        return torch.device("cpu")

    @property
    def deployed(self) -> bool:
        """True: silos see what they are sent."""
        return True

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each; see `Federation.call`.

        Raises
        ------
        UnreachableError
            If the server is lost; a silo that is lost is a `Failure`.
        """
        check_known(requests, frozenset(self._participants))
        result: dict[Participant, ReplyT | Failure] = {}
        sent: dict[Participant, SiloRequest] = {}
        for name, request in requests.items():
            try:
                check_size(request, self._schema.size)
            except SettingsError as error:
                result[name] = Failure(name, "error", str(error))
                continue
            sent[name] = cast("SiloRequest", request)
        replies = self._asked(sent, timeout)
        for name in sent:
            reply = replies[name]
            if not isinstance(reply, Failure):
                reply = accepted(name, requests[name], reply, self.samples(name))
            result[name] = reply
        return {name: result[name] for name in requests}

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: Sequence[Sum],
        timeout: float | None = None,
    ) -> Mixed:
        """Have participants train, and return means of their models; see `Federation.mix`.

        The sums of coalitions of three members or more are masked.
        """
        check_known(requests, frozenset(self._participants))
        check_sums(requests, sums)
        masked = [one for one in sums if self.masks(one.coalition)]
        if not masked:
            return mix_plain(self, requests, sums, timeout)
        for one in masked:
            home = all(_at_home(requests[name]) for name in one.receivers)
            if not one.shown and not (home and len(one.receivers) == 1):
                raise SettingsError(
                    "a mean that is not shown needs one receiver with its model home"
                )
        hidden = {name for one in masked for name in one.coalition if name in requests}
        others = {name: one for name, one in requests.items() if name not in hidden}
        mixed, replies = self._mixing.mix(
            {name: one for name, one in requests.items() if name in hidden}, masked, others, timeout
        )
        if not others:
            return in_order(requests, mixed)
        plain = mix_plain(
            _Answered(self._schema, replies),
            others,
            [one for one in sums if not self.masks(one.coalition)],
        )
        return in_order(requests, mixed, plain)

    def masks(self, coalition: Sequence[Participant]) -> bool:
        """Return whether the models of a coalition's members are hidden from the server.

        They are in all coalitions but those of two members, which could compute each other's model.
        """
        return self._masked and len(coalition) != 2

    def consents(self, participant: Participant) -> bool:
        """Return whether a participant's silo lets the server see single models and gradients."""
        return participant.name in self._consenting

    def samples(self, participant: Participant) -> int:
        """Return a participant's training samples, as its silo described them."""
        return self._samples[participant.name]

    def _asked(
        self, requests: Mapping[Participant, SiloRequest], timeout: float | None
    ) -> dict[Participant, object]:
        """Send each site the requests of all its repetitions, with the lineages they need."""
        asked: dict[str, dict[Participant, SiloRequest]] = {}
        for one, request in requests.items():
            asked.setdefault(one.name, {})[one] = request
        messages: dict[str, bytes] = {}
        for name, own in asked.items():
            slots = {owner_of(request.slots[0]) for request in own.values() if request.slots}
            for request in own.values():
                if isinstance(request, Deliver):
                    slots |= {owner_of(slot) for slot in request.slots}
            sources = {
                owner_of(request.source)
                for request in own.values()
                if isinstance(request, Keep) and request.source is not None
            }
            # What is only copied from stays as it is, unless this run has trained it.
            owners = slots | (sources & self._lineages.keys())
            for owner in slots:
                self._keepers.setdefault(owner, set()).add(name)
            call = self._call.changed(
                # In some repetitions sums may be masked, and in others not.
                operation=min(request.operation for request in own.values()),
                lineages={owner: self._lineage(owner) for owner in sorted(owners)},
                asked=tuple(
                    RepeatedRequest(repetition=cast("int | None", one.repetition), request=request)
                    for one, request in own.items()
                ),
            )
            messages[self._sites[name]] = pack(call)
        answers = self._link.ask(messages, timeout)
        given = {name: _understood(name, answers[self._sites[name]]) for name in asked}
        return {one: _part(one, given[one.name]) for one in requests}

    def _lineage(self, owner: str) -> Lineage:
        if owner not in self._lineages:
            self._lineages[owner] = Lineage(rollbacks=(Rollback(to=0, at=self._next()),))
        return self._lineages[owner]

    def _next(self) -> int:
        """Return a number that no checkpoint and no rollback of this or another run has."""
        # By the clock: silos keep checkpoints longer than a run, and two runs must not share one.
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return self._last

    def memory(self, owner: str) -> dict[MemoryKey, Tensor]:
        """Have silos keep a copy of a method's slots, and return the copy's number.

        The values themselves never leave a silo. A silo that is away makes its copy when it is
        back, before anything else.
        """
        if owner not in self._lineages:
            return {}
        self._lineages[owner] = self._lineages[owner].changed(checkpoint=self._next())
        self._tell_keepers("remember", owner)
        keepers = [k for k, name in enumerate(self._sites) if name in self._keepers[owner]]
        return {
            MemoryKey(None, LINEAGE): torch.tensor(self._lineages[owner].numbers()),
            MemoryKey(None, KEEPERS): torch.tensor(keepers),
        }

    def restore(self, owner: str, memory: Mapping[MemoryKey, Tensor]) -> None:
        """Have silos go back to their copy of a checkpoint; silos that are away do so later."""
        numbers = memory.get(MemoryKey(None, LINEAGE))
        if numbers is None:
            return  # a method without slots
        then = Lineage.of(numbers.tolist())
        self._last = max(self._last, *numbers.tolist())
        back = Rollback(to=then.checkpoint, at=self._next())
        rollbacks = (*then.rollbacks, back)[-MOST_ROLLBACKS:]
        self._lineages[owner] = then.changed(rollbacks=rollbacks)
        names = tuple(self._sites)
        keepers = memory.get(MemoryKey(None, KEEPERS))
        known = range(len(names)) if keepers is None else keepers.tolist()
        self._keepers[owner] = {names[k] for k in known if k < len(names)}
        self._tell_keepers("recall", owner)

    def deliver(
        self, models: Mapping[Participant, Deliver]
    ) -> dict[Participant, Delivered | Failure]:
        """Have silos choose among models, which they complete with their own layers and keep."""
        return self.call(models)

    def _tell_keepers(self, operation: str, owner: str) -> None:
        """Tell the silos that keep something for a method what becomes of it."""
        lineages = {owner: self._lineages[owner]}
        message = pack(self._call.changed(operation=operation, lineages=lineages))
        sites = {n: site for n, site in self._sites.items() if n in self._keepers[owner]}
        answers = self._link.ask(dict.fromkeys(sites.values(), message))
        for name, site in sites.items():
            answer = _understood(name, answers[site])
            if isinstance(answer, Failure):
                self._link.tell(f"{answer}; asked to {operation}")

    def stream_name(self, participant: Participant) -> str:
        """Return the participant's own name."""
        return str(participant)

    def personal_model(
        self,
        participant: Participant,  # noqa: ARG002 - as in the simulation
        parameters: Tensor,  # noqa: ARG002
        personal: Personal,  # noqa: ARG002
    ) -> None:
        """Return nothing: only the silo itself can put its whole model together."""
        return


def _at_home(request: Train) -> bool:
    """Return whether a silo keeps its whole model to itself."""
    return request.personal is not None and request.personal.whole


class _Answered:
    """Replies that are there already, as a federation."""

    def __init__(
        self, schema: ParameterSchema, replies: dict[Participant, Trained | Failure]
    ) -> None:
        self.schema, self._replies = schema, replies

    def call(
        self,
        requests: Mapping[Participant, Train],
        timeout: float | None = None,  # noqa: ARG002
    ) -> dict[Participant, Trained | Failure]:
        """Return the replies to requests that have been sent before."""
        return {name: self._replies[name] for name in requests}


def _understood(name: str, answer: bytes | Lost) -> Answers | Failure:
    """Return a silo's answers to a call, or why there are none."""
    silo = Participant(name)
    if isinstance(answer, Lost):
        return Failure(silo, answer.reason, answer.detail)
    try:
        given = unpack(Answers, answer)
    except WireError as error:
        return Failure(silo, "error", str(error))
    return given if given.refused is None else Failure(silo, "refused", given.refused)


def _part(participant: Participant, given: Answers | Failure) -> object:
    """Return the reply, or failure, of one repetition among a silo's answers."""
    if isinstance(given, Failure):
        return replace(given, participant=participant)
    for one in given.answered:
        if one.repetition == participant.repetition:
            reply = one.reply
            if isinstance(reply, Failed):
                return Failure(participant, reply.reason, reply.detail)
            return reply
    return Failure(participant, "error", "no answer for this repetition")
