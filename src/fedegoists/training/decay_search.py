"""A weight decay for a run: silos try several at home, and only validation losses leave them.

How much a linear model must be held back depends on the data: noisy tables of a hundred rows need a
hundred times the weight decay of clean ones. A yardstick with the wrong one is too weak.
"""

import math
from collections.abc import Callable

import numpy as np

from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Keep, Personal, Repetition, Train
from fedegoists.federation.requests import EVERYTHING
from fedegoists.federation.seam import sorted_out
from fedegoists.training.repetitions import Repetitions

DECAYS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight decays that are tried; of equally good ones, the strongest is taken."""
PART = 4
"""A weight decay is tried for one in so many steps of training: for a linear model these suffice to
tell which is better, and the search costs less than training with two methods."""
SLOT = "decay"


def searched_decays(
    repetitions: Repetitions, progress: Callable[[int, int], object] = lambda _done, _total: None
) -> dict[Repetition | None, float]:
    """Return, for each repetition, the weight decay with which models trained alone are best.

    Every silo trains alone with each weight decay, and tells the model's loss on its validation
    data; the models stay at home. One weight decay for all silos of a repetition, by their mean
    loss: the validation data of a single silo is often too little to choose by, and so are
    metrics that compare a few events, such as AUC and the concordance index.

    Parameters
    ----------
    progress : function of two numbers
        Called with how many weight decays have been tried, and how many there are.

    Raises
    ------
    SettingsError
        If a silo does not tell its losses.
    """
    federation, settings = repetitions.federation, repetitions.defaults.train
    rows = dict(zip(federation.participants, repetitions.initial, strict=True))
    steps = -(-repetitions.defaults.rounds * settings.steps // PART)
    whole = None if settings.total_steps is None else steps
    personal = Personal(prefixes=EVERYTHING, slot=SLOT)
    best: dict[Repetition | None, tuple[float, float]] = {}
    for done, decay in enumerate(DECAYS):
        progress(done, len(DECAYS))
        tried = settings.changed(steps=steps, total_steps=whole, weight_decay=decay)
        # Every weight decay starts from the initial model.
        federation.call(dict.fromkeys(rows, Keep(slot=SLOT)))
        trained, _ = sorted_out(
            federation.call(
                {
                    name: Train(parameters=row, settings=tried, personal=personal)
                    for name, row in rows.items()
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
        for repetition in {name.repetition for name in rows}:
            members = [name for name in rows if name.repetition == repetition]
            if not all(name in replies for name in members):
                continue
            loss = float(np.mean([replies[name].losses[0] for name in members]))
            if loss < best.get(repetition, (math.inf, 0.0))[0]:
                best[repetition] = loss, decay
    if len(best) < len({name.repetition for name in rows}):
        raise SettingsError(
            'weight_decay = "auto" needs an answer of every silo about its validation data; set a '
            "number, such as weight_decay = 0.1"
        )
    return {repetition: decay for repetition, (_, decay) in best.items()}
