"""Members whose samples agree more closely than separate samples can: the same data twice.

The losses of the same models are compared on the samples of two members. Two separate samples of
one distribution differ by chance, and samples of different distributions differ more. So a
difference far smaller than chance allows means that members have the same samples, or nearly so,
also in another order, in other units, or with a little noise on them. It does not say who had them
first.

The squared difference of mean losses, in standard errors and summed over d independent directions
among the models, has a chi-squared distribution with d degrees of freedom for separate samples of
one distribution. A pair is redundant where a sum as small as theirs has a probability of at most
`LEVEL`, divided by the number of pairs.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.learning.data import Split
from fedegoists.learning.estimates import Numbers

LEVEL = 0.01
"""The probability of a false alarm anywhere among separate samples, at most."""
SAMPLES_PER_DIRECTION = 10
"""Samples of the smaller member for each direction, so that covariances are known."""
MOST_MODELS = 64
NEGLIGIBLE = 1e-8
"""Directions with less than this fraction of the largest variance are rounding."""
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def redundant_members(
    federation: SimulatedFederation,
    groups: Sequence[Sequence[Participant]],
    models: torch.Tensor,
    level: float = LEVEL,
) -> dict[str, tuple[str, ...]]:
    """Return for members with the same samples as others of their coalition the names of these.

    Parameters
    ----------
    groups : sequence of sequence of Participant
        The coalitions of one repetition.
    models : Tensor
        Whole models to compare by, one a row, such as those that members have trained alone. The
        more different ones, the more is found; of a single one, next to nothing.
    level : float
        The probability of a false alarm at which pairs count.
    """
    models = torch.unique(models, dim=0)
    if len(models) > MOST_MODELS:
        models = models[np.linspace(0, len(models) - 1, MOST_MODELS).round().astype(int)]
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    known = {one: _losses(federation, one, models) for one in {n for pair in pairs for n in pair}}
    found: dict[str, tuple[str, ...]] = {}
    for one, other in pairs:
        if chance_of_agreement(known[one], known[other]) * len(pairs) <= level:
            found[one.name] = (*found.get(one.name, ()), other.name)
            found[other.name] = (*found.get(other.name, ()), one.name)
    return found


Profile = tuple[Numbers, Numbers]
"""Losses, one row a sample and one column a model; and the same without the means of classes."""


def _losses(federation: SimulatedFederation, one: Participant, models: torch.Tensor) -> Profile:
    columns, targets = [], torch.zeros(0)
    for model in models:
        parts = [federation.outputs(one, model, split) for split in SPLITS]
        outputs, targets = (torch.cat([part[k] for part in parts]).cpu() for k in (0, 1))
        losses = federation.task.losses(outputs, targets).double()
        columns.append(losses.reshape(len(targets), -1).mean(1).numpy())
    classes = federation.task.name in ("classification", "binary") and targets.ndim == 1
    return loss_profile(np.stack(columns, 1), targets.numpy() if classes else None)


def loss_profile(losses: Numbers, classes: object = None) -> Profile:
    """Return losses, and what remains of them without the mean of each class.

    Divisions of one data set often have equal numbers of each class. Then only what is left within
    classes differs by chance.
    """
    losses = np.where(np.isfinite(losses), losses, np.nan)  # of a model that has exploded
    rest = losses - losses.mean(0)
    if classes is not None:
        labels = np.asarray(classes)
        for label in np.unique(labels):
            rest[labels == label] -= rest[labels == label].mean(0)
    return losses, rest


def chance_of_agreement(one: Profile, other: Profile) -> float:
    """Return how probable it is that separate samples agree as closely as these.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> losses, others = rng.normal(size=(200, 8)), rng.normal(size=(200, 8))
    >>> chance_of_agreement(loss_profile(losses), loss_profile(losses[::-1]))
    0.0
    >>> chance_of_agreement(loss_profile(losses), loss_profile(others)) > 0.01
    True
    """
    smaller = min(len(one[0]), len(other[0]))
    difference = one[0].mean(0) - other[0].mean(0)
    finite = np.isfinite(difference)
    if not finite.any():
        return 1.0
    difference = difference[finite]
    rests = [profile[1][:, finite] for profile in (one, other)]
    covariance = sum(rest.T @ rest / len(rest) ** 2 for rest in rests)
    variances, directions = np.linalg.eigh(covariance)
    kept = variances > NEGLIGIBLE * variances.max(initial=0)
    kept &= np.arange(len(kept)) >= len(kept) - smaller // SAMPLES_PER_DIRECTION
    if not kept.any():
        return 1.0
    # The last directions have the largest variances.
    total = float((np.square(difference @ directions)[kept] / variances[kept]).sum())
    halves = torch.tensor([kept.sum() / 2, total / 2], dtype=torch.float64)
    # Sums of rounding errors are no agreement of their own.
    return round(float(torch.special.gammainc(halves[0], halves[1])), 12)
