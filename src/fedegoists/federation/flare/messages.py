"""The messages: what a silo is asked, and what it answers, as checked values.

One message carries the payloads of all trials of a participant, so that a silo answers them at
once. Payloads and replies are those of `fedegoists.federation.silo_operations`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from torch import Tensor  # noqa: TC002 - stays visible for documentation tools

from fedegoists.federation.flare.wire import Strict, WireError, pack, unpack
from fedegoists.federation.seam import Failure, Payload, Reply
from fedegoists.federation.silo_operations import LocalTerms, TrainSettings

__all__ = [
    "About",
    "Lineage",
    "Request",
    "Return",
    "pack_replies",
    "pack_request",
    "unpack_replies",
    "unpack_request",
]

Text = Annotated[str, Field(max_length=400)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Label = Annotated[str, Field(pattern=r"^([0-9]{1,4})?$")]
"""A trial; empty where there is only one."""

Slot = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+]{1,60}(/[A-Za-z0-9_+]{1,60})?$")]
"""A method's name, and what it keeps apart; part of the name of a file at the silo."""

Owner = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+]{1,60}$")]
"""A method's name alone."""

Number = Annotated[float, Field(allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)] | Text
Split = Literal["train", "validation", "test"]
VECTORS = ("parameters", "gradient", "anchor", "momentum", "direction")
TERMS = ("anchor", "towards", "correction", "momentum")


class _Terms(Strict):
    pull: Number = 0.0
    inner_steps: Annotated[int, Field(ge=1)] = 1
    anchor_rate: Number = 0.0
    attraction: Number = 0.0


class _Settings(Strict):
    steps: Annotated[int, Field(ge=1, le=1_000_000)]
    batch_size: Annotated[int, Field(ge=1)]
    learning_rate: Number
    momentum: Number
    weight_decay: Number
    total_steps: Annotated[int, Field(ge=1)] | None = None
    augment: bool


class Ask(Strict):
    """A payload without its vectors; every operation takes some of these keys."""

    settings: _Settings | None = None
    terms: _Terms | None = None
    seed: Seed | None = None
    first_step: Count | None = None
    step: Count | None = None
    split: Split | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    augment: bool | None = None
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    personal: Annotated[list[Text], Field(max_length=100)] | None = None
    slot: Slot | None = None
    source: Slot | None = None
    personal_rate: Number | None = None
    personal_momentum: Number | None = None
    personal_decay: Number | None = None
    direction: bool | None = None
    method: Slot | None = None
    round: Count | None = None


class Return(Strict):
    """That a run went back.

    Attributes
    ----------
    to : int
        The checkpoint; 0 where a method began, with nothing kept.
    at : int
        The number of this return, another for each.
    """

    to: Count
    at: Count


MOST_RETURNS = 500


class Lineage(Strict):
    """How a method's training came to where it is, for silos that were away on the way.

    Attributes
    ----------
    checkpoint : int
        The last that was made or gone back to; 0 before the first.
    returns : list of Return
        Whenever the run began or went back, oldest first.
    """

    checkpoint: Count = 0
    returns: Annotated[list[Return], Field(max_length=MOST_RETURNS, default_factory=list)]

    def numbers(self) -> list[int]:
        """Return it as numbers for a checkpoint; see `of`."""
        return [self.checkpoint, *(number for one in self.returns for number in (one.to, one.at))]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> "Lineage":
        """Return what became `numbers`.

        Examples
        --------
        >>> lineage = Lineage(checkpoint=7, returns=[Return(to=0, at=1), Return(to=5, at=6)])
        >>> Lineage.of(lineage.numbers()) == lineage
        True
        """
        pairs = zip(numbers[1::2], numbers[2::2], strict=True)
        return cls(checkpoint=numbers[0], returns=[Return(to=to, at=at) for to, at in pairs])


class Request(Strict):
    """What a silo is asked.

    Attributes
    ----------
    operation : str
        One of the operations; or ``about``, what a silo has; or ``remember`` and ``recall``, which
        tie what it keeps to itself to a checkpoint of the coordinator; or ``deliver``, which hands
        it the model that its validation data prefers.
    model, schema_is : str
        The network's name, and the hash of its parameters' names and shapes.
    trials : int
        How many trials there are besides the one without a label.
    run : str
        The run that asks, for the log.
    lineages : dict of Lineage
        By method, for those whose slots are used.
    """

    operation: Literal[
        "about",
        "train",
        "loss_and_gradient",
        "evaluate",
        "describe",
        "keep",
        "remember",
        "recall",
        "deliver",
    ]
    run: Annotated[str, Field(max_length=100, pattern=r"^[^\p{Cc}\p{Zl}\p{Zp}]*$")] = ""
    model: Annotated[str, Field(max_length=100)] = ""
    schema_is: Annotated[str, Field(max_length=64)] = ""
    trials: Annotated[int, Field(ge=0, le=100)] = 0
    asks: dict[Label, Ask] = Field(default_factory=dict)
    lineages: Annotated[dict[Owner, Lineage], Field(max_length=10)] = Field(default_factory=dict)


LARGEST_INPUT = 10**8
Kind = Annotated[str, Field(pattern="^(f[248]|u[1248])$")]
Shape = Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=10)]


