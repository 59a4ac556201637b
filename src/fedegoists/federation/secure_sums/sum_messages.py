"""What travels for secure sums: keys, offers, agreements and shares, checked when they are made."""

import hashlib
import math
from collections.abc import Collection, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.secure_sums.fixed_point import FRACTION_BITS
from fedegoists.federation.validated import Validated

MOST_MEMBERS = 1000

Site = Annotated[str, Field(min_length=1, max_length=100)]
"""A member, by the name in its certificate."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""32 bytes: a public key, or a hash."""

Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{64,2048}$")]
Share = Annotated[str, Field(pattern=r"^[0-9a-f]{66}$")]
SealedShares = Annotated[str, Field(pattern=r"^[0-9a-f]{188}$")]
"""Nonce, two shares and tag."""

Weight = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=0, lt=2**53)]
Label = Annotated[str, Field(max_length=400)]


class SumError(FedEgoistsError):
    """A step of a secure sum that is refused, or that cannot be done."""


LOST_SESSION = "set up a new session"


class LostSessionError(SumError):
    """A session that is not known here, as after a restart: a new one has to be set up."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; {LOST_SESSION}")


def digest_of(purpose: str, message: Validated) -> str:
    """Return a hash of a message, for one purpose."""
    content = f"fedegoists {purpose}\n{message.model_dump_json()}"
    return hashlib.sha256(content.encode()).hexdigest()


def threshold(members: int) -> int:
    """Return how many members have to answer so that masks can be taken off.

    More than two thirds: where fewer than a third of the members collude with the server, it cannot
    get both kinds of shares of one member by telling some that it has dropped out, and others not.

    Examples
    --------
    >>> [threshold(members) for members in (3, 4, 10)]
    [3, 3, 7]
    """
    return 2 * members // 3 + 1


class SumPurpose(Validated):
    """What a session is for.

    Attributes
    ----------
    run, method : str
        Which run, and which method in it.
    repetition : str
        The repetition of an experiment, if it is repeated.
    schema_is : str
        The hash of the names and shapes of the parameters.
    """

    run: Label
    method: Label = ""
    repetition: Label = ""
    schema_is: Label = ""


class PeerKeys(Validated):
    """A member's public keys for one session, signed with the key of its certificate.

    Attributes
    ----------
    channel : str
        The X25519 key for messages between two members, which authenticate all later keys.
    certificate : str
        In PEM.
    """

    site: Site
    channel: Key
    certificate: Annotated[str, Field(max_length=10_000)]
    signature: Signature


class Roster(Validated):
    """The members of a session and their keys, sorted by name."""

    purpose: SumPurpose
    peers: Annotated[tuple[PeerKeys, ...], Field(min_length=1, max_length=MOST_MEMBERS)]

    @model_validator(mode="after")
    def _sorted(self) -> "Roster":
        sites = self.sites
        if list(sites) != sorted(set(sites)):
            raise ValueError("the members are not sorted, or one occurs twice")
        return self

    @property
    def sites(self) -> tuple[str, ...]:
        """The members."""
        return tuple(peer.site for peer in self.peers)

    @property
    def session(self) -> str:
        """The hash of everything: the session's name."""
        return digest_of("session", self)

    @property
    def threshold(self) -> int:
        """How many members have to answer."""
        return threshold(len(self.peers))

    def holder(self, site: str) -> int:
        """Return a member's number among the holders of shares."""
        return self.sites.index(site) + 1


class MaskKey(Validated):
    """A member's public key for the masks of one round.

    Attributes
    ----------
    number : int
        Which round of the session; the same for all keys that are used together.
    key : str
        An X25519 key.
    commitment : str
        The hash of the seed of its own mask.

    Notes
    -----
    It needs no signature: every other member gets shares that are encrypted and authenticated with
    the keys of the session, and bound to all of this.
    """

    site: Site
    number: Number
    key: Key
    commitment: Key


class MaskOffer(Validated):
    """A member's key for the next round, and the encrypted shares for all others."""

    key: MaskKey
    shares: Annotated[dict[Site, SealedShares], Field(max_length=MOST_MEMBERS)]


class AgreedSum(Validated):
    """One weighted sum.

    Attributes
    ----------
    members : tuple of str
        The members with a part in it.
    weights : tuple of float
        Of each member; all together at most one.
    receiver : str, optional
        The only member that can read the sum; everybody, the server included, if left out.
    """

    members: Annotated[tuple[Site, ...], Field(min_length=1, max_length=MOST_MEMBERS)]
    weights: tuple[Weight, ...]
    receiver: Site | None = None

    @model_validator(mode="after")
    def _weighted(self) -> "AgreedSum":
        if len(set(self.members)) < len(self.members) or len(self.weights) != len(self.members):
            raise ValueError("a sum needs one weight for each of its members")
        if sum(self.weights) > 1 + 1e-6:
            raise ValueError("the weights of a sum are more than one in all")
        return self

    def share(self, members: Collection[str]) -> float:
        """Return the weights of some members together."""
        pairs = zip(self.members, self.weights, strict=True)
        return math.fsum(weight for site, weight in pairs if site in members)


