"""Scenarios: which data is trained on, and who competes with whom."""

from dataclasses import dataclass, replace
from typing import Any

from fedegoists.graphs import CompetitionGraph
from fedegoists.learning.data import SiloedData
from fedegoists.training.decisions import random_competition

__all__ = ["Scenario", "competition_of"]

HOSPITAL_RIVALS = ((1, 4), (2, 3), (2, 4))
"""Positions of the hospitals that compete in the paper."""


COMPETITION, BETA = "0.2", 0.5
"""The competition and the Dirichlet distribution with which images decide about rates."""


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

    @property
    def beta(self) -> float | None:
        """The parameter of the Dirichlet distribution; None for other data."""
        found = dict(self.options).get("beta")
        return None if found is None else float(found)

    @property
    def deciding(self) -> "Scenario":
        """The scenario of the same images in which rates are chosen, without rivals if it has none.

        Examples
        --------
        >>> found = Scenario("cifar10", (("beta", 0.1),), "0.4").deciding
        >>> found.options, found.competition
        ((('beta', 0.5),), '0.2')
        """
        options = tuple((key, BETA if key == "beta" else value) for key, value in self.options)
        return replace(self, options=options, competition=COMPETITION if self.competition else "")


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
