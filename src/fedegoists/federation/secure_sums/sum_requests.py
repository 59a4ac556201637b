"""The requests and replies of secure sums, in the order in which they are sent."""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedegoists.federation.mixing import MixtureStep
from fedegoists.federation.replies import Kept, Problem, Reply, Samples
from fedegoists.federation.requests import Number, Request, Train
from fedegoists.federation.secure_sums.sum_messages import (
    MOST_MEMBERS,
    Agreement,
    Key,
    MaskOffer,
    PeerKeys,
    Roster,
    SealedShares,
    Site,
    SumPurpose,
    UnmaskOrder,
    UnmaskShares,
)
from fedegoists.federation.secure_sums.sum_messages import Number as RoundNumber
from fedegoists.federation.validated import RingVector


class _WithoutModels(Reply):
    """The base of replies to requests without parameters."""

    def problem(self, shape: tuple[int, ...]) -> Problem | None:  # noqa: ARG002 - none was sent
        """Return nothing: what can be checked was checked when it was made."""
        return None


class Advertised(_WithoutModels):
    """A member's keys for a session."""

    operation: Literal["advertise"] = "advertise"
    keys: PeerKeys


class Offered(_WithoutModels):
    """A member's key and shares for a round."""

    operation: Literal["offer"] = "offer"
    offer: MaskOffer


class MaskedTrained(Reply):
    """What a member tells about its training, and its parts in sums, under masks.

    Attributes
    ----------
    norm : float, optional
        Of the update before it was shortened; where a bound was given.
    masked : tuple of Tensor
        Elements of the ring, for each agreed sum that the member has a part in.
    offer : MaskOffer
        For the next round.
    """

    operation: Literal["masked_train"] = "masked_train"
    loss: float
    sample_passes: Samples
    norm: Number | None = None
    masked: Annotated[tuple[RingVector, ...], Field(max_length=MOST_MEMBERS)]
    offer: MaskOffer

    def problem(self, shape: tuple[int, ...]) -> Problem | None:  # noqa: ARG002 - see the collector
        """Return why the reply cannot be used, or nothing."""
        return None if math.isfinite(self.loss) else ("not finite", "loss")


class Unmasked(_WithoutModels):
    """A member's shares."""

    operation: Literal["unmask"] = "unmask"
    shares: UnmaskShares


class Advertise(Request[Advertised]):
    """Make keys for a session of secure sums."""

    replies: ClassVar[type[Reply]] = Advertised
    operation: Literal["advertise"] = "advertise"
    purpose: SumPurpose


class Join(Request[Offered]):
    """Check the members of a session, and make the keys of its first round."""

    replies: ClassVar[type[Reply]] = Offered
    operation: Literal["join"] = "join"
    roster: Roster


class Offer(Request[Offered]):
    """Make the keys of a later round, as after an absence."""

    replies: ClassVar[type[Reply]] = Offered
    operation: Literal["offer"] = "offer"
    session: Key
    number: RoundNumber


class MaskedTrain(Request[MaskedTrained]):
    """Train, and send the result only as parts of sums under masks.

    Attributes
    ----------
    agreement : Agreement
        The sums, and who takes part.
    sealed : dict
        The other members' shares for this one, encrypted by them.
    bound : float, optional
        The longest update; a longer one is shortened. Without it no norm is told.
    """

    replies: ClassVar[type[Reply]] = MaskedTrained
    operation: Literal["masked_train"] = "masked_train"
    train: Train
    agreement: Agreement
    sealed: Annotated[dict[Site, SealedShares], Field(max_length=MOST_MEMBERS)]
    bound: Annotated[float, Field(gt=0)] | None = None

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of the silo's memory that are used."""
        return self.train.slots


class Unmask(Request[Unmasked]):
    """Give the shares by which the masks of a round's sums come off."""

    replies: ClassVar[type[Reply]] = Unmasked
    operation: Literal["unmask"] = "unmask"
    order: UnmaskOrder


class TakeMixture(Request[Kept]):
    """Take the masks off a sum that only this member can read, and continue with its mean.

    Attributes
    ----------
    agreement : str
        The hash of the agreement of the round.
    index : int
        Which of its sums.
    survivors : tuple of str
        The members whose vectors are in it.
    total : Tensor
        The sum, in elements of the ring.
    step : MixtureStep
        What becomes of the mean.
    """

    replies: ClassVar[type[Reply]] = Kept
    operation: Literal["take"] = "take"
    agreement: Key
    index: Annotated[int, Field(ge=0, lt=MOST_MEMBERS)]
    survivors: Annotated[tuple[Site, ...], Field(min_length=1, max_length=MOST_MEMBERS)]
    total: RingVector
    step: MixtureStep
