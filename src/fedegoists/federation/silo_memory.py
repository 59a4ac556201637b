"""What a silo keeps to itself between calls: its personal parameters.

A payload with ``personal`` names parameters that never leave the silo. The silo puts its own values
in their place before it computes anything, keeps what becomes of them under the payload's ``slot``,
and sends zeros instead.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fedegoists.federation.seam import Payload, Reply
from fedegoists.learning.parameters import ParameterSchema

__all__ = ["SiloMemory", "as_rows", "fill_all", "owner_of", "step_all", "withhold_all"]


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
        self.schema = schema
        self.slots: dict[str, Tensor] = {}
        self.speeds: dict[str, Tensor] = {}

    def fill(self, parameters: Tensor, payload: Payload) -> Tensor:
        """Return parameters with the silo's own values where the payload has personal ones."""
        return fill_all([self], [parameters], payload)[0]

    def withhold(self, reply: Reply, payload: Payload) -> Reply:
        """Keep the personal part of what was trained, and return the reply without it."""
        return withhold_all([self], [reply], payload)[0]

    def step(self, parameters: Tensor, gradient: Tensor, payload: Payload) -> None:
        """Take one step of descent with the personal part, at the payload's ``personal_rate``.

        With ``personal_momentum`` it goes on from the slot's last step; without, it is a first one.
        """
        step_all([self], parameters[None], gradient[None], payload)

    def keep(self, slot: str, source: str | None) -> None:
        """Copy another slot to this one, or empty it; one that is empty stands still."""
        if source is not None and source in self.slots:
            self.slots[slot] = self.slots[source]
        elif source is None:
            self.slots.pop(slot, None)
            self.speeds.pop(slot, None)

    def empty(self, owner: str) -> None:
        """Forget everything in a method's slots."""
        for kept in (self.slots, self.speeds):
            for slot in [slot for slot in kept if owner_of(slot) == owner]:
                del kept[slot]


# For many silos at once, whose payloads differ in nothing but tensors: on a GPU a few operations
# instead of some for each silo.


def fill_all(
    memories: Sequence[SiloMemory], parameters: Sequence[Tensor], payload: Payload
) -> list[Tensor]:
    """Return everybody's parameters with its own values where the payload has personal ones."""
    filled = list(parameters)
    if not payload.get("personal"):
        return filled
    kept = [memory.slots.get(payload["slot"]) for memory in memories]
    having = [k for k, own in enumerate(kept) if own is not None]
    if not having:
        return filled
    matrices = [as_rows(parameters[k]) for k in having]
    counts = [rows.shape[0] for rows in matrices]
    together = torch.cat(matrices)
    own = torch.stack([own for own in kept if own is not None]).to(together)
    if together.shape[0] > len(having):
        repeats = torch.tensor(counts, device=own.device)
        own = own.repeat_interleave(repeats, dim=0, output_size=together.shape[0])
    together[:, _places_of(memories[0], payload, together)] = own
    for k, rows in zip(having, torch.split(together, counts), strict=True):
        filled[k] = rows if parameters[k].ndim == 2 else rows[0]
    return filled


def withhold_all(
    memories: Sequence[SiloMemory], replies: Sequence[Reply], payload: Payload
) -> list[Reply]:
    """Keep the personal part of what everybody trained, and return replies without it."""
    if not payload.get("personal"):
        return list(replies)
    shown: list[Reply] = [dict(reply) for reply in replies]
    size = memories[0].schema.size
    silos_with: dict[str, list[int]] = {}
    for k, reply in enumerate(replies):
        for key, value in reply.items():
            if isinstance(value, Tensor) and value.shape[-1] == size:
                silos_with.setdefault(key, []).append(k)
    for key, having in silos_with.items():
        values = [as_rows(replies[k][key]) for k in having]
        together = torch.cat(values)
        places = _places_of(memories[0], payload, together)
        if key == "parameters":
            for k, own in zip(having, together[:, places].unbind(), strict=True):
                memories[k].slots[payload["slot"]] = own
        together[:, places] = 0.0
        parts = torch.split(together, [rows.shape[0] for rows in values])
        for k, part in zip(having, parts, strict=True):
            shown[k][key] = part if replies[k][key].ndim == 2 else part[0]
    return shown


def step_all(
    memories: Sequence[SiloMemory], parameters: Tensor, gradients: Tensor, payload: Payload
) -> None:
    """Take one step of descent with everybody's personal part; a row is a silo's own model."""
    places, slot = _places_of(memories[0], payload, gradients), payload["slot"]
    here = parameters[:, places]
    speed = gradients[:, places] + payload.get("personal_decay", 0.0) * here
    if payload.get("personal_momentum"):
        rest = torch.zeros_like(here[0])
        before = torch.stack([memory.speeds.get(slot, rest) for memory in memories])
        speed = speed + payload["personal_momentum"] * before
    moved = here - payload["personal_rate"] * speed
    # A step into what is no number is not taken; decided on the device, without waiting for it.
    fine = torch.isfinite(moved).all(1, keepdim=True)
    moved, speed = torch.where(fine, moved, here), torch.where(fine, speed, 0.0)
    for memory, own, own_speed in zip(memories, moved.unbind(), speed.unbind(), strict=True):
        memory.slots[slot], memory.speeds[slot] = own, own_speed


def as_rows(value: Tensor) -> Tensor:
    """Return one vector, or several, as a matrix."""
    return value if value.ndim == 2 else value[None]


def _places_of(memory: SiloMemory, payload: Payload, like: Tensor) -> Tensor:
    return _places(memory.schema, tuple(payload["personal"]), like.device)
