"""Changing a partition as little as possible: repairing it, and counting moves."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

from fedegoists.coalitions.array_types import Partition
from fedegoists.coalitions.contraction import Contraction
from fedegoists.graphs import BenefitGraph, CompetitionGraph

Member = TypeVar("Member", bound=Hashable)


def moved_between(
    before: Sequence[Sequence[Member]], after: Sequence[Sequence[Member]]
) -> tuple[Member, ...]:
    """Return the fewest participants to move from one partition to another.

    Old and new coalitions are paired so that as many participants as possible stay in place.
    Participants that are in only one of the partitions do not count.

    Examples
    --------
    >>> moved_between([("a", "b", "c"), ("d",)], [("a", "b"), ("c", "d")])
    ('c',)
    """
    import networkx as nx

    new_home = {name: j for j, group in enumerate(after) for name in group}
    shared = Counter(
        (i, new_home[name]) for i, group in enumerate(before) for name in group if name in new_home
    )
    # Most coalitions share members with one other only; they need no matching.
    partner = {}
    olds, news = Counter(i for i, _ in shared), Counter(j for _, j in shared)
    graph: nx.Graph[tuple[str, int]] = nx.Graph()
    for (i, j), weight in sorted(shared.items()):
        if olds[i] == news[j] == 1:
            partner[i] = j
        else:
            graph.add_edge(("old", i), ("new", j), weight=weight)
    for one, other in nx.max_weight_matching(graph) if graph else ():
        old_node, new_node = sorted((one, other), reverse=True)
        partner[old_node[1]] = new_node[1]
    return tuple(
        name
        for i, group in enumerate(before)
        for name in group
        if name in new_home and partner.get(i) != new_home[name]
    )


def repaired(
    partition: Partition,
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    singles: Contraction,
    fewest_members: int = 1,
) -> list[list[int]]:
    """Return a partition of everybody, with members put on their own as both principles demand.

    Parameters
    ----------
    partition : coalitions
        Coalitions of some participants; the others are on their own.
    singles : Contraction
        The same graphs as bitsets, with nothing merged yet.
    fewest_members : int
        Coalitions that have fewer members, or keep fewer, are taken apart.
    """
    result = [[k] for k in sorted(set(range(benefit.n)).difference(*partition))]
    kept: list[list[int]] = []
    for group in partition:
        members = sum(1 << k for k in group)
        if len(group) == 1 or all(
            not singles.rivals[k] & members
            and singles.successors[k] & members
            and singles.predecessors[k] & members
            for k in group
        ):
            kept.append(list(group))
        else:
            kept += _taken_apart(group, benefit, competition)
    for part in kept:
        result += [part] if len(part) >= fewest_members else [[k] for k in part]
    return sorted(result)


def _taken_apart(
    group: Sequence[int], benefit: BenefitGraph, competition: CompetitionGraph
) -> list[list[int]]:
    """Return the parts of a coalition: members that break a principle are on their own."""
    result = []
    members = np.array(group)
    names = [benefit.participants[k] for k in group]
    inside, competes = benefit.restricted_to(names).weights, competition.restricted_to(names).matrix
    edges, value = inside > 0, inside + inside.T
    left = np.arange(len(members))
    while len(left) > 1:
        among = np.ix_(left, left)
        opponents = competes[among].sum(axis=1)
        idle = ~(edges[among].any(axis=0) & edges[among].any(axis=1))
        if opponents.any():
            # The member with most competitors goes; of several, the one of least value.
            out = int(np.lexsort((value[among].sum(axis=1), -opponents))[0])
        elif idle.any():
            out = int(idle.argmax())
        else:
            break
        result.append([int(members[left[out]])])
        left = np.delete(left, out)
    result.append(members[left].tolist())
    return result
