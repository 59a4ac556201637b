"""All formation methods: valid, stable, reproducible, and clear about mistakes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions import FORMATION_METHODS
from fedegoists.coalitions.exact.best_partition import best_partition
from fedegoists.errors import GraphError, PartitionError, SettingsError
from tests.instances import (
    as_positions,
    best_welfare,
    graphs,
    is_valid,
    mergeable,
    random_graphs,
    welfare,
)

MERGING = [method for method in FORMATION_METHODS if method not in ("cliques", "truthful")]


def complete(n: int) -> np.ndarray:
    return np.ones((n, n)) - np.eye(n)


def sets(formation) -> set[frozenset[str]]:
    return {frozenset(group) for group in formation.coalitions}


@pytest.mark.parametrize("method", FORMATION_METHODS)
@given(graphs())
@settings(max_examples=150, deadline=None)
def test_every_method_returns_a_valid_partition_in_canonical_order(method, instance):
    benefit, competition = instance
    formation = form(benefit, competition, method)
    partition = as_positions(formation.coalitions, benefit.participants)
    assert sorted(i for group in partition for i in group) == list(range(benefit.n))
    assert all(group == sorted(group) for group in partition)
    assert partition == sorted(partition)
    assert all(is_valid(group, benefit, competition) for group in partition)
    assert formation.welfare == pytest.approx(welfare(partition, benefit), abs=1e-12)
    assert formation.upper_bound >= best_welfare_or_nothing(benefit, competition) * (1 - 1e-12)


def best_welfare_or_nothing(benefit, competition) -> float:
    return best_welfare(benefit, competition) if benefit.n <= 6 else 0.0


@pytest.mark.parametrize("method", FORMATION_METHODS)
@given(graphs())
@settings(max_examples=150, deadline=None)
def test_stability_is_what_trying_all_subsets_says(method, instance):
    benefit, competition = instance
    formation = form(benefit, competition, method)
    partition = as_positions(formation.coalitions, benefit.participants)
    expected = mergeable(partition, benefit, competition) is None
    assert formation.stable is expected
    if method in MERGING:
        assert formation.stable is True


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_best_is_never_worse(instance):
    best = form(*instance)
    for method in FORMATION_METHODS:
        assert best.welfare >= form(*instance, method).welfare


@pytest.mark.parametrize("method", FORMATION_METHODS)
@given(graphs(max_n=7), st.permutations(list("abcdefg")))
@settings(max_examples=60, deadline=None)
def test_renaming_changes_nothing_but_names(method, instance, letters):
    benefit, competition = instance
    names = letters[: benefit.n]
    renamed = form(
        BenefitGraph(benefit.weights, names),
        CompetitionGraph.from_numpy(competition.matrix, names),
        method,
    )
    original = form(benefit, competition, method)
    assert as_positions(renamed.coalitions, names) == as_positions(
        original.coalitions, benefit.participants
    )
    assert renamed.welfare == original.welfare


@pytest.mark.parametrize("method", FORMATION_METHODS)
@pytest.mark.parametrize("n", [8, 16, 24])
def test_same_seed_same_result(method, n):
    instance = random_graphs(n, 0.3, 0.2, seed=n)
    one, other = (form(*instance, method, seed=7, time_limit=30) for _ in range(2))
    assert one == other


def test_the_same_work_gives_the_same_partition_however_long_it_takes():
    """Without a deadline only the seed and the amount of work decide."""
    benefit, competition = random_graphs(60, 0.3, 0.2, seed=3)
    alone = [[i] for i in range(60)]
    results = [
        best_partition(
            benefit.entries, competition.entries, [alone], seconds=0.3, deadline=math.inf, seed=seed
        )
        for seed in (1, 1, 2)
    ]
    assert results[0] == results[1]
    assert results[0].partition != results[2].partition


@pytest.mark.parametrize("method", FORMATION_METHODS)
@given(graphs())
@settings(max_examples=60, deadline=None)
def test_the_trace_leads_from_the_start_to_the_result(method, instance):
    formation = form(*instance, method)
    current = {frozenset(group) for group in formation.start}
    total = welfare(as_positions(formation.start, formation.participants), formation.benefit)
    for merge in formation.trace:
        parts = {frozenset(group) for group in merge.sets}
        assert len(parts) >= 2
        assert parts <= current
        current = current - parts | {frozenset().union(*parts)}
        assert merge.gain > 0
        total += merge.gain
    assert current == sets(formation)
    assert total == pytest.approx(formation.welfare, abs=1e-12)


def test_best_reaches_the_optimum_over_all_partitions():
    """300 random instances up to n = 9, of all densities and levels of competition."""
    for seed in range(300):
        rng = np.random.default_rng([seed, 1])
        n = int(rng.integers(2, 10)) if seed % 10 else 9
        instance = random_graphs(n, rng.choice([0.2, 0.5, 1.0]), rng.choice([0.1, 0.3]), seed)
        formation = form(*instance)
        assert formation.welfare == pytest.approx(best_welfare(*instance), rel=1e-9), seed
        assert formation.optimal, seed


def test_weights_that_can_never_be_used_do_not_drown_the_others():
    """By hand: {a, c}, {b, d} is worth 12, whatever the competitors a and b would give."""
    edges = [("a", "c", 3), ("c", "a", 3), ("a", "d", 1), ("d", "a", 1)]
    edges += [("b", "c", 1), ("c", "b", 1), ("b", "d", 3), ("d", "b", 3)]
    edges += [("a", "b", 1e18), ("b", "a", 1e18)]
    names = ["a", "b", "c", "d"]
    rivals = CompetitionGraph([("a", "b"), ("c", "d")], names)
    formation = form(BenefitGraph.from_edges(edges, names), rivals)
    assert formation.coalitions == (("a", "c"), ("b", "d"))
    assert (formation.welfare, formation.upper_bound, formation.optimal) == (12, 12, True)


@pytest.mark.parametrize("huge", [1e8, 1e12, 1e15, 1e18])
def test_the_optimum_is_true_beside_huge_weights(huge):
    """Some edges are huge, most of them unusable: between competitors, or without a way back."""
    for seed in range(40):
        rng = np.random.default_rng([seed, 3])
        n = 7
        weights = np.where(rng.random((n, n)) < 0.4, rng.integers(1, 9, (n, n)), 0).astype(float)
        weights *= np.where(rng.random((n, n)) < 0.15, huge, 1.0)
        np.fill_diagonal(weights, 0)
        rivals = np.triu(rng.random((n, n)) < 0.3, 1)
        instance = BenefitGraph(weights), CompetitionGraph.from_numpy(rivals | rivals.T)
        best = form(*instance)
        assert best.welfare == pytest.approx(best_welfare(*instance), rel=1e-9), seed
        assert best.optimal
        for method in FORMATION_METHODS:
            assert best.welfare >= form(*instance, method).welfare


@pytest.mark.parametrize("n", [20, 60])
def test_best_is_never_worse_beside_huge_weights_between_competitors(n):
    benefit, competition = random_graphs(n, 0.5, 0.3, seed=1)
    weights = np.where(competition.matrix, benefit.weights * 1e18, benefit.weights)
    instance = BenefitGraph(weights), competition
    best = form(*instance)
    for method in (*MERGING, "cliques"):
        assert best.welfare >= form(*instance, method).welfare * (1 - 1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e300])
def test_tiny_and_huge_weights_are_numbers_like_others(scale):
    benefit, competition = random_graphs(8, 0.5, 0.2, seed=2)
    one = form(benefit, competition)
    other = form(BenefitGraph(benefit.weights * scale), competition)
    assert one.coalitions == other.coalitions
    assert other.optimal


@pytest.mark.parametrize("n", [40, 100])
@pytest.mark.parametrize("density", [0.03, 0.2, 1.0])
def test_methods_agree_with_one_another_at_size(n, density):
    instance = random_graphs(n, density, 0.2, seed=5)
    formations = {method: form(*instance, method) for method in FORMATION_METHODS}
    best = formations["best"]
    for method, formation in formations.items():
        partition = as_positions(formation.coalitions, formation.participants)
        assert all(is_valid(group, *instance) for group in partition)
        # Best starts from the others, but not from truthful, which may take longer than it.
        assert method == "truthful" or best.welfare >= formation.welfare
        assert best.upper_bound >= formation.welfare
        assert formation.upper_bound >= best.welfare
        assert method not in MERGING or formation.stable is True


@pytest.mark.parametrize("time_limit", [0.001, 0.02, 0.1])
def test_upper_bounds_are_never_below_what_anything_reaches(time_limit):
    """Also when the solver is stopped before it has found anything."""
    for n, density, competition in ((16, 1.0, 0.05), (24, 0.5, 0.2), (30, 1.0, 0.05)):
        instance = random_graphs(n, density, competition, seed=1)
        reached = form(*instance).welfare
        assert form(*instance, time_limit=time_limit).upper_bound >= reached


EICU = CompetitionGraph([(1, 4), (2, 3), (2, 4)], 10)


@pytest.mark.parametrize("method", FORMATION_METHODS)
@pytest.mark.parametrize("n", [0, 1])
def test_nobody_and_one_participant(method, n):
    formation = form(BenefitGraph(np.zeros((n, n))), CompetitionGraph([], n), method)
    assert formation.coalitions == ((("v0",),) if n else ())
    assert formation.welfare == formation.upper_bound == 0
    assert formation.stable is True
    assert formation.optimal
    assert formation.gap == 0


def test_errors_say_what_is_wrong():
    benefit = BenefitGraph(complete(3))
    competition = CompetitionGraph([(0, 1)], 3)
    with pytest.raises(SettingsError, match="unknown method 'optimal'; methods are best"):
        form(benefit, competition, "optimal")
    with pytest.raises(SettingsError, match="positive number of seconds, not -1"):
        form(benefit, competition, time_limit=-1)
    with pytest.raises(SettingsError, match="positive number of seconds, not nan"):
        form(benefit, competition, time_limit=math.nan)
    with pytest.raises(SettingsError, match="seed must be a whole number"):
        form(benefit, competition, seed=-1)
    with pytest.raises(SettingsError, match="cover applies to 'cliques' and 'published'"):
        form(benefit, competition, cover=[[0], [1], [2]])
    with pytest.raises(PartitionError, match="'v0' and 'v1' share a clique but compete"):
        form(benefit, competition, "cliques", cover=[[0, 1], [2]])
    with pytest.raises(PartitionError, match="'v2' is in no coalition"):
        form(benefit, competition, "published", cover=[[0], [1]])
    with pytest.raises(GraphError, match="'v3' is in the competition graph only"):
        form(benefit, CompetitionGraph([], 4))
    with pytest.raises(GraphError, match="'v2' is in the benefit graph only"):
        form(benefit, CompetitionGraph([], 2))
    with pytest.raises(GraphError, match="another order"):
        form(benefit, CompetitionGraph([], ["v1", "v0", "v2"]))
    with pytest.raises(GraphError, match="unknown participant 'nobody'"):
        form(benefit, competition).coalition_of("nobody")
