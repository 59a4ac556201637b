"""The requests to a silo: five operations, checked when they are made.

The same types are used by methods, by simulated silos, on the wire, and by a silo's own limits.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Generic, Literal, cast

from pydantic import Field, model_validator
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.gradient_privacy import check_privacy
from fedegoists.federation.replies import (
    Described,
    Evaluated,
    Gradients,
    Kept,
    Reply,
    ReplyT,
    Split,
    Trained,
)
from fedegoists.federation.validated import Matrix, Validated, Vector

Count = Annotated[int, Field(ge=0, lt=2**53)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)] | Annotated[str, Field(max_length=400)]
Share = Annotated[float, Field(gt=0, le=1)]
Slot = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+]{1,60}(/[A-Za-z0-9_+]{1,60})?$")]
"""A method's name, and what it keeps apart; part of the name of a file at the silo."""


def owner_of(slot: str) -> str:
    """Return the method that owns a slot.

    Examples
    --------
    >>> owner_of("fedavg/best")
    'fedavg'
    """
    return slot.split("/", 1)[0]


class TrainSettings(Validated):
    """How a silo trains locally: stochastic gradient descent with momentum.

    Attributes
    ----------
    steps : int
        Steps in a round.
    batch_size : int
        Samples in a step; all of them where a silo has fewer.
    learning_rate, momentum, weight_decay : float
        As usual; the momentum starts at zero in every round unless `LocalTerms` bring one.
    total_steps : int, optional
        If given, the learning rate falls to zero over this number of steps along a cosine.
    augment : bool
        Whether training images are flipped and shifted by up to four pixels at random.
    """

    steps: int = Field(default=20, ge=1, le=1_000_000)
    batch_size: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    momentum: float = Field(default=0.9, ge=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    total_steps: Annotated[int, Field(ge=1)] | None = None
    augment: bool = False


class LocalTerms(Validated):
    """Terms that a method adds to a silo's own loss ℓ(w) in training.

    Attributes
    ----------
    anchor, pull : Tensor and float
        Add pull/2 ‖w − anchor‖².
    inner_steps, anchor_rate : int and float
        This number of consecutive steps uses one batch; after them the anchor moves too:
        anchor ← anchor − anchor_rate · pull · (anchor − w).
    towards, attraction : Tensor and float
        Subtract attraction · cos(w, towards).
    correction : Tensor
        Add this to every gradient.
    momentum : Tensor
        Start with this momentum, and return the one at the end.
    """

    anchor: Vector | None = None
    pull: Number = 0.0
    inner_steps: int = Field(default=1, ge=1)
    anchor_rate: Number = 0.0
    towards: Vector | None = None
    attraction: Number = 0.0
    correction: Vector | None = None
    momentum: Vector | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The vectors that are given, by name."""
        named = {
            "anchor": self.anchor,
            "towards": self.towards,
            "correction": self.correction,
            "momentum": self.momentum,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @property
    def kind(self) -> tuple[object, ...]:
        """The kinds of terms that are given; silos with terms of one kind can be stacked."""
        return (*self.tensors, self.inner_steps, self.anchor_rate)


class Personal(Validated):
    """Parameters that never leave a silo.

    The silo puts its own values in their place before it computes anything, keeps what becomes of
    them, and sends zeros instead.

    Attributes
    ----------
    prefixes : tuple of str
        Prefixes of the parameters' names, such as ``output.``.
    slot : str
        Where in its memory the silo keeps them.
    rate : float, optional
        With `Gradient`: take one step of descent with them, at this rate.
    momentum, decay : float
        Of this step. With momentum it continues from the slot's last step.
    """

    prefixes: Annotated[
        tuple[Annotated[str, Field(max_length=400)], ...], Field(min_length=1, max_length=100)
    ]
    slot: Slot
    rate: Number | None = None
    momentum: Number = 0.0
    decay: Number = 0.0


class Request(Validated, Generic[ReplyT]):
    """The base of all requests; `ReplyT` is the type of the reply.

    Attributes
    ----------
    operation : str
        The name in a ``silo.toml`` and in messages.
    """

    replies: ClassVar[type[Reply]]
    operation: str

    @property
    def reply_type(self) -> type[ReplyT]:
        """The type of the reply."""
        return cast("type[ReplyT]", self.replies)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the parameters: one vector, or several as rows."""
        return ()

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of the silo's memory that are used, the one that changes first."""
        return ()


class OfModels(Request[ReplyT], Generic[ReplyT]):
    """The base of requests about one model, or about several as rows."""

    parameters: Matrix
    personal: Personal | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the parameters: one vector, or several as rows."""
        return tuple(self.parameters.shape)

    @property
    def rows(self) -> Tensor:
        """The models as rows of a matrix."""
        return self.parameters if self.parameters.ndim == 2 else self.parameters[None]

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of the silo's memory that are used."""
        return () if self.personal is None else (self.personal.slot,)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        return {"parameters": self.parameters}

    @property
    def alike(self) -> tuple[object, ...]:
        """What must be equal for two silos to be stacked: everything but the tensors."""
        return tuple({**vars(self), "parameters": None}.values())

    def mapped(self, change: Callable[[str, Tensor], Tensor]) -> "OfModels[ReplyT]":
        """Return the request with all tensors replaced by a function of name and tensor."""
        changed = change("parameters", self.parameters)
        if changed is self.parameters:
            return self
        return self.model_copy(update={"parameters": changed})


class Train(OfModels[Trained]):
    """Train from some parameters on the silo's training data.

    Attributes
    ----------
    settings : TrainSettings
        How.
    terms : LocalTerms, optional
        What is added to the silo's own loss.
    seed : int or str
        Together with the participant it determines the batches.
    first_step : int
        Which step of the learning rate's schedule comes first.
    """

    replies: ClassVar[type[Reply]] = Trained
    operation: Literal["train"] = "train"
    parameters: Vector
    settings: TrainSettings
    terms: LocalTerms | None = None
    seed: Seed = 0
    first_step: Count = 0

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        own = {"parameters": self.parameters}
        return own if self.terms is None else own | self.terms.tensors

    @property
    def alike(self) -> tuple[object, ...]:
        """What must be equal for two silos to be stacked: everything but the tensors."""
        kind = None if self.terms is None else self.terms.kind
        return tuple({**vars(self), "parameters": None, "terms": kind}.values())

    def mapped(self, change: Callable[[str, Tensor], Tensor]) -> "OfModels[Trained]":
        """Return the request with all tensors replaced by a function of name and tensor."""
        if self.terms is None:
            return super().mapped(change)
        changed = {name: change(name, tensor) for name, tensor in self.terms.tensors.items()}
        update = {
            "parameters": change("parameters", self.parameters),
            "terms": self.terms.model_copy(update=changed),
        }
        return self.model_copy(update=update)


class Gradient(OfModels[Gradients]):
    """Compute losses and gradients of one or several models, all on one batch of a split.

    Attributes
    ----------
    batch_size : int, optional
        Samples in the batch; all if left out.
    share : float, optional
        The batch as a fraction of the silo's samples, instead of `batch_size`.
    step, seed : int, and int or str
        Which batch of the many that the seed divides the samples into.
    augment : bool
        Whether images are flipped and shifted.
    clip : float, optional
        Shorten each sample's gradient to this norm, and return zero instead of losses.
    noise : float
        Add Gaussian noise of this multiple of what one sample can change, see
        `fedegoists.federation.gradient_privacy`.
    """

    replies: ClassVar[type[Reply]] = Gradients
    operation: Literal["loss_and_gradient"] = "loss_and_gradient"
    split: Split = "train"
    batch_size: Annotated[int, Field(ge=1)] | None = None
    share: Share | None = None
    step: Count = 0
    seed: Seed = 0
    augment: bool = False
    clip: float | None = None
    noise: float = 0.0

    @model_validator(mode="after")
    def _measured(self) -> "Gradient":
        check_privacy(self.clip, self.noise)
        return self


class Evaluate(OfModels[Evaluated]):
    """Compute the mean loss and the metric of one or several models on a split.

    Attributes
    ----------
    share : float, optional
        Only a fraction of the samples, drawn by `seed` and `step`.
    """

    replies: ClassVar[type[Reply]] = Evaluated
    operation: Literal["evaluate"] = "evaluate"
    split: Split
    share: Share | None = None
    step: Count = 0
    seed: Seed = 0


class Describe(Request[Described]):
    """Describe the silo's data in a few numbers; the main direction only where asked for."""

    replies: ClassVar[type[Reply]] = Described
    operation: Literal["describe"] = "describe"
    direction: bool = False


class Keep(Request[Kept]):
    """Copy personal parameters from one slot of the silo's memory to another, or empty the slot.

    Attributes
    ----------
    source : str, optional
        The slot to copy from; a source that holds nothing changes nothing. Without a source the
        slot is emptied.
    """

    replies: ClassVar[type[Reply]] = Kept
    operation: Literal["keep"] = "keep"
    slot: Slot
    source: Slot | None = None

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of the silo's memory that are used."""
        return (self.slot,) if self.source is None else (self.slot, self.source)


class Deliver(OfModels[Kept]):
    """Keep a trained model for the organisation, completed with its personal parameters.

    Attributes
    ----------
    method, round : str and int
        Which method made it, after which round.
    """

    replies: ClassVar[type[Reply]] = Kept
    operation: Literal["deliver"] = "deliver"
    parameters: Matrix
    method: Slot
    round: Count


def check_size(request: Request[ReplyT], size: int) -> None:
    """Refuse a request with vectors of another length than the model's.

    Raises
    ------
    SettingsError
        With the shape that was given and the one that is expected.
    """
    if isinstance(request, OfModels):
        for tensor in request.tensors.values():
            if tensor.shape[-1] != size:
                raise SettingsError(
                    f"{tuple(tensor.shape)} parameters where ({size},) are expected"
                )
