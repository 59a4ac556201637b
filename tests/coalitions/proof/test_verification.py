"""Checks refute what the search would never claim."""

import hashlib
import json
import math
import re
import time
from fractions import Fraction

import pytest

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, form
from fedegoists.coalitions import certificate as certifying
from fedegoists.coalitions.proof import verification
from fedegoists.coalitions.proof.certificate_claims import Claim
from fedegoists.coalitions.proof.exhaustive_check import (
    is_better,
    objective_value,
)
from fedegoists.coalitions.proof.price_proof import ComponentBound, ProvenBound
from fedegoists.coalitions.proof.verification import check_objective
from tests.instances import random_graphs

OBJECTIVES = ("fair", "participation")


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
    certificate = formation.certificate
    half = int(Fraction(formation.welfare) * 2**60) // 2
    too_low = ProvenBound((ComponentBound(formation.participants, half, half, half),), 2**60)
    monkeypatch.setattr(certifying, "proven_bound", lambda *_, **__: too_low)
    found = checked(certificate, "upper bound")
    assert not found.ok
    assert "a valid partition reaches" in found.found


def test_an_objective_claim_belongs_to_another_objective_than_welfare():
    document = json.loads(form(*random_graphs(5, 0.6, 0.2, seed=1)).certificate.to_json())
    document["claims"].append({"claim": "objective", "status": "proven", "value": 1.0})
    with pytest.raises(Exception, match="a claim is missing or out of order"):
        sealed(document)


def test_an_objective_is_not_searched_for_after_the_deadline_or_over_too_many(monkeypatch):
    """Thirteen belong together, one more than are tried."""
    instance = random_graphs(13, 1.0, 0.0, seed=0)
    coalitions = [instance[0].participants]
    value = objective_value(instance[0], coalitions, "fair")
    claim = Claim("objective", "proven", value)
    searched = []

    def search():
        searched.append(True)
        return coalitions, True

    def judged(deadline: float) -> tuple[str, int]:
        found = check_objective(
            claim, *instance, coalitions, "fair", search, 1.0, deadline=deadline
        )
        return found.found, len(searched)

    assert judged(math.inf) == (f"{value:.9g} the least received, proven by searching again", 1)
    found, times = judged(time.perf_counter() - 1)
    assert (found.endswith("not derived in 1 s that none is better"), times) == (True, 1)
    monkeypatch.setattr(verification, "MOST_SEARCHED", 12)
    found, times = judged(math.inf)
    assert (found.endswith("is derived for up to 12 participants"), times) == (True, 1)
