"""How sure each benefit is, and what a less careful rule would have decided."""

import math
from dataclasses import dataclass

import numpy as np

from fedegoists.benefit import BenefitEstimate
from fedegoists.coalitions import form
from fedegoists.graphs import CompetitionGraph

__all__ = ["LEAST_SURE", "Evidence", "Relaxed", "evidence", "relaxed"]

LEAST_SURE = 0.5
"""A rule with less confidence than this would count what is rather harm than benefit."""


@dataclass(frozen=True)
class Evidence:
    """One benefit with what speaks for it.

    Attributes
    ----------
    weight : float
        How large it is.
    level : float
        The confidence up to which it counts, or its weight where a threshold is the rule; 0 if it
        never counts.
    """

    source: str
    target: str
    weight: float
    level: float


@dataclass(frozen=True)
class Relaxed:
    """The most careful rule found by which somebody would train together, and who."""

    level: float
    edges: int
    coalitions: tuple[tuple[str, ...], ...]


def evidence(estimate: BenefitEstimate, *, by_threshold: bool) -> list[Evidence]:
    """Return all benefits, those with the strongest evidence first."""
    levels = estimate.weights if by_threshold else estimate.confidences()
    names = estimate.participants
    found = [
        Evidence(source, target, float(estimate.weights[j, i]), float(levels[j, i]))
        for j, source in enumerate(names)
        for i, target in enumerate(names)
        if i != j
    ]
    return sorted(found, key=lambda one: (-one.level, -one.weight))


def relaxed(
    estimate: BenefitEstimate, competition: CompetitionGraph, *, by_threshold: bool
) -> Relaxed | None:
    """Return with which lower confidence, or threshold, somebody would train together.

    More benefits allow more coalitions, so half of the levels are passed over at each step; what is
    returned was formed, but a rule in between may do too.
    """
    levels = sorted(
        {
            _below(one.level)
            for one in evidence(estimate, by_threshold=by_threshold)
            if one.level > (0 if by_threshold else LEAST_SURE)
        },
        reverse=True,
    )
    best: Relaxed | None = None
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        level = levels[middle]
        graph = estimate.graph(level) if by_threshold else estimate.graph(confidence=level)
        groups = tuple(g for g in form(graph, competition, "stable").coalitions if len(g) > 1)
        if groups:
            best = Relaxed(level, int(np.count_nonzero(graph.weights)), groups)
            high = middle
        else:
            low = middle + 1
    return best


def _below(level: float) -> float:
    """Return a number that is easy to write, below a level.

    Examples
    --------
    >>> _below(0.789), _below(0.2)
    (0.78, 0.19)
    """
    return (math.ceil(round(100 * level, 9)) - 1) / 100 if level > 0.01 else level / 2
