"""A silo's part in a sum: training, what it adds, and what it does with the mean it receives.

For silos whose models the server does not see. A model that is personal as a whole stays in the
silo's memory: training starts from it there, and the mean becomes the next one there.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedegoists.federation.gradient_privacy import cipher_normals
from fedegoists.federation.mixing import TINY, MixtureStep, VectorName, shortened
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Trained
from fedegoists.federation.requests import Personal, Train
from fedegoists.federation.seam import Failure
from fedegoists.federation.simulated_federation import SimulatedFederation
from fedegoists.sealed_files import derived_key


@dataclass(frozen=True)
class TrainedAtHome:
    """A silo's training in a round, before any of it leaves.

    Attributes
    ----------
    request, reply : Train and Trained
        As if the model were not kept at home: with the silo's own parameters before and after.
        Limits and privacy settings apply to this pair. A part of the model that takes no part in
        sums is personal in the request and zeros in the reply, as it is for models that are not
        kept at home.
    kept : Personal, optional
        Where the silo keeps its model, if it keeps all of it.
    """

    request: Train
    reply: Trained
    kept: Personal | None = None


def train_at_home(
    federation: SimulatedFederation, requests: Mapping[Participant, Train]
) -> dict[Participant, TrainedAtHome | Failure]:
    """Carry out training of which nothing will leave but a part of a sum.

    Parameters
    ----------
    federation : SimulatedFederation
        The silo itself, in some repetitions.
    """
    starts = {name: _start(federation, name, request) for name, request in requests.items()}
    result: dict[Participant, TrainedAtHome | Failure] = {}
    for name, reply in federation.call(requests).items():
        request, personal = requests[name], requests[name].personal
        if isinstance(reply, Failure):
            result[name] = reply
        elif personal is None or not personal.whole:
            result[name] = TrainedAtHome(request, reply)
        else:
            slots = federation.silo_memory(name).slots
            own = {"parameters": slots[personal.slot]}
            if reply.momentum is not None and personal.momentum_slot is not None:
                own["momentum"] = slots[personal.momentum_slot]
            apart = personal.changed(prefixes=personal.unmixed) if personal.unmixed else None
            start = request.changed(parameters=starts[name], personal=apart)
            left = {vector: _without_own(federation, start, rows) for vector, rows in own.items()}
            result[name] = TrainedAtHome(start, reply.changed(**left), personal)
    return result


def _withheld(federation: SimulatedFederation, request: Train, like: Tensor) -> Tensor | None:
    """Return where a silo's parameters are personal: they are in no sum, and no sum changes them.

    For all of this module, a request is that of `TrainedAtHome`.
    """
    if request.personal is None:
        return None
    return federation.schema.mask(request.personal.withheld).to(like.device)


def _without_own(federation: SimulatedFederation, request: Train, vector: Tensor) -> Tensor:
    """Return a vector with zeros where the silo's parameters are personal."""
    withheld = _withheld(federation, request, vector)
    return vector if withheld is None else vector.masked_fill(withheld, 0.0)


def _start(federation: SimulatedFederation, name: Participant, request: Train) -> Tensor:
    here = request.parameters.to(federation.device)
    return federation.silo_memory(name).fill(here, request.personal)


def added_vectors(
    federation: SimulatedFederation,
    trained: TrainedAtHome,
    bound: float | None = None,
    reply: Trained | None = None,
) -> tuple[dict[VectorName, Tensor], float | None]:
    """Return the vectors that a silo adds to a sum, and the norm of its update before.

    Parameters
    ----------
    bound : float, optional
        Longest update; a longer one is shortened. Without it there is no norm.
    reply : Trained, optional
        The reply as it may leave, if the silo's privacy settings change it.
    """
    request, reply = trained.request, trained.reply if reply is None else reply
    # Personal parameters are no part of the update, and zeros in it whatever the reply has there.
    start = _without_own(federation, request, request.parameters.to(reply.parameters))
    after = _without_own(federation, request, reply.parameters)
    norm = None
    if bound is not None:
        rows, lengths = shortened(start[None], after[None], torch.tensor([bound]))
        after, norm = rows[0], float(lengths[0])
    vectors: dict[VectorName, Tensor] = {"parameters": after}
    if request.terms is not None and request.terms.momentum is not None:
        # A momentum that may not leave counts as zero.
        speed = torch.zeros_like(start) if reply.momentum is None else reply.momentum
        vectors["momentum"] = _without_own(federation, request, speed)
    return vectors, norm


def start_digest(federation: SimulatedFederation, trained: TrainedAtHome) -> str:
    """Return a hash of the model that a silo has trained from, without a part that it withholds."""
    start = _without_own(federation, trained.request, trained.request.parameters)
    content = np.ascontiguousarray(start.detach().cpu().float().numpy())
    return hashlib.sha256(content.data).hexdigest()[:32]


def with_noise(
    federation: SimulatedFederation,
    trained: TrainedAtHome,
    vectors: Mapping[VectorName, Tensor],
    length: float,
    key: bytes,
) -> dict[VectorName, Tensor]:
    """Return vectors that a silo adds to a sum, with noise.

    Parameters
    ----------
    length : float
        Of the noise, in multiples of the length of the update, and of the momentum.
    key : bytes
        The secret of the noise: who has it asked for again learns nothing more.
    """
    start = trained.request.parameters
    result: dict[VectorName, Tensor] = {}
    for name, own in vectors.items():
        noise = cipher_normals(derived_key(key, name), own.numel()).to(own)
        change = own - start.to(own) if name == "parameters" else own
        noise, change = (
            _without_own(federation, trained.request, vector) for vector in (noise, change)
        )
        result[name] = own + noise * (length * change.norm() / noise.norm().clamp_min(TINY))
    return result


def take_mean(
    federation: SimulatedFederation,
    participant: Participant,
    trained: TrainedAtHome,
    means: Mapping[VectorName, Tensor],
    step: MixtureStep,
) -> None:
    """Make a mean the silo's next model, where it keeps its model.

    Does what the server does with models that it sees, see `MixtureStep`. The velocity is in the
    slot's own place, `velocity_slot`. Personal parameters stay as they were trained, whatever the
    mean has in their places.
    """
    kept = trained.kept
    assert kept is not None, "the server continues with models that are not kept at home"
    slots, schema = federation.silo_memory(participant).slots, federation.schema
    own = trained.reply
    start = trained.request.parameters
    velocity = slots.get(velocity_slot(kept.slot), torch.zeros_like(start))
    mean = means["parameters"].to(start)
    withheld = _withheld(federation, trained.request, start)

    def unless_own(before: Tensor, after: Tensor) -> Tensor:
        return after if withheld is None else torch.where(withheld, before, after)

    after, moved = step.taken(schema, start, own.parameters, mean, velocity)
    slots[kept.slot] = unless_own(slots[kept.slot], after)
    if step.outer and moved is not None:
        slots[velocity_slot(kept.slot)] = unless_own(velocity, moved)
    if kept.momentum_slot is not None and own.momentum is not None and "momentum" in means:
        mean = step.with_own(schema, own.momentum, means["momentum"].to(start))
        slots[kept.momentum_slot] = unless_own(slots[kept.momentum_slot], mean)


def velocity_slot(slot: str) -> str:
    """Return the slot of the velocity of a model's mixture.

    Examples
    --------
    >>> velocity_slot("egomix")
    'egomix/velocity'
    """
    return f"{slot}/velocity"
