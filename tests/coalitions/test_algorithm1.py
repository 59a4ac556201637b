"""Algorithm 1 against a literal version, and the examples of the paper."""

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.literal import literal_algorithm_1
from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions import FORMATION_METHODS
from tests.instances import (
    graphs,
    random_graphs,
)

MERGING = [method for method in FORMATION_METHODS if method not in ("cliques", "truthful")]


EICU = CompetitionGraph([(1, 4), (2, 3), (2, 4)], 10)


def complete(n: int) -> np.ndarray:
    return np.ones((n, n)) - np.eye(n)


def sets(formation) -> set[frozenset[str]]:
    return {frozenset(group) for group in formation.coalitions}


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_published_is_algorithm_1_word_for_word(instance):
    assert sets(form(*instance, "published")) == literal_algorithm_1(*instance)
    assert sets(form(*instance, "cliques")) == literal_algorithm_1(*instance, merge=False)


@pytest.mark.parametrize("density", [0.15, 0.3])
@pytest.mark.parametrize("competition", [0.2, 0.5])
def test_published_is_algorithm_1_on_larger_sparse_instances(density, competition):
    for seed in range(25):
        instance = random_graphs(11, density, competition, seed)
        assert sets(form(*instance, "published")) == literal_algorithm_1(*instance), seed


def test_cycle_path_and_neighbours_are_merged_in_that_order():
    """Worked out by hand.

    Pairs {a, b}, {c, d}, {e, f} are mutual. s closes a cycle with {a, b}; t leads from {a, b} to
    {c, d}; an edge leads from {c, d} to {e, f}. The cover keeps all of them apart at first.
    """
    names = ["a", "b", "c", "d", "e", "f", "s", "t"]
    edges = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("e", "f"), ("f", "e")]
    edges += [("a", "s"), ("s", "b"), ("b", "t"), ("t", "c"), ("d", "e")]
    benefit = BenefitGraph.from_edges([(*edge, 1.0) for edge in edges], names)
    cover = [["a", "b"], ["c", "d"], ["e", "f"], ["s"], ["t"]]
    formation = form(benefit, CompetitionGraph([], names), "published", cover=cover)
    assert [(merge.rule, merge.sets) for merge in formation.trace] == [
        ("cycle", (("a", "b"), ("s",))),
        ("path", (("a", "b", "s"), ("c", "d"), ("t",))),
        ("neighbors", (("a", "b", "c", "d", "s", "t"), ("e", "f"))),
    ]
    assert [merge.gain for merge in formation.trace] == [2.0, 2.0, 1.0]
    assert formation.coalitions == (("a", "b", "c", "d", "e", "f", "s", "t"),)


def test_the_smallest_and_then_the_first_cycle_is_merged():
    """A triangle 0, 1, 2 and two mutual pairs 3-4 and 5-6: the pair 3-4 is merged first."""
    edges = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 3), (5, 6), (6, 5)]
    benefit = BenefitGraph.from_edges([(*e, 1.0) for e in edges], [f"v{i}" for i in range(7)])
    cover = [[i] for i in range(7)]
    formation = form(benefit, CompetitionGraph([], 7), "published", cover=cover)
    assert [merge.sets for merge in formation.trace] == [
        (("v3",), ("v4",)),
        (("v5",), ("v6",)),
        (("v0",), ("v1",), ("v2",)),
    ]


def named(*groups: str) -> set[frozenset[str]]:
    return {frozenset(f"v{i}" for i in group) for group in groups}


def test_eicu_example_from_the_published_cover():
    cover = [[0, 3, 4], [1, 2], [5, 6, 7, 8, 9]]
    benefit = BenefitGraph(complete(10))
    assert sets(form(benefit, EICU, "cliques", cover=cover)) == named("034", "12", "56789")
    assert sets(form(benefit, EICU, "published", cover=cover)) == named("03456789", "12")


def test_eicu_example_by_the_settled_rule():
    """Of the largest cliques, {0,1,2,5..9} comes before {0,1,3,5..9} and {0,3,4,5..9}."""
    formation = form(BenefitGraph(complete(10)), EICU, "cliques")
    assert sets(formation) == named("01256789", "34")


def test_synthetic_weak_example():
    """v1..v8 of the paper are v0..v7 here."""
    pairs = [(1, 5), (1, 6), (2, 5), (2, 6), (1, 7), (2, 8), (3, 5), (4, 6)]
    names = [f"v{i}" for i in range(1, 9)]
    competition = CompetitionGraph([(f"v{a}", f"v{b}") for a, b in pairs], names)
    for method in FORMATION_METHODS:
        formation = form(BenefitGraph(complete(8), names), competition, method)
        assert sets(formation) == named("1234", "5678"), method


def test_synthetic_strong_example():
    """Benefits inside {1..4} and {5..8} only; in each, the first two compete with the last two."""
    names = [f"v{i}" for i in range(1, 9)]
    pairs = [(1, 3), (1, 4), (2, 3), (2, 4), (5, 7), (5, 8), (6, 7), (6, 8)]
    competition = CompetitionGraph([(f"v{a}", f"v{b}") for a, b in pairs], names)
    weights = np.kron(np.eye(2), np.ones((4, 4))) - np.eye(8)
    for method in FORMATION_METHODS:
        formation = form(BenefitGraph(weights, names), competition, method)
        assert sets(formation) == named("12", "34", "56", "78"), method


def test_cifar100_illustration():
    pairs = [(0, 3), (1, 9), (2, 7), (3, 4), (3, 7), (4, 6), (4, 8), (5, 7), (5, 8)]
    competition = CompetitionGraph(pairs, 10)
    import networkx as nx

    inverse = nx.complement(competition.to_networkx())
    assert len(list(nx.find_cliques(inverse))) == 14
    formation = form(BenefitGraph(complete(10)), competition, "cliques")
    assert sets(formation) == literal_algorithm_1(
        BenefitGraph(complete(10)), competition, merge=False
    )
    # By hand: {0,1,2,5,6} and {0,1,2,6,8} are among the largest cliques (five); the first wins.
    assert max(formation.coalitions, key=len)[:3] == ("v0", "v1", "v2")
