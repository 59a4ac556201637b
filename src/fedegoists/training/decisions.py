"""The coalitions of a comparison: formed, or read, for every repetition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.benefit import learn_repetitions
from fedegoists.benefit.estimator_registry import check_estimator_suits
from fedegoists.coalitions import FORMATION_METHODS, form
from fedegoists.coalitions.coalition_files import read_coalitions
from fedegoists.coalitions.principles import check_partition
from fedegoists.errors import SettingsError
from fedegoists.federation import Federation, Participant
from fedegoists.files import csv_bytes
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.learning.data import SiloedData
from fedegoists.learning.data_description import published_competition
from fedegoists.learning.own_models import model_parts
from fedegoists.training.defaults import learn_settings

if TYPE_CHECKING:
    from fedegoists.benefit.silo_queries import Apart
    from fedegoists.training.comparison import Comparison

LEARN = "learn"
PUBLISHED = "published"

FORMATIONS = {str(method): method for method in FORMATION_METHODS}


@dataclass(frozen=True)
class Decisions:
    """The coalitions, and the benefit graphs, of all repetitions."""

    baseline: list[tuple[Participant, ...]]
    final: list[tuple[Participant, ...]]
    benefit: tuple[tuple[Participant, Participant, float], ...] | None

    @property
    def edges(self) -> tuple[tuple[Participant, Participant], ...] | None:
        """The edges of the benefit graphs, without weights."""
        return None if self.benefit is None else tuple((j, i) for j, i, _ in self.benefit)

    def coalitions_csv(self) -> bytes:
        """Return the coalitions by seed, for the baselines and for FedEgoists."""
        rows = [
            (one.repetition, one.name, number, kind)
            for kind, groups in (("baseline", self.baseline), ("final", self.final))
            for number, group in enumerate(groups, 1)
            for one in group
        ]
        return csv_bytes(("seed", "participant", "coalition", "of"), rows)

    def benefit_csv(self) -> bytes:
        """Return the benefit edges by seed; none where all are taken to benefit each other."""
        rows = [
            (source.repetition, source.name, target.name, repr(weight))
            for source, target, weight in self.benefit or ()
        ]
        return csv_bytes(("seed", "source", "target", "weight"), rows)


def decide(
    comparison: "Comparison", repeated: Mapping[int, SiloedData], federation: Federation
) -> Decisions:
    """Form, or read, the coalitions of every repetition."""
    rivals = {
        seed: _competition(comparison.competition, data, seed) for seed, data in repeated.items()
    }
    graphs = _benefits(comparison, repeated, rivals, federation)
    baseline, final, edges = [], [], []
    for seed, data in repeated.items():
        names = data.participants
        competition, benefit = rivals[seed], graphs[seed]
        edges += [
            (Participant(j, seed), Participant(i, seed), weight) for j, i, weight in benefit.edges()
        ]
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
        baseline += Participant.groups(groups, seed)
        final += Participant.groups(better, seed)
    return Decisions(baseline, final, tuple(edges) if comparison.benefit else None)


def _benefits(
    comparison: "Comparison",
    repeated: Mapping[int, SiloedData],
    rivals: Mapping[int, CompetitionGraph],
    federation: Federation,
) -> dict[int, BenefitGraph]:
    """Learn or read the benefit graph of every repetition; without either, it is complete."""
    text, first = comparison.benefit, next(iter(repeated.values()))
    if text == LEARN or text.startswith(f"{LEARN}:"):
        estimator = text.removeprefix(LEARN).removeprefix(":") or None
        # All silos are simulated, so that nobody sees anything.
        settings = learn_settings(first, estimator, model=comparison.model, mingling=True)
        check_estimator_suits(settings.estimator, model_parts(first, comparison.model).kind)
        apart: Apart = {seed: graph.pairs for seed, graph in rivals.items()}
        estimates = learn_repetitions(federation, settings, apart=apart, secret="")
        return {seed: estimates[seed].graph() for seed in repeated}
    graphs = {}
    for seed, data in repeated.items():
        names = data.participants
        if text:
            graphs[seed] = BenefitGraph.from_csv(text, names)
        else:
            graphs[seed] = BenefitGraph(
                np.ones((len(names), len(names))) - np.eye(len(names)), names
            )
    return graphs


def _competition(text: str, data: SiloedData, seed: int) -> CompetitionGraph:
    names = data.participants
    if not text:
        return CompetitionGraph([], names)
    if text == PUBLISHED:
        return CompetitionGraph(published_competition(data), names)
    try:
        probability = float(text)
    except ValueError:
        return CompetitionGraph.from_csv(text, names)
    if not 0 <= probability <= 1:
        raise SettingsError(f"the probability of competition is {text}; expected 0 to 1")
    return random_competition(names, probability, seed)


def random_competition(names: Sequence[str], probability: float, seed: int) -> CompetitionGraph:
    """Draw whether any two compete; with one seed, competition grows with the probability."""
    draws = np.random.default_rng([seed, 2]).random((len(names), len(names)))
    rivals = np.triu(draws < probability, 1)
    return CompetitionGraph.from_numpy(rivals | rivals.T, names)
