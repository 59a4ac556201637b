"""A weight decay for a run: silos try several at home, and only validation scores leave them.

How much a linear model must be held back depends on the data: noisy tables of a hundred rows need a
hundred times the weight decay of clean ones. A yardstick with the wrong one is too weak.
"""

import math
from collections.abc import Callable

import numpy as np

from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Keep, Participant, Personal, Train
from fedegoists.federation.replies import Evaluated
from fedegoists.federation.requests import EVERYTHING
from fedegoists.federation.seam import sorted_out
from fedegoists.training.repetitions import Repetitions

DECAYS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight decays that are tried; of equally good ones, the strongest is taken."""
SLOT = "decay"


def searched_decay(
    repetitions: Repetitions, progress: Callable[[int, int], object] = lambda _done, _total: None
) -> float:
    """Return the weight decay with which models that silos train alone are best on average.

    Every silo trains alone for the whole number of steps with each weight decay, in the first
    repetition, and tells how good the model is on its validation data; the models stay at home.
    One weight decay for all, because the validation data of a single silo is often too little to
    choose by.

    Parameters
    ----------
    progress : function of two numbers
        Called with how many weight decays have been tried, and how many there are.

    Raises
    ------
    SettingsError
        If no silo answers, or all hide how good their models are.
    """
    federation, settings = repetitions.federation, repetitions.defaults.train
    first = federation.participants[0].repetition
    rows = dict(zip(federation.participants, repetitions.initial, strict=True))
    chosen = [name for name in rows if name.repetition == first]
    steps = repetitions.defaults.rounds * settings.steps
    whole = settings.total_steps if settings.total_steps is None else steps
    personal = Personal(prefixes=EVERYTHING, slot=SLOT)
    best, found = (-math.inf, -math.inf), math.nan
    for done, decay in enumerate(DECAYS):
        progress(done, len(DECAYS))
        tried = settings.changed(steps=steps, total_steps=whole, weight_decay=decay)
        # Every weight decay starts from the initial model.
        federation.call(dict.fromkeys(chosen, Keep(slot=SLOT)))
        trained, _ = sorted_out(
            federation.call(
                {
                    name: Train(parameters=rows[name], settings=tried, personal=personal)
                    for name in chosen
                }
            )
        )
        replies, _ = sorted_out(
            federation.call(
                {
                    name: Evaluate(parameters=rows[name], split="validation", personal=personal)
                    for name in trained
                }
            )
        )
        quality = _quality(replies, federation.task.name, federation.task.higher_is_better)
        if len(replies) == len(chosen) and quality > best:
            best, found = quality, decay
    if math.isnan(found):
        raise SettingsError(
            'weight_decay = "auto" needs an answer of every silo about its validation data; set a '
            "number, such as weight_decay = 0.1"
        )
    return found


def _quality(
    replies: dict[Participant, Evaluated], task: str, higher_is_better: bool
) -> tuple[float, float]:
    """Return the mean validation metric, higher is better, and the mean loss to break ties.

    Errors of a regression are in the units of each silo, which may differ; its losses are not.
    """
    losses = -float(np.mean([one.losses[0] for one in replies.values()] or [math.inf]))
    scores = [one.scores[0] for one in replies.values() if math.isfinite(one.scores[0])]
    if task == "regression" or not scores:
        return (losses, losses) if math.isfinite(losses) else (-math.inf, -math.inf)
    return (1 if higher_is_better else -1) * float(np.mean(scores)), losses

