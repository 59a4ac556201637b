"""The memory of a silo between calls: its personal parameters, see `Personal`."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.replies import Gradients, ReplyT, Trained
from fedegoists.federation.requests import Personal, owner_of
from fedegoists.learning.parameters import ParameterSchema


@lru_cache(maxsize=64)
def _places(schema: ParameterSchema, prefixes: Sequence[str], device: torch.device) -> Tensor:
    return schema.mask(prefixes).nonzero()[:, 0].to(device)


@lru_cache(maxsize=64)
def _mask(schema: ParameterSchema, prefixes: Sequence[str], device: torch.device) -> Tensor:
    return schema.mask(prefixes).to(device)


class SiloMemory:
    """One silo's personal parameters, by slot, and the momentum of their last step.

    Examples
    --------
    >>> memory = SiloMemory(ParameterSchema(("body", "output"), ((2,), (1,))))
    >>> personal = Personal(prefixes=("output",), slot="fedper")
    >>> memory.slots["fedper"] = torch.tensor([3.0])
    >>> memory.fill(torch.tensor([5.0, 5.0, 5.0]), personal)
    tensor([5., 5., 3.])
    """

    def __init__(self, schema: ParameterSchema) -> None:
        self.schema = schema
        self.slots: dict[str, Tensor] = {}
        self.speeds: dict[str, Tensor] = {}

    def fill(self, parameters: Tensor, personal: Personal | None) -> Tensor:
        """Return parameters with the silo's own values where they are personal."""
        return parameters if personal is None else fill_all([self], [parameters], personal)[0]

    def own_term(self, name: str, sent: Tensor, start: Tensor, personal: Personal | None) -> Tensor:
        """Return a vector of local terms as it holds for parameters that stay in the silo.

        Where parameters take no part in sums, nothing that is sent moves them: they are corrected
        by zero, and pulled to where they begin. Their momentum begins at zero, or is the silo's
        own. With ``towards`` they may grow or shrink, as a cosine is of all parameters together.

        Parameters
        ----------
        name : str
            As in `OfModels.tensors`.
        start : Tensor
            The parameters that are sent, where training begins if the silo keeps none yet.
        """
        if personal is None or name not in ("anchor", "towards", "correction", "momentum"):
            return sent
        withheld = _mask(self.schema, personal.withheld, sent.device)
        rest = sent.masked_fill(withheld, 0.0)
        if name == "momentum" and personal.momentum_slot is not None:
            own = self.fill(rest, personal.changed(slot=personal.momentum_slot))
            return own.masked_fill(withheld, 0.0) if personal.whole else own
        if name in ("correction", "momentum"):
            return rest
        # At all others pulls another model.
        return torch.where(withheld, self.fill(start.to(sent), personal), sent)

    def keep(self, slot: str, source: str | None) -> None:
        """Copy another slot to this one, or empty it; an empty source changes nothing."""
        if source is not None and source in self.slots:
            self.slots[slot] = self.slots[source]
        elif source is None:
            self.slots.pop(slot, None)
            self.speeds.pop(slot, None)

    def empty(self, owner: str) -> None:
        """Empty all slots of a method."""
        for kept in (self.slots, self.speeds):
            for slot in [slot for slot in kept if owner_of(slot) == owner]:
                del kept[slot]


# For many silos at once, whose requests differ in nothing but tensors: on a GPU a few operations
# instead of some for each silo.


def fill_all(
    memories: Sequence[SiloMemory], parameters: Sequence[Tensor], personal: Personal
) -> list[Tensor]:
    """Return the parameters of all silos with their own values where they are personal."""
    filled = list(parameters)
    kept = [memory.slots.get(personal.slot) for memory in memories]
    having = [k for k, own in enumerate(kept) if own is not None]
    if not having:
        return filled
    matrices = [_rows(parameters[k]) for k in having]
    counts = [rows.shape[0] for rows in matrices]
    together = torch.cat(matrices)
    own = torch.stack([own for own in kept if own is not None]).to(together)
    if together.shape[0] > len(having):
        repeats = torch.tensor(counts, device=own.device)
        own = own.repeat_interleave(repeats, dim=0, output_size=together.shape[0])
    places = _places(memories[0].schema, personal.prefixes, together.device)
    if own.shape[1] != len(places):  # a single number would be spread over all places
        raise SettingsError(
            f"{personal.slot} holds {own.shape[1]} numbers where {len(places)} are personal"
        )
    together[:, places] = own
    for k, rows in zip(having, torch.split(together, counts), strict=True):
        filled[k] = rows if parameters[k].ndim == 2 else rows[0]
    return filled


def withhold_all(
    memories: Sequence[SiloMemory], replies: Sequence[ReplyT], personal: Personal
) -> list[ReplyT]:
    """Keep the personal part of what all silos trained, and return replies without it."""
    # A shift of the representation is no part of the model, but trained on the same samples.
    changes: list[dict[str, Tensor | None]] = [
        {"shift": None} if personal.whole and isinstance(reply, Trained) else {}
        for reply in replies
    ]
    for name in (*Trained.vectors, *Gradients.vectors):
        values: dict[int, Tensor] = {
            k: value
            for k, reply in enumerate(replies)
            if (value := getattr(reply, name, None)) is not None
        }
        if not values:
            continue
        matrices = [_rows(value) for value in values.values()]
        together = torch.cat(matrices)
        places = _places(memories[0].schema, personal.prefixes, together.device)
        if name == "parameters":
            for k, own in zip(values, together[:, places].unbind(), strict=True):
                memories[k].slots[personal.slot] = own
        if name == "momentum" and personal.momentum_slot is not None:
            unmixed = _places(memories[0].schema, personal.unmixed, together.device)
            together[:, unmixed] = 0.0
            for k, own in zip(values, together[:, places].unbind(), strict=True):
                memories[k].slots[personal.momentum_slot] = own
        together[:, places] = 0.0
        parts = torch.split(together, [rows.shape[0] for rows in matrices])
        for k, part in zip(values, parts, strict=True):
            changes[k][name] = part if values[k].ndim == 2 else part[0]
    return [
        reply.model_copy(update=changed) for reply, changed in zip(replies, changes, strict=True)
    ]


def step_all(
    memories: Sequence[SiloMemory], parameters: Tensor, gradients: Tensor, personal: Personal
) -> None:
    """Take one step of descent with the personal parameters of all silos; a row is a silo's."""
    assert personal.rate is not None
    places = _places(memories[0].schema, personal.prefixes, gradients.device)
    slot, here = personal.slot, parameters[:, places]
    speed = gradients[:, places] + personal.decay * here
    if personal.momentum:
        rest = torch.zeros_like(here[0])
        before = torch.stack([memory.speeds.get(slot, rest) for memory in memories])
        speed = speed + personal.momentum * before
    moved = here - personal.rate * speed
    # A step that would not be finite is not taken; decided on the device, without waiting for it.
    fine = torch.isfinite(moved).all(1, keepdim=True)
    moved, speed = torch.where(fine, moved, here), torch.where(fine, speed, 0.0)
    for memory, own, own_speed in zip(memories, moved.unbind(), speed.unbind(), strict=True):
        memory.slots[slot], memory.speeds[slot] = own, own_speed


def _rows(value: Tensor) -> Tensor:
    return value if value.ndim == 2 else value[None]
