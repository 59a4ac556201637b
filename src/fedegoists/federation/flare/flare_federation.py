"""The federation whose silos are at organisations of their own."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.flare.messages import (
    MOST_RETURNS,
    About,
    Lineage,
    Request,
    Return,
    pack_request,
    unpack_replies,
)
from fedegoists.federation.flare.relay_connection import Link, Lost
from fedegoists.federation.flare.wire import WireError, schema_digest
from fedegoists.federation.seam import Failure, Payload, Reply, accepted
from fedegoists.federation.silo_memory import owner_of
from fedegoists.federation.silo_operations import OPERATIONS
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import TASKS, Task
from fedegoists.version import __version__

__all__ = ["FlareFederation", "ask_about"]

LINEAGE = "checkpoint"
"""As what a method's lineage stands in a checkpoint of the run."""


def ask_about(link: Link, sites: Mapping[str, str]) -> dict[str, About]:
    """Ask silos what they have; who does not answer is left out.

    Parameters
    ----------
    sites : mapping of str to str
        The site of each participant.

    Raises
    ------
    SettingsError
        If a silo is not the participant its certificate is for, or another version runs there.
    """
    answers = link.ask(
        {site: pack_request(Request(operation="about"), {}) for site in sites.values()}
    )
    found: dict[str, About] = {}
    for participant, site in sites.items():
        answer = answers[site]
        if isinstance(answer, Lost):
            continue
        try:
            _, about, refused = unpack_replies(answer)
        except WireError as error:
            raise SettingsError(f"{participant} cannot be understood: {error}") from None
        if about is None:
            raise SettingsError(f"{participant} does not say what it has: {refused}")
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
    """Silos of organisations, reached over a `Link`.

    Parameters
    ----------
    sites : mapping of str to str
        The participants, and as what their certificates know them.
    model : str
        The network that all silos train, by name; every silo builds its own.
    options : mapping
        What the network must know of the data.
    task : str
        What it is trained for.
    trials : int, optional
        If given, there are so many trials at once: the participant ``v1`` is called ``0/v1``,
        ``1/v1``, … in them.
    """

    def __init__(
        self,
        link: Link,
        sites: Mapping[str, str],
        *,
        model: str,
        options: Mapping[str, Any],
        task: Any,
        trials: int | None = None,
    ) -> None:
        self._link, self._sites = link, dict(sites)
        self._schema = ParameterSchema.of(build_model(model, 0, **options))
        self._task = TASKS[task]
        labels = [""] if trials is None else [str(trial) for trial in range(trials)]
        self._places = {
            (f"{label}/{name}" if label else name): (label, site)
            for label in labels
            for name, site in self._sites.items()
        }
        self._request = Request(
            operation="about",
            run=link.run,
            model=model,
            schema_is=schema_digest(self._schema),
            trials=trials or 0,
        )
        self._lineages: dict[str, Lineage] = {}
        self._last = 0

    @property
    def participants(self) -> tuple[str, ...]:
        """Who can be called."""
        return tuple(self._places)

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
        """Where the coordinator computes."""
        return torch.device("cpu")

    def call(
        self, operation: str, payloads: Mapping[str, Payload], timeout: float | None = None
    ) -> dict[str, Reply | Failure]:
        """Ask some participants, each with a payload of its own; see `Federation.call`.

        Raises
        ------
        UnreachableError
            If the server is lost; a silo that is lost is a `Failure`.
        """
        if operation not in OPERATIONS:
            raise SettingsError(f"unknown operation {operation!r}; operations are {OPERATIONS}")
        by_site: dict[str, dict[str, Payload]] = {}
        result: dict[str, Reply | Failure] = {}
        for name, payload in payloads.items():
            if name not in self._places:
                raise SettingsError(f"{name!r} is not in this federation")
            label, site = self._places[name]
            try:
                self._check(payload)
            except SettingsError as error:
                result[name] = Failure(name, "error", str(error))
                continue
            by_site.setdefault(site, {})[label] = payload
        replies = self._asked(operation, by_site, timeout)
        for name, payload in payloads.items():
            if name not in result:
                label, site = self._places[name]
                given = replies[site]
                reply = given if isinstance(given, Failure) else given.get(label)
                result[name] = self._judged(operation, name, payload, reply)
        return {name: result[name] for name in payloads}

    def _asked(
        self, operation: str, by_site: Mapping[str, Mapping[str, Payload]], timeout: float | None
    ) -> dict[str, dict[str, Reply | Failure] | Failure]:
        """Ask sites, each with the payloads of its trials; all learn where the run stands."""
        messages: dict[str, bytes] = {}
        for site, asked in by_site.items():
            slots, sources = (
                {owner_of(payload[key]) for payload in asked.values() if payload.get(key)}
                for key in ("slot", "source")
            )
            # What is only copied from stays as it is, unless this run has trained it.
            owners = slots | (sources & self._lineages.keys())
            lineages = {owner: self._lineage(owner) for owner in sorted(owners)}
            request = self._request.model_copy(
                update={"operation": operation, "lineages": lineages}
            )
            messages[site] = pack_request(request, asked)
        answers = self._link.ask(messages, timeout)
        return {site: _understood(answer) for site, answer in answers.items()}

    def _lineage(self, owner: str) -> Lineage:
        if owner not in self._lineages:
            self._lineages[owner] = Lineage(returns=[Return(to=0, at=self._next())])
        return self._lineages[owner]

    def _next(self) -> int:
        """Return a number that no checkpoint and no return of this or another run has."""
        # By the clock: silos keep checkpoints longer than a run, and two runs must not share one.
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return self._last

    def _check(self, payload: Payload) -> None:
        vectors = [payload["parameters"]] if "parameters" in payload else []
        terms = payload.get("terms")
        if terms is not None:
            given = (terms.anchor, terms.towards, terms.correction, terms.momentum)
            vectors += [vector for vector in given if vector is not None]
        for vector in vectors:
            if vector.ndim not in (1, 2) or vector.shape[-1] != self._schema.size:
                raise SettingsError(
                    f"{tuple(vector.shape)} parameters where ({self._schema.size},) are expected"
                )

    def _judged(
        self, operation: str, name: str, payload: Payload, reply: Reply | Failure | None
    ) -> Reply | Failure:
        if reply is None:
            return Failure(name, "error", "no answer for this trial")
        if isinstance(reply, Failure):
            return replace(reply, participant=name)
        shape = tuple(payload["parameters"].shape) if "parameters" in payload else ()
        return accepted(operation, name, reply, shape)

    def memory(self, owner: str) -> dict[str, Tensor]:
        """Have silos keep a copy of what they keep to themselves, and return the copy's number.

        The values themselves never leave a silo. A silo that is away makes its copy when it is
        back, before anything else.
        """
        if owner not in self._lineages:
            return {}
        checkpoint = self._next()
        lineage = self._lineages[owner].model_copy(update={"checkpoint": checkpoint})
        self._lineages[owner] = lineage
        self._tell_all("remember", owner)
        return {f"{owner}\n{LINEAGE}": torch.tensor(lineage.numbers())}

    def restore(self, owner: str, memory: Mapping[str, Tensor]) -> None:
        """Have silos go back to what they kept at a checkpoint, or do so when they are back."""
        numbers = memory.get(f"{owner}\n{LINEAGE}")
        if numbers is None:
            return  # a method without slots
        then = Lineage.of(numbers.tolist())
        self._last = max(self._last, *numbers.tolist())
        back = Return(to=then.checkpoint, at=self._next())
        returns = [*then.returns, back][-MOST_RETURNS:]
        self._lineages[owner] = then.model_copy(update={"returns": returns})
        self._tell_all("recall", owner)

    def deliver(self, models: Mapping[str, Payload]) -> dict[str, Failure]:
        """Hand silos their models, which they complete with their own layers and keep.

        Returns
        -------
        dict
            Who has not got its model, and why.
        """
        by_site = {
            self._places[name][1]: {self._places[name][0]: model} for name, model in models.items()
        }
        replies = self._asked("deliver", by_site, None)
        lost: dict[str, Failure] = {}
        for name in models:
            reply = replies[self._places[name][1]]
            if isinstance(reply, Failure):
                lost[name] = replace(reply, participant=name)
        return lost

    def _tell_all(self, operation: str, owner: str) -> None:
        lineages = {owner: self._lineages[owner]}
        request = self._request.model_copy(update={"operation": operation, "lineages": lineages})
        message = pack_request(request, {})
        answers = self._link.ask(dict.fromkeys(self._sites.values(), message))
        for name, site in self._sites.items():
            answer = _understood(answers[site])
            if isinstance(answer, Failure):
                self._link.tell(f"{replace(answer, participant=name)}; asked to {operation}")

    def stream_name(self, participant: str) -> str:
        """Return the participant's own name."""
        return participant

    def personal_model(
        self,
        participant: str,  # noqa: ARG002 - as in the simulation
        parameters: Tensor,  # noqa: ARG002
        personal: Sequence[str],  # noqa: ARG002
        slot: str,  # noqa: ARG002
    ) -> None:
        """Return nothing: only the silo itself can put its whole model together."""
        return


def _understood(answer: bytes | Lost) -> dict[str, Reply | Failure] | Failure:
    if isinstance(answer, Lost):
        return Failure("", answer.reason, answer.detail)
    try:
        replies, _, refused = unpack_replies(answer)
    except WireError as error:
        return Failure("", "error", str(error))
    return Failure("", "refused", refused) if refused is not None else replies
