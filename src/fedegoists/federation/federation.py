"""The seam between a method and the silos: a call goes out, replies or failures come back.

A method never knows where silos live. It is server-side code that calls
``federation.call("train", {organisation: payload})``; the silos may be arrays in this process or
machines owned by others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

__all__ = ["Failure", "Federation", "Payload", "Reply", "accepted"]

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
        ``timeout``, ``not finite``, ``wrong shape`` or ``error``.
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

    def call(
        self, operation: str, payloads: Mapping[str, Payload], timeout: float | None = None
    ) -> dict[str, Reply | Failure]:
        """Ask some participants, each with a payload of its own, to carry out an operation.

        Operations are those of `fedegoists.federation.operations`: ``train``,
        ``loss_and_gradient``, ``evaluate`` and ``describe``. Who does not answer within `timeout`
        seconds, or answers with something that cannot be used, is in the result with a `Failure`.
        """


def accepted(participant: str, reply: Reply, schema: ParameterSchema) -> Reply | Failure:
    """Return a reply if it can be used, and otherwise the failure to report.

    Every vector of parameters must have the schema's length and, like every number, be finite:
    one silo's NaN must not reach the others.
    """
    for key, value in reply.items():
        if isinstance(value, Tensor):
            if value.shape != (schema.size,):
                expected = f"{key}: {tuple(value.shape)} where ({schema.size},) is expected"
                return Failure(participant, "wrong shape", expected)
            if not bool(torch.isfinite(value).all()):
                return Failure(participant, "not finite", key)
        elif isinstance(value, float) and key == "loss" and not abs(value) < float("inf"):
            return Failure(participant, "not finite", key)
    return reply
