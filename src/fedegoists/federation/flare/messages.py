"""The messages: a call with the requests to a silo, and its answers.

One message carries the requests of all repetitions of a participant, so that a silo answers them at
once. Requests and replies are those of `fedegoists.federation`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import (
    Delivered,
    Described,
    Evaluated,
    Failed,
    Gradients,
    Kept,
    PriorAdded,
    Trained,
)
from fedegoists.federation.requests import (
    AddPrior,
    Count,
    Deliver,
    Describe,
    Evaluate,
    Gradient,
    Keep,
    Train,
)
from fedegoists.federation.secure_sums.sum_requests import (
    Advertise,
    Advertised,
    Join,
    MaskedTrain,
    MaskedTrained,
    Offer,
    Offered,
    TakeMixture,
    Unmask,
    Unmasked,
)
from fedegoists.federation.validated import Validated
from fedegoists.learning.data import TaskName

Text = Annotated[str, Field(max_length=400)]
Owner = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+]{1,60}$")]
"""A method's name alone."""

RepetitionNumber = Annotated[int, Field(ge=0, lt=10_000)]
SiloRequest = (
    Train
    | Gradient
    | Evaluate
    | Describe
    | AddPrior
    | Keep
    | Deliver
    | Advertise
    | Join
    | Offer
    | MaskedTrain
    | Unmask
    | TakeMixture
)
SiloReply = (
    Trained
    | Gradients
    | Evaluated
    | Described
    | PriorAdded
    | Delivered
    | Kept
    | Failed
    | Advertised
    | Offered
    | MaskedTrained
    | Unmasked
)
Operation = Literal[
    "about",
    "train",
    "loss_and_gradient",
    "evaluate",
    "describe",
    "add_prior",
    "keep",
    "remember",
    "recall",
    "deliver",
    "advertise",
    "join",
    "offer",
    "masked_train",
    "unmask",
    "take",
]


SETTING_UP = ("advertise", "join", "offer")
"""Operations that make the keys of secure sums."""


def unmasked(request: SiloRequest) -> SiloRequest:
    """Return what a silo is to compute, whatever becomes of the result."""
    return request.train if isinstance(request, MaskedTrain) else request


class Rollback(Validated):
    """A rollback of the run to an earlier checkpoint.

    Attributes
    ----------
    to : int
        The checkpoint; 0 where a method began, with nothing kept.
    at : int
        The number of this rollback, another for each.
    """

    to: Count
    at: Count


MOST_ROLLBACKS = 500


class Lineage(Validated):
    """The history of a method's training, for silos that were away meanwhile.

    Attributes
    ----------
    checkpoint : int
        The last checkpoint that was made or restored; 0 before the first.
    rollbacks : tuple of Rollback
        All beginnings and rollbacks of the run, oldest first.
    """

    checkpoint: Count = 0
    rollbacks: Annotated[tuple[Rollback, ...], Field(max_length=MOST_ROLLBACKS)] = ()

    def numbers(self) -> list[int]:
        """Return it as numbers for a checkpoint; see `of`."""
        return [self.checkpoint, *(number for one in self.rollbacks for number in (one.to, one.at))]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> "Lineage":
        """Return the lineage that became `numbers`.

        Examples
        --------
        >>> lineage = Lineage(checkpoint=7, rollbacks=(Rollback(to=0, at=1), Rollback(to=5, at=6)))
        >>> Lineage.of(lineage.numbers()) == lineage
        True
        """
        pairs = zip(numbers[1::2], numbers[2::2], strict=True)
        rollbacks = tuple(Rollback(to=to, at=at) for to, at in pairs)
        return cls(checkpoint=numbers[0], rollbacks=rollbacks)


class RepeatedRequest(Validated):
    """A request in one repetition; in none where nothing is repeated."""

    repetition: RepetitionNumber | None = None
    request: SiloRequest = Field(discriminator="operation")


