"""Clique covers follow the rule, against listing all cliques."""

import itertools

import numpy as np
import pytest

from fedegoists.coalitions.cliques import clique_cover


def cover_by_listing(adjacency: np.ndarray) -> list[list[int]]:
    import networkx as nx

    graph = nx.from_numpy_array(adjacency)
    cliques = []
    while len(graph):
        listed = [sorted(clique) for clique in nx.find_cliques(graph)]
        best = min(listed, key=lambda clique: (-len(clique), clique))
        cliques.append(best)
        graph.remove_nodes_from(best)
    return cliques


@pytest.mark.parametrize("density", [0.1, 0.4, 0.7, 0.95])
def test_the_cover_takes_the_first_of_the_largest_cliques(density):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(0, 15))
        upper = np.triu(rng.random((n, n)) < density, 1)
        assert clique_cover(upper | upper.T) == (cover_by_listing(upper | upper.T), True)


def test_a_cover_out_of_budget_is_still_a_cover_and_says_so():
    upper = np.triu(np.random.default_rng(0).random((60, 60)) < 0.8, 1)
    adjacency = upper | upper.T
    cliques, proven = clique_cover(adjacency, steps=3)
    assert not proven
    assert sorted(i for clique in cliques for i in clique) == list(range(60))
    assert all(adjacency[a, b] for clique in cliques for a, b in itertools.combinations(clique, 2))
