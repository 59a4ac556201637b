"""Blocking groups: found if there is one, and only then."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, audit_core, form
from fedegoists.errors import GraphError
from tests.instances import as_positions, graphs, is_valid, random_graphs


def blocking_groups(partition, benefit, competition):
    """All of them, by trying every set."""
    now = {i: sum(benefit.weights[j, i] for j in group) for group in partition for i in group}
    for size in range(2, benefit.n + 1):
        for group in itertools.combinations(range(benefit.n), size):
            if is_valid(list(group), benefit, competition) and all(
                sum(benefit.weights[j, i] for j in group) > now[i] * (1 + 1e-12) for i in group
            ):
                yield group


@given(graphs(min_n=1, max_n=7), st.data())
@settings(max_examples=200, deadline=None)
def test_agrees_with_trying_every_set(instance, data):
    benefit, competition = instance
    labels = data.draw(st.lists(st.integers(0, 3), min_size=benefit.n, max_size=benefit.n))
    coalitions = [
        [name for name, label in zip(benefit.participants, labels, strict=True) if label == c]
        for c in set(labels)
    ]
    audit = audit_core(benefit, competition, coalitions, budget=None)
    groups = set(
        blocking_groups(as_positions(coalitions, benefit.participants), benefit, competition)
    )
    assert audit.core_stable is (not groups)
    if audit.blocking:
        members = as_positions([audit.blocking.members], benefit.participants)[0]
        assert tuple(members) in groups
        assert all(gain > 0 for gain in audit.blocking.gains)


def test_the_best_partition_need_not_be_core_stable():
    """By hand: a gets 3 from b and b 3 from a, but a is worth 9 to c and gets only 1 there."""
    names = ["a", "b", "c"]
    edges = [("a", "b", 3), ("b", "a", 3), ("a", "c", 9), ("c", "a", 1)]
    instance = BenefitGraph.from_edges(edges, names), CompetitionGraph([("b", "c")], names)
    formation = form(*instance)
    assert formation.coalitions == (("a", "c"), ("b",))
    audit = audit_core(*instance, formation.coalitions)
    assert audit.blocking is not None
    assert (audit.blocking.members, audit.blocking.gains) == (("a", "b"), (2.0, 3.0))
    assert audit_core(*instance, [("a", "b"), ("c",)]).core_stable


def test_rounding_is_no_gain():
    """With b and c, a would get 0.1 + 0.2, which in binary is a little more than its 0.3 now."""
    names = ["a", "b", "c", "d"]
    edges = [("b", "a", 0.1), ("c", "a", 0.2), ("a", "b", 1), ("a", "c", 1), ("d", "a", 0.3)]
    benefit = BenefitGraph.from_edges([*edges, ("a", "d", 1)], names)
    competition = CompetitionGraph([("d", "b"), ("d", "c")], names)
    assert 0.1 + 0.2 > 0.3
    assert audit_core(benefit, competition, [("a", "d"), ("b",), ("c",)]).core_stable


def test_a_spent_budget_is_said():
    instance = random_graphs(12, 0.5, 0.3, seed=1)
    audit = audit_core(*instance, [[name] for name in instance[0].participants], budget=0)
    assert audit.core_stable is None
    assert not audit.complete
    assert "not proven" in str(audit)


def test_graphs_over_different_participants_are_refused():
    with pytest.raises(GraphError, match="different participants"):
        audit_core(BenefitGraph([[0]]), CompetitionGraph([], 2), [["v0"]])
