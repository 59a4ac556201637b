"""The estimator ``alignment``: the cosine of two participants' local updates."""

import torch
from torch import Tensor

from fedegoists.benefit.estimator import Learned, Progress
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.local_models import local_models
from fedegoists.benefit.silo_queries import SiloQueries

__all__ = ["alignment"]


def alignment(
    queries: SiloQueries,
    settings: LearnSettings,
    progress: Progress,
    rivals: Tensor,  # noqa: ARG001 - no silo sees a model of another
    secret: str,  # noqa: ARG001
) -> Learned:
    """Learn cosines of local updates; a weight is the cosine where it is positive."""
    models, starts, present = local_models(queries, settings, progress)
    queries.count_anew()
    updates = torch.nn.functional.normalize(models - starts[:, None], dim=-1)
    cosines = (updates @ updates.mT).cpu()[:, :, None]
    return Learned(cosines.clamp_min(0.0), cosines, present)