class Agreement(Validated):
    """What the members of a round agree on; masks depend on every part of it.

    Attributes
    ----------
    session : str
        The hash of the roster.
    label : str
        Which round of the method.
    keys : tuple of MaskKey
        Of all members that take part, sorted by name.
    training : str
        The hash of what all members train; see `training_digest`.
    bits : int
        Bits after the binary point; with few of them, small parts would be rounded to nothing and
        would not hide a large one.
    """

    session: Key
    number: Number
    label: Label = ""
    keys: Annotated[tuple[MaskKey, ...], Field(min_length=1, max_length=MOST_MEMBERS)]
    sums: Annotated[tuple[AgreedSum, ...], Field(min_length=1, max_length=MOST_MEMBERS)]
    training: Key = "0" * 64
    bits: Annotated[int, Field(ge=16, le=30)] = FRACTION_BITS

    @model_validator(mode="after")
    def _fitting(self) -> "Agreement":
        sites = self.sites
        if list(sites) != sorted(set(sites)):
            raise ValueError("the keys are not sorted, or a member has two")
        if any(key.number != self.number for key in self.keys):
            raise ValueError("a key for another round")
        if not {site for one in self.sums for site in one.members} <= set(sites):
            raise ValueError("a sum with a member that takes no part")
        return self

    @property
    def sites(self) -> tuple[str, ...]:
        """The members that take part."""
        return tuple(key.site for key in self.keys)

    @property
    def digest(self) -> str:
        """The hash of everything."""
        return digest_of("agreement", self)


class UnmaskOrder(Validated):
    """Asks for the shares by which the masks of a round are taken off.

    Attributes
    ----------
    agreement : str
        The hash of the agreement.
    survivors : tuple of str
        The members whose vectors have arrived; all others have dropped out.
    """

    session: Key
    number: Number
    agreement: Key
    survivors: Annotated[tuple[Site, ...], Field(min_length=1, max_length=MOST_MEMBERS)]


class UnmaskShares(Validated):
    """A member's shares: of the own masks of survivors, and of the mask keys of all others."""

    seeds: Annotated[dict[Site, Share], Field(max_length=MOST_MEMBERS)]
    keys: Annotated[dict[Site, Share], Field(max_length=MOST_MEMBERS)]


class SumPolicy(Validated):
    """Which sums a member takes part in.

    Attributes
    ----------
    fewest : int
        The fewest members with a weight in a sum that is shown.
        A sum that only one member can read has at least this number with its receiver, whose own
        part hides nothing from it.
    largest_weight : float
        The largest fraction of one member in a sum, without the part of the receiver.
    """

    fewest: Annotated[int, Field(ge=2)] = 3
    largest_weight: Annotated[float, Field(gt=0, le=1)] = 0.9

    def check(self, sums: Sequence[AgreedSum], present: Collection[str]) -> None:
        """Refuse sums from which too much could be learnt about one member.

        Parameters
        ----------
        present : collection of str
            The members that have not dropped out.

        Raises
        ------
        SumError
            With the reason.
        """
        _check_apart(sums)
        for one in sums:
            parts = {
                site: weight
                for site, weight in zip(one.members, one.weights, strict=True)
                if weight > 0 and site in present
            }
            hiding = {site: own for site, own in parts.items() if site != one.receiver}
            if one.receiver is None:
                self._check_hidden(hiding, len(hiding))
            elif hiding:
                self._check_hidden(hiding, len(hiding) + 1)

    def _check_hidden(self, parts: dict[str, float], members: int) -> None:
        if members < self.fewest:
            raise SumError(
                f"a sum of {members} members would tell too much about one of them; here at "
                f"least {self.fewest} (limits.fewest_members)"
            )
        largest = max(parts.values()) / sum(parts.values())
        if largest > self.largest_weight:
            raise SumError(
                f"{largest:.3g} of a sum would be of one member; here at most "
                f"{self.largest_weight:g} (limits.largest_weight)"
            )


def _check_apart(sums: Sequence[AgreedSum]) -> None:
    """Refuse sums of one round whose difference would tell of single members."""
    readers: set[str] = set()
    shown: set[str] = set()
    for one in sums:
        if one.receiver is not None:
            if one.receiver in readers:
                raise SumError("two sums for one receiver: their difference tells too much")
            readers.add(one.receiver)
        elif shown.intersection(one.members):
            raise SumError("a member in two sums that are shown: their difference tells too much")
        else:
            shown.update(one.members)
    if readers and shown:
        raise SumError("sums that are shown beside sums for receivers: together they tell too much")
