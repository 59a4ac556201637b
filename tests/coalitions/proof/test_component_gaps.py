"""However much others are worth, both checkers find what the coalitions of a component lack."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, form
from fedegoists.coalitions.proof import check
from fedegoists.coalitions.proof.price_proof import (
    ComponentBound,
    ProvenBound,
    proven_bound,
    states_optimum,
)
from tests.coalitions.proof.test_check import sealed
from tests.instances import graphs, random_graphs, valid_partitions

NAMES = ["a", "b", "c", "d", "e"]
SMALL = [("c", "d", 1.0), ("d", "c", 1.0), ("d", "e", 9.0), ("e", "d", 9.0)]
"""c and e compete: {c, d} is worth 2, and {d, e} is worth 18."""

RIVALS = CompetitionGraph([("c", "e")], NAMES)


def with_pair(worth: float) -> BenefitGraph:
    """The benefits above beside a pair that is worth this much."""
    pair = [("a", "b", worth / 2), ("b", "a", worth / 2)]
    return BenefitGraph.from_edges([*pair, *SMALL], NAMES)


def claiming(document: dict, coalitions, welfare: float, bound: float) -> str:
    """The text of a certificate with other coalitions and claims, and a digest that fits."""
    document["coalitions"] = coalitions
    for claim in document["claims"]:
        if claim["claim"] in ("welfare", "upper bound"):
            claim["value"] = {"welfare": welfare, "upper bound": bound}[claim["claim"]]
    return sealed(document)


def refused(text: str) -> tuple[set[str], set[str]]:
    """The claims that the package and the stand-alone checker refuse."""
    package = {one.claim for one in Certificate.from_json(text).check().claims if not one.ok}
    lines = check.check(text)[2]
    alone = {line[7:].split(":")[0] for line in lines if line.startswith(("WRONG", "OPEN"))}
    return package, alone


@pytest.mark.parametrize("worth", [2e13, 2e15, 2e17, 2e200])
def test_a_huge_pair_does_not_hide_what_others_lose(worth):
    """With 2e17, the sums of both partitions are the same number; still, 16 of 18 are lost."""
    formation = form(with_pair(worth), RIVALS)
    assert set(formation.coalitions) == {("a", "b"), ("c",), ("d", "e")}
    text = formation.certificate.to_json()
    assert refused(text) == (set(), set())
    assert Certificate.from_json(text).formation().optimal

    worse = [["a", "b"], ["c", "d"], ["e"]]
    forged = claiming(json.loads(text), worse, worth + 2, worth + 2)
    assert refused(forged) == ({"upper bound"}, {"upper bound"})
    (found,) = (
        claim.found
        for claim in Certificate.from_json(forged).check().claims
        if claim.claim == "upper bound"
    )
    assert found.startswith("refuted; ")
    assert found.endswith("000018.0" if worth < 1e16 else "others reach 18")


def test_a_true_bound_on_the_worse_coalitions_is_no_claim_of_an_optimum():
    document = json.loads(form(with_pair(2e13), RIVALS).certificate.to_json())
    worse = [["a", "b"], ["c", "d"], ["e"]]
    text = claiming(document, worse, 2e13 + 2, 2e13 + 18)
    assert refused(text) == (set(), set())
    assert not Certificate.from_json(text).formation().optimal
    # Nor may the welfare be stated as high as the bound.
    assert refused(claiming(document, worse, 2e13 + 18, 2e13 + 18)) == ({"welfare"}, {"welfare"})


def test_a_bound_that_only_rounding_lifts_is_not_confirmed():
    """The pair is worth 2e13, of which the last place is 1/256."""
    document = json.loads(form(with_pair(2e13), RIVALS).certificate.to_json())
    best = [["a", "b"], ["c"], ["d", "e"]]
    for off, fine in ((2, True), (-2, True), (-10, False)):
        bound = 2e13 + 18 + off / 256
        text = claiming(document, best, 2e13 + 18, bound)
        wrong = set() if fine else {"upper bound"}
        assert refused(text) == (wrong, wrong), off


def test_a_link_to_the_huge_pair_does_not_hide_it_either():
    """One component of five; of 2e13, the 16 lost are 8e-13."""
    link = [("b", "c", 1e-3), ("c", "b", 1e-3)]
    benefit = BenefitGraph.from_edges([*with_pair(2e13).edges(), *link], NAMES)
    text = form(benefit, RIVALS).certificate.to_json()
    assert refused(text) == (set(), set())
    worse = [["a", "b"], ["c", "d"], ["e"]]
    forged = claiming(json.loads(text), worse, 2e13 + 2, 2e13 + 2)
    package, alone = refused(forged)
    assert "upper bound" in package & alone


def joined(first, second, exponent: int):
    """Two consortia side by side, the benefits of the first times a power of two."""
    edges, pairs, names = [], [], []
    for mark, (benefit, competition), factor in (("x", first, 2.0**exponent), ("y", second, 1.0)):
        names += [mark + name for name in benefit.participants]
        edges += [(mark + a, mark + b, w * factor) for a, b, w in benefit.edges()]
        pairs += [(mark + a, mark + b) for a, b in competition.pairs]
    return BenefitGraph.from_edges(edges, names), CompetitionGraph(pairs, names)


def of_some_worth(graphs):
    """The same, but the first two give each other something and do not compete."""
    benefit, competition = graphs
    a, b = benefit.participants[:2]
    edges = {(one, other): w for one, other, w in benefit.edges()}
    edges |= {(a, b): 1.0 + edges.get((a, b), 0.0), (b, a): 0.7 + edges.get((b, a), 0.0)}
    pairs = [pair for pair in competition.pairs if set(pair) != {a, b}]
    named = [(*edge, w) for edge, w in edges.items()]
    return (
        BenefitGraph.from_edges(named, benefit.participants),
        CompetitionGraph(pairs, benefit.participants),
    )


VALUABLE = graphs(min_n=2, max_n=4).map(of_some_worth)


@given(VALUABLE, VALUABLE, st.integers(0, 300))
@settings(max_examples=60, deadline=None)
def test_scaling_one_component_up_never_hides_the_loss_of_another(first, second, exponent):
    instance = joined(first, second, exponent)
    formation = form(*instance)
    text = formation.certificate.to_json()
    assert refused(text) == (set(), set())
    assert Certificate.from_json(text).formation().optimal
    apart = [group for group in formation.coalitions if group[0].startswith("x")]
    apart += [(name,) for name in instance[0].participants if name.startswith("y")]
    worth = math.fsum(
        w for a, b, w in instance[0].edges() if any(a in group and b in group for group in apart)
    )
    forged = claiming(json.loads(text), apart, worth, worth)
    package, alone = refused(forged)
    assert "upper bound" in package
    assert "upper bound" in alone


def test_without_a_proof_the_search_judges_by_component_too():
    """Eighteen participants beside the pair: too many to compare all partitions."""
    second = random_graphs(18, 0.5, 0.1, seed=3)
    instance = joined((with_pair(2.0), RIVALS), second, 44)
    formation = form(*instance, time_limit=5)
    assert formation.optimal
    document = json.loads(formation.certificate.to_json())
    assert document.pop("proof")
    honest = Certificate.from_json(claiming(document, *stated(formation))).check()
    (bound,) = (claim for claim in honest.claims if claim.claim == "upper bound")
    assert bound.ok
    assert bound.searched
    assert bound.found.endswith("by searching again, without a proof")
    assert [claim.claim for claim in honest.claims if claim.searched] == ["upper bound"]

    large = max((g for g in formation.coalitions if g[0].startswith("y")), key=len)
    worse = [g for g in formation.coalitions if g != large] + [(name,) for name in large]
    worth = math.fsum(
        w for a, b, w in instance[0].edges() if any(a in group and b in group for group in worse)
    )
    forged = Certificate.from_json(claiming(document, worse, worth, worth)).check()
    (bound,) = (claim for claim in forged.claims if claim.claim == "upper bound")
    assert not bound.ok
    assert bound.found.startswith("refuted; ")


def stated(formation):
    return formation.coalitions, formation.welfare, formation.upper_bound


def test_a_proof_is_not_said_to_be_searched():
    certificate = form(*random_graphs(18, 0.5, 0.1, seed=3), time_limit=5).certificate
    assert certificate.proof
    assert not any(claim.searched for claim in certificate.check().claims)


def test_an_honest_gap_too_small_for_the_sum_is_stated_above_it(monkeypatch):
    """Without its proof, the component of 18 stays open: the bound must not look reached."""
    second = random_graphs(18, 0.5, 0.1, seed=3)
    formation = form(*joined((with_pair(2.0), RIVALS), second, 80), time_limit=5)
    assert states_optimum(formation.upper_bound, formation.welfare)
    monkeypatch.setattr("fedegoists.coalitions.certificate.prove", lambda _: ())
    certificate = formation.certificate
    assert not certificate.formation().optimal
    assert "this certificate proves" in certificate.notes[-1]
    assert refused(certificate.to_json()) == (set(), set())


def test_the_bound_is_the_welfare_and_the_open_gaps():
    """The pair reaches its 2e17; the others are alone, and could have 18."""
    alone = [("a", "b"), ("c",), ("d",), ("e",)]
    proven = proven_bound(with_pair(2e17), RIVALS, alone, [], enough=2e17)
    assert isinstance(proven, ProvenBound)
    assert [part.closed for part in proven.parts] == [True, False]
    assert proven.welfare == proven.known == Fraction(2e17) + 18


def test_a_closed_component_counts_with_what_the_coalitions_reach():
    """a and c compete for b; {b, c} is worth 4.4e-15 more, ten last places of 2.5.

    The fairest coalitions are {a, b} and {c}, the first in order of two that help one more each.
    """
    more = 1.5 + 20 * 2.0**-52
    edges = [("a", "b", 1.5), ("b", "a", 1.0), ("b", "c", 1.0), ("c", "b", more)]
    benefit = BenefitGraph.from_edges(edges, ["a", "b", "c"])
    rivals = CompetitionGraph([("a", "c")], ["a", "b", "c"])
    apart = [("a", "b"), ("c",)]
    proven = proven_bound(benefit, rivals, apart, [], enough=2.5)
    assert [part.known - part.own for part in proven.parts] == [20 * proven.unit // 2**52]
    assert proven.closed
    assert proven.known == proven.welfare == Fraction(5, 2)

    formation = form(benefit, rivals, objective="fair")
    assert formation.coalitions == tuple(apart)
    assert refused(formation.certificate.to_json()) == (set(), set())


@given(graphs(min_n=2, max_n=5), st.data())
@settings(max_examples=100, deadline=None)
def test_a_component_counts_the_same_in_what_is_known_and_in_the_bound(instance, data):
    """With benefits that differ in their last places; all partitions of five are compared."""
    benefit, competition = instance
    places = data.draw(st.lists(st.integers(0, 40), min_size=benefit.n**2, max_size=benefit.n**2))
    nudged = benefit.weights * (1 + np.reshape(places, benefit.weights.shape) * 2.0**-52)
    benefit = BenefitGraph(nudged, benefit.participants)
    partition = data.draw(st.sampled_from([*valid_partitions(benefit, competition)]))
    groups = [tuple(benefit.participants[i] for i in group) for group in partition]
    reached = sum(Fraction(benefit.weights[i, j]) for g in partition for i in g for j in g)
    proven = proven_bound(benefit, competition, groups, [], enough=float(reached))
    assert reached <= proven.known <= proven.welfare
    assert (proven.known == reached) is proven.closed


def test_what_rounding_takes_from_many_components_does_not_add_up():
    """Bounds are prices, which are rounded up: 10¹⁴ + 1 in place of 10¹⁴, and no further."""
    rounded = ComponentBound(("a", "b"), 10**14, 10**14 + 1, 10**14)
    lacking = ComponentBound(("a", "b"), 10**14, 10**14 + 2, 10**14)
    assert rounded.counted == check.counted_part(10**14 + 1, 10**14) == 10**14
    assert lacking.counted == check.counted_part(10**14 + 2, 10**14) == 10**14 + 2
    assert ProvenBound((rounded,) * 1000).closed
    assert ProvenBound((rounded,) * 1000).welfare == 10**17
    assert not ProvenBound((rounded, lacking)).closed
