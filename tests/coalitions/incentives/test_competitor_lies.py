"""Invented and hidden competitors, and the price of naming one."""

import pytest
from hypothesis import given, settings

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions.incentives.competitor_lies import (
    competitor_temptations,
    hidden,
    invented,
    price_of_names,
    priced_gain,
)
from fedegoists.coalitions.incentives.reporting import Truth, decision_rule
from tests.instances import graphs

NAMES = ["a", "b", "c"]


def truth_of(benefit, competition, method="best"):
    return Truth(benefit, competition, decision_rule(method, 0, 1, None))


def contested():
    """a and b give each other 3; b and c give each other 2; a gets 1 from c, who competes with b.

    Without competition all three would be together.
    """
    edges = [("a", "b", 3), ("b", "a", 3), ("b", "c", 4), ("c", "b", 4), ("a", "c", 1)]
    return BenefitGraph.from_edges([*edges, ("c", "a", 2)], NAMES)


def test_a_competitor_takes_from_the_others_what_they_would_have_had():
    # Together: 17. With a and c apart, b is with c: 8, and a is alone.
    truth = truth_of(contested(), CompetitionGraph([("a", "c")], NAMES))
    assert truth.welfare == 8
    assert price_of_names(truth, 0) == (17 - 5) - 8  # all but a: 12 together, 8 now
    assert price_of_names(truth, 1) == 0  # b is in no pair


def test_an_invented_competitor_can_pay_without_a_price():
    # a, b and c, d: b is best with c; a invents nothing, but c does, to keep d for itself.
    names = ["a", "b", "c", "d"]
    edges = [("a", "b", 2), ("b", "a", 5), ("b", "c", 4), ("c", "b", 4), ("c", "d", 3)]
    benefit = BenefitGraph.from_edges([*edges, ("d", "c", 3)], names)
    competition = CompetitionGraph([("a", "c"), ("b", "d")], names)
    truth = truth_of(benefit, competition)
    assert form(benefit, competition).coalitions == (("a", "b"), ("c", "d"))
    # b would rather have c: by naming a it makes {a, b} impossible.
    invent, _ = competitor_temptations(truth, 1)
    assert invent.gain == 4 - 2
    assert invent.report == "competition with a"
    assert invent.others_lose == (5 + 3 + 3) - 4
    lies = list(invented(truth, 1))
    assert all(priced_gain(truth, 1, outcome) <= 0 for outcome in lies)


@given(graphs(min_n=2, max_n=6))
@settings(max_examples=60, deadline=None)
def test_under_best_no_invented_competitor_pays_its_price(consortium):
    truth = truth_of(*consortium)
    for i in range(truth.benefit.n):
        for outcome in invented(truth, i):
            assert priced_gain(truth, i, outcome) <= 1e-9
            assert outcome.utility - truth.utilities[i] <= outcome.others_lose + 1e-9


@given(graphs(min_n=2, max_n=6))
@settings(max_examples=40, deadline=None)
def test_the_price_of_names_is_never_more_than_all_others_could_have(consortium):
    truth = truth_of(*consortium)
    free = form(truth.benefit, CompetitionGraph([], truth.names)).welfare
    for i in range(truth.benefit.n):
        assert price_of_names(truth, i) <= free + 1e-9


def test_a_hidden_competitor_counts_only_if_the_two_stay_apart():
    truth = truth_of(contested(), CompetitionGraph([("a", "c")], NAMES))
    assert list(hidden(truth, 0)) == []  # hidden, they would all be together
    _, hide = competitor_temptations(truth, 0)
    assert (hide.gain, hide.exact) == (0.0, True)


@pytest.mark.parametrize("method", ["best", "stable", "published", "truthful"])
def test_naming_reaches_every_method(method):
    truth = truth_of(contested(), CompetitionGraph([], NAMES), method)
    assert len(list(invented(truth, 0))) == 2
    assert all(outcome.utility < truth.utilities[0] for outcome in invented(truth, 0))
