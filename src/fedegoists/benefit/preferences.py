"""What each participant prefers, learned on its own validation data with the front held fixed.

A preference vector descends its participant's own loss by exponentiated gradients, which stay on
the simplex. Slopes count in parts of the loss, so that one rate suits every task. A pull towards
equal preferences decides where the loss does not, and makes the result independent of the start.
"""

import math
from functools import partial

import torch
from torch import Tensor

from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.pareto_hypernetwork import TINY, ParetoFront, Progress
from fedegoists.benefit.silo_queries import Asking
from fedegoists.benefit.validation_halves import HALVES, half_of
from fedegoists.errors import SettingsError
from fedegoists.federation import Gradient

__all__ = ["learn_preferences", "pair_gains", "start_of"]

LEAST = 1e-3
"""The smallest entry of a preference vector, as published."""

STEEPEST = 3.0
"""Slopes in parts of the loss count as no more than this."""


def start_of(settings: LearnSettings, n: int) -> Tensor:
    """Return the preference vector to start from."""
    if settings.start is None:
        return torch.full((n,), 1 / n)
    start = torch.tensor(settings.start)
    if len(start) != n or not bool((start >= 0).all()) or not start.sum() > 0:
        raise SettingsError(f"start: expected {n} numbers that are not negative, not all zero")
    return (start / start.sum()).clamp_min(LEAST)


def learn_preferences(
    asking: Asking, front: ParetoFront, settings: LearnSettings, progress: Progress
) -> tuple[Tensor, Tensor]:
    """Return preferences (trials, repeats, targets, sources), and losses (steps, trials)."""
    trials, n = asking.shape
    device, repeats, steps = asking.federation.device, settings.repeats, settings.preference_steps
    used = front.present.to(device)[:, None, None]
    rows = start_of(settings, n).to(device).expand(trials, repeats, n, n) * used
    rows = rows / rows.sum(-1, keepdim=True).clamp_min(TINY)
    reports = []
    for step in range(steps):
        gradients, losses, _ = asking.gradients(
            front.models(rows).transpose(1, 2),
            partial(
                Gradient,
                split="validation",
                seed=f"{settings.seed}/preferences",
                step=step,
                clip=settings.clip,
                noise=settings.noise,
            ),
        )
        gradients, losses = gradients.transpose(1, 2), losses.transpose(1, 2)
        slopes = front.slopes(rows, gradients)
        # In parts of the loss; a silo that hides its losses leaves only the slopes' own size.
        unit = losses.to(device) if settings.clip is None else slopes.abs().amax(-1)
        slopes = slopes / unit.clamp_min(TINY)[..., None]
        slopes = slopes + settings.prior * rows.clamp_min(LEAST).log()
        slopes = slopes - slopes.mean(-1, keepdim=True)
        # A falling rate, and slopes that are cut, end the swinging where the loss is steep.
        rate = settings.preference_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        moved = rows * torch.exp(-rate * slopes.clamp(-STEEPEST, STEEPEST))
        moved = (moved / moved.sum(-1, keepdim=True).clamp_min(TINY)).clamp_min(LEAST) * used
        rows = moved / moved.sum(-1, keepdim=True).clamp_min(TINY)
        reports.append(losses.mean((1, 2)))
        progress("preferences", step + 1, steps, losses.mean().item())
    return rows, torch.stack(reports)


def pair_gains(asking: Asking, front: ParetoFront, settings: LearnSettings) -> Tensor:
    """Return by which part of its loss a participant is better off in a pair than alone.

    Of shape (trials, repeats, halves, targets, sources): the front's models for i alone and for i
    and j with equal weights, on i's validation data. Zeros where a silo failed.
    """
    trials, n = asking.shape
    unit = torch.eye(n, device=asking.federation.device)
    mixtures = 0.5 * (unit[:, None] + unit[None])
    gains = torch.zeros(trials, settings.repeats, HALVES, n, n)
    for sources in torch.split(torch.arange(n), TOGETHER):
        asked = torch.cat([unit[:, None], mixtures[:, sources]], 1).flatten(0, 1)
        models = front.models(asked.expand(trials, settings.repeats, -1, -1))
        models = models.reshape(trials, settings.repeats, n, len(sources) + 1, -1)
        for repeat in range(settings.repeats):
            for half in range(HALVES):
                seen = half_of(repeat, half, settings)
                losses = asking.losses(models[:, repeat], seen)
                parts = 1 - losses[..., 1:] / losses[..., :1].clamp_min(TINY)
                gains[:, repeat, half, :, sources] = parts.nan_to_num(nan=0.0)
    return gains


TOGETHER = 32
"""Sources whose pairs a silo is asked about in one call."""
