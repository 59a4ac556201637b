"""Trying all partitions agrees with brute force."""

import time

import pytest
from hypothesis import given, settings

from fedegoists import BenefitGraph
from fedegoists.coalitions.proof.exhaustive_check import (
    MOST_LISTED,
    exhaust,
    is_better,
    objective_value,
)
from tests.instances import graphs, is_valid, partitions, random_graphs

OBJECTIVES = ("fair", "participation")


def named(partition, names):
    return tuple(tuple(names[i] for i in group) for group in partition)


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(graphs(min_n=1, max_n=5))
@settings(max_examples=50, deadline=None)
def test_finds_a_better_partition_exactly_where_there_is_one(objective, instance):
    """Judge every valid partition: `exhaust` says "better" unless none of the others is."""
    benefit, competition = instance
    valid = [
        named(p, benefit.participants)
        for p in partitions(list(range(benefit.n)))
        if all(is_valid(group, benefit, competition) for group in p)
    ]
    for partition in valid[:6]:
        tried = exhaust(benefit, competition, partition, objective)
        expected = any(is_better(benefit, other, partition, objective) for other in valid)
        assert tried.complete
        assert (tried.better is not None) == expected
        if tried.better is not None:
            assert sorted(map(sorted, tried.better)) in [sorted(map(sorted, v)) for v in valid]
            assert is_better(benefit, tried.better, partition, objective)


def test_what_is_better_by_hand():
    """a and b give each other 2 and 3; c gets 1 from a and gives b 1."""
    edges = [("a", "b", 2), ("b", "a", 3), ("a", "c", 1), ("c", "b", 1)]
    benefit = BenefitGraph.from_edges(edges, ["a", "b", "c"])
    two, all_three = [("a", "b"), ("c",)], [("a", "b", "c")]
    assert objective_value(benefit, two, "fair") == 0
    assert objective_value(benefit, all_three, "fair") == 1
    assert objective_value(benefit, two, "participation") == 1
    for objective in OBJECTIVES:
        assert is_better(benefit, all_three, two, objective)
        assert not is_better(benefit, two, all_three, objective)
        assert not is_better(benefit, two, two, objective)


def test_too_many_are_not_tried():
    instance = random_graphs(MOST_LISTED + 1, 1.0, 0.0, seed=0)
    tried = exhaust(*instance, [instance[0].participants], "fair")
    assert tried.better is None
    assert not tried.complete


def test_a_passed_deadline_ends_the_comparison():
    instance = random_graphs(6, 1.0, 0.0, seed=0)
    coalitions = [instance[0].participants]
    assert exhaust(*instance, coalitions, "fair").complete
    late = exhaust(*instance, coalitions, "fair", deadline=time.perf_counter() - 1)
    assert (late.better, late.complete) == (None, False)
