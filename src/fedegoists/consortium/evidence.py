"""How sure each benefit is, and which coalitions a less strict rule would give."""

import math
from dataclasses import dataclass

import numpy as np

from fedegoists.benefit import BenefitEstimate
from fedegoists.coalitions import form
from fedegoists.graphs import CompetitionGraph

LOWEST_CONFIDENCE = 0.5
"""A rule with less confidence would count benefits that are more likely harms."""


@dataclass(frozen=True)
class Evidence:
    """The evidence for one benefit.

    Attributes
    ----------
    weight : float
        The benefit's weight.
    level : float
        The confidence up to which it counts, or its weight where a threshold is the rule; 0 if it
        never counts.
    """

    source: str
    target: str
    weight: float
    level: float


@dataclass(frozen=True)
class RelaxedRule:
    """The strictest rule found by which coalitions form: its level, benefits and coalitions."""

    level: float
    edges: int
    coalitions: tuple[tuple[str, ...], ...]


def evidence(estimate: BenefitEstimate, *, by_threshold: bool) -> list[Evidence]:
    """Return the evidence for all benefits, the strongest first."""
    levels = estimate.weights if by_threshold else estimate.confidences()
    names = estimate.participants
    found = [
        Evidence(source, target, float(estimate.weights[j, i]), float(levels[j, i]))
        for j, source in enumerate(names)
        for i, target in enumerate(names)
        if i != j
    ]
    return sorted(found, key=lambda one: (-one.level, -one.weight))


def relaxed_rule(
    estimate: BenefitEstimate,
    competition: CompetitionGraph,
    *,
    by_threshold: bool,
    fewest_members: int = 1,
) -> RelaxedRule | None:
    """Return the lower confidence, or threshold, at which a coalition would form.

    More benefits allow more coalitions, so the levels are searched by bisection. The coalitions of
    the result were formed, but a level in between may do too.
    """
    levels = sorted(
        {
            _below(one.level)
            for one in evidence(estimate, by_threshold=by_threshold)
            if one.level > (0 if by_threshold else LOWEST_CONFIDENCE)
        },
        reverse=True,
    )
    best: RelaxedRule | None = None
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        level = levels[middle]
        graph = estimate.graph(level) if by_threshold else estimate.graph(confidence=level)
        formed = form(graph, competition, "stable", fewest_members=fewest_members)
        groups = tuple(group for group in formed.coalitions if len(group) > 1)
        if groups:
            best = RelaxedRule(level, int(np.count_nonzero(graph.weights)), groups)
            high = middle
        else:
            low = middle + 1
    return best


def _below(level: float) -> float:
    """Return a short number below a level.

    Examples
    --------
    >>> _below(0.789), _below(0.2)
    (0.78, 0.19)
    """
    return (math.ceil(round(100 * level, 9)) - 1) / 100 if level > 0.01 else level / 2
