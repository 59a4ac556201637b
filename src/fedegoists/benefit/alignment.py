"""The estimator ``alignment``: the cosine of two participants' local updates."""

import torch

from fedegoists.benefit.estimator import Inquiry, Learned
from fedegoists.benefit.local_models import local_models


def alignment(inquiry: Inquiry) -> Learned:
    """Learn cosines of local updates; a weight is the cosine where it is positive."""
    models, starts, present = local_models(inquiry)
    updates = torch.nn.functional.normalize(models - starts[:, None], dim=-1)
    cosines = (updates @ updates.mT).cpu()[:, :, None]
    return Learned(cosines.clamp_min(0.0), cosines, present)
