"""The checker finds every planted defect, and nothing else."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, verify
from fedegoists.coalitions.principles import Conflict, FreeRider, Merger
from fedegoists.errors import GraphError, PartitionError
from tests.instances import (
    as_positions,
    chain_of_pairs,
    chain_of_pairs_and_singles,
    graphs,
    graphs_and_coalitions,
    is_valid,
    mergeable,
    single_beside_competing_rings,
    without_rivalry,
)

NAMES = ["a", "b", "c", "d"]


def benefit(*edges: str) -> BenefitGraph:
    """Edges like "ab" (a benefits b) or "ab2" (with weight 2)."""
    return BenefitGraph.from_edges([(e[0], e[1], float(e[2:] or 1)) for e in edges], NAMES)


def competition(*pairs: str) -> CompetitionGraph:
    return CompetitionGraph([tuple(pair) for pair in pairs], NAMES)


def test_a_free_rider_of_each_kind():
    graph = benefit("ab", "ba", "bc", "da")
    found = verify(graph, competition(), [["a", "b", "c", "d"]])
    group = ("a", "b", "c", "d")
    assert found.free_riders == (
        FreeRider("c", group, "outgoing"),
        FreeRider("d", group, "incoming"),
    )
    assert not found.ok
    assert not found.conflicts
    assert str(found.free_riders[0]) == "c benefits nobody in its coalition {a, b, c, d}"


def test_a_direct_conflict():
    found = verify(benefit("ab", "ba"), competition("ab"), [["a", "b"], ["c"], ["d"]])
    assert found.conflicts == (Conflict("a", "b", ("a", "b")), Conflict("b", "a", ("b", "a")))
    assert not found.ok


def test_an_indirect_conflict_with_its_shortest_path():
    """a → b → c and, longer, a → d → b; c gives only to b, so it reaches a through b and d."""
    graph = benefit("ab", "bc", "ad", "db", "cb", "bd", "da")
    found = verify(graph, competition("ac"), [["a", "b", "c", "d"]])
    assert found.conflicts == (
        Conflict("a", "c", ("a", "b", "c")),
        Conflict("c", "a", ("c", "b", "d", "a")),
    )
    assert str(found.conflicts[0]) == "a reaches its competitor c: a → b → c"


def test_competitors_together_without_a_path():
    """Two mutual pairs put into one coalition: no path from a to c, but they share everything."""
    found = verify(benefit("ab", "ba", "cd", "dc"), competition("ac"), [["a", "b", "c", "d"]])
    assert found.conflicts == (Conflict("a", "c", ()),)
    assert not found.ok


def test_competitors_in_different_coalitions_are_no_conflict():
    found = verify(benefit("ab", "ba", "bc", "cb"), competition("ac"), [["a", "b"], ["c"], ["d"]])
    assert found.ok


def test_a_missed_merge_with_its_gain():
    graph = benefit("ab2", "bc3", "ca5")
    found = verify(graph, competition(), [["a"], ["b"], ["c"], ["d"]])
    assert found.mergers == (Merger((("a",), ("b",), ("c",)), 10.0),)
    assert found.stable is False
    assert str(found.mergers[0]) == "{a} and {b} and {c} would gain 10 by merging"


def test_a_tiny_gain_beside_large_weights_is_a_gain():
    graph = benefit("ab1e9", "ba1e9", "cd1", "dc1", "ac1e-9")
    found = verify(graph, competition(), [["a", "b"], ["c", "d"]])
    assert found.mergers == (Merger((("a", "b"), ("c", "d")), 1e-9),)


def test_a_spent_budget_is_said():
    graph = benefit("ab", "ba")
    found = verify(graph, competition(), [["a"], ["b"], ["c"], ["d"]], budget=0)
    assert found.stable is None
    assert not found.complete
    assert not found.ok
    assert "not proven" in str(found)


@given(graphs(min_n=1), st.data())
@settings(max_examples=400, deadline=None)
def test_agrees_with_the_definitions_on_any_partition(instance, data):
    graph, rivals = instance
    labels = data.draw(st.lists(st.integers(0, 3), min_size=graph.n, max_size=graph.n))
    coalitions = [
        [name for name, label in zip(graph.participants, labels, strict=True) if label == number]
        for number in set(labels)
    ]
    found = verify(graph, rivals, coalitions, budget=None)
    partition = as_positions(coalitions, graph.participants)
    assert bool(found.free_riders or found.conflicts) == (
        not all(is_valid(group, graph, rivals) for group in partition)
    )
    for conflict in found.conflicts:
        assert rivals.competes(conflict.source, conflict.target)
        for one, other in itertools.pairwise(conflict.path):
            assert graph.benefit(one, other) > 0
    if not (found.free_riders or found.conflicts):
        assert found.stable is (mergeable(partition, graph, rivals) is None)
        for merger in found.mergers:
            groups = as_positions(merger.coalitions, graph.participants)
            assert mergeable(groups, graph, rivals)
            assert is_valid(sorted(i for g in groups for i in g), graph, rivals)
            assert merger.gain > 0


def test_what_is_no_partition_is_refused():
    graph, rivals = benefit("ab"), competition()
    with pytest.raises(PartitionError, match="'d' is in no coalition"):
        verify(graph, rivals, [["a", "b", "c"]])
    with pytest.raises(PartitionError, match="'a' is in coalition 0 and again in coalition 1"):
        verify(graph, rivals, [["a", "b"], ["a", "c", "d"]])
    with pytest.raises(PartitionError, match="'x' is not a participant"):
        verify(graph, rivals, [["a", "b", "c", "d", "x"]])
    with pytest.raises(PartitionError, match="coalition 1 is empty"):
        verify(graph, rivals, [["a", "b", "c", "d"], []])
    with pytest.raises(PartitionError, match="expected a list of names"):
        verify(graph, rivals, ["abcd"])
    with pytest.raises(GraphError, match="different participants"):
        verify(graph, CompetitionGraph([], ["a", "b"]), [["a"], ["b"]])


def test_dropping_one_single_drops_those_that_depend_on_it():
    """c and d help each other; a helps b, and b helps c, but nobody helps a."""
    edges = [("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("d", "c", 1)]
    benefit = BenefitGraph.from_edges(edges, list("abcd"))
    found = verify(benefit, CompetitionGraph([], list("abcd")), [[name] for name in "abcd"])
    assert [one.coalitions for one in found.mergers] == [(("c",), ("d",))]


def copies(count):
    """Copies of a – b – c, of which a and c compete, and their coalitions {a, b} and {c}."""
    names = [f"{letter}{k}" for k in range(count) for letter in "abc"]
    edges = [
        (f"{one}{k}", f"{other}{k}", 1)
        for k in range(count)
        for one, other in ("ab", "ba", "bc", "cb")
    ]
    graph = BenefitGraph.from_edges(edges, names)
    rivals = CompetitionGraph([(f"a{k}", f"c{k}") for k in range(count)], names)
    return graph, rivals, [group for k in range(count) for group in ([f"a{k}", f"b{k}"], [f"c{k}"])]


def test_what_is_not_linked_is_searched_for_mergers_by_itself():
    """All at once, 200 copies would have 2^200 cases."""
    graph, rivals, coalitions = copies(200)
    assert verify(graph, rivals, coalitions, budget=1000).ok
    apart = [[name] for group in coalitions[:2] for name in group] + coalitions[2:]
    (found,) = verify(graph, rivals, apart, budget=1000).mergers
    assert {name[1:] for group in found.coalitions for name in group} == {"0"}


def test_what_competitors_could_give_each_other_links_nothing():
    """Each pair gives something to the next one, but to the competitor of the giver.

    Were they linked, 60 pairs in a chain would have more than a million sets to look at.
    """
    assert verify(*chain_of_pairs(60), budget=1).ok


def test_a_single_between_two_that_compete_joins_neither():
    """Its giver and its taker compete. Were it kept, 60 pairs would have over 100,000 sets."""
    assert verify(*chain_of_pairs_and_singles(60), budget=1).ok


@pytest.mark.parametrize("least", [1, 3])
def test_a_single_joins_a_coalition_that_is_its_giver_and_its_taker(least):
    graph, rivals, coalitions = single_beside_competing_rings()
    found = verify(graph, rivals, coalitions, fewest_members=least)
    assert found.mergers == (Merger((("a", "b", "c"), ("s",)), 2.0),)


def test_a_merger_beside_competing_coalitions_is_found():
    """{c, d} cannot join {a, b}, which gives it 5, but gains 3 with {e, f}."""
    names = list("abcdef")
    edges = [(one, other, 1) for one, other in ("ab", "ba", "cd", "dc", "ef", "fe")]
    graph = BenefitGraph.from_edges([*edges, ("b", "c", 5), ("d", "e", 3)], names)
    rivals = CompetitionGraph([("a", "c")], names)
    found = verify(graph, rivals, [["a", "b"], ["c", "d"], ["e", "f"]])
    assert found.mergers == (Merger((("c", "d"), ("e", "f")), 3.0),)


@given(graphs_and_coalitions(), st.integers(0, 8))
@settings(max_examples=300, deadline=None)
def test_benefits_between_competing_coalitions_change_nothing(instance, budget):
    """Not the merger that is found, nor after how many sets."""
    graph, rivals, coalitions, least = instance
    found = verify(graph, rivals, coalitions, budget=budget, fewest_members=least)
    graph = without_rivalry(graph, rivals, coalitions)
    assert verify(graph, rivals, coalitions, budget=budget, fewest_members=least) == found


@given(graphs_and_coalitions())
@settings(max_examples=300, deadline=None)
def test_mergers_of_valid_coalitions_are_those_of_brute_force(instance):
    graph, rivals, coalitions, least = instance
    found = verify(graph, rivals, coalitions, budget=None, fewest_members=least)
    partition = as_positions(coalitions, graph.participants)
    assert found.stable is (mergeable(partition, graph, rivals, least) is None)


@given(graphs(min_n=1), graphs(min_n=1))
@settings(max_examples=100, deadline=None)
def test_two_consortia_side_by_side_are_stable_if_both_are(one, other):
    alone = [
        verify(*pair, [[name] for name in pair[0].participants], budget=None)
        for pair in (one, other)
    ]
    names = [
        f"{k}{name}" for k, (graph, _) in enumerate((one, other)) for name in graph.participants
    ]
    edges = [
        (f"{k}{source}", f"{k}{target}", weight)
        for k, (graph, _) in enumerate((one, other))
        for source, target, weight in graph.edges()
    ]
    pairs = [
        (f"{k}{a}", f"{k}{b}")
        for k, (_, rivals) in enumerate((one, other))
        for a, b in rivals.pairs
    ]
    together = verify(
        BenefitGraph.from_edges(edges, names),
        CompetitionGraph(pairs, names),
        [[name] for name in names],
        budget=None,
    )
    assert together.stable is all(found.stable for found in alone)