class About(Strict):
    """What a silo says of itself: enough to choose a network, and nothing of any sample.

    Attributes
    ----------
    shapes : list
        Of one sample's inputs.
    sizes : list
        Samples for training, validation and test.
    digest : str
        Changes when the silo's data does; made with a secret of the silo, so that nobody can
        find out by it which data it is.
    """

    participant: Text
    version: Text
    task: Literal["classification", "binary", "regression"]
    classes: Annotated[int, Field(ge=2, le=100_000)] | None = None
    shapes: Annotated[list[Shape], Field(min_length=1, max_length=10)]
    kinds: Annotated[list[Kind], Field(max_length=10)]
    sizes: Annotated[list[Annotated[int, Field(ge=0, le=10**8)]], Field(min_length=3, max_length=3)]
    digest: Annotated[str, Field(max_length=64)]

    @model_validator(mode="after")
    def _possible(self) -> "About":
        if len(self.kinds) != len(self.shapes):
            raise ValueError("a kind for each of the inputs")
        if any(math.prod(shape) > LARGEST_INPUT for shape in self.shapes):
            raise ValueError(f"inputs of more than {LARGEST_INPUT:,} numbers")
        return self


class _Failed(Strict):
    reason: Literal["timeout", "not finite", "wrong shape", "error", "refused"]
    detail: Text = ""


class _Answer(Strict):
    loss: float | list[float] | None = None
    score: float | list[float] | None = None
    samples: Count | dict[Split, Count] | None = None
    sample_passes: Count | None = None
    labels: Annotated[list[Count], Field(max_length=100_000)] | None = None
    failed: _Failed | None = None


class _Replies(Strict):
    answers: dict[Label, _Answer] = Field(default_factory=dict)
    about: About | None = None
    refused: Text | None = None


def pack_request(request: Request, payloads: Mapping[str, Payload]) -> bytes:
    """Return the message that asks a silo, in each of some trials, with a payload."""
    vectors: dict[str, Tensor] = {}
    asks: dict[str, Ask] = {}
    for label, payload in payloads.items():
        plain: dict[str, Any] = {}
        for key, value in payload.items():
            if key == "parameters":
                vectors[f"{label}/parameters"] = value.float()
            elif key == "settings":
                plain[key] = _Settings(**asdict(value))
            elif key == "terms":
                plain[key] = _Terms(**{name: getattr(value, name) for name in _Terms.model_fields})
                for name in TERMS:
                    if getattr(value, name) is not None:
                        vectors[f"{label}/{name}"] = getattr(value, name).float()
            elif key == "personal":
                plain[key] = list(value)
            elif value is not None:
                plain[key] = value
        asks[label] = Ask(**plain)
    return pack(request.model_copy(update={"asks": asks}), vectors)


def unpack_request(message: object) -> tuple[Request, dict[str, dict[str, Any]]]:
    """Return a request, and the payload of each trial; the other side of `pack_request`."""
    request, vectors = unpack(Request, message)
    payloads: dict[str, dict[str, Any]] = {}
    for label, ask in request.asks.items():
        payload: dict[str, Any] = {
            key: value
            for key, value in ((key, getattr(ask, key)) for key in Ask.model_fields)
            if value is not None
        }
        own: dict[str, Any] = {
            key: vectors.pop(f"{label}/{key}")
            for key in ("parameters", *TERMS)
            if f"{label}/{key}" in vectors
        }
        if "parameters" in own:
            payload["parameters"] = own.pop("parameters")
        if ask.settings is not None:
            payload["settings"] = TrainSettings(**ask.settings.model_dump())
        if ask.terms is not None:
            payload["terms"] = replace(LocalTerms(**ask.terms.model_dump()), **own)
        elif own:
            raise WireError("vectors of terms without terms")
        if ask.personal is not None:
            payload["personal"] = tuple(ask.personal)
        payloads[label] = payload
    if vectors:
        raise WireError(f"a vector {min(vectors)[:50]!r} that no trial has")
    return request, payloads


def pack_replies(
    replies: Mapping[str, Reply | Failure] | None = None,
    *,
    about: About | None = None,
    refused: str | None = None,
) -> bytes:
    """Return the message with which a silo answers."""
    vectors: dict[str, Tensor] = {}
    answers: dict[str, _Answer] = {}
    for label, reply in (replies or {}).items():
        if isinstance(reply, Failure):
            failed = _Failed(reason=reply.reason, detail=reply.detail[:400])  # type: ignore[arg-type]
            answers[label] = _Answer(failed=failed)
            continue
        plain = {key: value for key, value in reply.items() if key not in VECTORS}
        answers[label] = _Answer(**plain)
        for key in VECTORS:
            if key in reply:
                vectors[f"{label}/{key}"] = reply[key].float()
    return pack(_Replies(answers=answers, about=about, refused=refused), vectors)


def unpack_replies(message: object) -> tuple[dict[str, Reply | Failure], About | None, str | None]:
    """Return a silo's replies by trial, what it says of itself, and why it refused, if it did.

    Failures have no participant's name yet: the caller knows who was asked.
    """
    header, vectors = unpack(_Replies, message)
    replies: dict[str, Reply | Failure] = {}
    for label, answer in header.answers.items():
        if answer.failed is not None:
            replies[label] = Failure("", answer.failed.reason, answer.failed.detail)
            continue
        reply: Reply = {
            key: value
            for key, value in ((key, getattr(answer, key)) for key in _Answer.model_fields)
            if value is not None
        }
        reply |= {key: vectors[f"{label}/{key}"] for key in VECTORS if f"{label}/{key}" in vectors}
        replies[label] = reply
    return replies, header.about, header.refused