class Call(Validated):
    """A call of a silo.

    Attributes
    ----------
    operation : str
        The operation of all requests, ``train`` beside ``masked_train``; or ``about``, the silo's
        description of itself; or ``remember`` and ``recall``, which tie its memory to a checkpoint
        of the coordinator.
    run : str
        The run that calls, for the log.
    model, schema_is : str
        The network's name, and the hash of its parameters' names and shapes.
    code, weights : str
        The hashes of the model's file, where the model is a function of a file in every kit, and of
        its pre-trained weights, where it has some.
    repetitions : int
        The number of repetitions besides the one without a number.
    asked : tuple of RepeatedRequest
        The requests, at most one in each repetition.
    lineages : dict of Lineage
        By method, for the methods with slots that are used.
    """

    operation: Operation
    run: Annotated[str, Field(max_length=100, pattern=r"^[^\p{Cc}\p{Zl}\p{Zp}]*$")] = ""
    model: Annotated[str, Field(max_length=100)] = ""
    schema_is: Annotated[str, Field(max_length=64)] = ""
    code: Annotated[str, Field(max_length=64)] = ""
    weights: Annotated[str, Field(max_length=64)] = ""
    repetitions: Annotated[int, Field(ge=0, le=100)] = 0
    asked: tuple[RepeatedRequest, ...] = ()
    lineages: Annotated[dict[Owner, Lineage], Field(max_length=10)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fitting(self) -> "Call":
        # A silo may be alone in one repetition, and in a coalition that masks in another.
        mixed = self.operation == "masked_train"
        allowed = {self.operation, "train"} if mixed else {self.operation}
        if not {one.request.operation for one in self.asked} <= allowed:
            raise ValueError("requests of another operation")
        _check_distinct([one.repetition for one in self.asked])
        return self

    def requests(self, name: str) -> dict[Participant, SiloRequest]:
        """Return the requests to a participant of this name."""
        return {Participant(name, one.repetition): one.request for one in self.asked}


LARGEST_INPUT = 10**8
Kind = Annotated[str, Field(pattern="^(f[248]|u[1248])$")]
Shape = Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=10)]


class About(Validated):
    """A silo's description of itself: enough to choose a network, and nothing of any sample.

    Attributes
    ----------
    shapes : list
        Of one sample's inputs.
    sizes : list
        Samples for training, validation and test.
    digest : str
        Changes when the silo's data does; made with a secret of the silo, so that it does not tell
        which data it is.
    single_updates : bool
        Whether the silo's limits let the server see its single models and gradients.
    noisy : bool
        Whether the silo adds noise to trained models or to losses.
    rounds_per_day : int, optional
        The limit on answers about training samples, if there is one.
    loader : str
        The hash of the approved file whose function loads the silo's data; empty without one.
    """

    participant: Text
    version: Text
    task: TaskName
    classes: Annotated[int, Field(ge=2, le=100_000)] | None = None
    shapes: Annotated[list[Shape], Field(min_length=1, max_length=10)]
    kinds: Annotated[list[Kind], Field(max_length=10)]
    sizes: Annotated[list[Annotated[int, Field(ge=0, le=10**8)]], Field(min_length=3, max_length=3)]
    digest: Annotated[str, Field(max_length=64)]
    single_updates: bool = False
    noisy: bool = False
    rounds_per_day: Annotated[int, Field(ge=0)] | None = None
    loader: Annotated[str, Field(max_length=64)] = ""

    @model_validator(mode="after")
    def _possible(self) -> "About":
        if len(self.kinds) != len(self.shapes):
            raise ValueError("a kind for each of the inputs")
        if any(math.prod(shape) > LARGEST_INPUT for shape in self.shapes):
            raise ValueError(f"inputs of more than {LARGEST_INPUT:,} numbers")
        return self


class RepeatedReply(Validated):
    """The reply, or failure, in one repetition."""

    repetition: RepetitionNumber | None = None
    reply: SiloReply = Field(discriminator="operation")


class Answers(Validated):
    """The answers of a silo to a call: replies, its description, or the reason of a refusal."""

    answered: tuple[RepeatedReply, ...] = ()
    about: About | None = None
    refused: Text | None = None

    @model_validator(mode="after")
    def _fitting(self) -> "Answers":
        _check_distinct([one.repetition for one in self.answered])
        return self

    def replies(self, name: str) -> Mapping[Participant, object]:
        """Return the replies of a participant of this name."""
        return {Participant(name, one.repetition): one.reply for one in self.answered}


def _check_distinct(repetitions: Sequence[int | None]) -> None:
    if len(set(repetitions)) < len(repetitions):
        raise ValueError("a repetition occurs twice")
