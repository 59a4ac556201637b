"""The seam between a method and the silos: a call goes out, replies or failures come back.

A method never knows where silos live. It is server-side code that calls
``federation.call("train", {organisation: payload})``; the silos may be arrays in this process or
machines owned by others.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

__all__ = ["Failure", "Federation", "Payload", "Reply", "WithTimeout", "accepted"]

Payload = Mapping[str, Any]
Reply = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """A silo that did not give a usable answer: a value, not an exception.

    Attributes
    ----------
    participant : str
        Whose answer is missing.
    reason : str
        ``timeout``, ``not finite``, ``wrong shape``, ``refused`` (by the silo's own limits) or
        ``error``.
    detail : str
        One line for the log.
    """

    participant: str
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.participant}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


class Federation(Protocol):
    """Silos that can be asked to do something, wherever they are."""

    @property
    def participants(self) -> tuple[str, ...]:
        """Who can be called."""

    @property
    def schema(self) -> ParameterSchema:
        """The parameters of the model that all silos train."""

    @property
    def task(self) -> Task:
        """What they train for."""

    @property
    def device(self) -> torch.device:
        """Where the server computes."""

    def call(
        self, operation: str, payloads: Mapping[str, Payload], timeout: float | None = None
    ) -> dict[str, Reply | Failure]:
        """Ask some participants, each with a payload of its own, to carry out an operation.

        Operations are those of `fedegoists.federation.silo_operations`: ``train``,
        ``loss_and_gradient``, ``evaluate``, ``describe`` and ``keep``. Who does not answer within
        `timeout` seconds, or answers with something that cannot be used, is in the result with a
        `Failure`.
        """

    def stream_name(self, participant: str) -> str:
        """Return the name by which numbers are drawn for a participant: usually its own.

        The same silo of the same trial, compared in several coalitions, draws the same in all.
        """

    def memory(self, owner: str) -> dict[str, Tensor]:
        """Return what silos in this process keep in a method's slots, for its checkpoint."""

    def restore(self, owner: str, memory: Mapping[str, Tensor]) -> None:
        """Give silos back what they kept in a method's slots then, and nothing else in them."""

    def personal_model(
        self, participant: str, parameters: Tensor, personal: tuple[str, ...], slot: str
    ) -> Tensor | None:
        """Return a whole model with a silo's own parameters, or nothing if only the silo can."""

    def deliver(self, models: Mapping[str, Payload]) -> dict[str, Failure]:
        """Hand participants their models; return who has not got its own.

        Each comes with the ``method`` and ``round`` that it is from and, where layers stayed at
        the silo, with ``personal`` and the ``slot`` they are in.
        """


class WithTimeout:
    """A federation in which no call waits longer than some seconds."""

    def __init__(self, federation: Federation, seconds: float) -> None:
        if not seconds > 0:
            raise SettingsError(f"a timeout of {seconds} s; expected a positive number")
        self._federation, self._seconds = federation, seconds
        self.participants, self.schema = federation.participants, federation.schema
        self.task, self.device = federation.task, federation.device
        self.stream_name = federation.stream_name
        self.memory, self.restore = federation.memory, federation.restore
        self.personal_model, self.deliver = federation.personal_model, federation.deliver

    def call(
        self, operation: str, payloads: Mapping[str, Payload], timeout: float | None = None
    ) -> dict[str, Reply | Failure]:
        """Ask some participants; see `Federation.call`."""
        seconds = self._seconds if timeout is None else min(timeout, self._seconds)
        return self._federation.call(operation, payloads, seconds)


REPLIES: dict[str, tuple[str, ...]] = {
    "train": ("parameters", "loss", "samples", "sample_passes"),
    "loss_and_gradient": ("loss", "gradient", "samples"),
    "evaluate": ("loss", "score", "samples"),
    "describe": ("samples",),
    "keep": (),
}
"""What must be in a reply to each operation."""

OPTIONAL: dict[str, tuple[str, ...]] = {
    "train": ("anchor", "momentum"),
    "describe": ("labels", "direction"),
}
"""What may be in it besides; anything else is dropped."""

LARGEST = 1e12
"""Larger parameters and gradients are no use to anybody, and their sums could overflow."""


def accepted(
    operation: str, participant: str, reply: Any, shape: tuple[int, ...]
) -> Reply | Failure:
    """Return a reply if it can be used, and otherwise the failure to report.

    Vectors of parameters and gradients must have the shape of the parameters that were sent and,
    like every loss, be finite: what one silo answers must not stop the others.
    """
    if not isinstance(reply, dict):
        return Failure(participant, "error", f"a {type(reply).__name__} instead of a reply")
    usable: Reply = {}
    for key in (*REPLIES[operation], *OPTIONAL.get(operation, ())):
        if key not in reply:
            if key in REPLIES[operation]:
                return Failure(participant, "error", f"no {key} in the reply to {operation}")
            continue
        value = reply[key]
        if key in ("parameters", "gradient", "anchor", "momentum"):
            wrong = _wrong_vector(value, shape)
        elif key == "loss":
            wrong = _wrong_losses(value, shape)
        elif key == "score":
            wrong = _wrong_scores(value, shape)
        elif key == "direction":
            wrong = _wrong_vector(value, tuple(value.shape) if isinstance(value, Tensor) else ())
        elif key == "labels":
            counts = isinstance(value, list) and all(_count(x, 0) for x in value) and sum(value)
            wrong = None if counts else ("error", f"{key} is no list of counts")
        elif operation == "describe":
            sizes = isinstance(value, dict) and all(_count(x, 0) for x in value.values())
            wrong = None if sizes else ("error", f"{key} are no counts")
        else:
            wrong = None if _count(value, 1) else ("error", f"{key} is {repr(value)[:50]}")
        if wrong is not None:
            reason, detail = wrong
            text = detail if key in detail else f"{key}: {detail}".removesuffix(": ")
            return Failure(participant, reason, text)
        usable[key] = value
    return usable


def _wrong_vector(value: object, shape: tuple[int, ...]) -> tuple[str, str] | None:
    if not isinstance(value, Tensor) or value.shape != shape:
        given = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        return "wrong shape", f"{given} where {tuple(shape)} is expected"
    if value.layout != torch.strided or value.dtype != torch.float32:
        return "wrong shape", f"a {value.layout} tensor of {value.dtype}"
    if not bool((value.abs() < LARGEST).all()):  # false for what is no number, too
        return "not finite", ""
    return None


def _wrong_losses(value: object, shape: tuple[int, ...]) -> tuple[str, str] | None:
    losses = value if isinstance(value, list) else [value]
    if not all(isinstance(loss, float) and math.isfinite(loss) for loss in losses):
        return "not finite", ""
    if isinstance(value, list) != (len(shape) == 2) or len(losses) != math.prod(shape[:-1]):
        return "wrong shape", f"{len(losses)} losses"
    return None


def _wrong_scores(value: object, shape: tuple[int, ...]) -> tuple[str, str] | None:
    """Scores may be no numbers, as the AUC of a single class is."""
    scores = value if isinstance(value, list) else [value]
    if not all(isinstance(score, float) for score in scores):
        return "error", repr(value)[:50]
    if isinstance(value, list) != (len(shape) == 2) or len(scores) != math.prod(shape[:-1]):
        return "wrong shape", f"{len(scores)} scores"
    return None


def _count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**53
