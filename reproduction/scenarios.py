"""Scenarios: which data is trained on, and who competes with whom."""

from dataclasses import dataclass
from typing import Any

from fedegoists.graphs import CompetitionGraph
from fedegoists.learning.data import SiloedData
from fedegoists.training.decisions import random_competition

__all__ = ["Scenario", "competition_of"]

HOSPITAL_RIVALS = ((1, 4), (2, 3), (2, 4))
"""Positions of the hospitals that compete in the paper."""


@dataclass(frozen=True)
class Scenario:
    """A data set, divided in one way, with one level of competition.

    Attributes
    ----------
    data : str
        A data set's name.
    options : tuple of (name, value)
        Options of the data set.
    competition : str
        The probability that two participants compete, ``published`` for a fixed graph, or an empty
        text for no competition.
    """

    data: str
    options: tuple[tuple[str, Any], ...] = ()
    competition: str = ""

    @property
    def small(self) -> bool:
        """Whether validation sets are too small for each participant to choose its own round."""
        return self.data == "eicu-demo"

    @property
    def partition(self) -> str:
        """The partition of images; empty for other data."""
        return str(dict(self.options).get("partition", ""))


def competition_of(scenario: Scenario, repetition: int, data: SiloedData) -> CompetitionGraph:
    """Return the competition graph of a repetition.

    Each repetition has its own draws. A higher probability only adds competitors to those of a
    lower one.
    """
    names = data.participants
    if not scenario.competition:
        return CompetitionGraph([], names)
    if scenario.competition != "published":
        return random_competition(names, float(scenario.competition), repetition)
    if data.name == "eicu-demo":
        pairs = [(names[a], names[b]) for a, b in HOSPITAL_RIVALS if max(a, b) < len(names)]
        return CompetitionGraph(pairs, names)
    return CompetitionGraph(data.competition_pairs, names)
