"""The search for mergers: against brute force, and honest on instances made to be hard."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bench_adversarial import ladder
from fedegoists import BenefitGraph, CompetitionGraph, form, verify
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
        group = joinable_with(z, single, sustained(z, z.nodes), Budget(10**6))
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
        joinable_with(z, 0, sustained(z, z.nodes), Budget(1))
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


@given(graphs(min_n=2), st.data())
@settings(max_examples=100, deadline=None)
def test_after_a_removal_only_the_neighbours_matter(instance, data):
    z = Contraction(*instance)
    before = sustained(z, z.nodes)
    removed = before & data.draw(st.integers(0, z.nodes))
    assert sustained(z, before & ~removed, removed) == sustained(z, before & ~removed)
