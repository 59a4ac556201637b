"""The released code's way to a benefit graph: learned again inside each clique and its remainder.

Preferences add up to one over the participants that they are learned among, so a number ε that
separates edges from their absence means something else for ten participants than for four. The
paper's text does not mention it. The released code learns inside each clique of participants that
do not compete, takes the strongly connected components as coalitions, and learns again among those
that remain alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from fedegoists.benefit.estimate import BenefitEstimate
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.learning_benefit import learn
from fedegoists.coalitions.cliques import clique_cover
from fedegoists.errors import SettingsError
from fedegoists.federation import Federation, PartOfFederation
from fedegoists.graphs import BenefitGraph, CompetitionGraph

LearnAmong = Callable[[tuple[str, ...]], BenefitEstimate]
"""Learns the benefits among some participants only."""


@dataclass(frozen=True)
class EdgeThreshold:
    """The least preference that is an edge.

    Attributes
    ----------
    epsilon : float
        Preferences above this number are edges.
    relative : bool
        Whether ε is in multiples of 1/m among m participants, where equal preferences are 1/m.

    Examples
    --------
    >>> EdgeThreshold(0.095).among(4), EdgeThreshold(0.95, relative=True).among(4)
    (0.095, 0.2375)
    """

    epsilon: float
    relative: bool = False

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise SettingsError(f"the threshold of edges is {self.epsilon}; expected 0 or more")

    def among(self, members: int) -> float:
        """Return the threshold for preferences learned among some participants."""
        return self.epsilon / members if self.relative else self.epsilon


def learn_in_cliques(
    learn_among: LearnAmong, competition: CompetitionGraph, threshold: EdgeThreshold
) -> BenefitGraph:
    """Learn a benefit graph inside each clique of a cover, and inside what remains of it.

    Edges between participants of different cliques, which decide about mergers only, are those
    learned among all.

    Parameters
    ----------
    learn_among : callable
        Learns the benefits among some participants; `learning_among` makes one from a federation.
    competition : CompetitionGraph
        Who competes with whom. Cliques are those in which baselines train.
    threshold : EdgeThreshold
        What counts as an edge.
    """
    names = competition.participants
    position = {name: k for k, name in enumerate(names)}
    weights = np.zeros((len(names), len(names)))

    def learned(members: Sequence[str]) -> BenefitGraph:
        found = learn_among(tuple(members)).graph(threshold.among(len(members)))
        rows = [position[name] for name in members]
        weights[np.ix_(rows, rows)] = found.weights
        return found

    if len(names) > 1:
        learned(names)
    independent = ~competition.matrix & ~np.eye(len(names), dtype=bool)
    for clique in clique_cover(independent)[0]:
        left = [names[k] for k in clique]
        if len(left) == len(names):  # learned among all already
            left = _alone(BenefitGraph(weights, names))
            if len(left) == len(names):
                break
        while len(left) > 1:
            remaining = _alone(learned(left))
            if len(remaining) == len(left):
                break
            left = remaining
    return BenefitGraph(weights, names)


def _alone(graph: BenefitGraph) -> list[str]:
    """Return the participants that are in no strongly connected component with others."""
    directed = nx.DiGraph([(source, target) for source, target, _ in graph.edges()])
    together = {
        name
        for component in nx.strongly_connected_components(directed)
        if len(component) > 1
        for name in component
    }
    return [name for name in graph.participants if name not in together]


def learning_among(federation: Federation, settings: LearnSettings) -> LearnAmong:
    """Return a function that learns benefits among some participants of a federation.

    Each set of participants is learned once.

    Raises
    ------
    SettingsError
        If the silos are deployed: each would see, by how often it is asked, who competes with it.
    """
    if federation.deployed:
        raise SettingsError(
            "learning inside cliques shows deployed silos who competes with them; learn among all "
            "participants, or in a simulation"
        )
    known: dict[frozenset[str], BenefitEstimate] = {}

    def learn_among(names: tuple[str, ...]) -> BenefitEstimate:
        key = frozenset(names)
        if key not in known:
            known[key] = learn(PartOfFederation(federation, names), settings, secret="")
        return known[key]

    return learn_among
