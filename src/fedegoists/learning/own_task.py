"""A task with a user's own loss or metric."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedegoists.errors import SettingsError, shown
from fedegoists.learning.task import Task

Direction = {"higher": True, "lower": False}
"""Which way a metric is better."""


@dataclass(frozen=True)
class OwnTask(Task):
    """A task whose loss or metric a user has written; see `Task`.

    Attributes
    ----------
    own_loss : function, optional
        Of outputs and targets: the loss of every sample, or one number for a batch.
    own_score : function, optional
        Of outputs and targets: the metric, over all samples.
    """

    own_loss: Callable[[Tensor, Tensor], Tensor] | None = None
    own_score: Callable[[Tensor, Tensor], Any] | None = None

    @property
    def usual_metric(self) -> bool:
        """Whether the metric is the one that belongs to the task's name, not a user's own."""
        return self.own_score is None

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every sample."""
        if self.own_loss is None:
            return super().losses(outputs, targets)
        each = self.own_loss(outputs, targets)
        if each.dim() == 0:
            raise SettingsError(
                "the loss returns one number for a batch; weights of classes or samples, "
                "accumulate and privacy need one for each sample: return a vector"
            )
        return each.reshape(len(targets), -1).mean(1)

    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean loss, or the sum with `weights`, which are 0 for padding."""
        if self.own_loss is not None and weights is None:
            return self.own_loss(outputs, targets).mean()
        return super().loss(outputs, targets, weights)

    def score(self, outputs: Tensor, targets: Tensor, spread: float = 1.0) -> float:
        """Return the metric over all samples; NaN where it is not defined.

        A user's own metric is about numbers as the model sees them: targets of a regression are
        scaled.
        """
        if self.own_score is None:
            return super().score(outputs, targets, spread)
        return float(self.own_score(outputs, targets))

    def of_each_sample(self, outputs: Tensor, targets: Tensor) -> bool:
        """Return whether there is a loss for every sample."""
        return self.own_loss is None or self.own_loss(outputs, targets).dim() > 0


def own_task(
    task: Task, loss: object = None, metrics: object = None, where: str = "the model"
) -> Task:
    """Return a task with another loss or metric, where one is given.

    Parameters
    ----------
    loss : function, optional
        Of outputs and targets.
    metrics : mapping of str to function, optional
        The first one is reported, and models are chosen by it. A pair of a function and ``lower``
        is a metric of which less is better.
    """
    if loss is None and not metrics:
        return task
    if loss is not None and not callable(loss):
        raise SettingsError(f"{where}: loss is {shown(loss)}; expected a function")
    name, higher, score = task.metric, task.higher_is_better, None
    if metrics:
        if not isinstance(metrics, Mapping):
            raise SettingsError(
                f"{where}: metrics is {shown(metrics)}; expected a dictionary of names and "
                'functions, such as {"auroc": auroc}'
            )
        name, found = next(iter(metrics.items()))
        score, direction = found if isinstance(found, tuple) else (found, "higher")
        if not callable(score) or direction not in Direction:
            raise SettingsError(
                f"{where}: the metric {shown(name)} is {shown(found)}; expected a function, or a "
                'pair such as (mean_error, "lower")'
            )
        higher = Direction[direction]
    return OwnTask(task.name, str(name), higher, loss, score)


def check_own_task(task: Task, outputs: Tensor, targets: Tensor) -> None:
    """Try a user's own loss and metric on the outputs of a few samples.

    Raises
    ------
    SettingsError
        If one of them fails, or returns something else than numbers.
    """
    if not isinstance(task, OwnTask):
        return
    for what, function in (("loss", task.loss), ("metric", task.score)):
        try:
            value = function(outputs, targets)
        except Exception as error:  # it is the user's own code: anything can happen
            raise SettingsError(
                f"the {what} raised {type(error).__name__} for outputs of the shape "
                f"{tuple(outputs.shape)} and targets of the shape {tuple(targets.shape)}: {error}"
            ) from error
        if what == "loss" and not (isinstance(value, torch.Tensor) and value.dim() == 0):
            raise SettingsError(f"the loss returns {shown(value)}; expected a tensor of numbers")
