"""Weights of contributors: how much of each one's trees a receiver uses, chosen on its own data."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedegoists.learning.estimates import Groups
from fedegoists.learning.sample_scores import counted
from fedegoists.learning.task import Task

MOST_STEPS = 200
CLOSE_ENOUGH = 1e-7
"""Improvement of a sample's mean loss in a step, below which the search ends."""


def chosen_weights(
    intercept: Tensor,
    contributions: Tensor,
    targets: Tensor,
    task: Task,
    caution: float,
    factors: Tensor | None = None,
    groups: Groups | None = None,
) -> Tensor:
    """Return the weights w ≥ 0 with Σ w = 1 that suit some validation samples.

    They minimise Σ_samples ℓ(intercept + Σ_j w_j · contribution_j) + caution · Σ_{j≠0} w_j, where
    contribution 0 is one's own. To replace one's own trees altogether, others must save a total
    loss (in a classification, a log-likelihood) of `caution`: on thirty samples a small advantage
    is luck, on thousands it is not. Squared errors are divided by twice the mean squared error of
    one's own trees, which makes them log-likelihoods, too. In a survival task the sum is over
    events: it is Cox's partial likelihood.

    Parameters
    ----------
    intercept : Tensor
        One for each output.
    contributions : Tensor, samples × contributors × outputs
        What the trees of each contributor add to the outputs. A contributor without any effect
        gets no weight.
    caution : float
        The total loss that others must save.
    factors : Tensor, optional
        How much each sample counts, 1 on average; all alike if left out.
    groups : array of int, optional
        The group of each sample, such as its patient: what the samples of a patient save counts as
        their mean, once.
    """
    contributions, intercept = contributions.double(), intercept.double()
    count, members, _ = contributions.shape
    weights = torch.zeros(members, dtype=torch.double)
    weights[0] = 1.0
    useful = (contributions != 0).flatten(2).any(2).any(0)
    useful[0] = True
    if not count or useful.sum() == 1:
        return weights.float()

    def mean_loss(outputs: Tensor) -> Tensor:
        return task.loss(outputs, targets, None if factors is None else factors.double() / count)

    scale = 1.0
    if task.name == "regression":
        targets = targets.double()
        alone = mean_loss(intercept + contributions[:, 0]).item()
        scale = 0.5 / max(alone, 1e-12)
    elif task.name != "classification":
        targets = targets.double()
    telling = targets > 0 if task.name == "survival" else torch.ones(count, dtype=torch.bool)
    pieces = max(counted(telling.numpy(), groups), 1)
    penalty = torch.full((members,), caution / pieces, dtype=torch.double)
    penalty[0] = 0.0

    def objective(w: Tensor) -> Tensor:
        outputs = intercept + torch.einsum("m,nmk->nk", w, contributions)
        return scale * mean_loss(outputs) + penalty @ w

    return _minimised(objective, weights, useful).float()


def _minimised(objective: Callable[[Tensor], Tensor], weights: Tensor, useful: Tensor) -> Tensor:
    """Minimise a convex function over the simplex by projected descent with a line search."""
    step = 1.0
    best = objective(weights).item()
    for _ in range(MOST_STEPS):
        w = weights.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(w), w)
        before = best
        for _ in range(40):
            tried = torch.zeros_like(weights)
            tried[useful] = on_simplex((weights - step * gradient)[useful])
            value = objective(tried).item()
            # A number that is not finite fails this comparison.
            if value <= best - 1e-4 / step * (tried - weights).square().sum().item():
                weights, best = tried, value
                step *= 2.0
                break
            step /= 2.0
        else:
            break
        if before - best < CLOSE_ENOUGH:
            break
    return weights


def on_simplex(vector: Tensor) -> Tensor:
    """Return the nearest vector of numbers ≥ 0 whose sum is one.

    Examples
    --------
    >>> on_simplex(torch.tensor([0.8, 0.8, -3.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    ordered = vector.sort(descending=True).values
    excess = (ordered.cumsum(0) - 1) / torch.arange(1, len(vector) + 1, dtype=vector.dtype)
    last = int((ordered > excess).sum()) - 1
    return (vector - excess[last]).clamp_min(0.0)
