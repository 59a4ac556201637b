"""Trying all partitions: agrees with brute force, and refutes what the search would never claim."""

import hashlib
import json
import re

import pytest
from hypothesis import given, settings

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, form
from fedegoists.coalitions import certificate as certifying
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


# Certificates ----------------------------------------------------------------------------------


def sealed(document) -> Certificate:
    """A certificate with this content and a digest that fits."""
    document["sha256"] = "0" * 64
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Certificate.from_json(re.sub(r'0{64}("\n}\n)\Z', rf"{digest}\1", text))


def checked(certificate: Certificate, claim: str = "objective", time_limit: float = 5):
    check = certificate.check(time_limit=time_limit)
    (found,) = (c for c in check.claims if c.claim == claim)
    return found


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_certificate_proves_its_objective_again(objective):
    formation = form(*random_graphs(9, 0.5, 0.3, seed=1), objective=objective)
    assert formation.proven
    certificate = Certificate.from_json(formation.certificate.to_json())
    assert certificate.check().ok
    assert checked(certificate).found.endswith("all partitions tried")
    assert certificate.formation().best_by_objective
    assert certificate.formation().proven


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_false_claim_to_be_best_is_refuted(objective):
    """The partition of highest welfare, presented as the best by another objective.

    By hand: {a, b} is worth 10 but leaves two alone, {a, c, d} is worth 5 and leaves one.
    """
    names = ["a", "b", "c", "d"]
    edges = [("a", "b", 5), ("b", "a", 5), ("a", "c", 1), ("c", "a", 1), ("c", "d", 2)]
    instance = (
        BenefitGraph.from_edges([*edges, ("d", "a", 1)], names),
        CompetitionGraph([("b", "c"), ("b", "d")], names),
    )
    best = form(*instance, objective=objective)
    other = form(*instance)
    assert is_better(instance[0], best.coalitions, other.coalitions, objective)
    document = json.loads(best.certificate.to_json())
    document["coalitions"] = other.coalitions
    document["claims"][3]["value"] = other.welfare
    document["claims"][5]["value"] = objective_value(instance[0], other.coalitions, objective)
    found = checked(sealed(document))
    assert not found.ok
    assert found.found.startswith("refuted; better is {")


def test_a_wrong_number_of_participants_alone_is_found():
    formation = form(*random_graphs(8, 0.4, 0.4, seed=2), objective="participation")
    document = json.loads(formation.certificate.to_json())
    document["claims"][5]["value"] += 1
    assert not checked(sealed(document)).ok


def test_what_is_not_claimed_to_be_best_is_not_proven_either():
    formation = form(*random_graphs(8, 0.4, 0.4, seed=2), objective="fair")
    document = json.loads(formation.certificate.to_json())
    document["claims"][5]["status"] = "not proven"
    certificate = sealed(document)
    assert checked(certificate).ok
    assert checked(certificate).found.endswith("not proven")
    assert not certificate.formation().proven


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_with_too_many_to_try_all_the_search_proves_it_again(objective):
    instance = random_graphs(14, 0.3, 0.5, seed=2)
    formation = form(*instance, objective=objective, time_limit=5)
    assert formation.proven
    assert checked(formation.certificate).found.endswith("proven by searching again")
    document = json.loads(formation.certificate.to_json())
    alone = [[name] for name in formation.participants]
    document["coalitions"] = alone
    document["claims"][5]["value"] = objective_value(instance[0], alone, objective)
    assert checked(sealed(document)).found.startswith("refuted; better is {")


def test_a_derived_bound_below_what_is_reached_is_not_believed(monkeypatch):
    """Were the bound computed too low, the coalitions themselves would contradict it."""
    formation = form(*random_graphs(8, 0.6, 0.2, seed=1))
    monkeypatch.setattr(certifying, "quick_upper_bound", lambda *_: 0.5 * formation.welfare)
    found = checked(formation.certificate, "upper bound")
    assert not found.ok
    assert "a valid partition reaches" in found.found


def test_an_objective_claim_belongs_to_another_objective_than_welfare():
    document = json.loads(form(*random_graphs(5, 0.6, 0.2, seed=1)).certificate.to_json())
    document["claims"].append({"claim": "objective", "status": "proven", "value": 1.0})
    with pytest.raises(Exception, match="a claim is missing or out of order"):
        sealed(document)
