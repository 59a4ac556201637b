"""Groups that would rather leave."""

import math

import pytest
from hypothesis import given, settings

from fedegoists import BenefitGraph, CompetitionGraph, audit_core
from fedegoists.coalitions.incentives import leaving_together
from fedegoists.coalitions.incentives.leaving_together import leaving_temptations
from fedegoists.coalitions.incentives.reporting import Truth, decision_rule
from tests.instances import graphs


def truth_of(benefit, competition):
    return Truth(benefit, competition, decision_rule("best", 0, 1, None))


def blocked():
    # Welfare puts a with c, but a and b would both gain by leaving together.
    names = ["a", "b", "c"]
    edges = [("a", "b", 3), ("b", "a", 3), ("a", "c", 9), ("c", "a", 1)]
    benefit = BenefitGraph.from_edges(edges, names)
    return truth_of(benefit, CompetitionGraph([("b", "c")], names))


@pytest.mark.parametrize("small", [True, False])
def test_the_gains_of_a_blocking_group(small, monkeypatch):
    monkeypatch.setattr(leaving_together, "is_small", lambda n: small)
    a, b, c = leaving_temptations(blocked(), 1, math.inf)
    assert (a.gain, b.gain, c.gain) == (2, 3, 0)
    assert a.report == "leaving with b"


@given(graphs(min_n=1, max_n=6))
@settings(max_examples=60, deadline=None)
def test_somebody_gains_exactly_if_the_core_audit_finds_a_group(consortium):
    truth = truth_of(*consortium)
    partition = [[truth.names[k] for k in group] for group in truth.partition]
    gains = [one.gain for one in leaving_temptations(truth, 1, math.inf)]
    stable = audit_core(*consortium, partition, budget=None).core_stable
    assert (max(gains) > 0) is (stable is False)
