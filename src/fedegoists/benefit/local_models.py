"""Models that all silos train alone, from a common start."""

from functools import partial

import torch
from torch import Tensor

from fedegoists.benefit.estimator import Inquiry
from fedegoists.federation import Train
from fedegoists.federation.batches import stream_seed
from fedegoists.learning.forest import is_forest, malformed
from fedegoists.learning.parameters import ParameterSchema

FARTHEST = 100.0
"""How far a model may be from the start, in lengths of that one."""


def local_models(inquiry: Inquiry) -> tuple[Tensor, Tensor, Tensor]:
    """Have all silos train alone from a common start, once for each repeat.

    Returns
    -------
    models, starts, present
        Of shapes (repetitions, repeats, participants, parameters), (repeats, parameters) and
        (repetitions, participants).
    """
    queries, settings = inquiry.queries, inquiry.settings
    repetitions, n = queries.shape
    schema = queries.federation.schema
    models, starts = [], []
    present = torch.ones(repetitions, n, dtype=torch.bool)
    for repeat in range(settings.repeats):
        seed = stream_seed(settings.seed, repeat, "local")
        start = schema.drawn(seed).to(queries.federation.device)
        trained, answered = queries.trained(
            start.expand(repetitions, n, -1), partial(Train, settings=settings.local, seed=seed)
        )
        if is_forest(schema):
            answered &= _forests(schema, trained, start)
            models.append(torch.where(answered[..., None].to(trained.device), trained, start))
        else:
            models.append(near(trained, start))
        starts.append(start)
        present &= answered
        inquiry.progress("local training", repeat + 1, settings.repeats, float("nan"))
    queries.restart_count()  # the evaluations that follow are counted by themselves
    return torch.stack(models, 1), torch.stack(starts), present


def _forests(schema: ParameterSchema, models: Tensor, start: Tensor) -> Tensor:
    """Return which models are forests that another silo can evaluate."""
    features = int(start[0])  # an empty forest holds their number in every node
    fine = [not malformed(schema, one, features) for one in models.flatten(0, -2)]
    return torch.tensor(fine).reshape(models.shape[:-1])


def near(models: Tensor, start: Tensor) -> Tensor:
    """Clip updates of models whose norm is unreasonably large.

    The loss of such a model would not be finite, and the reply of a silo about several models at
    once would be lost.
    """
    limit = FARTHEST * start.norm().clamp_min(1.0)
    changes = models - start
    lengths = changes.norm(dim=-1, keepdim=True)
    return torch.where(lengths > limit, start + changes * (limit / lengths), models)
