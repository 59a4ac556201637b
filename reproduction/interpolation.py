"""Means of the models before and after fine-tuning.

Wortsman et al., "Robust Fine-Tuning of Zero-Shot Models", CVPR 2022: a weighted mean of the
parameters before and after fine-tuning is often better than both.
"""

import torch

from fedegoists.errors import SettingsError
from fedegoists.federation.seam import StatefulFederation
from fedegoists.learning.safe_choice import ChooseBy
from fedegoists.methods.method import Method
from fedegoists.methods.method_run import evaluate
from fedegoists.methods.outcome import Outcome

__all__ = ["interpolate"]

SHARES = (0.25, 0.5, 0.75)
"""Shares of the model after fine-tuning that are tried."""


def interpolate(
    method: Method,
    federation: StatefulFederation,
    trained: Outcome,
    tuned: Outcome,
    choose_by: ChooseBy = "metric",
) -> Outcome:
    """Add means of the models before and after fine-tuning to each participant's candidates.

    Each participant keeps what its validation data prefers: the model before fine-tuning, that of
    a round of it, or a mean of the first and the last. It costs evaluations only. Rounds after
    those of fine-tuning are the means, one for each share.

    Parameters
    ----------
    trained, tuned : Outcome
        The outcome of the method, and of `fine_tune` from it.

    Raises
    ------
    SettingsError
        If the silos keep models or layers at home, of which no means can be made here.
    """
    if method.personal or trained.at_home or tuned.at_home:
        raise SettingsError(f"{method.name}: parts of the models stay in their silos")
    found, end = tuned.copy(), tuned.state.parameters
    for share in SHARES:
        found.state = found.state.after(parameters=torch.lerp(trained.best, end, share))
        evaluate(method, federation, found, frozenset(), choose_by)
    return found
