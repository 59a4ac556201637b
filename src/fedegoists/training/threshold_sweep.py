"""Edges and coalitions as functions of the threshold ε."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedegoists.benefit.estimate import BenefitEstimate
from fedegoists.coalitions import form
from fedegoists.graphs import CompetitionGraph

POINTS = 25


@dataclass(frozen=True)
class SweepPoint:
    """The graph and the merge-stable coalitions at one threshold."""

    threshold: float
    edges: int
    coalitions: tuple[tuple[str, ...], ...]

    @property
    def together(self) -> int:
        """The number of participants in coalitions of more than one."""
        return sum(len(group) for group in self.coalitions if len(group) > 1)


def threshold_sweep(
    estimate: BenefitEstimate,
    thresholds: Sequence[float] | None = None,
    competition: CompetitionGraph | None = None,
) -> list[SweepPoint]:
    """Return edges and coalitions for thresholds from 0 to the largest weight.

    Parameters
    ----------
    competition : CompetitionGraph, optional
        The competition graph; without it, no participants compete.
    """
    if competition is None:
        competition = CompetitionGraph((), estimate.participants)
    if thresholds is None:
        thresholds = np.linspace(0.0, float(estimate.weights.max()), POINTS).tolist()
    points = []
    for threshold in thresholds:
        graph = estimate.graph(threshold)
        formation = form(graph, competition, "stable")
        points.append(
            SweepPoint(threshold, int(np.count_nonzero(graph.weights)), formation.coalitions)
        )
    return points
