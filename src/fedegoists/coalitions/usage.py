"""The data-usage graph: who uses whose data inside the coalitions."""

from typing import TYPE_CHECKING

from fedegoists.coalitions.formation import Formation

if TYPE_CHECKING:
    import networkx as nx


def usage_graph(formation: Formation) -> "nx.DiGraph[str]":
    """Return the paper's data-usage graph G_u: the benefit edges inside the coalitions.

    Returns
    -------
    networkx.DiGraph
        Edges carry ``weight``. Nodes carry ``coalition`` (its number), ``utility`` (the sum of
        incoming weights), ``contributors`` (whose data it uses), ``beneficiaries`` (who use its
        data) and ``alliance``, the paper's supporter alliance A_i: all participants whose data
        reaches it, directly or through others, itself included.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> banks = ["a", "b", "c", "d"]
    >>> benefit = BenefitGraph.from_edges([("a", "b", 1), ("b", "c", 2), ("c", "a", 3)], banks)
    >>> usage = usage_graph(form(benefit, CompetitionGraph([], banks)))
    >>> usage.nodes["a"]["contributors"], usage.nodes["a"]["alliance"]
    (('c',), ('a', 'b', 'c'))
    >>> usage.nodes["d"]["utility"]
    0.0
    """
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(formation.participants)
    home = {name: k for k, group in enumerate(formation.coalitions) for name in group}
    graph.add_weighted_edges_from(
        edge for edge in formation.benefit.edges() if home[edge[0]] == home[edge[1]]
    )
    order = {name: k for k, name in enumerate(formation.participants)}
    for name in formation.participants:
        reached_by = {name, *nx.ancestors(graph, name)}
        graph.nodes[name].update(
            coalition=home[name],
            utility=formation.utilities[name],
            contributors=tuple(sorted(graph.predecessors(name), key=order.__getitem__)),
            beneficiaries=tuple(sorted(graph.successors(name), key=order.__getitem__)),
            alliance=tuple(sorted(reached_by, key=order.__getitem__)),
        )
    return graph
