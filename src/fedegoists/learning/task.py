"""Tasks: the loss and the metric, as pure functions of outputs and targets."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedegoists.learning.concordance import concordances
from fedegoists.learning.data import TaskName
from fedegoists.learning.metric_words import metric_words

ABSENT = -1e4
"""The logarithm of a risk that counts for nothing."""


@dataclass(frozen=True)
class Task:
    """A loss to minimise and a metric to report.

    Attributes
    ----------
    name : str
        ``classification`` (cross-entropy, accuracy), ``binary`` (logistic loss, area under the ROC
        curve), ``regression`` (squared error) or ``survival`` (Cox's partial likelihood,
        concordance index).
    metric : str
        The metric's name.
    higher_is_better : bool
        Its direction.
    """

    name: TaskName
    metric: str
    higher_is_better: bool

    @property
    def metric_words(self) -> str:
        """The metric's name for people, such as AUC."""
        return metric_words(self.metric)

    @property
    def usual_metric(self) -> bool:
        """Whether the metric is the one that belongs to the task's name, not a user's own."""
        return True

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every sample; works inside `torch.func` transforms."""
        if self.name == "survival":
            return partial_likelihood(outputs.squeeze(-1), targets)
        if self.name == "classification":
            return F.cross_entropy(outputs, targets, reduction="none")
        if self.name == "binary":
            return F.binary_cross_entropy_with_logits(
                outputs.squeeze(-1), targets, reduction="none"
            )
        return (outputs.squeeze(-1) - targets) ** 2

    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean loss, or the sum with `weights`, which are 0 for padding."""
        if self.name == "survival" and weights is not None:
            return (partial_likelihood(outputs.squeeze(-1), targets, weights) * weights).sum()
        losses = self.losses(outputs, targets)
        return losses.mean() if weights is None else (losses * weights).sum()

    def score(self, outputs: Tensor, targets: Tensor, spread: float = 1.0) -> float:
        """Return the metric over all samples; NaN where it is not defined.

        Numbers to predict were divided by `spread`; the metric is in their own units.
        """
        if self.name == "classification":
            return (outputs.argmax(-1) == targets).double().mean().item()
        if self.name == "binary":
            return area_under_curve(outputs.squeeze(-1), targets)
        if self.name == "survival":
            found = concordances(
                outputs.squeeze(-1).double().cpu().numpy(), targets.double().cpu().numpy()
            )
            return float(found.mean()) if len(found) else float("nan")
        return ((spread * (outputs.squeeze(-1) - targets).double()) ** 2).mean().item()


TASKS: dict[TaskName, Task] = {
    "classification": Task("classification", "accuracy", True),
    "binary": Task("binary", "auc", True),
    "regression": Task("regression", "mse", False),
    "survival": Task("survival", "c-index", True),
}


def partial_likelihood(risks: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return each sample's part of the negative logarithm of Cox's partial likelihood.

    For an event it is log Σ exp(risk) over all that are still at risk at its time, minus its own
    risk, with Breslow's rule for equal times; 0 for a censored one. The parts are scaled so that
    their mean is the mean over events. A sample of weight 2 is as good as two of weight 1.

    Parameters
    ----------
    risks : Tensor
        Logarithms of relative risks.
    targets : Tensor
        Times; negative if censored.
    weights : Tensor, optional
        How much each sample counts; 0 for padding. Only ratios matter.

    Examples
    --------
    Three patients with equal risks, of whom the first and the last have events.

    >>> partial_likelihood(torch.zeros(3), torch.tensor([1.0, -2.0, 3.0]))  # log 3 and log 1, × 3/2
    tensor([1.6479, 0.0000, 0.0000])
    """
    times, event = targets.abs(), targets > 0
    own = torch.ones_like(risks) if weights is None else weights
    count = (own > 0).sum(-1, keepdim=True)
    own = own * count / own.sum(-1, keepdim=True)  # 1 on average
    event = event & (own > 0)
    risks = torch.where(own > 0, risks, ABSENT)
    counted = risks + torch.where(own > 0, own, 1.0).log()
    order = torch.argsort(times, dim=-1, descending=True)
    sorted_times = times.gather(-1, order)
    sums = torch.logcumsumexp(counted.gather(-1, order), -1)
    # All with the same time are at risk: take the sum up to the last of them.
    size = times.shape[-1]
    differs = sorted_times[..., 1:] != sorted_times[..., :-1]
    last = torch.cat([differs, torch.ones_like(event[..., :1])], -1)
    places = torch.where(last, torch.arange(size, device=times.device), size)
    sums = sums.gather(-1, places.flip(-1).cummin(-1).values.flip(-1))
    at_risk = torch.empty_like(sums).scatter(-1, order, sums)
    events = torch.where(event, own, 0.0).sum(-1, keepdim=True)
    scale = count / torch.where(events > 0, events, 1.0)
    return torch.where(event, (at_risk - risks) * scale, 0.0)


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
