"""Two estimates that are by-products of one run of local training."""

from functools import partial

import torch
from torch import Tensor

from fedegoists.benefit.decoys import Disguise
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.pareto_hypernetwork import TINY, Progress
from fedegoists.benefit.silo_queries import Asking
from fedegoists.benefit.validation_halves import HALVES, half_of
from fedegoists.federation import Train
from fedegoists.federation.batches import stream_seed

__all__ = ["FARTHEST", "alignment", "local_models", "transfer"]


def local_models(
    asking: Asking, settings: LearnSettings, progress: Progress
) -> tuple[Tensor, Tensor, Tensor]:
    """Train everybody alone from a common start, once for each repeat.

    Returns
    -------
    models, starts, present
        Of shapes (trials, repeats, participants, parameters), (repeats, parameters) and (trials,
        participants).
    """
    trials, n = asking.shape
    models, starts = [], []
    present = torch.ones(trials, n, dtype=torch.bool)
    for repeat in range(settings.repeats):
        seed = stream_seed(settings.seed, repeat, "local")
        start = asking.federation.schema.drawn(seed).to(asking.federation.device)
        trained, answered = asking.trained(
            start.expand(trials, n, -1), partial(Train, settings=settings.local, seed=seed)
        )
        models.append(_near(trained, start))
        starts.append(start)
        present &= answered
        progress("local training", repeat + 1, settings.repeats, float("nan"))
    return torch.stack(models, 1), torch.stack(starts), present


def _near(models: Tensor, start: Tensor) -> Tensor:
    """Return models, those brought nearer that are beyond all measure.

    The loss of such a model would be no number, and a silo that is asked about several at once
    could then say nothing of the others either.
    """
    limit = FARTHEST * start.norm().clamp_min(1.0)
    changes = models - start
    lengths = changes.norm(dim=-1, keepdim=True)
    return torch.where(lengths > limit, start + changes * (limit / lengths), models)


def alignment(models: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and gains from the cosine of the updates of i and j.

    Both of shape (trials, repeats, 1, targets, sources); a weight is the cosine where positive.
    """
    updates = torch.nn.functional.normalize(models - starts[:, None], dim=-1)
    cosines = (updates @ updates.mT).cpu()[:, :, None]
    return cosines.clamp_min(0.0), cosines


def transfer(
    asking: Asking,
    models: Tensor,
    starts: Tensor,
    settings: LearnSettings,
    progress: Progress,
    rivals: Tensor,
    secret: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights, gains and savings from j's local model, mixed with i's, on i's data.

    Let g(f) be the part of its loss on its own validation data that i saves with 1 − f times its
    model plus f times j's. The weight is τ · log Σ exp(g(f)/τ) over f = 0, which saves nothing, and
    `FRACTIONS`: close to the most that i can save, and to zero where j's model is of no use. The
    gain is g(1/2) less what i saves half-way to the model from which all started: that one knows
    nothing, but a mixture with it is shrunken too, and shrinking alone may save something. The
    saving is the largest g(f), in the mean over runs.

    Where i competes with j it is asked about a decoy instead, and its answer is thrown away; it is
    asked in an order of its own, and both are drawn from a secret, see `fedegoists.benefit.decoys`.
    Weights and gains are of shape (trials, repeats, halves, targets, sources).
    """
    trials, n = asking.shape
    schema = asking.federation.schema
    disguise = Disguise(secret, settings.seed, asking.names, rivals, schema)
    rivals = torch.cat([rivals, torch.zeros(trials, n, 1, dtype=torch.bool)], 2)
    saved = torch.zeros(trials, settings.repeats, HALVES, n, n + 1, len(FRACTIONS))
    known = torch.zeros(trials, settings.repeats, HALVES, n, n + 1, dtype=torch.bool)
    fractions = torch.tensor(FRACTIONS, device=models.device)[:, None]
    together = MOST_TOGETHER if models.shape[-1] < LARGE else 2
    trial, target = torch.arange(trials)[:, None, None], torch.arange(n)[:, None]
    for repeat in range(settings.repeats):
        own = models[:, repeat, :, None, None]
        start = starts[repeat]
        sources_and_start = torch.cat([models[:, repeat], start.expand(trials, 1, -1)], 1)
        for half in range(HALVES):
            seen = half_of(repeat, half, settings)
            alone = asking.losses(own[:, :, 0], seen)
            for sources in torch.split(disguise.orders(n + 1, repeat, half), together, 2):
                others = sources_and_start[trial, sources]
                disguise.hide(others, sources, models[:, repeat], start, repeat)
                rows = (own + fractions * (others.unsqueeze(3) - own)).flatten(2, 3)
                losses = asking.losses(rows, seen)
                parts = 1 - losses / alone.clamp_min(TINY)
                parts = parts.reshape(trials, n, sources.shape[2], len(FRACTIONS))
                heard = parts.isfinite().all(-1) & ~rivals[trial, target, sources]
                saved[trial, repeat, half, target, sources] = parts.where(heard[..., None], 0.0)
                known[trial, repeat, half, target, sources] = heard
        progress("transfer", repeat + 1, settings.repeats, alone.nanmean().item())
    tau = settings.softness
    with_others, with_start = saved[..., :n, :], saved[..., n:, :]
    choices = torch.cat([torch.zeros_like(with_others[..., :1]), with_others], -1)
    half_way = FRACTIONS.index(0.5)
    unknown = ~(known[..., :n] & known[..., n:])
    return (
        (tau * torch.logsumexp(choices / tau, -1)).masked_fill(unknown, 0.0),
        (with_others[..., half_way] - with_start[..., half_way]).masked_fill(unknown, 0.0),
        with_others.mean((1, 2)).amax(-1),
    )


FARTHEST = 100.0
"""How far a model may be from the start, in lengths of that one."""

FRACTIONS = (0.25, 0.5, 0.75, 1.0)
"""How far i's model is moved towards j's."""

MOST_TOGETHER = 8
"""Sources whose mixtures a silo is asked about in one call."""

LARGE = 20_000
"""Networks with more parameters than this need much memory for each mixture."""
