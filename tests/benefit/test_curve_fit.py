"""Coalition values from planted learning curves and deviations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.benefit.curve_fit import (
    MISFIT,
    HomeScores,
    curve_values,
    derivative,
    fit_curves,
    fit_deviations,
    inverse_doublings,
    pair_gains,
    shrunk,
    with_absent,
)
from fedegoists.graphs import CurveValues

NAMES = ("North", "South", "East", "West", "Coast")
SAMPLES = np.array([80.0, 200.0, 120.0, 400.0, 100.0])


def planted(excess, power, deviations=None, noise=0.0, seed=0, repeats=2, **more):
    """Scores of curves that are known, with noise as large as the samples allow."""
    rng = np.random.default_rng(seed)
    excess, n = np.asarray(excess, float), len(excess)
    samples = more.pop("samples", SAMPLES[:n])

    def seen(fraction, shape, count):
        errors = rng.normal(size=shape) * noise / np.sqrt(count)
        return 0.9 - excess * fraction**power + errors

    others = None
    if deviations is not None:
        ratios = samples[None] / samples[:, None]
        reached = 0.9 - excess[:, None] * ratios**power - np.asarray(deviations)
        errors = rng.normal(size=(repeats, 2, n, n)) * noise / np.sqrt(samples / 2)[:, None]
        others = reached + errors
    return HomeScores(
        NAMES[:n],
        samples,
        samples / 5,
        seen(0.25, (repeats, 2, n), samples / 2),
        seen(0.5, (repeats, 2, n), samples / 2),
        seen(0.5, (repeats, n), samples / 5),
        seen(1.0, (repeats, n), samples / 5),
        others,
        **more,
    )


def test_curves_without_noise_are_found():
    excess = [0.05, 0.02, 0.04, 0.01, 0.03]
    curves = fit_curves(planted(excess, -0.8))
    assert curves.power == pytest.approx(-0.8, abs=1e-3)
    assert curves.excess == pytest.approx(excess, rel=1e-2)


def test_deviations_without_noise_are_found():
    deviations = np.zeros((5, 5))
    deviations[0, 1], deviations[2, 3] = 0.1, 0.02
    scores = planted([0.05, 0.02, 0.04, 0.01, 0.03], -0.8, deviations)
    found, _ = fit_deviations(scores, fit_curves(scores))
    assert found == pytest.approx(deviations, abs=1e-3)


def test_the_gain_of_a_pair_is_the_one_worked_out_by_hand():
    """Equal sizes, p = −1: half of the excess is gained, and a quarter of the deviation lost."""
    deviations = np.zeros((3, 3))
    deviations[0, 1], deviations[1, 0] = 0.02, 0.2
    samples = np.full(3, 100.0)
    values = curve_values(planted([0.04] * 3, -1.0, deviations, samples=samples), "auc")
    gains, _ = pair_gains(values)
    assert gains[2, 0] == pytest.approx(0.04 / 2, rel=0.02)
    assert gains[1, 0] == pytest.approx(0.04 / 2 - 0.02 / 4, rel=0.02)
    assert gains[0, 1] == pytest.approx(0.04 / 2 - 0.2 / 4, rel=0.02)
    assert values.rates[2, 0] == pytest.approx(1.0, abs=0.02)
    assert 0 < values.rates[1, 0] < 1
    assert values.rates[0, 1] < 0
    assert values.unit == "auc"
    assert (values.slope_errors >= MISFIT * values.slopes).all()


def test_noise_does_not_bias_slopes_and_their_errors_are_honest():
    excess = 0.05 * (SAMPLES / 200) ** -0.5  # one curve for all
    fits = [fit_curves(planted(excess, -0.5, noise=0.1, seed=seed)) for seed in range(60)]
    # Endless data is far from what is measured; the next doubling is not.
    doubling = np.array([1 - 2**fit.power for fit in fits])[:, None]
    found = doubling * [fit.excess for fit in fits]
    errors = doubling * np.sqrt([fit.variance for fit in fits])
    expected = excess * (1 - 2**-0.5)
    assert found.mean() == pytest.approx(expected.mean(), rel=0.25)
    assert (np.abs(found - expected) < 1.645 * np.hypot(errors, MISFIT * found)).mean() > 0.8


def test_what_cannot_be_told_apart_is_pooled():
    """One silo's strange numbers count less, the fewer samples it has."""
    noisy = planted([0.03] * 5, -0.5, noise=0.5, seed=3)
    raw = (noisy.half - noisy.quarter).mean((0, 1))
    curves = fit_curves(noisy)
    assert curves.excess.std() < raw.std() / 2
    assert (curves.excess > 0).all()


