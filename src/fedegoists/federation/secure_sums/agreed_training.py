"""What the members of a sum train: the same for all of them, and another in another company."""

import hashlib
import json
import math
from collections.abc import Collection

from torch import Tensor

from fedegoists.federation.requests import Train
from fedegoists.federation.secure_sums.sum_messages import AgreedSum, Agreement
from fedegoists.learning.parameters import ParameterSchema

SHORTEST_NOISE = 0.5
"""Noise of one silo, in lengths of its update; that of several silos adds up to about an update.

Twice as long was tried first: in one of four measurements the guard then overlooked a member with
flipped labels that it finds without noise, and with this.
"""


def training_digest(schema: ParameterSchema, train: Train, bound: float | None) -> str:
    """Return a hash of what a member is asked to train, which all members of a sum compare.

    Otherwise a server could have all members but one send what it knows already, by another start,
    a learning rate of zero, or a bound of nearly zero, and read the last one's model from the sum.

    Personal parameters and their momentum are not in it: a silo replaces them by its own. Where
    they are the whole model, starts differ between members and stay hidden; then only settings,
    seed and bound are compared.
    """
    personal = None if train.personal is None else schema.mask(train.personal.prefixes)

    def compared(name: str, tensor: Tensor) -> Tensor:
        tensor = tensor.detach().cpu().float()
        own = personal is not None and name in ("parameters", "momentum")
        if own and personal is not None and tensor.shape == personal.shape:
            tensor = tensor.masked_fill(personal.cpu(), 0.0)
        return tensor.contiguous()

    content = f"fedegoists training\n{train.mapped(compared).digest()}\n{bound!r}"
    return hashlib.sha256(content.encode()).hexdigest()


def agreed_seed(train: Train, agreement: Agreement) -> str:
    """Return the seed of a member's batches: another one for every other set of members.

    Were a round repeated without one member and with the same batches, the difference of the two
    sums would be exactly that member's part. Batches alone hide little of it, see `noise_length`.
    The seed does not depend on keys, so that a run that is continued draws the batches that it
    would have drawn.
    """
    sums = "\n".join(map(_written, agreement.sums))
    content = f"fedegoists batches\n{train.seed!r}\n{agreement.sites}\n{sums}"
    return hashlib.sha256(content.encode()).hexdigest()


def _written(one: AgreedSum) -> str:
    """Return a sum as text, which decides about batches.

    `by_class` was a field of sums once; without it, recorded runs would draw other batches.
    """
    parts = {"members": one.members, "weights": one.weights, "by_class": False}
    return json.dumps({**parts, "receiver": one.receiver}, separators=(",", ":"))


def company_of(agreement: Agreement, site: str, present: Collection[str] | None = None) -> str:
    """Return a hash of the sums that a member adds to: of whose models, with which weights.

    Parameters
    ----------
    present : collection of str, optional
        The members whose parts are in the sums; all by default.
    """
    sums = []
    for one in agreement.sums:
        parts = {
            member: weight
            for member, weight in zip(one.members, one.weights, strict=True)
            if weight > 0 and (present is None or member in present)
        }
        if site in parts:
            total = math.fsum(parts.values())
            # So many digits that nothing can be read from sums that count as one company.
            shares = {name: f"{parts[name] / total:.12f}" for name in sorted(parts)}
            sums.append((one.receiver, shares))
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest()[:32]


def noise_length(companies: int, members: int) -> float:
    """Return the length of the noise of a silo that trains from a model in one more company.

    In multiples of the length of its update, for which it does not matter how much it varies with
    batches. The first company gets no noise. In any other one a member that is missing stays hidden
    behind the noise of all who are there. It grows with the companies, so that a mean over many of
    them wears it off hardly at all.

    Parameters
    ----------
    companies : int
        Other companies in which the silo has trained from this model.
    members : int
        The members that take part.

    Examples
    --------
    >>> [noise_length(companies, 4) for companies in (0, 1, 4, 16)]
    [0.0, 0.5, 0.5, 1.0]
    """
    return SHORTEST_NOISE * math.sqrt(max(1.0, companies / members)) if companies else 0.0
