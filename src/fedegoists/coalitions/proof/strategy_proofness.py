"""Whether coalitions are those of method ``truthful``, from its definition.

Inside a group of pairwise independent participants, two are together if and only if each reaches
the other along benefit edges inside the group. Groups must not depend on reports of benefits, so
the caller derives them again from the competition graph alone and passes them in.
"""

from collections.abc import Sequence

from fedegoists.coalitions.principles import Coalition
from fedegoists.graphs import BenefitGraph


def reach_each_other(benefit: BenefitGraph, groups: Sequence[Coalition]) -> set[frozenset[str]]:
    """Return the classes of participants that reach each other inside their group.

    Examples
    --------
    a and b benefit each other; a benefits c, but nothing comes back:

    >>> edges = [("a", "b", 1), ("b", "a", 1), ("a", "c", 1)]
    >>> benefit = BenefitGraph.from_edges(edges, ["a", "b", "c"])
    >>> sorted(map(sorted, reach_each_other(benefit, [("a", "b", "c")])))
    [['a', 'b'], ['c']]
    """
    takers = {name: set[str]() for name in benefit.participants}
    for source, target, _ in benefit.edges():
        takers[source].add(target)
    classes = set()
    for group in groups:
        inside = set(group)
        reached = {name: _reached_from(name, takers, inside) for name in group}
        for name in group:
            classes.add(frozenset(other for other in reached[name] if name in reached[other]))
    return classes


def _reached_from(start: str, takers: dict[str, set[str]], inside: set[str]) -> set[str]:
    reached, frontier = {start}, [start]
    while frontier:
        new = (takers[frontier.pop()] & inside) - reached
        reached |= new
        frontier += new
    return reached
