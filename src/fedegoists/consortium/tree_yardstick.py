"""Trees alone: boosted trees of each participant by itself, a yardstick for any model on tables."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedegoists.errors import FedEgoistsError
from fedegoists.files import csv_bytes
from fedegoists.learning.model_registry import MODELS
from fedegoists.training.decisions import Decisions
from fedegoists.training.repetitions import Repetitions, Wanted, train_methods
from fedegoists.training.summary import EVERYBODY, ByName, by_participant, chosen_test_values

if TYPE_CHECKING:
    from fedegoists.consortium.engine import Engine
    from fedegoists.federation import Participant

MODEL = "trees"
ALONE = "trees(members=1)"
"""The model: no slots for the trees of others."""


@dataclass(frozen=True)
class TreeYardstick:
    """The test metric of boosted trees that each participant trains alone.

    Attributes
    ----------
    values : mapping of str to tuple of float
        By participant, and for all of them together: mean and standard deviation over repetitions.
    why_not : str
        Why there are none, where a reader would expect some; empty otherwise.
    """

    values: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    why_not: str = ""

    def about(self, participant: str) -> "TreeYardstick":
        """Return what concerns one participant."""
        own = {name: value for name, value in self.values.items() if name == participant}
        return TreeYardstick(own)  # an error might name others

    def csv(self) -> bytes:
        """Return a ``trees-alone.csv``."""
        rows = [(name, f"{mean:.6g}", f"{std:.6g}") for name, (mean, std) in self.values.items()]
        return csv_bytes(("participant", "mean", "std"), rows)


def trees_alone(engine: "Engine", seeds: int, model: str, metric: str, kept: Path) -> TreeYardstick:
    """Train boosted trees alone in every silo, with the default settings and the same splits.

    Parameters
    ----------
    seeds : int
        Repetitions.
    model, metric : str
        The model of the run, and the metric that it is judged by.
    kept : Path
        Where the outcome is kept, so that it is not trained again.
    """
    data, entry = engine.data, MODELS[MODEL]
    if [len(shape) for shape in data.shapes] != [1] or model.partition("(")[0] == MODEL:
        return TreeYardstick()  # no table; or the run has these trees among its methods
    misfit = entry.misfit(data)
    if misfit:
        return TreeYardstick(why_not=misfit)
    if not engine.local:
        return TreeYardstick(why_not="it is measured in simulations only")
    try:
        federation = engine.federation(ALONE, seeds)
        if federation.task.metric != metric:
            return TreeYardstick(why_not=f"trees are judged by {federation.task.metric}")
        repetitions = Repetitions.over(federation, data, range(seeds), steps=None, model=ALONE)
        alone: list[tuple[Participant, ...]] = [(one,) for one in federation.participants]
        outcomes = train_methods(
            Wanted(("local",)), repetitions, Decisions(alone, alone, None), lambda _: kept
        )
        values = by_participant(chosen_test_values(outcomes["local"], federation))
    except FedEgoistsError as error:  # a yardstick that fails must not stop the run
        return TreeYardstick(why_not=str(error))
    return TreeYardstick(_averaged({name: values[name] for name in data.participants}))


def _averaged(values: ByName) -> dict[str, tuple[float, float]]:
    """Return means and standard deviations over repetitions, and those of the mean of all."""
    rows = {name: list(own.values()) for name, own in values.items()}
    rows[EVERYBODY] = [statistics.fmean(one) for one in zip(*rows.values(), strict=True)]
    found = {}
    for name, own in rows.items():
        finite = [value for value in own if math.isfinite(value)]
        if finite:
            spread = statistics.stdev(finite) if len(finite) > 1 else 0.0
            found[name] = (statistics.fmean(finite), spread)
    return found
