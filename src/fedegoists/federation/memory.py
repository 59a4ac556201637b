"""What a silo keeps to itself between calls: its personal parameters.

A payload with ``personal`` names parameters that never leave the silo. The silo puts its own values
in their place before it computes anything, keeps what becomes of them under the payload's ``slot``,
and sends zeros instead.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fedegoists.federation.federation import Payload, Reply
from fedegoists.learning.parameters import ParameterSchema

__all__ = ["SiloMemory", "owner_of"]


def owner_of(slot: str) -> str:
    """Return the method whose slot it is.

    Examples
    --------
    >>> owner_of("fedavg/best")
    'fedavg'
    """
    return slot.split("/", 1)[0]


@lru_cache(maxsize=64)
def _places(schema: ParameterSchema, prefixes: Sequence[str], device: torch.device) -> Tensor:
    return schema.mask(prefixes).nonzero()[:, 0].to(device)


class SiloMemory:
    """One silo's personal parameters, by slot.

    Examples
    --------
    >>> memory = SiloMemory(ParameterSchema(("body", "output"), ((2,), (1,))))
    >>> payload = {"personal": ("output",), "slot": "fedper"}
    >>> memory.withhold({"parameters": torch.tensor([1.0, 2.0, 3.0])}, payload)
    {'parameters': tensor([1., 2., 0.])}
    >>> memory.fill(torch.tensor([5.0, 5.0, 5.0]), payload)
    tensor([5., 5., 3.])
    """

    def __init__(self, schema: ParameterSchema) -> None:
        self._schema = schema
        self.slots: dict[str, Tensor] = {}
        self._speeds: dict[str, Tensor] = {}

    def fill(self, parameters: Tensor, payload: Payload) -> Tensor:
        """Return parameters with the silo's own values where the payload has personal ones."""
        kept = self.slots.get(payload["slot"]) if payload.get("personal") else None
        if kept is None:
            return parameters
        filled = parameters.clone()
        filled[..., self._personal(payload, parameters)] = kept.to(parameters.device)
        return filled

    def withhold(self, reply: Reply, payload: Payload) -> Reply:
        """Keep the personal part of what was trained, and return the reply without it."""
        if not payload.get("personal"):
            return reply
        shown: dict[str, Any] = dict(reply)
        for key, value in reply.items():
            if isinstance(value, Tensor) and value.shape[-1] == self._schema.size:
                places = self._personal(payload, value)
                if key == "parameters":
                    self.slots[payload["slot"]] = value[places].clone()
                shown[key] = value.clone()
                shown[key][..., places] = 0.0
        return shown

    def step(self, parameters: Tensor, gradient: Tensor, payload: Payload) -> None:
        """Take one step of descent with the personal part, at the payload's ``personal_rate``.

        With ``personal_momentum`` it goes on from the slot's last step; without, it is a first one.
        """
        places = self._personal(payload, gradient)
        here = parameters[places]
        speed = gradient[places] + payload.get("personal_decay", 0.0) * here
        if payload.get("personal_momentum") and payload["slot"] in self._speeds:
            speed = speed + payload["personal_momentum"] * self._speeds[payload["slot"]]
        moved = here - payload["personal_rate"] * speed
        # A step into what is no number is not taken; decided on the device, without waiting for it.
        fine = torch.isfinite(moved).all()
        self.slots[payload["slot"]] = torch.where(fine, moved, here)
        self._speeds[payload["slot"]] = torch.where(fine, speed, 0.0)

    def keep(self, slot: str, source: str | None) -> None:
        """Copy another slot to this one, or empty it."""
        if source is not None and source in self.slots:
            self.slots[slot] = self.slots[source]
        elif source is None:
            self.slots.pop(slot, None)

    def empty(self, owner: str) -> None:
        """Forget everything in a method's slots."""
        for kept in (self.slots, self._speeds):
            for slot in [slot for slot in kept if owner_of(slot) == owner]:
                del kept[slot]

    def _personal(self, payload: Payload, like: Tensor) -> Tensor:
        return _places(self._schema, tuple(payload["personal"]), like.device)
