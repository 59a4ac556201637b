"""A certificate is not made longer by attempts that cannot succeed."""

import math
from dataclasses import replace

import pytest

from fedegoists import form
from fedegoists.coalitions import proving
from fedegoists.coalitions.proof.price_proof import Component
from tests.instances import random_graphs


@pytest.fixture
def attempts(monkeypatch) -> list[float]:
    """The bounds of the proofs that the package's checker is asked to confirm."""
    asked = []
    confirm = Component.confirm

    def counted(self, proof, allowance):
        asked.append(proof.at_most)
        confirm(self, proof, allowance)

    monkeypatch.setattr(Component, "confirm", counted)
    return asked


def test_prices_too_long_to_confirm_are_mixed_only_if_the_largest_mixture_is_not(
    attempts, monkeypatch
):
    """The sum of the prices, the least mixture and the largest; the four between are skipped."""
    formation = form(*random_graphs(20, 0.5, 0.1, seed=3), time_limit=5)
    assert len(formation.prices) == 1
    monkeypatch.setattr(proving, "PROOF_STEPS", 0)
    monkeypatch.setattr(proving, "_relaxed", lambda *_: [])
    assert proving.prove(formation) == ()
    assert len(attempts) == 3


def test_a_bound_that_is_no_lower_than_the_plain_one_is_not_proven(attempts):
    """What it could prove beyond the plain bound is less than its rounding."""
    formation = form(*random_graphs(20, 0.5, 0.1, seed=3), time_limit=5)
    (only,) = proving.ExactConsortium(formation.benefit, formation.competition, 1).components()
    prices = tuple(price * (1 + 1e-12) for price in only.plain_prices())
    plain = proving.PriceProof(only.members, prices, math.fsum(prices))
    assert proving.prove(replace(formation, prices=(plain,))) == ()
    assert attempts == []


def test_the_sum_of_the_prices_is_not_confirmed_twice(attempts):
    """Where the search ends with its prices alone, their sum is the bound: one attempt."""
    formation = form(*random_graphs(20, 0.5, 0.1, seed=3), time_limit=5)
    (part,) = formation.prices
    summed = proving._summed(part)
    (entry,) = proving.prove(replace(formation, prices=(summed,)))
    assert entry.at_most == summed.at_most
    assert attempts == [summed.at_most]
