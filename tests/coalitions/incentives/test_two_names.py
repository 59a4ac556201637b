"""One organisation under two names."""

from fedegoists import BenefitGraph, CompetitionGraph
from fedegoists.coalitions.incentives.reporting import Truth, decision_rule
from fedegoists.coalitions.incentives.two_names import duplicate_temptation

NAMES = ["a", "b", "c"]


def truth_of(edges, pairs, method, names=NAMES):
    benefit = BenefitGraph.from_edges(edges, names)
    rule = decision_rule(method, 0, 1, None)
    return Truth(benefit, CompetitionGraph(pairs, names), rule)


def test_two_names_reach_two_coalitions():
    # b and c compete, and a may be with one of them; under two names with both.
    edges = [("a", "b", 1), ("b", "a", 2), ("a", "c", 1), ("c", "a", 3)]
    found = duplicate_temptation(truth_of(edges, [("b", "c")], "best"), 0)
    assert found.gain == 2  # 2 + 3 instead of 3
    assert "names" in found.report
    assert found.others_lose == 0  # b and c get a half each, instead of c all


def test_two_names_hide_a_free_rider_from_merging_but_not_from_truthful():
    # a takes from b and c but gives to nobody, so it is alone. Two names that report a benefit from
    # each other both seem to give.
    edges = [("b", "c", 1), ("c", "b", 1), ("b", "a", 4)]
    assert duplicate_temptation(truth_of(edges, [], "stable"), 0).gain == 4
    assert duplicate_temptation(truth_of(edges, [], "truthful"), 0).gain == 0


def test_the_second_name_is_new():
    edges = [("a", "a 2", 1), ("a 2", "a", 1)]
    truth = truth_of(edges, [], "best", ["a", "a 2"])
    assert duplicate_temptation(truth, 0).gain == 0
