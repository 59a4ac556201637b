"""Who trains with whom in a comparison: coalitions formed, or read, for every trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.benefit import learn_trials
from fedegoists.coalitions import FORMATION_METHODS, form
from fedegoists.coalitions.coalition_files import read_coalitions
from fedegoists.coalitions.principles import check_partition
from fedegoists.errors import SettingsError
from fedegoists.federation import Federation
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.interchange import csv_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.learning.data_description import published_competition
from fedegoists.training.defaults import learn_settings

if TYPE_CHECKING:
    from fedegoists.training.comparison import Comparison

__all__ = ["Decisions", "decide"]

LEARN = "learn"
PUBLISHED = "published"

FORMATIONS = {str(method): method for method in FORMATION_METHODS}


@dataclass(frozen=True)
class Decisions:
    """Who trains with whom in all trials, with the names the federation uses."""

    baseline: list[tuple[str, ...]]
    final: list[tuple[str, ...]]
    benefit: tuple[tuple[str, str, float], ...] | None

    @property
    def edges(self) -> tuple[tuple[str, str], ...] | None:
        """Who benefits whom, without the weights."""
        return None if self.benefit is None else tuple((j, i) for j, i, _ in self.benefit)

    def coalitions_csv(self) -> bytes:
        """Return who trains with whom, by seed, for the baselines and for FedEgoists."""
        rows = [
            (*name.split("/", 1), number, kind)
            for kind, groups in (("baseline", self.baseline), ("final", self.final))
            for number, group in enumerate(groups, 1)
            for name in group
        ]
        return csv_bytes(("seed", "participant", "coalition", "of"), rows)

    def benefit_csv(self) -> bytes:
        """Return who benefits whom, by seed; nothing where everybody is taken to."""
        rows = [
            (*source.split("/", 1), target.split("/", 1)[1], repr(weight))
            for source, target, weight in self.benefit or ()
        ]
        return csv_bytes(("seed", "source", "target", "weight"), rows)


def decide(
    comparison: "Comparison", trials: Mapping[int, SiloedData], federation: Federation
) -> Decisions:
    """Form, or read, the coalitions of every trial."""
    rivals = {
        label: _competition(comparison.competition, trial, label) for label, trial in trials.items()
    }
    graphs = _benefits(comparison.benefit, trials, rivals, federation)
    baseline, final, edges = [], [], []
    for label, trial in trials.items():
        names = trial.participants
        competition, benefit = rivals[label], graphs[label]
        edges += [(f"{label}/{j}", f"{label}/{i}", weight) for j, i, weight in benefit.edges()]
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
            together = [p for p in competition.pairs if set(p) <= set(group)]
            if together:
                raise SettingsError(
                    f"{together[0][0]!r} and {together[0][1]!r} compete but share a coalition; "
                    "use --coalitions cliques"
                )
        better = groups
        if comparison.coalitions == "cliques":
            better = form(benefit, competition, "published").coalitions
        baseline += [tuple(f"{label}/{name}" for name in group) for group in groups]
        final += [tuple(f"{label}/{name}" for name in group) for group in better]
    return Decisions(baseline, final, tuple(edges) if comparison.benefit else None)


def _benefits(
    text: str,
    trials: Mapping[int, SiloedData],
    rivals: Mapping[int, CompetitionGraph],
    federation: Federation,
) -> dict[int, BenefitGraph]:
    """Learn or read who benefits whom in every trial; without either, everybody everybody."""
    if text == LEARN or text.startswith(f"{LEARN}:"):
        estimator = text.removeprefix(LEARN).removeprefix(":") or None
        settings = learn_settings(next(iter(trials.values())), estimator)
        apart = [
            (f"{label}/{one}", f"{label}/{other}")
            for label, graph in rivals.items()
            for one, other in graph.pairs
        ]
        groups = {
            str(label): tuple(f"{label}/{name}" for name in trial.participants)
            for label, trial in trials.items()
        }
        estimates = learn_trials(federation, groups, settings, apart=apart, secret="")
        return {label: estimates[str(label)].graph() for label in trials}
    graphs = {}
    for label, trial in trials.items():
        names = trial.participants
        if text:
            graphs[label] = BenefitGraph.from_csv(text, names)
        else:
            graphs[label] = BenefitGraph(
                np.ones((len(names), len(names))) - np.eye(len(names)), names
            )
    return graphs


def _competition(text: str, trial: SiloedData, seed: int) -> CompetitionGraph:
    names = trial.participants
    if not text:
        return CompetitionGraph([], names)
    if text == PUBLISHED:
        return CompetitionGraph(published_competition(trial), names)
    try:
        probability = float(text)
    except ValueError:
        return CompetitionGraph.from_csv(text, names)
    if not 0 <= probability <= 1:
        raise SettingsError(f"the probability of competition is {text}; expected 0 to 1")
    draws = np.random.default_rng([seed, 2]).random((len(names), len(names)))
    rivals = np.triu(draws < probability, 1)
    return CompetitionGraph.from_numpy(rivals | rivals.T, names)
