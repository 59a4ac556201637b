"""The requests to a silo, checked when they are made.

The same types are used by methods, by simulated silos, on the wire, and by a silo's own limits.
"""

import hashlib
from collections.abc import Callable
from typing import Annotated, ClassVar, Generic, Literal, cast

from pydantic import Field, model_validator
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.gradient_privacy import check_privacy
from fedegoists.federation.replies import (
    Delivered,
    Described,
    Evaluated,
    Gradients,
    Kept,
    PriorAdded,
    Reply,
    ReplyT,
    Split,
    Trained,
)
from fedegoists.federation.validated import Matrix, Tensors, Validated, Vector
from fedegoists.learning.model_registry import OUTPUT_BIAS
from fedegoists.learning.safe_choice import ChooseBy

Count = Annotated[int, Field(ge=0, lt=2**53)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Prefix = Annotated[str, Field(max_length=400)]
"""The beginning of the names of some parameters, such as ``output.``."""

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


Optimiser = Literal["sgd", "adam", "adamw"]
Precision = Literal["float32", "bf16"]
ClassWeights = Literal["balanced"] | Annotated[tuple[Number, ...], Field(max_length=100_000)]
"""The weight of each class in the loss; ``balanced`` makes every class of a silo count alike."""


class TrainSettings(Validated):
    """How a silo trains locally.

    Attributes
    ----------
    steps : int
        Steps in a round.
    batch_size : int
        Samples in a step; all of them where a silo has fewer.
    passes : int
        Parts in which the samples of a step go through the network, to save memory. Their
        gradients are added up: the step is the same, but for batch normalisation and dropout,
        which see each part by itself.
    precision : {"float32", "bf16"}
        Of activations in training: with bf16, matrix products have 16 bits. Parameters, sums of
        gradients, losses and evaluations have 32 bits in any case.
    optimiser : {"sgd", "adam", "adamw"}
        Stochastic gradient descent with momentum; Adam, with the weight decay in the gradient; or
        AdamW, with the weight decay beside it. Its state starts at zero in every round; only the
        momentum of ``sgd`` goes on, where `LocalTerms` bring one.
    learning_rate, momentum, weight_decay : float
        As usual; the momentum is the first decay rate (β₁) of Adam.
    second_momentum : float
        The second decay rate (β₂) of Adam.
    total_steps : int, optional
        If given, the learning rate falls to zero over this number of steps along a cosine.
    augment : bool
        Whether training images are flipped and shifted by up to four pixels at random.
    class_weights : "balanced" or tuple of float, optional
        The weight of each class in the loss.
    sam_radius : float
        The radius of sharpness-aware steps (SAM), with two gradients in each: the second is taken
        where the loss is higher, at parameters moved by this length along the first one, and the
        step is taken with it. Both are of the loss on the samples alone, on the same batch, terms
        about representations included: weight decay and all other `LocalTerms` are added at the
        parameters where the step begins. Foret et al.,
        "Sharpness-aware minimization", 2021. Zero for none.
    halve : bool
        Whether a silo whose training diverges tries again with half of the learning rate.
    clip : float, optional
        Shorten each sample's gradient to this norm, and return zero instead of the loss.
    noise : float
        Differentially private training (DP-SGD): add Gaussian noise of this multiple of what one
        sample can change to every step's gradient, and draw every sample into a batch
        independently of the others. See `fedegoists.federation.privacy_loss`.
    """

    steps: int = Field(default=20, ge=1, le=1_000_000)
    batch_size: int = Field(default=64, ge=1)
    passes: int = Field(default=1, ge=1, le=10_000)
    precision: Precision = "float32"
    learning_rate: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    optimiser: Optimiser = "sgd"
    momentum: float = Field(default=0.9, ge=0, allow_inf_nan=False)
    second_momentum: float = Field(default=0.999, ge=0, lt=1, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    total_steps: Annotated[int, Field(ge=1)] | None = None
    augment: bool = False
    class_weights: ClassWeights | None = None
    sam_radius: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    halve: bool = True
    clip: float | None = None
    noise: float = 0.0

    @model_validator(mode="after")
    def _private(self) -> "TrainSettings":
        check_privacy(self.clip, self.noise)
        if self.optimiser != "sgd" and self.momentum >= 1:
            raise SettingsError(f"momentum is {self.momentum}; {self.optimiser} needs less than 1")
        if self.sam_radius and self.clip is not None:
            raise SettingsError(
                "sharpness-aware steps take two gradients, and privacy accounts for one; leave out "
                "sam_radius, or use no privacy"
            )
        return self

    @property
    def gradients_each_step(self) -> int:
        """How many gradients a step takes."""
        return 2 if self.sam_radius else 1

    def sample_passes(self, size: int) -> int:
        """Return how many samples of a silo with `size` go through the network in a round.

        Examples
        --------
        >>> TrainSettings(steps=3, batch_size=64).sample_passes(10)
        30
        >>> TrainSettings(steps=3, batch_size=64, sam_radius=0.05).sample_passes(10)
        60
        """
        return self.steps * min(self.batch_size, size) * self.gradients_each_step


class Representation(Validated):
    """Terms about the representation z of a sample: what goes into the layer ``output``.

    Attributes
    ----------
    shift : Tensor, optional
        The layer gets z + shift. The shift is trained with the parameters, and returned.
    mean, strength : Tensor and float
        Add strength/2 · the mean over the entries of (mean of z over the batch − mean)². Weights
        of samples count in the mean, those of classes do not.
    centres, pulls : Tensor
        With a row c and a pull p for each class: add the mean over samples and entries of
        p · (z − c)², of each sample's own class.
    """

    shift: Vector | None = None
    mean: Vector | None = None
    strength: Number = 0.0
    centres: Matrix | None = None
    pulls: Vector | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Representation":
        if (self.centres is None) != (self.pulls is None):
            raise SettingsError("centres and pulls of classes belong together; give both")
        return self

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The vectors that are given, by name."""
        named = {
            "shift": self.shift,
            "mean": self.mean,
            "centres": self.centres,
            "pulls": self.pulls,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @property
    def kind(self) -> tuple[object, ...]:
        """What must be equal for silos to be stacked."""
        shapes = tuple((name, tuple(own.shape)) for name, own in self.tensors.items())
        return (*shapes, self.strength)


class LocalTerms(Validated):
    """Terms that a method adds to a silo's own loss ℓ(w) in training.

    Attributes
    ----------
    anchor, pull : Tensor and float
        Add pull/2 ‖w − anchor‖².
    decoupled : bool
        Whether the pull moves w beside the optimiser, by rate · pull · (anchor − w) in each step,
        instead of being part of the gradient: momentum would multiply it.
    inner_steps, anchor_rate : int and float
        This number of consecutive steps uses one batch; after them the anchor moves too:
        anchor ← anchor − anchor_rate · pull · (anchor − w).
    towards, attraction : Tensor and float
        Subtract attraction · cos(w, towards).
    correction : Tensor
        Add this to every gradient.
    momentum : Tensor
        Start with this momentum, and return the one at the end.
    frozen : tuple of str
        Prefixes of the parameters that do not move, and have no momentum.
    frozen_first, first_steps : tuple of str and int
        In this number of first steps, others do not move instead.
    pace : float
        Multiply all learning rates by this.
    representation : Representation, optional
        Terms about what goes into the output layer; not beside vectors of other terms.
    """

    anchor: Vector | None = None
    pull: Number = 0.0
    decoupled: bool = False
    inner_steps: int = Field(default=1, ge=1)
    anchor_rate: Number = 0.0
    towards: Vector | None = None
    attraction: Number = 0.0
    correction: Vector | None = None
    momentum: Vector | None = None
    frozen: Annotated[
        tuple[Annotated[str, Field(max_length=400)], ...], Field(max_length=10_000)
    ] = ()
    frozen_first: Annotated[
        tuple[Annotated[str, Field(max_length=400)], ...], Field(max_length=10_000)
    ] = ()
    first_steps: Count = 0
    pace: Number = 1.0
    representation: Representation | None = None

    @model_validator(mode="after")
    def _separate(self) -> "LocalTerms":
        if self.representation is not None and self.tensors:
            raise SettingsError(
                f"terms about the representation beside {', '.join(self.tensors)}; leave one out"
            )
        return self

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The vectors of the model's length that are given, by name."""
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
        frozen = (self.frozen, self.frozen_first, self.first_steps)
        within = None if self.representation is None else self.representation.kind
        return (*self.tensors, self.inner_steps, self.anchor_rate, self.decoupled, *frozen, within)


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
    momentum_slot : str, optional
        With `Train` and a momentum: where the silo keeps the momentum of personal parameters, with
        which it continues. Without this slot, their momentum starts at zero in every round.
    unmixed : tuple of str
        Where all parameters are personal: prefixes of those that are in no sum either. All others
        may leave as a part of a masked sum. The momentum of these starts at zero in every round.
    """

    prefixes: Annotated[tuple[Prefix, ...], Field(min_length=1, max_length=100)]
    slot: Slot
    rate: Number | None = None
    momentum: Number = 0.0
    decay: Number = 0.0
    momentum_slot: Slot | None = None
    unmixed: Annotated[tuple[Prefix, ...], Field(max_length=100)] = ()

    @property
    def whole(self) -> bool:
        """Whether all parameters are personal, so that nothing of a model leaves the silo."""
        return "" in self.prefixes

    @property
    def withheld(self) -> tuple[str, ...]:
        """The prefixes of the parameters that are not even a part of a masked sum.

        Examples
        --------
        >>> Personal(prefixes=("output.",), slot="fedper").withheld
        ('output.',)
        >>> Personal(prefixes=EVERYTHING, slot="egomix", unmixed=("output.",)).withheld
        ('output.',)
        """
        return self.unmixed if self.whole else self.prefixes


EVERYTHING = ("",)
"""The prefixes with which all parameters are personal."""


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

    @property
    def noisy(self) -> bool:
        """Whether noise is added to the answer."""
        return bool(getattr(self, "noise", 0.0))

    def digest(self) -> str:
        """Return a hash of the whole request, its tensors included."""
        tensors = Tensors()
        content = hashlib.sha256(self.model_dump_json(context=tensors).encode())
        for tensor in tensors.named.values():
            content.update(tensor.numpy().tobytes())
        return content.hexdigest()


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
    share : float, optional
        Only a fraction of the training samples, drawn by `seed`.
    part : int
        Which one of the fractions that the seed divides the samples into, before it divides them
        anew: two halves have no sample in common, and smaller parts are parts of larger ones.
    """

    replies: ClassVar[type[Reply]] = Trained
    operation: Literal["train"] = "train"
    parameters: Vector
    settings: TrainSettings
    terms: LocalTerms | None = None
    seed: Seed = 0
    first_step: Count = 0
    share: Share | None = None
    part: Count = 0

    @property
    def noisy(self) -> bool:
        """Whether noise is added in training."""
        return self.settings.noise > 0

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        own = {"parameters": self.parameters}
        return own if self.terms is None else own | self.terms.tensors

    @property
    def alike(self) -> tuple[object, ...]:
        """What must be equal for two silos to be stacked: everything but the tensors."""
        kind = None if self.terms is None else self.terms.kind
        own: dict[str, object] = {**vars(self), "parameters": None, "terms": kind}
        if self.settings.noise:  # each silo draws its own noise, of its own strength
            own["settings"] = self.settings.model_copy(update={"noise": 1.0})
        return tuple(own.values())

    def mapped(self, change: Callable[[str, Tensor], Tensor]) -> "OfModels[Trained]":
        """Return the request with all tensors replaced by a function of name and tensor."""
        if self.terms is None:
            return super().mapped(change)
        changed: dict[str, object] = {
            name: change(name, tensor) for name, tensor in self.terms.tensors.items()
        }
        within = self.terms.representation
        if within is not None:
            moved = {name: change(name, tensor) for name, tensor in within.tensors.items()}
            changed["representation"] = within.model_copy(update=moved)
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
    passes : int
        Parts in which the batch goes through the network, to save memory; see `TrainSettings`.
        Gradients that are clipped are computed in parts in any case.
    augment : bool
        Whether images are flipped and shifted.
    class_weights : "balanced" or tuple of float, optional
        The weight of each class in the loss.
    clip : float, optional
        Shorten each sample's gradient to this norm, and return zero instead of losses.
    noise : float
        Add Gaussian noise of this multiple of what one sample can change, see
        `fedegoists.federation.gradient_privacy`. The batch is then one for this request alone, in
        which every sample is with the same probability.
    """

    replies: ClassVar[type[Reply]] = Gradients
    operation: Literal["loss_and_gradient"] = "loss_and_gradient"
    split: Split = "train"
    batch_size: Annotated[int, Field(ge=1)] | None = None
    share: Share | None = None
    step: Count = 0
    seed: Seed = 0
    passes: int = Field(default=1, ge=1, le=10_000)
    augment: bool = False
    class_weights: ClassWeights | None = None
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
    bound : float, optional
        Count every sample's loss as no more than this.
    noise : float
        Add Gaussian noise of this multiple of what one sample can change to losses and metrics.
    """

    replies: ClassVar[type[Reply]] = Evaluated
    operation: Literal["evaluate"] = "evaluate"
    split: Split
    share: Share | None = None
    step: Count = 0
    seed: Seed = 0
    bound: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    noise: Number = 0.0

    @model_validator(mode="after")
    def _bounded(self) -> "Evaluate":
        if self.noise and self.bound is None:
            raise SettingsError("noise hides a sample only beside a limit on its loss: set bound")
        return self


class Describe(Request[Described]):
    """Describe the silo's data in a few numbers; the main direction only where asked for.

    Attributes
    ----------
    noise : float
        Standard deviation of Gaussian noise on the label counts.
    """

    replies: ClassVar[type[Reply]] = Described
    operation: Literal["describe"] = "describe"
    direction: bool = False
    noise: Number = 0.0


class AddPrior(OfModels[PriorAdded]):
    """Add the logarithms of the silo's label shares to the bias of a model's output layer.

    So that the bias need not be learned, as in logit adjustment (Menon et al., 2021). A model whose
    layers have no output for each class stays as it is.

    Attributes
    ----------
    noise : float
        Standard deviation of Gaussian noise on the label counts.
    """

    replies: ClassVar[type[Reply]] = PriorAdded
    operation: Literal["add_prior"] = "add_prior"
    parameters: Vector
    noise: Number = 0.0

    @property
    def stays(self) -> bool:
        """Whether the bias is personal, so that nothing about labels leaves the silo."""
        return self.personal is not None and OUTPUT_BIAS.startswith(self.personal.prefixes)


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


class Candidate(Validated):
    """A model among which a silo chooses the one to keep.

    Attributes
    ----------
    method, round : str and int
        Which method made it, after which round.
    personal : Personal, optional
        The parameters that only the silo has.
    """

    method: Annotated[str, Field(pattern=r"^[A-Za-z0-9_+]{1,60}$")]
    round: Count
    personal: Personal | None = None


DELIVERED = "delivered/best"
"""The slot in which a silo keeps the model that it chose, as a whole."""


class Deliver(OfModels[Delivered]):
    """Choose the best of some models on own validation data, and keep it for the organisation.

    The silo completes them with its personal parameters, and chooses by
    `fedegoists.learning.safe_choice`. Only the name of its choice leaves it.

    Attributes
    ----------
    parameters : Tensor
        A row for each candidate.
    candidates : tuple of Candidate
        The models; the one of the method ``local`` is the silo's own.
    shares : tuple of float
        Mixtures that the silo makes of each method's model, with this part, and its own.
    choose_by : {"metric", "loss"}
        What of its validation data decides.
    """

    replies: ClassVar[type[Reply]] = Delivered
    operation: Literal["deliver"] = "deliver"
    parameters: Matrix
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1, max_length=100)]
    shares: Annotated[tuple[Share, ...], Field(max_length=100)] = ()
    choose_by: ChooseBy = "metric"

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of the silo's memory that are used, the one that changes first."""
        used = (one.personal.slot for one in self.candidates if one.personal is not None)
        return (DELIVERED, *dict.fromkeys(used))


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
