"""Who trains with whom in a comparison: coalitions formed, or read, for every trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.coalitions import form
from fedegoists.coalitions.formation import METHODS as FORMATION_METHODS
from fedegoists.coalitions.principles import check_partition
from fedegoists.coalitions.tables import read_coalitions
from fedegoists.errors import SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.learning.data import SiloedData

if TYPE_CHECKING:
    from fedegoists.experiments.comparison import Comparison

__all__ = ["Decisions", "decide"]

FORMATIONS = {str(method): method for method in FORMATION_METHODS}


@dataclass(frozen=True)
class Decisions:
    """Who trains with whom in all trials, with the names the federation uses."""

    baseline: list[tuple[str, ...]]
    final: list[tuple[str, ...]]
    benefit: tuple[tuple[str, str], ...] | None


def decide(comparison: "Comparison", trials: Mapping[int, SiloedData]) -> Decisions:
    """Form, or read, the coalitions of every trial."""
    baseline, final, edges = [], [], []
    for label, trial in trials.items():
        names = trial.participants
        competition = _competition(comparison.competition, names, label)
        if comparison.benefit:
            benefit = BenefitGraph.from_csv(comparison.benefit, names)
        else:
            benefit = BenefitGraph(np.ones((len(names), len(names))) - np.eye(len(names)), names)
        edges += [(f"{label}/{j}", f"{label}/{i}") for j, i, _ in benefit.edges()]
        groups: Sequence[Sequence[str]]
        if comparison.coalitions == "all":
            groups = [names]
        elif comparison.coalitions == "none":
            groups = [[name] for name in names]
        elif comparison.coalitions in FORMATIONS:
            groups = form(benefit, competition, FORMATIONS[comparison.coalitions]).coalitions
        else:
            groups = read_coalitions(comparison.coalitions)
        groups = check_partition(groups, names)
        for group in groups:
            rivals = [p for p in competition.pairs if set(p) <= set(group)]
            if rivals:
                raise SettingsError(
                    f"{rivals[0][0]!r} and {rivals[0][1]!r} compete but share a coalition; "
                    "use --coalitions cliques"
                )
        better = groups
        if comparison.coalitions == "cliques":
            better = form(benefit, competition, "published").coalitions
        baseline += [tuple(f"{label}/{name}" for name in group) for group in groups]
        final += [tuple(f"{label}/{name}" for name in group) for group in better]
    return Decisions(baseline, final, tuple(edges) if comparison.benefit else None)


def _competition(text: str, names: Sequence[str], seed: int) -> CompetitionGraph:
    if not text:
        return CompetitionGraph([], names)
    try:
        probability = float(text)
    except ValueError:
        return CompetitionGraph.from_csv(text, names)
    if not 0 <= probability <= 1:
        raise SettingsError(f"the probability of competition is {text}; expected 0 to 1")
    draws = np.random.default_rng([seed, 2]).random((len(names), len(names)))
    rivals = np.triu(draws < probability, 1)
    return CompetitionGraph.from_numpy(rivals | rivals.T, names)
