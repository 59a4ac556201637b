"""The estimator ``hypernetwork``: preferences, learned on validation data with the front fixed.

A preference vector descends its participant's own loss by exponentiated gradients, which stay on
the simplex. Slopes are fractions of the loss, so that one rate suits every task. A pull towards
equal preferences decides where the loss does not, and makes the result independent of the start.
"""

import math
from functools import partial

import torch
from torch import Tensor

from fedegoists.benefit.estimator import TINY, Inquiry, Learned
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.pairs import pair_gains
from fedegoists.benefit.pareto_hypernetwork import ParetoFront, learn_front
from fedegoists.errors import SettingsError
from fedegoists.federation import Gradient

LEAST = 1e-3
"""The smallest entry of a preference vector, as published."""

STEEPEST = 3.0
"""Slopes in parts of the loss count as no more than this."""


def hypernetwork(inquiry: Inquiry) -> Learned:
    """Learn preference vectors; the evidence for an edge is what the front gains by the pair."""
    settings, (_, n) = inquiry.settings, inquiry.queries.shape
    start_of(settings, n)  # so that a wrong one is reported before anything trains
    front = learn_front(inquiry)
    rows, losses = _preferences(inquiry, front)
    weights = rows.cpu()[:, :, None]
    # Where silos hide their losses, more than an equal share is the evidence left.
    gains = pair_gains(inquiry, front) if settings.clip is None else weights - 1 / n
    history = {"training loss": front.losses, "validation loss": losses}
    return Learned(weights, gains, front.present, history=history)


def start_of(settings: LearnSettings, n: int) -> Tensor:
    """Return the preference vector to start from."""
    if settings.start is None:
        return torch.full((n,), 1 / n)
    start = torch.tensor(settings.start)
    if len(start) != n or not bool((start >= 0).all()) or not start.sum() > 0:
        raise SettingsError(f"start: expected {n} numbers that are not negative, not all zero")
    return (start / start.sum()).clamp_min(LEAST)


def _preferences(inquiry: Inquiry, front: ParetoFront) -> tuple[Tensor, Tensor]:
    """Return preferences (repetitions, repeats, targets, sources), losses (steps, repetitions).

    Equation 10: r_i* = argmin_r L_i(HN(φ, r)), with φ fixed, for every participant i.
    """
    queries, settings = inquiry.queries, inquiry.settings
    repetitions, n = queries.shape
    device, repeats, steps = queries.federation.device, settings.repeats, settings.preference_steps
    used = front.present.to(device)[:, None, None]
    rows = start_of(settings, n).to(device).expand(repetitions, repeats, n, n) * used
    rows = rows / rows.sum(-1, keepdim=True).clamp_min(TINY)
    reports = []
    for step in range(steps):
        gradients, losses, _ = queries.gradients(
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
        slopes = front.slopes(rows, gradients)  # of Equation 10: ∇_r L_i(HN(φ, r))
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
        inquiry.progress("preferences", step + 1, steps, losses.mean().item())
    return rows, torch.stack(reports)
