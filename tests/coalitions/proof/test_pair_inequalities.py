"""Inequalities over pairs hold for every valid partition; their prices prove bounds, or nothing."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, form
from fedegoists.coalitions.certificate import Claim
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.pair_relaxation import PairRelaxation
from fedegoists.coalitions.proof import check
from fedegoists.coalitions.proof.coalition_listing import Allowance, ProofError
from fedegoists.coalitions.proof.pair_inequalities import (
    KINDS,
    NoInequalityError,
    PairInequality,
    SquareInequality,
    read_inequality,
)
from fedegoists.coalitions.proof.price_proof import (
    BetterPartitionError,
    ExactConsortium,
    PriceProof,
)
from tests.coalitions.proof.test_check import sealed
from tests.instances import graphs, random_graphs, valid_partitions

CHAIN = ["a", "b", "c"]
PAIRS = [("a", "b", 2), ("b", "a", 2), ("b", "c", 1), ("c", "b", 2)]
BENEFIT = BenefitGraph.from_edges(PAIRS, CHAIN)
RIVALS = CompetitionGraph([("a", "c")], CHAIN)


@st.composite
def inequalities(draw, n: int) -> PairInequality:
    centre, *others = draw(st.permutations(range(n)))
    kind = draw(st.sampled_from(KINDS if n > 3 else ("star", "givers", "takers")))
    lengths = [3, 5] if kind == "wheel" else list(range(1, n))
    size = draw(st.sampled_from([one for one in lengths if one < n]))
    return PairInequality(kind, centre, tuple(others[:size]))


def both_ways(benefit, competition, i):
    """The givers and takers of a participant among its independents."""
    names = benefit.participants
    free = [k for k in range(benefit.n) if not competition.competes(names[k], names[i])]
    weights = benefit.weights
    return [k for k in free if weights[k, i] > 0], [k for k in free if weights[i, k] > 0]


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_every_valid_partition_satisfies_every_inequality(data):
    benefit, competition = data.draw(graphs(min_n=3, max_n=6))
    row = data.draw(inequalities(benefit.n))
    givers, takers = both_ways(benefit, competition, row.centre)
    for partition in valid_partitions(benefit, competition):
        home = {i: k for k, group in enumerate(partition) for i in group}
        terms = row.terms(givers, takers)
        assert sum(a for (i, j), a in terms if home[i] == home[j]) <= row.right_side


def squares(n: int):
    small = st.sampled_from((-3, -2, -1, 0, 1, 2, 1000))
    return st.builds(SquareInequality, st.tuples(*[small] * n))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_every_valid_partition_satisfies_every_square(data):
    benefit, competition = data.draw(graphs(min_n=2, max_n=6))
    row = data.draw(squares(benefit.n))
    for partition in valid_partitions(benefit, competition):
        home = {i: k for k, group in enumerate(partition) for i in group}
        left = sum(a for (i, j), a in row.terms() if home[i] == home[j])
        assert left <= row.right_side


def test_the_right_side_of_a_square_can_be_reached():
    """1, 1, -1 and -1: two pairs of 1 and -1 have totals of zero."""
    row = SquareInequality((1, 1, -1, -1))
    factors = dict(row.terms())
    assert factors[0, 2] + factors[1, 3] == row.right_side == 4
    assert SquareInequality((2, 3)).right_side == 4 + 9 - 5


@given(st.integers(4, 8).flatmap(inequalities), squares(8))
def test_an_inequality_is_read_as_it_was_written(row, square):
    numbers = list(range(8))
    assert read_inequality(row.to_text(), numbers) == row
    assert read_inequality(square.to_text(), numbers) == square


def test_the_numbers_of_a_square_are_in_the_order_of_the_members():
    assert read_inequality("square 5 6 7", [2, 0, 1]) == SquareInequality((6, 7, 5))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("star 0", "different participants"),
        ("star 0 1 1", "different participants"),
        ("star 0 0 1", "different participants"),
        ("star 0 8", "different participants"),
        ("star 0 -1", "a kind and numbers"),
        ("star 0  1", "a kind and numbers"),
        ("star", "a kind and numbers"),
        ("", "a kind and numbers"),
        ("wheel 0 1", "not odd, or too short"),
        ("wheel 0 1 2 3 4", "not odd, or too short"),
        ("star " + " ".join(map(str, range(202))), "too long"),
        ("clique 0 1 2", "there is no inequality"),
        ("square", "a kind and numbers"),
        ("square 1 2 3", "one number for each"),
        ("square 1 2 3 4 5 6 7 8 9", "one number for each"),
        ("square 1 2 3 4 5 6 7 0.5", "whole numbers"),
        ("square 1 2 3 4 5 6 7 --8", "whole numbers"),
        ("square 1 2 3 4 5 6 7 1000000000001", "too large"),
    ],
)
def test_other_texts_are_refused(text, problem):
    with pytest.raises(NoInequalityError, match=problem):
        read_inequality(text, range(8))


def test_a_star_with_a_price_proves_what_its_right_side_costs():
    """b is with a (worth 4) or with c (worth 3): x_ba + x_bc - x_ac ≤ 1, and 4 covers both."""
    (component,) = ExactConsortium(BENEFIT, RIVALS, 1).components()
    entry = PriceProof(tuple(CHAIN), (0.0,) * 3, 4.0, rows=("star 1 0 2",), row_prices=(4.0,))
    component.confirm(entry, Allowance())
    with pytest.raises(ProofError, match="worth more"):
        component.confirm(replace(entry, row_prices=(3.5,)), Allowance())
    with pytest.raises(BetterPartitionError):
        component.confirm(replace(entry, at_most=3.9), Allowance())
    with pytest.raises(ProofError, match="one price for each inequality"):
        component.confirm(replace(entry, row_prices=()), Allowance())
    with pytest.raises(ProofError, match="negative"):
        component.confirm(replace(entry, row_prices=(-1.0,)), Allowance())
    with pytest.raises(ProofError, match="more steps"):
        component.confirm(entry, Allowance(0))


def stand_alone(benefit, competition, entry: PriceProof) -> bool:
    """Whether the stand-alone checker confirms an entry."""
    document = {"benefit": benefit.to_dict(), "competition": competition.to_dict()}
    graphs_ = check.BothGraphs(json.loads(json.dumps(document)))
    part = sum(1 << graphs_.number[name] for name in entry.members)
    try:
        written = json.loads(json.dumps(entry.to_dict()))
        check.priced_bound(graphs_, part, written, check.StepCount())
    except check.RefutedError:
        return False
    return True


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_prices_of_inequalities_that_are_confirmed_bound_every_partition(data):
    """The heart of the matter, for both checkers, which agree."""
    benefit, competition = data.draw(graphs(min_n=3, max_n=6))
    price = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0])
    for one in ExactConsortium(benefit, competition, 1).components():
        n = len(one.members)
        if n < 3:
            continue
        rows = data.draw(st.lists(st.one_of(inequalities(n), squares(n)), max_size=4))
        entry = PriceProof(
            one.members,
            tuple(data.draw(price) for _ in one.members),
            0.0,
            rows=tuple(row.to_text() for row in rows),
            row_prices=tuple(data.draw(price) for _ in rows),
        )
        paid = sum(p * row.right_side for p, row in zip(entry.row_prices, rows, strict=True))
        factor = data.draw(st.sampled_from([1.0, 0.9, 0.75, 0.5]))
        entry = replace(entry, at_most=factor * (sum(entry.prices) + paid))
        try:
            one.confirm(entry, Allowance())
            holds = True
        except ProofError:
            holds = False
        if holds or stand_alone(benefit, competition, entry):
            assert one.highest_welfare(Allowance()) <= one.in_units(entry.at_most)
        if holds:
            assert stand_alone(benefit, competition, entry)


def relaxed(benefit, competition, members) -> PriceProof:
    rows = [benefit.participants.index(name) for name in members]
    weights, rivals = benefit.weights[np.ix_(rows, rows)], competition.matrix[np.ix_(rows, rows)]
    weights = np.where(rivals, 0.0, weights)
    relaxation = PairRelaxation(weights + weights.T, weights > 0, rivals, 0.0, Effort(5.0))
    relaxation.run()
    found = relaxation.prices
    return PriceProof(
        tuple(members),
        tuple(found.prices),
        found.total,
        rows=tuple(found.rows),
        row_prices=tuple(found.row_prices),
    )


@given(graphs(min_n=3, max_n=7))
@settings(max_examples=60, deadline=None)
def test_the_relaxation_never_bounds_below_the_optimum_and_its_prices_are_confirmed(instance):
    for one in ExactConsortium(*instance, 1).components():
        entry = relaxed(*instance, one.members)
        assert one.in_units(entry.at_most) >= one.highest_welfare(Allowance())
        one.confirm(entry, Allowance())
        assert stand_alone(*instance, entry)


def test_squares_count_where_all_benefits_are_whole_numbers():
    """The price of a square, 2^-41 here, must not be rounded to nothing."""
    names = ["a", "b"]
    benefit = BenefitGraph.from_edges([("a", "b", 1.0), ("b", "a", 1.0)], names)
    instance = benefit, CompetitionGraph([], names)
    entry = relaxed(*instance, names)
    (one,) = ExactConsortium(*instance, 1).components()
    assert min(entry.row_prices) == 2.0**-41
    one.confirm(entry, Allowance())
    assert stand_alone(*instance, entry)


def forged(rng: random.Random, entry: PriceProof) -> tuple[str, PriceProof]:
    """Change an inequality or its price so that the entry proves nothing."""
    kinds = ["lower price", "dropped", "unknown", "twice", "longer", "even wheel"]
    kind = rng.choice([*kinds, "smaller square", "square of a half"])
    k = max(range(len(entry.rows)), key=lambda k: entry.row_prices[k])
    rows, prices = list(entry.rows), list(entry.row_prices)
    first_square = [int(u) for u in rows[0].split(" ")[1:]]
    if "square" in kind:
        half = 0.5 if kind == "square of a half" else 0
        shorter = (int(u * 0.9) + half for u in first_square)
        rows[0] = " ".join(("square", *map(str, shorter)))
        return kind, replace(entry, rows=tuple(rows))
    centre, first, *_ = rows[k].split(" ")[1:]
    if kind == "lower price":
        prices[k] *= 0.5
    elif kind == "dropped":
        del rows[k], prices[k]
    elif kind == "unknown":  # would say that nobody is with the centre
        rows[k] = rows[k].replace(rows[k].split(" ")[0], "nobody")
    elif kind == "twice":
        rows[k] += f" {first}"
    elif kind == "longer":
        del prices[k]
    else:
        rows[k] = f"wheel {centre} {first}"
    return kind, replace(entry, rows=tuple(rows), row_prices=tuple(prices))


@pytest.mark.slow
def test_forged_inequalities_in_resealed_certificates_are_rejected():
    rng = random.Random(1)
    kinds = set()
    formation = form(*random_graphs(18, 1.0, 0.1, seed=2), time_limit=5)
    honest = formation.certificate
    entry = relaxed(formation.benefit, formation.competition, formation.participants)
    claims = tuple(
        Claim(one.claim, one.status, entry.at_most) if one.claim == "upper bound" else one
        for one in honest.claims
    )
    text = replace(honest, proof=(entry,), claims=claims).to_json()
    assert check.check(text)[0]
    assert Certificate.from_json(text).check().ok
    for _ in range(40):
        kind, wrong = forged(rng, entry)
        kinds.add(kind)
        document = json.loads(text)
        document["proof"] = [json.loads(json.dumps(wrong.to_dict()))]
        text_of_it = sealed(document)
        found = check.check(text_of_it)
        assert not found[0], kind
        assert not Certificate.from_json(text_of_it).check().ok, kind
    assert len(kinds) == 8


def test_an_error_planted_in_the_prices_of_pairs_is_caught():
    """Prices that are too low, and a bound below the optimum: the certificate does not state it."""
    formation = form(*random_graphs(18, 1.0, 0.1, seed=2), time_limit=5)
    assert formation.optimal
    entry = relaxed(formation.benefit, formation.competition, formation.participants)
    wrong = replace(
        entry,
        row_prices=tuple(0.8 * price for price in entry.row_prices),
        at_most=0.8 * entry.at_most,
    )
    assert wrong.at_most < formation.welfare
    misled = replace(formation, prices=(wrong,), upper_bound=formation.welfare)
    certificate = misled.certificate
    (stated,) = (claim.value for claim in certificate.claims if claim.claim == "upper bound")
    assert stated >= formation.welfare
    assert not certificate.proof
    assert certificate.check().ok
    assert check.check(certificate.to_json())[0]
