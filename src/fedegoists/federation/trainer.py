"""The trainer contract: what a federation needs of a learning framework, and nothing more.

Methods, estimators, masks, memory and checkpoints know models only as vectors. How a vector is
trained and judged on a silo's samples is the business of a `Trainer`;
`fedegoists.federation.module_trainer` is the one for PyTorch modules.
"""

from typing import Protocol

from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.replies import Evaluated, Gradients, Reply, ReplyT, Split, Trained
from fedegoists.federation.requests import (
    AddPrior,
    Describe,
    Evaluate,
    Gradient,
    Request,
    Train,
)
from fedegoists.federation.silo_operations import Silo, described, prior_added, training_part
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task


class Trainer(Protocol):
    """Trains and evaluates models, each given as a vector, on one silo's samples.

    Every operation is a pure function: the same model, samples, request and seed give the same
    reply, whatever was asked before. A trainer may raise `SettingsError` for a request that it
    cannot carry out; the reply is then a failure with this message.

    Requests with a limit on single samples (`clip`, `bound`) or with noise come only to a trainer
    with an attribute ``private = True``, by which it promises to apply both.
    """

    @property
    def schema(self) -> ParameterSchema:
        """The parameters of a model, in their order in the vector."""

    @property
    def task(self) -> Task:
        """The loss and the metric."""

    def train(self, silo: Silo, request: Train, seed: int) -> Trained:
        """Train from the given parameters on the silo's training samples."""

    def gradients(self, silo: Silo, request: Gradient, seed: int) -> Gradients:
        """Return losses and gradients of one or several models on a batch."""

    def evaluate(self, silo: Silo, request: Evaluate, seed: int) -> Evaluated:
        """Return losses and metrics of one or several models on a split."""

    def outputs(self, silo: Silo, parameters: Tensor, split: Split) -> tuple[Tensor, Tensor]:
        """Return a model's outputs for the samples of a split, and the targets; at home only."""

    def state(self, silo: Silo, parameters: Tensor) -> dict[str, Tensor]:
        """Return all tensors of a model as they are stored, those that never travel included."""


def carried_out(trainer: Trainer, silo: Silo, request: Request[ReplyT], seed: int) -> Reply:
    """Carry out a request that concerns a silo's data.

    Raises
    ------
    SettingsError
        If the answer has to be private, and the trainer does not promise to make it so.
    """
    if _limited(request) and not getattr(trainer, "private", False):
        raise SettingsError(
            f"{type(trainer).__name__} does not say that it limits what single samples tell; have "
            "it apply clip, bound and noise and set private = True, or use no privacy"
        )
    if isinstance(request, Train):
        reply = trainer.train(training_part(silo, request, seed), request, seed)
        # A part of the samples is the request's business; the silo still has all of them.
        return reply.changed(samples=len(silo.splits["train"])) if request.share else reply
    if isinstance(request, Gradient):
        return trainer.gradients(silo, request, seed)
    if isinstance(request, Evaluate):
        return trainer.evaluate(silo, request, seed)
    if isinstance(request, AddPrior):
        return prior_added(silo, trainer.schema, request, seed)
    assert isinstance(request, Describe)
    return described(silo, request, seed)


def _limited(request: Request[ReplyT]) -> bool:
    """Return whether a trainer has to limit what an answer tells of single samples."""
    if isinstance(request, Train):
        return request.settings.clip is not None or request.noisy
    if isinstance(request, Gradient):
        return request.clip is not None or request.noisy
    return isinstance(request, Evaluate) and (request.bound is not None or request.noisy)
