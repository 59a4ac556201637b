"""The estimator ``transfer``: the local model of one participant on the data of another."""

from functools import partial

import torch
from torch import Tensor

from fedegoists.benefit.decoys import Disguise
from fedegoists.benefit.estimator import TINY, Inquiry, Learned
from fedegoists.benefit.local_models import local_models
from fedegoists.benefit.validation_halves import HALVES, half_of
from fedegoists.learning.forest import is_forest, mixtures
from fedegoists.learning.parameters import ParameterSchema

FRACTIONS = (0.25, 0.5, 0.75, 1.0)
"""The fractions by which i's model is moved towards j's."""

MOST_TOGETHER = 8
"""Sources in one call of a silo."""

LARGE = 20_000
"""Networks with more parameters than this need much memory for each mixture."""


def transfer(inquiry: Inquiry) -> Learned:
    """Learn what j's local model, mixed with i's, is worth on i's validation data.

    Let g(f) be the part of its loss on its own validation data that i saves with 1 − f times its
    model plus f times j's; of boosted trees, the outputs are mixed. The weight is τ · log Σ
    exp(g(f)/τ) over f = 0, which saves nothing, and `FRACTIONS`: close to the most that i can save,
    and to zero where j's model is of no use. The gain is g(1/2) less what i saves half-way to the
    model from which all started: that one knows nothing, but a mixture with it is shrunken too, and
    shrinking alone may save something. The saving is the largest g(f), in the mean over runs.

    Where i competes with j it is asked about a decoy instead, and its answer is thrown away; it is
    asked in an order of its own, and both are drawn from a secret, see `fedegoists.benefit.decoys`.
    """
    queries, settings, rivals = inquiry.queries, inquiry.settings, inquiry.rivals
    models, starts, present = local_models(inquiry)
    repetitions, n = queries.shape
    schema = queries.federation.schema
    disguise = Disguise(inquiry.secret, settings.seed, queries.names, rivals, schema)
    rivals = torch.cat([rivals, torch.zeros(repetitions, n, 1, dtype=torch.bool)], 2)
    saved = torch.zeros(repetitions, settings.repeats, HALVES, n, n + 1, len(FRACTIONS))
    known = torch.zeros(repetitions, settings.repeats, HALVES, n, n + 1, dtype=torch.bool)
    mixed = partial(_mixed, schema, torch.tensor(FRACTIONS, device=models.device))
    together = MOST_TOGETHER if models.shape[-1] < LARGE else 2
    repetition, target = torch.arange(repetitions)[:, None, None], torch.arange(n)[:, None]
    for repeat in range(settings.repeats):
        own = models[:, repeat, :, None, None]
        start = starts[repeat]
        sources_and_start = torch.cat([models[:, repeat], start.expand(repetitions, 1, -1)], 1)
        for half in range(HALVES):
            seen = half_of(repeat, half, settings)
            alone = queries.losses(own[:, :, 0], seen)
            for sources in torch.split(disguise.orders(n + 1, repeat, half), together, 2):
                others = sources_and_start[repetition, sources]
                disguise.hide(others, sources, models[:, repeat], start, repeat)
                rows = mixed(own, others).flatten(2, 3)
                losses = queries.losses(rows, seen)
                parts = 1 - losses / alone.clamp_min(TINY)
                parts = parts.reshape(repetitions, n, sources.shape[2], len(FRACTIONS))
                heard = parts.isfinite().all(-1) & ~rivals[repetition, target, sources]
                saved[repetition, repeat, half, target, sources] = parts.where(
                    heard[..., None], 0.0
                )
                known[repetition, repeat, half, target, sources] = heard
        inquiry.progress("transfer", repeat + 1, settings.repeats, alone.nanmean().item())
    tau = settings.softness
    with_others, with_start = saved[..., :n, :], saved[..., n:, :]
    choices = torch.cat([torch.zeros_like(with_others[..., :1]), with_others], -1)
    half_way = FRACTIONS.index(0.5)
    unknown = ~(known[..., :n] & known[..., n:])
    gains = with_others[..., half_way] - with_start[..., half_way]
    return Learned(
        (tau * torch.logsumexp(choices / tau, -1)).masked_fill(unknown, 0.0),
        gains.masked_fill(unknown, 0.0),
        present,
        with_others.mean((1, 2)).amax(-1),
    )


def _mixed(schema: ParameterSchema, fractions: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """Return mixtures of i's model with others, by all fractions, in an axis before the last."""
    if is_forest(schema):
        return mixtures(schema, own[..., 0, :], others, fractions)
    moved: Tensor = own + fractions[:, None] * (others.unsqueeze(3) - own)
    return moved
