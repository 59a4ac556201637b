"""Algorithm 1 of the paper written down word for word over NetworkX.

It lists maximal cliques, simple cycles and simple paths, as the paper's text suggests, and chooses
among them by the same rule as `fedegoists.form(method="published")`. It is the peer that benchmarks
compare with, and what the tests hold the fast version against on small instances.
"""

import itertools
import time

import networkx as nx

from fedegoists import BenefitGraph, CompetitionGraph

__all__ = ["OutOfTimeError", "literal_algorithm_1"]


class OutOfTimeError(Exception):
    """The enumeration passed its time cap."""


def literal_algorithm_1(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    *,
    merge: bool = True,
    cap: float | None = None,
) -> set[frozenset[str]]:
    """Return the coalitions; without `merge` those of lines 1 to 6."""
    deadline = None if cap is None else time.perf_counter() + cap

    def tick() -> None:
        if deadline is not None and time.perf_counter() > deadline:
            raise OutOfTimeError

    position = {name: k for k, name in enumerate(benefit.participants)}
    benefits = benefit.to_networkx()
    independent = nx.complement(competition.to_networkx())

    # Lines 1 to 6.
    coalitions: list[frozenset[str]] = []
    left = set(benefit.participants)
    while left:
        best: list[int] = []
        for clique in nx.find_cliques(independent.subgraph(left)):
            tick()
            members = sorted(position[v] for v in clique)
            if not best or (-len(members), members) < (-len(best), best):
                best = members
        taken = {benefit.participants[k] for k in best}
        coalitions += map(frozenset, nx.strongly_connected_components(benefits.subgraph(taken)))
        left -= taken
    if not merge:
        return set(coalitions)

    def contracted() -> tuple[nx.DiGraph, nx.Graph]:
        zb, zc = nx.DiGraph(), nx.Graph()
        zb.add_nodes_from(coalitions)
        zc.add_nodes_from(coalitions)
        for one, other in itertools.permutations(coalitions, 2):
            if any(benefits.has_edge(a, b) for a in one for b in other):
                zb.add_edge(one, other)
            if any(competition.competes(a, b) for a in one for b in other):
                zc.add_edge(one, other)
        return zb, zc

    def qualifying(groups, zc):
        for group in groups:
            tick()
            if not any(zc.has_edge(a, b) for a, b in itertools.combinations(group, 2)):
                yield group

    def key(group):
        return len(group), sorted(position[v] for coalition in group for v in coalition)

    def cycles(zb):
        for cycle in nx.simple_cycles(zb):
            tick()
            if any(len(node) == 1 for node in cycle):
                yield cycle

    def paths(zb):
        bigs = [node for node in zb if len(node) > 1]
        for start, end in itertools.permutations(bigs, 2):
            for path in nx.all_simple_paths(zb, start, end):
                tick()
                if any(len(node) == 1 for node in path):
                    yield path

    def neighbors(zb):
        for one, other in zb.edges:
            if len(one) > 1 and len(other) > 1:
                yield [one, other]

    changed = True
    while changed:
        changed = False
        zb, zc = contracted()
        for rule in (cycles, paths, neighbors):
            group = min(qualifying(rule(zb), zc), key=key, default=None)
            if group is not None:
                coalitions = [node for node in coalitions if node not in group]
                coalitions.append(frozenset().union(*group))
                changed = True
                break
    return set(coalitions)
