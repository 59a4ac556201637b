"""A learning rate for a run: silos try several for a few steps, and only losses leave them."""

import math
from collections.abc import Callable
from dataclasses import replace

from fedegoists.errors import SettingsError
from fedegoists.federation import Keep, Participant, Personal, Train
from fedegoists.federation.requests import EVERYTHING
from fedegoists.federation.seam import sorted_out
from fedegoists.training.repetitions import Repetitions

FACTORS = (1 / 30, 1 / 10, 1 / 3, 1.0, 3.0, 10.0, 30.0)
"""Rates that are tried, as multiples of the default."""
TRIED_STEPS = 30
SLOT = "rate"


def with_searched_rate(
    repetitions: Repetitions, tell: Callable[[str], object] = lambda _: None
) -> Repetitions:
    """Return repetitions with the learning rate that a short range test finds.

    Every silo trains from the initial model for a few steps with each rate; its trained models stay
    at home. The rate of a silo is the one with the lowest mean loss over these steps, and the rate
    of the run is the median over silos, in the first repetition.

    Raises
    ------
    SettingsError
        If silos hide their losses, as they do for privacy, or no rate works.
    """
    federation, defaults = repetitions.federation, repetitions.defaults
    first = federation.participants[0].repetition
    rows = dict(zip(federation.participants, repetitions.initial, strict=True))
    chosen = [name for name in rows if name.repetition == first]
    best: dict[Participant, tuple[float, float]] = {}
    personal = Personal(prefixes=EVERYTHING, slot=SLOT)
    for factor in FACTORS:
        rate = defaults.train.learning_rate * factor
        settings = defaults.train.changed(
            steps=TRIED_STEPS, total_steps=None, learning_rate=rate, halve=False
        )
        # Every rate starts from the initial model.
        federation.call(dict.fromkeys(chosen, Keep(slot=SLOT)))
        replies, _ = sorted_out(
            federation.call(
                {
                    name: Train(parameters=rows[name], settings=settings, personal=personal)
                    for name in chosen
                }
            )
        )
        if replies and not any(reply.loss for reply in replies.values()):
            raise SettingsError(
                'learning_rate = "auto" needs losses, which silos with privacy do not tell; '
                "set a number"
            )
        for name, reply in replies.items():
            if math.isfinite(reply.loss) and reply.loss < best.get(name, (math.inf, 0.0))[0]:
                best[name] = (reply.loss, rate)
    if not best:
        raise SettingsError("no learning rate works for any silo; check the data and the model")
    rates = sorted(rate for _, rate in best.values())
    found = rates[(len(rates) - 1) // 2]
    tell(f"learning rate {found:.3g}, found by trying {len(FACTORS)} for {TRIED_STEPS} steps each")
    changed = replace(
        defaults,
        train=defaults.train.changed(learning_rate=found),
        tune=defaults.tune.changed(learning_rate=found / 2),
    )
    return replace(repetitions, defaults=changed)
