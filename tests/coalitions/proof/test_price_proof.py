"""Prices prove upper bounds: every honest proof holds, and every wrong one is refused."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions.exact import branching, column_generation, pricing, restricted_master
from fedegoists.coalitions.proof.coalition_listing import Allowance, ProofError, TooLateError
from fedegoists.coalitions.proof.price_proof import (
    BetterPartitionError,
    ExactConsortium,
    PriceProof,
    proven_bound,
)
from tests.instances import best_welfare, graphs, random_graphs

CHAIN = ["a", "b", "c"]
PAIRS = [("a", "b", 2), ("b", "a", 2), ("b", "c", 1), ("c", "b", 2)]
BENEFIT = BenefitGraph.from_edges(PAIRS, CHAIN)
RIVALS = CompetitionGraph([("a", "c")], CHAIN)


def component(benefit=BENEFIT, competition=RIVALS, fewest_members=1):
    (only,) = ExactConsortium(benefit, competition, fewest_members).components()
    return only


def confirm(prices, at_most, **more):
    proof = PriceProof(tuple(CHAIN), prices, at_most, **more)
    component().confirm(proof, Allowance())


def test_prices_that_cover_every_coalition_prove_their_sum():
    """b is with a, worth 4, or with c, worth 3: a price of 4 for b covers both."""
    confirm((0.0, 4.0, 0.0), 4.0)
    confirm((1.0, 3.0, 0.0), 4.0)
    with pytest.raises(ProofError, match=r"the coalition {a, b} is worth more than its prices"):
        confirm((0.0, 3.5, 0.0), 3.5)


def test_a_gap_is_closed_by_the_coalitions_listed():
    """The prices sum to 6, but no partition has slacks below 2: {a, b} {c} has exactly 2."""
    confirm((2.0, 2.0, 2.0), 4.0)
    with pytest.raises(BetterPartitionError) as better:
        confirm((2.0, 2.0, 2.0), 3.9)
    assert better.value.welfare == 4


def test_a_triple_counts_once_in_a_partition():
    """Two of the three are together: one price of 4 for the triple covers each pair."""
    priced = {"triples": (("a", "b", "c"),), "triple_prices": (4.0,)}
    confirm((0.0, 0.0, 0.0), 4.0, **priced)
    with pytest.raises(ProofError, match="worth more"):
        confirm((0.0, 0.0, 0.0), 4.0, triples=(("a", "b", "c"),), triple_prices=(3.9,))
    with pytest.raises(ProofError, match="not three of its participants"):
        confirm((0.0, 4.0, 0.0), 4.0, triples=(("a", "a", "c"),), triple_prices=(1.0,))


@pytest.mark.parametrize(
    ("prices", "at_most"),
    [((-1.0, 5.0, 0.0), 4.0), ((0.0, float("nan"), 0.0), 4.0), ((4.0,), 4.0)],
)
def test_what_are_no_prices_is_refused(prices, at_most):
    with pytest.raises(ProofError, match="price"):
        confirm(prices, at_most)


def test_the_work_is_bounded_by_steps_and_by_a_deadline():
    proof = PriceProof(tuple(CHAIN), (2.0, 2.0, 2.0), 4.0)
    with pytest.raises(ProofError, match="more steps"):
        component().confirm(proof, Allowance(3))
    with pytest.raises(TooLateError):
        component().confirm(proof, Allowance(deadline=0.0))


@pytest.mark.parametrize("fewest_members", [1, 3])
@given(graphs(max_n=7))
@settings(max_examples=150, deadline=None)
def test_without_prices_the_bound_is_the_highest_welfare(fewest_members, instance):
    everybody_alone = [(name,) for name in instance[0].participants]
    proven = proven_bound(*instance, everybody_alone, [], fewest_members=fewest_members)
    best = best_welfare(*instance, fewest_members)
    assert float(proven.welfare) == pytest.approx(best, rel=1e-12, abs=0)
    assert proven.known == proven.welfare


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_prices_that_are_confirmed_bound_every_partition(data):
    """The heart of the matter: whatever the prices, a confirmed bound holds."""
    benefit, competition = data.draw(graphs(min_n=3, max_n=6))
    price = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0])
    for one in ExactConsortium(benefit, competition, 1).components():
        prices = tuple(data.draw(price) for _ in one.members)
        triples, triple_prices = (), ()
        if len(one.members) > 2:
            triple = tuple(data.draw(st.permutations(one.members))[:3])
            triples, triple_prices = (triple,), (data.draw(price),)
        total = sum(prices) + sum(triple_prices)
        at_most = total * data.draw(st.sampled_from([1.0, 0.9, 0.75, 0.5]))
        best = one.highest_welfare(Allowance())
        proof = PriceProof(one.members, prices, at_most, triples, triple_prices)
        outcome = confirmed(one, proof)
        if outcome is True:
            assert best <= one.in_units(at_most)
        elif isinstance(outcome, Fraction):
            assert at_most < outcome <= Fraction(best, one.in_units(1.0))


def confirmed(one, proof) -> bool | Fraction:
    """Whether a proof is confirmed, or the welfare of the better partition that refutes it."""
    try:
        one.confirm(proof, Allowance())
    except BetterPartitionError as better:
        return better.welfare
    except ProofError:
        return False
    return True


def random_instance(rng: random.Random, smallest: int, largest: int):
    density = rng.choice([0.1, 0.2, 0.3, 0.5, 1.0])
    rivalry = rng.choice([0.02, 0.05, 0.1, 0.2, 0.4])
    return random_graphs(rng.randint(smallest, largest), density, rivalry, rng.randrange(10**6))


def test_optima_of_the_search_are_proven_exactly():
    rng = random.Random(5)
    with_prices = 0
    for _ in range(20):
        instance = random_instance(rng, 16, 24)
        formation = form(*instance, time_limit=5)
        assert formation.optimal
        certificate = formation.certificate
        with_prices += bool(certificate.proof)
        proven = proven_bound(*instance, formation.coalitions, certificate.proof)
        assert proven.rejected == ()
        assert proven.welfare <= Fraction(formation.welfare) * (1 + Fraction(1, 10**12))
        assert certificate.check(time_limit=0.5).ok
    assert with_prices > 10


@pytest.mark.slow
def test_a_bound_that_has_no_short_proof_is_stated_as_high_as_it_is_proven():
    formation = form(*random_graphs(60, 1.0, 0.05, seed=1))
    certificate = formation.certificate
    check = certificate.check()
    assert check.ok
    (stated,) = (claim.value for claim in certificate.claims if claim.claim == "upper bound")
    assert stated >= formation.upper_bound * (1 - 1e-12)
    assert any("this certificate proves" in note for note in certificate.notes) == (
        stated > formation.upper_bound * (1 + 1e-12)
    )


def test_a_proof_about_other_participants_is_refused():
    formation = form(*random_graphs(20, 0.5, 0.1, seed=3), time_limit=5)
    certificate = formation.certificate
    (entry,) = certificate.proof
    without = replace(entry, members=entry.members[1:], prices=entry.prices[1:])
    for proof in ((without,), (entry, entry)):
        wrong = replace(certificate, proof=proof).check()
        assert [claim.claim for claim in wrong.claims if not claim.ok] == ["upper bound"]


# Errors planted in the search ---------------------------------------------------------------------


def wrongly_claimed(instance, monkeypatch_error) -> bool:
    """Whether the search claims an optimum that is none, and the certificate says so."""
    truth = form(*instance, time_limit=5)
    assert truth.optimal
    monkeypatch_error()
    formation = form(*instance, time_limit=0.5)
    if formation.welfare >= truth.welfare * (1 - 1e-9) and formation.upper_bound >= (
        truth.welfare * (1 - 1e-9)
    ):
        return False
    certificate = formation.certificate
    (stated,) = (claim.value for claim in certificate.claims if claim.claim == "upper bound")
    assert stated >= truth.welfare * (1 - 1e-9)  # whatever the search claims
    return True


def no_annealing(self) -> None:
    """Start from the merge-stable partition only, so that errors are not masked by luck."""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["pricing", "master", "choice", "branching"])
def test_an_error_planted_in_the_search_is_caught(place, monkeypatch):
    monkeypatch.setattr(column_generation.ColumnGeneration, "_anneal", no_annealing)
    rng = random.Random(11)
    caught = 0
    for _ in range(8):
        instance = random_instance(rng, 18, 24)
        with monkeypatch.context() as planted:

            def plant(planted=planted):
                if place == "pricing":  # every second root is said to have no coalition
                    best = pricing.Pricing.best

                    def blind(self, root, steps):
                        bound, finished, found = best(self, root, steps)
                        return (0.0, True, found[:0]) if root % 2 else (bound, finished, found)

                    planted.setattr(pricing.Pricing, "best", blind)
                elif place == "master":  # coalitions are valued at half of their worth
                    value = restricted_master.RestrictedMaster.value
                    planted.setattr(
                        restricted_master.RestrictedMaster,
                        "value",
                        lambda self, column: value(self, column) / 2,
                    )
                elif place == "branching":  # branches are forgotten, and all counts as proven

                    def list_nothing(self, most):
                        self._too_many = True
                        return False

                    generation, master = (
                        column_generation.ColumnGeneration,
                        restricted_master.RestrictedMaster,
                    )
                    planted.setattr(generation, "_list", list_nothing)
                    planted.setattr(generation, "_round", lambda self: None)
                    planted.setattr(master, "separate", lambda self: 0)
                    planted.setattr(branching.Branching, "_explore", lambda self, branch: None)
                else:  # the choice among listed coalitions is never better than the start
                    choose = column_generation.choose

                    def lazy(columns, values, **options):
                        choice = choose(columns, values, **options)
                        start = [list(group) for group in options["start"]]
                        own = sum(
                            float(values[k])
                            for k, column in enumerate(columns)
                            if column.nonzero()[0].tolist() in start
                        )
                        return replace(choice, partition=start, upper_bound=own)

                    planted.setattr(column_generation, "choose", lazy)

            caught += wrongly_claimed(instance, plant)
    assert caught > 0
