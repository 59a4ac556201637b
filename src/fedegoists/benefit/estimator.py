"""The type of estimators, their input and their results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from fedegoists.benefit.learn_settings import LearnSettings
    from fedegoists.benefit.silo_queries import SiloQueries
    from fedegoists.graphs import CurveValues

Progress = Callable[[str, int, int, float], None]
"""Called with the stage, how much of it is done, how much there is, and the mean loss."""

TINY = 1e-12


@dataclass(frozen=True)
class Learned:
    """The result of an estimator for all repetitions.

    Attributes
    ----------
    weights, gains : Tensor
        Of shape (repetitions, repeats, halves, targets, sources), with one half where the
        validation data is not divided; see `BenefitEstimate`.
    present : Tensor
        Of shape (repetitions, participants): whether a participant answered often enough.
    savings : Tensor, optional
        Of shape (repetitions, targets, sources); the mean gains if left out.
    history : mapping of str to Tensor
        Of shape (reports, repetitions): means over participants along the way.
    values : tuple of CurveValues
        Coalition values, one for each repetition, of estimators that learn them.
    """

    weights: Tensor
    gains: Tensor
    present: Tensor
    savings: Tensor | None = None
    history: Mapping[str, Tensor] = field(default_factory=dict)
    values: "tuple[CurveValues, ...]" = ()


@dataclass(frozen=True)
class Inquiry:
    """The input of an estimator.

    Attributes
    ----------
    queries : SiloQueries
        The silos of all repetitions.
    settings : LearnSettings
        How to learn.
    progress : callable
        Called in the course of learning.
    rivals : Tensor
        Of shape (repetitions, participants, participants): the pairs of competitors.
    secret : str
        Known to the server alone, see `fedegoists.benefit.decoys`.
    """

    queries: "SiloQueries"
    settings: "LearnSettings"
    progress: Progress
    rivals: Tensor
    secret: str


Estimator = Callable[[Inquiry], Learned]
"""Learns the benefits in all repetitions at once."""
