"""Misreports of received benefit: the finite set of reports, against other reports."""

import itertools
import math

import numpy as np
import pytest

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions.incentives.received_lies import (
    received_temptation,
    reported,
    tried_all,
)
from fedegoists.coalitions.incentives.reporting import Truth, decision_rule
from tests.instances import consortium, uniform


def truth_of(graphs, method):
    return Truth(*graphs, decision_rule(method, 0, 1, None))


def true_utility(benefit, coalitions, name):
    home = next(group for group in coalitions if name in group)
    return math.fsum(weight for a, b, weight in benefit.edges() if b == name and a in home)


def any_columns(n, i, rng):
    """Columns of all kinds: a grid of small, middle and large benefits, and random ones."""
    for values in itertools.product([0.0, 0.01, 0.4, 4.0], repeat=n - 1):
        yield np.insert(np.array(values), i, 0.0)
    for _ in range(40):
        column = np.where(rng.random(n) < 0.6, rng.pareto(1.0, n), 0.0)
        column[i] = 0.0
        yield column


@pytest.mark.parametrize("method", ["best", "stable", "published"])
@pytest.mark.parametrize("seed", range(6))
def test_no_other_report_gains_more(method, seed):
    benefit, competition = graphs = consortium(uniform, 4, seed)
    truth = truth_of(graphs, method)
    rng = np.random.default_rng(seed)
    for i, name in enumerate(benefit.participants):
        found, complete = tried_all(truth, i, method, math.inf)
        assert complete
        most = max(found[0].utility, float(truth.utilities[i]))
        for column in any_columns(4, i, rng):
            weights = benefit.weights.copy()
            weights[:, i] = column
            lied = form(BenefitGraph(weights, benefit.participants), competition, method)
            assert true_utility(benefit, lied.coalitions, name) <= most + 1e-12


def test_a_gain_is_what_form_gives_for_the_reported_column():
    # South hides nothing and invents nothing: it only exaggerates what North gives.
    names = ["North", "South", "East"]
    benefit = BenefitGraph([[0, 0.4, 0.2], [0.1, 0, 0], [0.6, 0, 0]], names)
    competition = CompetitionGraph([("South", "East")], names)
    truth = truth_of((benefit, competition), "best")
    found = received_temptation(truth, 1, "best", math.inf)
    assert (found.gain, found.exact, found.others_lose) == (0.4, True, pytest.approx(0.7))
    assert found.report == "a large benefit from North, nothing from the others"
    lied = BenefitGraph([[0, 9, 0.2], [0.1, 0, 0], [0.6, 0, 0]], names)
    assert form(lied, competition).coalitions == (("North", "South"), ("East",))


@pytest.mark.parametrize("method", ["best", "stable", "published"])
def test_a_lie_may_need_a_true_and_an_invented_benefit(method):
    # i is alone until it invents a benefit from j; it must report the true one from k as well.
    edges = [("k", "l", 1), ("l", "k", 1), ("k", "i", 5), ("i", "j", 1)]
    benefit = BenefitGraph.from_edges(edges, ["i", "j", "k", "l"])
    truth = truth_of((benefit, CompetitionGraph([], benefit.participants)), method)
    found = received_temptation(truth, 0, method, math.inf)
    assert (found.gain, found.bound, found.others_lose) == (5, 5, -1)
    assert found.report == "a large benefit from j, k, nothing from the others"


def test_a_report_of_nothing_leaves_a_participant_alone():
    truth = truth_of(consortium(uniform, 5, 3), "best")
    assert reported(truth, 2, 0).home_of(2) == [2]


@pytest.mark.parametrize("method", ["cliques", "truthful"])
def test_the_proof_agrees_with_all_reports(method):
    for seed in range(4):
        truth = truth_of(consortium(uniform, 5, seed), method)
        for i in range(5):
            found, _ = tried_all(truth, i, method, math.inf)
            assert found[0].utility <= truth.utilities[i] + 1e-12
            assert received_temptation(truth, i, method, math.inf).gain == 0


@pytest.mark.parametrize("method", ["best", "stable"])
def test_beyond_ten_participants_the_bound_covers_what_is_found(method):
    truth = truth_of(consortium(uniform, 12, 3), method)
    found = [received_temptation(truth, i, method, math.inf) for i in range(12)]
    assert any(one.gain > 0 for one in found)
    assert any(not one.exact for one in found)
    for i, one in enumerate(found):
        assert 0 <= one.gain <= one.bound
        assert one.bound <= truth.highest[i] - truth.utilities[i] + 1e-12


def test_when_the_time_is_over_only_the_bound_is_known():
    truth = truth_of(consortium(uniform, 6, 2), "best")
    bounds = [received_temptation(truth, i, "best", -math.inf) for i in range(6)]
    exact = [received_temptation(truth, i, "best", math.inf) for i in range(6)]
    assert any(not one.exact for one in bounds)
    assert all(b.gain == 0 and b.bound >= e.gain for b, e in zip(bounds, exact, strict=True))
