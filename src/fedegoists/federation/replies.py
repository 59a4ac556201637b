"""The replies of silos, and the one check that decides whether a reply can be used."""

import math
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import Field, field_validator
from torch import Tensor

from fedegoists.federation.reasons import Reason
from fedegoists.federation.validated import ReplyMatrix, ReplyVector, Validated

Split = Literal["train", "validation", "test"]
Problem = tuple[Reason, str]
"""Why a reply cannot be used, and one line for the log."""

Samples = Annotated[int, Field(ge=1, lt=2**53)]

LARGEST = 1e12
"""Larger parameters and gradients are of no use, and their sums could overflow."""


class Reply(Validated):
    """The base of all replies."""

    vectors: ClassVar[tuple[str, ...]] = ()
    """Fields that must have the shape of the parameters that were sent."""

    def problem(self, shape: tuple[int, ...]) -> Problem | None:
        """Return why a reply to parameters of a shape cannot be used, or nothing."""
        for name in self.vectors:
            value: Tensor | None = getattr(self, name)
            if value is not None and tuple(value.shape) != shape:
                return "wrong shape", f"{name}: {tuple(value.shape)} where {shape} is expected"
            if value is not None and not finite(value):
                return "not finite", name
        for name in ("loss", "losses", "scores"):
            given = getattr(self, name, ())
            numbers = given if isinstance(given, tuple) else (given,)
            # Scores may be NaN, as the AUC of a single class is.
            if name != "scores" and not all(map(math.isfinite, numbers)):
                return "not finite", "loss"
            if hasattr(self, name) and len(numbers) != math.prod(shape[:-1]):
                return "wrong shape", f"{len(numbers)} {name}"
        return None


ReplyT = TypeVar("ReplyT", bound=Reply)


def finite(tensor: Tensor) -> bool:
    """Return whether all numbers of a tensor are of a usable size."""
    return bool((tensor.abs() < LARGEST).all())  # false for NaN, too


class Trained(Reply):
    """The trained model, with its loss and costs.

    Attributes
    ----------
    parameters : Tensor
        The trained model, with zeros where parameters are personal.
    loss : float
        The mean over the steps.
    samples, sample_passes : int
        Training samples of the silo, and samples in all batches.
    anchor, momentum : Tensor, optional
        At the end; where the request has an anchor that moves, or a momentum.
    shift : Tensor, optional
        At the end; where the request has a shift of the representation.
    """

    vectors: ClassVar[tuple[str, ...]] = ("parameters", "anchor", "momentum")
    operation: Literal["train"] = "train"
    parameters: ReplyVector
    loss: float
    samples: Samples
    sample_passes: Samples
    anchor: ReplyVector | None = None
    momentum: ReplyVector | None = None
    shift: ReplyVector | None = None

    def problem(self, shape: tuple[int, ...]) -> Problem | None:
        """Return why a reply to parameters of a shape cannot be used, or nothing."""
        if self.shift is not None and not finite(self.shift):
            return "not finite", "shift"
        return super().problem(shape)


class Gradients(Reply):
    """Losses and gradients at the models asked about, of the shape in which these were sent."""

    vectors: ClassVar[tuple[str, ...]] = ("gradient",)
    operation: Literal["loss_and_gradient"] = "loss_and_gradient"
    losses: tuple[float, ...]
    gradient: ReplyMatrix
    samples: Samples


class Evaluated(Reply):
    """Mean loss and metric of each model asked about."""

    operation: Literal["evaluate"] = "evaluate"
    losses: tuple[float, ...]
    scores: tuple[float, ...]
    samples: Samples


class Described(Reply):
    """The description of a silo's data.

    Attributes
    ----------
    samples : dict
        The number of samples in each split.
    labels : tuple of int, optional
        Training samples of each class; none in a regression.
    direction : Tensor, optional
        The direction in which training samples, with their labels, vary most; only where asked for.
    """

    operation: Literal["describe"] = "describe"
    samples: dict[Split, Annotated[int, Field(ge=0, lt=2**53)]]
    labels: (
        Annotated[tuple[Annotated[int, Field(ge=0, lt=2**53)], ...], Field(max_length=100_000)]
        | None
    ) = None
    direction: ReplyVector | None = None

    @field_validator("labels")
    @classmethod
    def _counted(cls, labels: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if labels is not None and not any(labels):
            raise ValueError("labels are no counts")
        return labels

    def problem(self, shape: tuple[int, ...]) -> Problem | None:  # noqa: ARG002 - none was sent
        """Return why the description cannot be used, or nothing."""
        if self.direction is not None and not finite(self.direction):
            return "not finite", "direction"
        return None


class PriorAdded(Reply):
    """A model with the silo's prior in it.

    Attributes
    ----------
    parameters : Tensor
        The model, with zeros where parameters are personal.
    """

    vectors: ClassVar[tuple[str, ...]] = ("parameters",)
    operation: Literal["add_prior"] = "add_prior"
    parameters: ReplyVector


class Kept(Reply):
    """A slot of the silo's memory was copied or emptied."""

    operation: Literal["keep"] = "keep"

    def problem(self, shape: tuple[int, ...]) -> Problem | None:  # noqa: ARG002 - none was sent
        """Return nothing: there is nothing to check."""
        return None


class Delivered(Reply):
    """What became of a delivery: whether the silo keeps a model of it, and by what name.

    Attributes
    ----------
    kept : bool
        Whether the silo keeps a model of this repetition; of several, it keeps one.
    method : str
        The method of the candidate that it chose; empty where the silo does not tell.
    share : float
        The part of that model in a mixture with the silo's own one; 1 for the model itself.
    """

    operation: Literal["deliver"] = "deliver"
    kept: bool
    method: Annotated[str, Field(pattern=r"^[A-Za-z0-9_+]{0,60}$")] = ""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0

    def problem(self, shape: tuple[int, ...]) -> Problem | None:  # noqa: ARG002 - no vectors
        """Return nothing: there is nothing to check."""
        return None


class Failed(Reply):
    """No usable reply, as a message says it."""

    operation: Literal["failed"] = "failed"
    reason: Reason
    detail: Annotated[str, Field(max_length=400)] = ""
