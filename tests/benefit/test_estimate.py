"""The edge rules and the standard error, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import t as student

from fedegoists.benefit import BenefitEstimate
from fedegoists.benefit.validation_halves import confidence_above_zero, standard_error
from fedegoists.errors import SettingsError

NAMES = ("a", "b", "c")


def estimate(weights, gains=None, savings=None, **more) -> BenefitEstimate:
    runs = np.broadcast_to(np.array(weights, float), (2, 2, 3, 3))
    return BenefitEstimate(
        NAMES,
        "by hand",
        runs,
        runs if gains is None else gains,
        runs.mean((0, 1)) if savings is None else np.array(savings, float),
        **more,
    )


WEIGHTS = [[0, 0.1, 0.2], [0.3, 0, 0.4], [0.05, 0, 0]]


def test_the_fixed_threshold_keeps_what_is_above_it():
    edges = list(estimate(WEIGHTS).graph(0.2).edges())
    assert edges == [("b", "a", 0.3), ("b", "c", 0.4)]


def test_the_confident_rule_by_hand():
    """Gains of 1 with a standard error of 0.4: certain at 0.9, not at 0.95.

    Both repeats have halves 1 ± 0.4, so half the difference is 0.4 and repeats agree. Student's t
    with two degrees of freedom is 1.886 at 0.9 and 2.920 at 0.95.
    """
    gains = np.zeros((2, 2, 3, 3))
    gains[:, 0, 0, 1], gains[:, 1, 0, 1] = 1.4, 0.6
    found = estimate(WEIGHTS, gains)
    assert found.confidences()[0, 1] == pytest.approx(0.9352, abs=1e-4)  # t = 1/0.4
    assert list(found.graph(confidence=0.9).edges()) == [("a", "b", 0.1)]
    assert list(found.graph(confidence=0.95).edges()) == []
    # However sure, no edge where the estimate is that nothing is saved.
    none_saved = estimate(WEIGHTS, gains, savings=np.zeros((3, 3)))
    assert list(none_saved.graph(confidence=0.9).edges()) == []


def test_runs_without_halves_have_one_degree_of_freedom_less():
    """Two repeats with gains 0.8 and 1.2: their mean 1 has the error 0.2, and t(0.95, 1) = 6.314.

    So 1 − 6.314 · 0.2 < 0: not certain, though with two degrees it would be (1 − 2.920 · 0.2 > 0).
    """
    gains = np.zeros((2, 1, 3, 3))
    gains[:, 0, 0, 1] = 0.8, 1.2
    found = estimate(WEIGHTS, gains)
    assert found.confidences()[0, 1] == pytest.approx(0.5 + math.atan(5) / math.pi)
    assert list(found.graph().edges()) == []


@pytest.mark.parametrize(("halves", "data", "training"), [(1, 0, 1), (2, 0.02, 1), (2, 1, 0.02)])
def test_of_gains_of_nothing_one_in_twenty_seems_certain(halves, data, training):
    """Many gains of zero, three repeats: at 0.95 about 0.05 of them are taken for more."""
    rng = np.random.default_rng(0)
    many = 20_000
    error = rng.normal(0, data, many)  # the same in all repeats: there is only this much data
    runs = error + rng.normal(0, training, (3, 1, many))
    if halves == 2:
        apart = rng.normal(0, data, (3, 1, many))
        runs = np.concatenate([runs + apart, runs - apart], 1)
    assert (confidence_above_zero(runs) > 0.95).mean() == pytest.approx(0.05, abs=0.006)


@given(
    arrays(float, (3, 2, 3, 3), elements=st.floats(-10, 10)),
    arrays(float, (3, 3), elements=st.floats(-1, 1)),
    st.floats(0.5, 0.999),
)
def test_confidences_are_those_of_the_graph(gains, savings, confidence):
    """Both by the same rule, and this by its formula: mean − t(confidence) · error > 0.

    The error is that of halves and of repeats together, with degrees of freedom by Welch and
    Satterthwaite, three and two of their parts.
    """
    data = (((gains[:, 0] - gains[:, 1]) / 2) ** 2).mean(0)
    training = gains.mean(1).var(0, ddof=1) / 3
    both = data + training
    whole = np.where(both > 0, both, 1.0)
    inverse = np.where(both > 0, (data / whole) ** 2 / 3 + (training / whole) ** 2 / 2, 1 / 3)
    bound = gains.mean((0, 1)) - student.ppf(confidence, 1 / inverse) * np.sqrt(both)
    found = estimate(np.ones((3, 3)), gains, savings)
    expected = (bound > 0) & (savings > 0) & ~np.eye(3, dtype=bool)
    clear = np.abs(bound) > 1e-9 * (1 + np.abs(gains).max())  # of ties nothing is claimed
    edges = found.graph(confidence=confidence).weights > 0
    assert np.array_equal(edges[clear], expected[clear])
    assert np.array_equal(edges, found.confidences() > confidence)


def test_who_was_absent_has_no_edges():
    graph = estimate(WEIGHTS, absent=("b",)).graph(0.0)
    assert list(graph.edges()) == [("a", "c", 0.2), ("c", "a", 0.05)]


def test_rules_out_of_range_are_named():
    with pytest.raises(SettingsError, match="not both"):
        estimate(WEIGHTS).graph(0.1, confidence=0.9)
    with pytest.raises(SettingsError, match=r"confidence is 1\.5"):
        estimate(WEIGHTS).graph(confidence=1.5)
    with pytest.raises(SettingsError, match=r"confidence is 0\.0"):
        estimate(WEIGHTS).graph(confidence=0.0)
    with pytest.raises(SettingsError, match="threshold is -1"):
        estimate(WEIGHTS).graph(-1.0)
    with pytest.raises(SettingsError, match="repeats of at least 2"):
        standard_error(np.zeros((1, 1, 3, 3)))


@given(arrays(float, (3, 2, 2), elements=st.floats(-100, 100)))
def test_the_standard_error_ignores_a_shift_and_follows_a_scale(runs):
    error = standard_error(runs)
    np.testing.assert_allclose(standard_error(runs + 5), error, atol=1e-9)
    np.testing.assert_allclose(standard_error(-3 * runs), 3 * error, atol=1e-9)


def test_halves_give_the_standard_error_of_the_whole():
    """Means of random halves of many data sets: the error is σ/√n in the mean."""
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(400):
        data = rng.normal(0, 2.0, 64)
        runs = np.empty((4, 2, 1))
        for repeat in range(4):
            runs[repeat, :, 0] = rng.permutation(data).reshape(2, 32).mean(1)
        errors.append(standard_error(runs)[0] ** 2)
    assert np.mean(errors) ** 0.5 == pytest.approx(2.0 / 8, rel=0.05)


def test_weights_are_written_in_full():
    lines = estimate(WEIGHTS).weights_csv().decode().splitlines()
    assert lines[0] == "source,target,weight"
    assert len(lines) == 7
    assert "c,b,0.0" in lines
