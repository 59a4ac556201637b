"""Uncertain benefits: what the probabilities mean, files, scenarios, and more doubt."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import UncertainBenefits
from fedegoists.coalitions.value_principles import likelihoods_of
from fedegoists.errors import GraphError
from fedegoists.graphs.uncertain_benefits import LISTED_Z, has_errors


def random_benefits(seed: int, n: int = 5, error: float = 0.3) -> UncertainBenefits:
    random = np.random.default_rng(seed)
    real = random.random((n, n)) < 0.5
    size = random.uniform(0.1, 1, (n, n))
    errors = error * size
    weights = np.maximum(real * size + errors * random.standard_normal((n, n)), 0)
    np.fill_diagonal(errors, 0)
    np.fill_diagonal(weights, 0)
    return UncertainBenefits(weights, errors, [f"p{k}" for k in range(n)])


@st.composite
def estimates(draw):
    n = draw(st.integers(2, 5))
    number = st.floats(0, 10).map(lambda x: round(x, 3))
    weights = np.array(draw(st.lists(number, min_size=n * n, max_size=n * n))).reshape(n, n)
    errors = np.array(draw(st.lists(number, min_size=n * n, max_size=n * n))).reshape(n, n)
    np.fill_diagonal(weights, 0)
    np.fill_diagonal(errors, 0)
    return weights, errors


def test_probabilities_of_a_small_case_by_hand():
    # Two pairs, both listed: π = 1 / (0.95 · 2). At z = 2, Φ = 0.97725 and φ = 0.05399.
    doubt = UncertainBenefits([[0, 0.2], [0.4, 0]], [[0, 0.1], [0.1, 0]])
    share = 1 / 1.9
    assert doubt.null_share == pytest.approx(share)
    odds = (1 - share) / share * 0.977250 / (6 * 0.0539910)
    assert doubt.probabilities[0, 1] == pytest.approx(odds / (1 + odds), rel=1e-5)
    p, q = doubt.probabilities[0, 1], doubt.probabilities[1, 0]
    # Each of the two receives with one of them and gives with the other.
    assert doubt.safety([[True, True]])[0] == pytest.approx((p * q) ** 2)
    assert doubt.safety([[True, False]])[0] == 1


def test_false_edges_are_recognised_by_their_number():
    # The same z-value of 2.2 is worth less the more pairs there were to find it by chance.
    chances = []
    for n in (2, 5, 20):
        weights, errors = np.zeros((n, n)), np.zeros((n, n))
        weights[0, 1], errors[0, 1] = 2.2, 1.0
        chances.append(float(UncertainBenefits(weights, errors).probabilities[0, 1]))
    assert chances[0] > chances[1] > chances[2]
    assert chances[2] < 0.05


def test_probabilities_promise_no_more_than_is_true():
    """Of the benefits with a probability of about p, about p are real, or more.

    More, as weak benefits that are not listed count as none, so that the null share is high.
    """
    random = np.random.default_rng(0)
    stated, real = [], []
    for _ in range(40):
        n = 20
        truth = random.random((n, n)) < 0.3
        sizes = random.uniform(0, 6, (n, n))  # of real benefits, in standard errors
        z = np.where(truth, sizes, 0) + random.standard_normal((n, n))
        z = np.maximum(z, 0) * ~np.eye(n, dtype=bool)
        p = UncertainBenefits(z, 1.0 - np.eye(n)).probabilities
        stated.append(p[p > 0])
        real.append(truth[p > 0])
    p, real = np.concatenate(stated), np.concatenate(real)
    for low, high in ((0.3, 0.6), (0.6, 0.9), (0.9, 1.01)):
        inside = (p >= low) & (p < high)
        assert inside.sum() > 100
        assert -0.03 < real[inside].mean() - p[inside].mean() < 0.15


@given(estimates(), st.floats(1, 5), st.data())
@settings(max_examples=60, deadline=None)
def test_more_doubt_never_raises_a_promise(given_estimates, factor, data):
    weights, errors = given_estimates
    before = UncertainBenefits(weights, errors)
    j, i = data.draw(st.permutations(range(len(weights))).map(lambda order: order[:2]))
    larger = errors.copy()
    larger[j, i] = factor * larger[j, i] + data.draw(st.floats(0, 1))
    for after in (
        UncertainBenefits(weights, larger),
        UncertainBenefits(weights, factor * errors),
    ):
        assert (after.promised <= before.promised * (1 + 1e-12)).all()
        assert after.null_share >= before.null_share
        whole = np.ones((1, len(weights)), dtype=bool)
        assert after.safety(whole)[0] <= before.safety(whole)[0] * (1 + 1e-12)


@given(estimates())
@settings(max_examples=60, deadline=None)
def test_without_errors_all_is_certain(given_estimates):
    weights, _ = given_estimates
    sure = UncertainBenefits(weights, np.zeros_like(weights))
    assert sure.certain
    assert (sure.promised == weights).all()
    assert (sure.graph.weights == weights).all()
    assert (sure.scenarios(3) == weights).all()


@pytest.mark.parametrize("seed", range(6))
def test_safety_is_a_lower_bound_by_trying_all_cases(seed):
    doubt = random_benefits(seed, n=3)
    pairs = [(j, i) for j in range(3) for i in range(3) if doubt.probabilities[j, i] > 0]
    exact = 0.0
    for case in product((False, True), repeat=len(pairs)):
        real = np.zeros((3, 3), dtype=bool)
        chance = 1.0
        for (j, i), there in zip(pairs, case, strict=True):
            real[j, i] = there
            chance *= doubt.probabilities[j, i] if there else 1 - doubt.probabilities[j, i]
        if real.any(axis=0).all() and real.any(axis=1).all():
            exact += chance
    bound = doubt.safety([[True] * 3])[0]
    assert bound <= exact * (1 + 1e-12)
    receives = doubt.receiving([[True] * 3])[0]
    assert exact <= receives.prod() * (1 + 1e-12)


def test_scenarios_are_reproducible_and_have_the_promised_mean():
    doubt = random_benefits(1)
    drawn = doubt.scenarios(4000, seed=7)
    assert (drawn[:50] == doubt.scenarios(50, seed=7)).all()
    assert (drawn[:50] != doubt.scenarios(50, seed=8)).any()
    assert ((drawn > 0).mean(axis=0)) == pytest.approx(doubt.probabilities, abs=0.04)
    assert drawn.mean(axis=0) == pytest.approx(doubt.promised, abs=0.04)


def test_the_checker_derives_the_same_with_its_own_code():
    for seed in range(5):
        doubt = random_benefits(seed)
        known = likelihoods_of(doubt)
        names = doubt.participants
        for j, i in np.argwhere(doubt.probabilities > 0).tolist():
            assert known.real[names[j], names[i]] == pytest.approx(doubt.probabilities[j, i])
        assert len(known.real) == (doubt.probabilities > 0).sum()
        assert known.safety(names) == pytest.approx(doubt.safety([[True] * doubt.n])[0])
        drawn = doubt.scenarios(20, seed)
        for own, other in zip(drawn, known.scenarios(20, seed), strict=True):
            listed = {(names[j], names[i]): own[j, i] for j, i in np.argwhere(own > 0).tolist()}
            assert listed == pytest.approx(other)


def test_files_read_back_exactly(tmp_path):
    doubt = random_benefits(3)
    doubt.to_csv(tmp_path / "benefit.csv")
    assert has_errors(tmp_path / "benefit.csv")
    assert UncertainBenefits.from_csv(tmp_path / "benefit.csv", doubt.participants) == doubt
    assert UncertainBenefits.from_json(doubt.to_json()) == doubt
    part = doubt.restricted_to(["p3", "p1"])
    assert part.probabilities[0, 1] == doubt.probabilities[3, 1]
    again = UncertainBenefits.from_json(part.to_json())
    assert again == part
    assert again.null_share == doubt.null_share != part.relearned().null_share
    doubt.graph.to_csv(tmp_path / "plain.csv")
    assert not has_errors(tmp_path / "plain.csv")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("source,target,weight,error\na,b,1,-1\n", "the error of the benefit of 'a' to 'b' is -1"),
        ("source,target,weight,error\na,b,1,x\n", "line 2: 'x' is not a number"),
        ("source,target,weight,error\na,b,1,1\na,b,1,1\n", "line 3: the edge from 'a' to 'b' is"),
        ("source,target,weight,error\na,a,1,1\n", "line 2: 'a' cannot benefit itself"),
        ("source,target,weight,error\na,b,-1,1\n", "expected a finite number"),
    ],
)
def test_wrong_files_are_refused_with_their_place(tmp_path, text, problem):
    (tmp_path / "benefit.csv").write_text(text)
    with pytest.raises(GraphError, match=problem):
        UncertainBenefits.from_csv(tmp_path / "benefit.csv")


def test_wrong_values_are_refused():
    with pytest.raises(GraphError, match="null share"):
        UncertainBenefits([[0, 1], [1, 0]], [[0, 1], [1, 0]], null_share=1.5)
    with pytest.raises(GraphError, match="expected 1 to"):
        random_benefits(0).scenarios(0)
    for data in ({}, {"participants": [], "edges": 3}, {"participants": ["a"], "edges": [["a"]]}):
        with pytest.raises(GraphError):
            UncertainBenefits.from_dict(data)
    for row in (["a", "b", 1, 10**400], ["a", "b", 10**400, 1], ["a", "b", True, 1]):
        with pytest.raises(GraphError, match="a weight and an error"):
            UncertainBenefits.from_dict({"participants": ["a", "b"], "edges": [row]})


def test_a_pair_that_is_not_listed_has_no_benefit():
    below = UncertainBenefits([[0, LISTED_Z - 1e-6], [0, 0]], [[0, 1], [0, 0]])
    assert below.probabilities[0, 1] == 0
    assert math.isclose(LISTED_Z, 1.6448536269514722)