@settings(deadline=None)
@given(st.permutations(range(4)), st.integers(0, 1000))
def test_names_do_not_matter(order, seed):
    deviations = np.abs(np.random.default_rng(seed).normal(size=(4, 4))) * (1 - np.eye(4)) / 10
    scores = planted([0.05, 0.02, 0.04, 0.01], -0.5, deviations, noise=0.1, seed=seed)
    one = curve_values(scores, "auc").restricted_to([NAMES[k] for k in order])
    swapped = HomeScores(
        tuple(NAMES[k] for k in order),
        scores.samples[order],
        scores.validation[order],
        scores.quarter[..., order],
        scores.half[..., order],
        scores.checked_half[..., order],
        scores.checked_all[..., order],
        scores.others[..., order, :][..., order],
    )
    two = curve_values(swapped, "auc")
    coalitions = np.random.default_rng(0).random((8, 4)) < 0.7
    np.testing.assert_allclose(one.gains(coalitions), two.gains(coalitions), atol=1e-9)
    np.testing.assert_allclose(
        one.standard_errors(coalitions), two.standard_errors(coalitions), atol=1e-9
    )


@given(st.integers(0, 1000))
def test_a_member_with_another_task_never_raises_a_gain(seed):
    deviations = np.zeros((4, 4))
    deviations[:3, 3] = 5.0
    scores = planted([0.05, 0.02, 0.04, 0.01], -0.5, deviations, noise=0.05, seed=seed)
    gains = curve_values(scores, "auc").gains([[True] * 4, [True] * 3 + [False]])
    assert (gains[0, :3] < gains[1, :3]).all()


def test_samples_count_as_far_as_their_classes_are_the_same():
    """South has 50 of North's class and 50 of another: half a sample of North's for each."""
    labels = np.array([[100.0, 0.0, 0.0], [50.0, 50.0, 0.0], [0.0, 0.0, 100.0]])
    samples = np.full(3, 100.0)
    scores = planted([0.04] * 3, -0.5, samples=samples, labels=labels)
    assert scores.ratios[0].tolist() == [1.0, 0.5, 0.0]
    values = curve_values(scores, "accuracy")
    assert values.rates[:, 0] == pytest.approx([0.0, 0.5, 0.0], abs=1e-6)
    assert values.rates[2] == pytest.approx(0.0, abs=1e-6)  # East is worth nothing to anybody


def test_silos_of_which_a_score_is_not_defined_take_the_consortiums_curve():
    scores = planted([0.05, 0.05, 0.05], -0.5, np.zeros((3, 3)), noise=0.05)
    for array in (scores.quarter, scores.half, scores.checked_half, scores.others):
        array[..., 2] = np.nan
    values = curve_values(scores, "auc")
    assert np.isfinite(values.slopes).all()
    assert np.isfinite(values.rates).all()
    assert values.slopes[2] > 0
    assert values.slope_errors[2] >= 0.9 * values.slope_errors[1]


def test_absent_participants_gain_and_give_nothing():
    values = with_absent(CurveValues([10, 20], [1, 2], [[0, 1], [1, 0]], ["a", "c"]), list("abc"))
    gains = values.gains([[True, True, True], [True, False, True]])
    assert gains[0, 1] == 0
    assert gains[0].tolist() == gains[1].tolist()


@given(
    st.floats(-1.5, -0.05),
    st.lists(st.floats(-5, 50), min_size=1, max_size=5),
)
def test_the_inverse_of_a_curve_is_its_inverse(power, places):
    n = len(places)
    rates = np.zeros((n + 1, n + 1))
    rates[n, :n] = places
    values = CurveValues([1] * (n + 1), [1] * (n + 1), rates, powers=power)
    pairs = np.eye(n, n + 1, dtype=bool)
    pairs[:, n] = True
    gains = values.gains(pairs).diagonal()
    np.testing.assert_allclose(inverse_doublings(gains, power), places, rtol=1e-6, atol=1e-6)
    step = 1e-6
    rates[n, :n] += step
    further = CurveValues([1] * (n + 1), [1] * (n + 1), rates, powers=power)
    rise = (further.gains(pairs).diagonal() - gains) / step
    np.testing.assert_allclose(rise, derivative(np.array(places), power), rtol=1e-2, atol=1e-6)


def test_a_mean_that_may_be_zero_is_taken_to_be_zero():
    values, errors = np.array([0.1, 0.3]), np.array([0.04, 0.04])
    assert shrunk(values, errors, mean_error=0.1)[0] == pytest.approx([0.0, 0.0])
    assert shrunk(values, errors, mean_error=0.01)[0] == pytest.approx([0.15, 0.15])
