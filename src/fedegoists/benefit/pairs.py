"""The estimator ``pairs``: a hypernetwork's model for two participants against that for one."""

import torch
from torch import Tensor

from fedegoists.benefit.estimator import TINY, Inquiry, Learned
from fedegoists.benefit.pareto_hypernetwork import ParetoFront, learn_front
from fedegoists.benefit.validation_halves import HALVES, half_of

TOGETHER = 32
"""Sources in one call of a silo."""


def pairs(inquiry: Inquiry) -> Learned:
    """Learn gains of pairs; a weight is the gain where it is positive."""
    front = learn_front(inquiry)
    gains = pair_gains(inquiry, front)
    history = {"training loss": front.losses}
    return Learned(gains.clamp_min(0.0), gains, front.present, history=history)


def pair_gains(inquiry: Inquiry, front: ParetoFront) -> Tensor:
    """Return the fraction of its loss that a participant saves in a pair against alone.

    Of shape (repetitions, repeats, halves, targets, sources): the front's models for i alone and
    for i and j with equal weights, on i's validation data. Zeros where a silo failed.
    """
    queries, settings = inquiry.queries, inquiry.settings
    repetitions, n = queries.shape
    unit = torch.eye(n, device=queries.federation.device)
    mixtures = 0.5 * (unit[:, None] + unit[None])
    gains = torch.zeros(repetitions, settings.repeats, HALVES, n, n)
    for sources in torch.split(torch.arange(n), TOGETHER):
        asked = torch.cat([unit[:, None], mixtures[:, sources]], 1).flatten(0, 1)
        models = front.models(asked.expand(repetitions, settings.repeats, -1, -1))
        models = models.reshape(repetitions, settings.repeats, n, len(sources) + 1, -1)
        for repeat in range(settings.repeats):
            for half in range(HALVES):
                seen = half_of(repeat, half, settings)
                losses = queries.losses(models[:, repeat], seen)
                parts = 1 - losses[..., 1:] / losses[..., :1].clamp_min(TINY)
                gains[:, repeat, half, :, sources] = parts.nan_to_num(nan=0.0)
    return gains
