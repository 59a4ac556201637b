"""The bitset search: against brute force, and honest on instances made to be hard."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.bench_adversarial import ladder
from fedegoists import BenefitGraph, CompetitionGraph, form, verify
from fedegoists.coalitions.cliques import clique_cover
from fedegoists.coalitions.contraction import Budget, BudgetSpentError, Contraction, bits
from fedegoists.coalitions.merging import joinable_with, stabilise, sustained
from tests.instances import graphs, is_valid, mergeable, random_graphs


@given(graphs(min_n=2))
@settings(max_examples=200, deadline=None)
def test_a_single_is_joinable_exactly_if_some_subset_with_it_is_valid(instance):
    benefit, competition = instance
    for single in range(benefit.n):
        z = Contraction(benefit, competition)
        others = [i for i in range(benefit.n) if i != single]
        expected = any(
            is_valid(sorted([single, *rest]), benefit, competition)
            for size in range(1, benefit.n)
            for rest in itertools.combinations(others, size)
        )
        group = joinable_with(z, single, z.nodes, Budget(10**6))
        assert (group is not None) == expected
        if group is not None:
            assert group >> single & 1
            assert is_valid(list(bits(group)), benefit, competition)


@given(graphs())
@settings(max_examples=200, deadline=None)
def test_stabilising_any_valid_partition_leaves_nothing_to_merge(instance):
    z = Contraction(*instance)
    z.merge_all(_some_valid_pairs(*instance))
    _, proven = stabilise(z)
    assert proven
    assert mergeable(z.partition(), *instance) is None


def _some_valid_pairs(benefit, competition):
    free = set(range(benefit.n))
    for pair in itertools.combinations(range(benefit.n), 2):
        if free.issuperset(pair) and is_valid(list(pair), benefit, competition):
            free -= set(pair)
            yield list(pair)


@given(graphs(min_n=3))
@settings(max_examples=100, deadline=None)
def test_contraction_is_definition_2_after_merges(instance):
    """After merging 0 and 2, edges and rivalries are those between the members."""
    benefit, competition = instance
    z = Contraction(benefit, competition)
    assert z.merge(0b101) == 0
    groups = {0: [0, 2], **{k: [k] for k in range(1, benefit.n) if k != 2}}
    assert list(bits(z.nodes)) == sorted(groups)
    assert z.big == 1
    for k, m in itertools.permutations(groups, 2):
        edge = any(benefit.weights[i, j] > 0 for i in groups[k] for j in groups[m])
        rival = any(competition.matrix[i, j] for i in groups[k] for j in groups[m])
        assert bool(z.successors[k] >> m & 1) == edge
        assert bool(z.predecessors[m] >> k & 1) == edge
        assert bool(z.rivals[k] >> m & 1) == rival


def test_sustained_drops_chains_from_their_ends():
    """0 → 1 → 2 → 3 and a mutual pair 4, 5: only the pair sustains itself."""
    edges = [(0, 1, 1), (1, 2, 1), (2, 3, 1), (4, 5, 1), (5, 4, 1)]
    names = [f"v{i}" for i in range(6)]
    z = Contraction(BenefitGraph.from_edges(edges, names), CompetitionGraph([], names))
    assert list(bits(sustained(z, z.nodes))) == [4, 5]


@pytest.mark.parametrize("length", [4, 6])
@pytest.mark.parametrize("seed", range(6))
def test_alternating_paths_with_forbidden_pairs(length, seed):
    instance = ladder(length, 0.33, seed)
    formation = form(*instance, "stable")
    found = verify(*instance, formation.coalitions, budget=None)
    assert found.ok


@pytest.mark.parametrize("length", [30, 60])
@pytest.mark.parametrize("method", ["stable", "published", "best"])
def test_long_alternating_paths_are_answered_honestly(length, method):
    """Whatever is claimed is confirmed by the checker, or it is said that it is not proven."""
    instance = ladder(length, 0.33, seed=length)
    formation = form(*instance, method, time_limit=0.5)
    found = verify(*instance, formation.coalitions, budget=2_000)
    assert not found.free_riders
    assert not found.conflicts
    assert formation.stable in (True, None)
    if formation.stable:
        assert found.stable is not False
    else:
        assert formation.notes


def test_a_spent_budget_is_not_an_answer():
    z = Contraction(*ladder(10, 0.33, seed=1))
    with pytest.raises(BudgetSpentError):
        joinable_with(z, 0, z.nodes, Budget(1))
    _, proven = stabilise(z, steps_per_single=0)
    assert not proven


@pytest.mark.parametrize(("density", "competition"), [(0.02, 0.9), (0.05, 0.6), (0.01, 0.4)])
def test_dense_competition_with_sparse_benefit(density, competition):
    instance = random_graphs(100, density, competition, seed=1)
    for method in ("stable", "published"):
        formation = form(*instance, method)
        assert formation.stable is True
        assert verify(*instance, formation.coalitions).ok


def test_a_single_ring_of_everybody_is_found_at_any_length():
    """The only merge is the ring of all 400: deeper than Python's recursion would go at 1,000."""
    n = 400
    names = [f"v{i}" for i in range(n)]
    ring = BenefitGraph.from_edges([(i, (i + 1) % n, 1.0) for i in range(n)], names)
    formation = form(ring, CompetitionGraph([], names), "stable")
    assert formation.coalitions == (tuple(names),)


# Cliques ---------------------------------------------------------------------------------------


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
