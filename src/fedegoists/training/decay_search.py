"""Weight decays for a run: silos try several, and tell the validation losses.

How much a linear model must be held back depends on the data: noisy tables of a hundred rows need a
hundred times the weight decay of clean ones. A yardstick with the wrong one is too weak. The more
samples, the less: so coalitions have another one than models that are trained alone.
"""

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np

from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Keep, Participant, Personal, Repetition, Train
from fedegoists.federation.requests import EVERYTHING
from fedegoists.federation.seam import sorted_out
from fedegoists.methods.fedavg import FedAvg
from fedegoists.methods.method import Coalitions
from fedegoists.methods.method_run import RunSettings, run
from fedegoists.training.repetitions import Repetitions

DECAYS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""The weight decays that are tried; of equally good ones, the strongest is taken."""
PART = 4
"""A weight decay is tried for one in so many steps of training: for a linear model these suffice to
tell which is better, and the search costs less than training with two methods."""
SLOT = "decay"


Tried = Callable[[float], Mapping[Participant, float]]
"""Returns the validation losses of models trained with a weight decay."""
Told = Callable[[int, int], object]
"""Called with how many weight decays have been tried, and how many there are."""


def _silent(_done: int, _total: int) -> None:
    """Tell nothing."""


def searched_decays(
    repetitions: Repetitions, progress: Told = _silent
) -> dict[Repetition | None, float]:
    """Return, for each repetition, the weight decay with which models trained alone are best.

    Every silo trains alone with each weight decay, and tells the model's loss on its validation
    data; the models stay at home. One weight decay for all silos of a repetition, by their mean
    loss: the validation data of a single silo is often too little to choose by, and so are
    metrics that compare a few events, such as AUC and the concordance index.

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

    def tried(decay: float) -> dict[Participant, float]:
        own = settings.changed(steps=steps, total_steps=whole, weight_decay=decay)
        # Every weight decay starts from the initial model.
        federation.call(dict.fromkeys(rows, Keep(slot=SLOT)))
        trained, _ = sorted_out(
            federation.call(
                {
                    name: Train(parameters=row, settings=own, personal=personal)
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
        return {name: reply.losses[0] for name, reply in replies.items()}

    return _best(tried, federation.participants, progress)


def searched_decays_together(
    repetitions: Repetitions, coalitions: Coalitions, progress: Told = _silent
) -> dict[Repetition | None, float]:
    """Return, for each repetition, the weight decay with which models of coalitions are best.

    They are those of FedAvg, after a part of its rounds. Repetitions in which everybody is alone
    have none.

    Raises
    ------
    SettingsError
        If a member does not tell its losses.
    """
    federation, defaults = repetitions.federation, repetitions.defaults
    settings, rounds = defaults.train, -(-defaults.rounds // PART)
    whole = None if settings.total_steps is None else rounds * settings.steps
    members = [name for group in coalitions if len(group) > 1 for name in group]
    once = RunSettings(rounds=rounds, seed=0, evaluate_every=rounds)

    def tried(decay: float) -> dict[Participant, float]:
        method = FedAvg(settings.changed(total_steps=whole, weight_decay=decay))
        outcome = run(method, federation, coalitions, repetitions.initial, once)
        return {
            row.participant: row.value
            for row in outcome.rows
            if (row.round, row.split, row.metric) == (rounds, "validation", "loss")
        }

    return _best(tried, members, progress) if members else {}


def _best(
    tried: Tried, participants: Collection[Participant], progress: Told
) -> dict[Repetition | None, float]:
    """Return the weight decay with the lowest mean loss of the participants of a repetition."""
    repetitions = {name.repetition for name in participants}
    best: dict[Repetition | None, tuple[float, float]] = {}
    for done, decay in enumerate(DECAYS):
        progress(done, len(DECAYS))
        losses = tried(decay)
        for repetition in repetitions:
            members = [name for name in participants if name.repetition == repetition]
            if not all(name in losses for name in members):
                continue
            loss = float(np.mean([losses[name] for name in members]))
            if loss < best.get(repetition, (math.inf, 0.0))[0]:
                best[repetition] = loss, decay
    if len(best) < len(repetitions):
        raise SettingsError(
            'weight_decay = "auto" needs an answer of every silo about its validation data; set a '
            "number, such as weight_decay = 0.1"
        )
    return {repetition: decay for repetition, (_, decay) in best.items()}
