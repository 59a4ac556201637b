"""The best coalitions without Principle 1, and the welfare that the principle costs.

Principle 1, no free riders: in a coalition of two or more, every member benefits another member and
is benefited by another member. `best_without` drops it, and only it: competitors stay apart. Such a
partition is for comparisons alone; nothing in the package forms it.

With a benefit graph W, and without the principle, only ``W[j, i] + W[i, j]`` counts: what the pair
adds to the welfare of a coalition that holds both. On the symmetric graph with half of this sum in
both directions, whoever gives also receives, so there the principle forbids only members without
any tie. Leaving costs these nothing. So the best partition of the symmetric graph *with* the
principle is a best partition of W *without* it, and the exact search of the package, with its proof
of optimality, finds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from scipy.sparse.csgraph import connected_components

from fedegoists.coalitions import form, verify
from fedegoists.coalitions.array_types import Bools
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.welfare import welfare_by
from fedegoists.graphs import BenefitGraph, CoalitionValues, CompetitionGraph
from fedegoists.graphs.coalition_values import Benefits, least_gain
from fedegoists.learning.datasets.synthetic import STRONG, WEAK
from fedegoists.training.decisions import random_competition
from reproduction.packed_lines import Record
from reproduction.record_files import read_records, records_csv
from reproduction.scenarios import HOSPITAL_RIVALS

__all__ = [
    "GraphCost",
    "best_with",
    "best_without",
    "cost_on",
    "graph_costs_csv",
    "learned_costs",
    "random_costs",
    "read_graph_costs",
    "roles",
]

EITHER_CHANCE = 0.5
"""The lowest confidence: a positive expected gain, which Principle 1 demands of values anyway."""
MOST_VALUED = 12
"""Participants with coalition values of which all partitions are compared."""
ROUNDING = 1e-9
"""Fractions of welfare that sums in another order may differ by."""
RANDOM = "random"
IMAGE_COMPETITION = 0.2
"""The probability that two owners of images compete, as in most tables."""
REPORTED_BELOW = 10
"""Repetitions of learned graphs from this one on have chosen settings, and are not reported."""

Partition = tuple[Coalition, ...]
Role = Literal["rider", "donor", "member"]


def best_with(benefits: Benefits, competition: CompetitionGraph) -> tuple[Partition, bool]:
    """Return the best partition under both principles, and whether it is proven to be best.

    Coalition values demand a probability to gain as well; here the lowest one, so that Principle 1
    decides and nothing else.
    """
    if isinstance(benefits, BenefitGraph):
        formed = form(benefits, competition)
    else:
        formed = form(benefits, competition, confidence=EITHER_CHANCE)
    return formed.coalitions, formed.optimal


def best_without(benefits: Benefits, competition: CompetitionGraph) -> tuple[Partition, bool]:
    """Return the best partition without Principle 1, and whether it is proven to be best.

    Nobody is in a coalition without a tie to it: who neither gives nor receives is alone.

    Examples
    --------
    c gives nothing back, so Principle 1 leaves it out:

    >>> edges = [("a", "b", 1), ("b", "a", 1), ("b", "c", 1)]
    >>> benefit = BenefitGraph.from_edges(edges, ["a", "b", "c"])
    >>> competition = CompetitionGraph([], ["a", "b", "c"])
    >>> best_with(benefit, competition)
    ((('a', 'b'), ('c',)), True)
    >>> best_without(benefit, competition)
    ((('a', 'b', 'c'),), True)
    """
    if not isinstance(benefits, BenefitGraph):
        return _best_of_values(benefits, competition), True
    names = benefits.participants
    either = (benefits.weights + benefits.weights.T) / 2
    formed = form(BenefitGraph(either, names), competition)
    groups = positions(formed.coalitions, names)
    parts = [part for group in groups for part in linked_parts(group, either > 0)]
    return tuple(tuple(names[k] for k in part) for part in parts), formed.optimal


def linked_parts(group: Sequence[int], ties: Bools) -> list[list[int]]:
    """Return the parts of a coalition that no tie links; an equal search may leave them together.

    Examples
    --------
    >>> ties = np.zeros((4, 4), dtype=bool)
    >>> ties[0, 2] = ties[2, 0] = True
    >>> linked_parts([0, 1, 2], ties)
    [[0, 2], [1]]
    """
    _, label = connected_components(ties[np.ix_(group, group)], directed=False)
    return [
        [k for k, own in zip(group, label, strict=True) if own == number]
        for number in dict.fromkeys(label)
    ]


def _best_of_values(values: CoalitionValues, competition: CompetitionGraph) -> Partition:
    """Compare all partitions without competitors by their total gain; sets are bits of a number.

    A best partition of a set has one coalition with the first member, and a best partition of the
    others. Coalitions are tried before larger ones that hold them, so that of partitions that are
    equal but for rounding the one is kept in which nobody is in company for nothing.
    """
    names, count = values.participants, len(values.participants)
    if count > MOST_VALUED:
        raise ValueError(f"{count} participants; all partitions are compared up to {MOST_VALUED}")
    sets = (np.arange(1 << count)[:, None] >> np.arange(count) & 1).astype(np.bool_)
    totals = values.gains(sets).sum(axis=1)
    totals[((sets @ competition.matrix) & sets).any(axis=1)] = -np.inf
    totals[sets.sum(axis=1) < 2] = 0.0
    best, chosen, least = [0.0], [0], least_gain(values)
    for whole in range(1, 1 << count):
        first = whole & -whole
        others = whole ^ first
        best.append(best[others])
        chosen.append(first)
        company = 0
        while company := (company - others) & others:  # the next larger number among subsets
            total = float(totals[company | first]) + best[others ^ company]
            if total > best[whole] + least:
                best[whole], chosen[whole] = total, company | first
    left, parts = (1 << count) - 1, []
    while left:
        parts.append(tuple(name for k, name in enumerate(names) if chosen[left] >> k & 1))
        left ^= chosen[left]
    return tuple(parts)


def roles(
    benefits: Benefits, competition: CompetitionGraph, coalitions: Partition
) -> dict[str, Role]:
    """Return what each participant is in some coalitions, as the package's own check sees it.

    Returns
    -------
    dict of str to str
        A *rider* receives and gives nothing, a *donor* gives and receives nothing; all others, also
        those alone, are *members*.

    Raises
    ------
    ValueError
        If competitors share a coalition, or if somebody is in company without any tie.
    """
    found = verify(benefits, competition, coalitions, confidence=EITHER_CHANCE, budget=1)
    if found.conflicts or found.further_free_riders:
        raise ValueError(f"not comparable: {found}")
    kinds: dict[str, Role] = dict.fromkeys(benefits.participants, "member")
    for one in found.free_riders:
        if kinds[one.participant] != "member":
            raise ValueError(f"{one.participant} is in company without any tie")
        kinds[one.participant] = "rider" if one.missing == "outgoing" else "donor"
    return kinds


@dataclass(frozen=True)
class GraphCost:
    """What Principle 1 costs on one benefit graph.

    Attributes
    ----------
    source : str
        Where the graph is from.
    density : float
        The fraction of the possible benefit edges that it has, or is drawn with.
    competition : float
        The fraction of pairs that compete, or the probability of it.
    welfare_with, welfare_without : float
        The welfare of the best partitions with the principle and without it.
    riders, donors : int
        Those that break the principle in the best partition without it.
    alone : int
        Participants that are in company without the principle, and alone with it.
    proven : bool
        Whether both partitions are proven to be best.
    """

    source: str
    participants: int
    density: float
    competition: float
    number: int
    welfare_with: float
    welfare_without: float
    riders: int
    donors: int
    alone: int
    proven: bool

    @property
    def binds(self) -> bool:
        """Whether the principle costs any welfare."""
        return self.lost > ROUNDING

    @property
    def lost(self) -> float:
        """The fraction of the welfare that is lost; not a number where nobody can gain."""
        if self.welfare_without == 0:
            return float("nan")
        return max(1 - self.welfare_with / self.welfare_without, 0.0)


def cost_on(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    *,
    source: str,
    number: int,
    drawn: tuple[float, float] | None = None,
) -> GraphCost:
    """Compare the best partitions of a graph.

    Parameters
    ----------
    drawn : tuple of float, optional
        The probabilities of a benefit and of competition with which the graphs were drawn; if left
        out, the fractions that they have.
    """
    kept, proven = best_with(benefit, competition)
    free, proven_too = best_without(benefit, competition)
    kinds = list(roles(benefit, competition, free).values())
    count = len(benefit.participants)
    pairs = max(count * (count - 1), 1)
    have = (len(list(benefit.edges())) / pairs, 2 * len(competition.pairs) / pairs)
    return GraphCost(
        source,
        count,
        *(drawn or have),
        number,
        welfare_by(benefit, positions(kept, benefit.participants)),
        welfare_by(benefit, positions(free, benefit.participants)),
        kinds.count("rider"),
        kinds.count("donor"),
        len(in_company(free) - in_company(kept)),
        proven and proven_too,
    )


def positions(coalitions: Partition, names: Sequence[str]) -> list[list[int]]:
    """Return coalitions as positions of their members."""
    place = {name: k for k, name in enumerate(names)}
    return [[place[name] for name in group] for group in coalitions]


def in_company(coalitions: Partition) -> set[str]:
    """Return the members of all coalitions of two or more."""
    return {name for group in coalitions if len(group) > 1 for name in group}


def random_costs(
    counts: Iterable[int],
    densities: Iterable[float],
    competitions: Iterable[float],
    graphs: int,
) -> list[GraphCost]:
    """Compare on random graphs: benefits and competitors drawn independently, weights from 0 to 1.

    Graphs of one number have the same draws, so a higher density only adds benefits.
    """
    densities, competitions = tuple(densities), tuple(competitions)
    found = []
    for count in counts:
        names = [f"v{k}" for k in range(count)]
        for number in range(graphs):
            rng = np.random.default_rng([number, count])
            weights, edge, rival = rng.random((3, count, count))
            np.fill_diagonal(edge, 1.0)
            for competition in competitions:
                rivals = np.triu(rival < competition, 1)
                compete = CompetitionGraph.from_numpy(rivals | rivals.T, names)
                for density in densities:
                    benefit = BenefitGraph(np.where(edge < density, weights, 0.0), names)
                    drawn = (density, competition)
                    found.append(
                        cost_on(benefit, compete, source=RANDOM, number=number, drawn=drawn)
                    )
    return found


def learned_costs(records: Iterable[Record]) -> list[GraphCost]:
    """Compare on the benefit graphs of the tables, with the competitors that these have."""
    found = []
    for record in records:
        if record["repetition"] >= REPORTED_BELOW:
            continue
        names, data = record["participants"], record["data"]
        if data.startswith("cifar"):
            rivals = random_competition(names, IMAGE_COMPETITION, record["repetition"])
        elif data == "eicu-demo":
            pairs = [(names[a], names[b]) for a, b in HOSPITAL_RIVALS if max(a, b) < len(names)]
            rivals = CompetitionGraph(pairs, names)
        else:
            setting = {one.name: one for one in (WEAK, STRONG)}[data]
            rivals = CompetitionGraph(setting.competition_pairs, names)
        about = [data, *map(str, record["options"].values()), record["kind"]]
        about += ["in cliques"] if "revision" in record else []
        graph = BenefitGraph.from_edges(record["edges"], names)
        found.append(cost_on(graph, rivals, source=" ".join(about), number=record["repetition"]))
    return found


graph_costs_csv = partial(records_csv, GraphCost)
"""Return rows as CSV, see `reproduction.record_files`."""


read_graph_costs = partial(read_records, GraphCost)
"""Read what `graph_costs_csv` returned."""
