"""Tasks: the loss and the metric, as pure functions of outputs and targets."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedegoists.learning.data import TaskName


@dataclass(frozen=True)
class Task:
    """A loss to minimise and a metric to report.

    Attributes
    ----------
    name : str
        ``classification`` (cross-entropy, accuracy), ``binary`` (logistic loss, area under the ROC
        curve) or ``regression`` (squared error).
    metric : str
        The metric's name.
    higher_is_better : bool
        Its direction.
    """

    name: TaskName
    metric: str
    higher_is_better: bool

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every sample; works inside `torch.func` transforms."""
        if self.name == "classification":
            return F.cross_entropy(outputs, targets, reduction="none")
        if self.name == "binary":
            return F.binary_cross_entropy_with_logits(
                outputs.squeeze(-1), targets, reduction="none"
            )
        return (outputs.squeeze(-1) - targets) ** 2

    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean loss, or the sum with `weights`, which are 0 for padding."""
        losses = self.losses(outputs, targets)
        return losses.mean() if weights is None else (losses * weights).sum()

    def score(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the metric over all samples; NaN where it is not defined."""
        if self.name == "classification":
            return (outputs.argmax(-1) == targets).double().mean().item()
        if self.name == "binary":
            return area_under_curve(outputs.squeeze(-1), targets)
        return ((outputs.squeeze(-1) - targets).double() ** 2).mean().item()


TASKS: dict[TaskName, Task] = {
    "classification": Task("classification", "accuracy", True),
    "binary": Task("binary", "auc", True),
    "regression": Task("regression", "mse", False),
}


def area_under_curve(scores: Tensor, targets: Tensor) -> float:
    """Return the probability that a positive scores above a negative, ties counting half.

    NaN if there are only positives or only negatives.

    Examples
    --------
    >>> area_under_curve(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0.0, 0, 1, 1]))
    0.75
    """
    positive = targets > 0.5
    pairs = positive.sum().item() * (~positive).sum().item()
    if pairs == 0:
        return float("nan")
    # The rank of equal scores is the mean of their places. AUC = (Σ ranks⁺ − n⁺(n⁺+1)/2) / (n⁺n⁻).
    _, group, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    last = sizes.cumsum(0).double()
    ranks = (last - (sizes.double() - 1) / 2)[group]
    count = positive.sum().double()
    return float((ranks[positive].sum() - count * (count + 1) / 2) / pairs)
