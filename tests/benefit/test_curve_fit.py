"""Coalition values from planted learning curves, deviations and trials."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedegoists.benefit.curve_fit import (
    POWER,
    RIDGE_POWER,
    HomeScores,
    Measures,
    _target,
    coalition_parts,
    curve_values,
    derivative,
    fit_curves,
    fit_deviations,
    fit_gains,
    inverse_doublings,
    measured,
    sampled_coalitions,
    shrunk,
    with_absent,
)
from fedegoists.graphs import CurveValues

NAMES = ("North", "South", "East", "West", "Coast")
SAMPLES = np.array([80.0, 200.0, 120.0, 400.0, 100.0])


def planted(excess, deviations=None, noise=0.0, seed=0, repeats=3, truth=1.0, cost=1.0, **more):
    """Scores of curves that are known, with noise as large as the samples allow.

    Losses are one half at a half of the samples; the metric is minus the loss.
    """
    rng = np.random.default_rng(seed)
    excess, n = np.asarray(excess, float), len(excess)
    samples = more.pop("samples", SAMPLES[:n])
    tried = more.pop("tried", True)
    deviations = np.zeros((n, n)) if deviations is None else np.asarray(deviations, float)

    def seen(reached, shape):
        scatter = samples if len(shape) == 3 else samples[:, None]
        return reached + rng.normal(size=shape) * noise / np.sqrt(scatter / 2)

    half = np.full(n, -0.5)
    quarter = half - excess * (4**-POWER - 2**-POWER)
    fewer = np.minimum(samples[None] / samples[:, None], 1.0) / 2
    others = half[:, None] + excess[:, None] * (2**-POWER - fewer**POWER) - deviations
    company = np.ones((repeats, n, n), dtype=bool)
    empty = HomeScores(NAMES[:n], samples, None, None, **more)
    curves = fit_curves(
        Measures(quarter[None, None].repeat(2, 1), half[None, None].repeat(2, 1)), samples, POWER
    )
    growth, distance = (
        part[0] for part in coalition_parts(empty, deviations, curves, company[0, :1])
    )
    trial = half + truth * 2**-POWER * excess * growth - cost * distance
    three, four = (repeats, 2, n), (repeats, 2, n, n)
    scores = Measures(
        seen(quarter, three),
        seen(half, three),
        seen(trial, three) if tried else None,
        seen(others, four) if tried else None,
    )
    return HomeScores(NAMES[:n], samples, scores, scores, company if tried else None, **more)


def test_curves_without_noise_are_found():
    excess = [0.05, 0.02, 0.04, 0.01, 0.03]
    scores = planted(excess)
    assert fit_curves(scores.metric, scores.samples, POWER).excess == pytest.approx(
        excess, rel=1e-2
    )


def test_deviations_without_noise_are_found():
    deviations = np.zeros((5, 5))
    deviations[0, 1], deviations[2, 3] = 0.1, 0.02
    scores = planted([0.05, 0.02, 0.04, 0.01, 0.03], deviations)
    loss = scores.relative_loss
    found = fit_deviations(loss, scores, fit_curves(loss, scores.samples, POWER))
    assert found == pytest.approx(2 * deviations, abs=1e-3)  # in parts of a loss of one half


def test_deviations_that_noise_explains_are_none():
    for seed in range(20):
        scores = planted([0.02] * 5, noise=0.3, seed=seed)
        loss = scores.relative_loss
        found = fit_deviations(loss, scores, fit_curves(loss, scores.samples, POWER))
        assert (found > 0).mean() < 0.35


def test_a_small_deviation_counts_where_most_pairs_deviate():
    """Among silos that are all unlike, the same pair is less likely to be alike than elsewhere."""
    alike, unlike = np.zeros((5, 5)), 0.3 * (1 - np.eye(5))
    alike[0, 1] = alike[1, 0] = unlike[0, 1] = unlike[1, 0] = 0.03
    counted = []
    for deviations in (alike, unlike):
        found = []
        for seed in range(20):
            scores = planted([0.02] * 5, deviations, noise=0.3, seed=seed)
            loss = scores.relative_loss
            curves = fit_curves(loss, scores.samples, POWER)
            found.append(fit_deviations(loss, scores, curves)[[0, 1], [1, 0]].mean())
        counted.append(np.mean(found))
    assert counted[0] < 0.25 * counted[1]
    assert counted[1] > 0.02


@pytest.mark.parametrize(("n", "times", "counted"), [(5, 1.6, 0), (40, 1.6, 0.753), (5, 2, 1.049)])
def test_deviations_of_few_targets_must_be_clearer_than_those_of_many(n, times, counted):
    """All pairs deviate by so many standard errors, which few targets may do by chance.

    Of 5 targets, the usual square is that of 1.6² noises less 1 + 3 √(2/5): nothing. Of 40 it is
    1.6² − 1 − 3 √(2/40) = 0.889, so that 0.889 / 1.889 of 1.6 count; of 5, for 2², 1.103 / 2.103.
    """
    half = np.full((1, 2, n), -1.0)
    noise = 0.01 * np.array([1.0, -1.0])[None, :, None, None]
    others = -1 - times * 0.01 + noise * np.ones((1, 2, n, n))
    scores = Measures(half, half, None, others)
    known = HomeScores(tuple(f"v{k}" for k in range(n)), np.full(n, 100.0), scores, scores)
    found = fit_deviations(scores, known, fit_curves(scores, known.samples, POWER))
    off = ~np.eye(n, dtype=bool)
    assert found[off] == pytest.approx(0.01 * counted, rel=1e-2)


def test_the_distance_of_a_common_model_is_the_one_worked_out_by_hand():
    """Two and two with opposite tasks: a quarter of δ for four, of three to one 1/16 and 9/16."""
    group = np.array([0, 0, 1, 1])
    deviations = 0.8 * (group[:, None] != group)
    scores = planted([0.02] * 4, deviations, samples=np.full(4, 100.0))
    curves = fit_curves(scores.loss, scores.samples, POWER)
    rows = np.array([[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 0], [1, 1, 0, 0]], dtype=bool)
    growth, distance = coalition_parts(scores, deviations, curves, rows)
    assert distance[0] == pytest.approx([0.2] * 4)
    assert distance[1, [0, 2]] == pytest.approx([0.2, 0.2])
    assert distance[2, :3] == pytest.approx([0.8 / 9, 0.8 / 9, 0.8 * 4 / 9])
    assert distance[3, :2] == pytest.approx([0.0, 0.0])
    assert growth[0, 0] == pytest.approx(1 - 1 / 4)  # four times the data, p = −1
    assert growth[3, 0] == pytest.approx(1 - 1 / 2)


@pytest.mark.parametrize(("truth", "cost"), [(1.0, 1.0), (0.5, 2.0), (1.4, 0.5)])
def test_the_trial_tells_how_true_curves_are_and_what_deviations_cost(truth, cost):
    group = np.array([0, 0, 0, 1, 1])
    deviations = 0.8 * (group[:, None] != group)
    fitted = fit_gains(planted([0.05, 0.02, 0.04, 0.01, 0.03], deviations, truth=truth, cost=cost))
    assert fitted.cost == pytest.approx(cost, rel=0.15)


def test_planted_exchange_rates_are_recovered():
    """Without deviations everybody's samples are worth one's own, as far as a trial says so."""
    values = curve_values(planted([0.04] * 4, samples=np.full(4, 100.0)), "auc")
    off = ~np.eye(4, dtype=bool)
    assert values.rates[off] == pytest.approx(1.0, abs=0.1)
    gains = values.gains([[True] * 4, [True, True, False, False]])
    assert gains[0] == pytest.approx([0.04 * 3 / 4] * 4, rel=0.15)
    assert gains[1, :2] == pytest.approx([0.04 / 2] * 2, rel=0.15)
    assert values.unit == "auc"


@settings(deadline=None)
@given(
    st.lists(st.floats(-0.3, 1.0), min_size=3, max_size=3),
    st.lists(st.floats(0.2, 4.0), min_size=3, max_size=3),
    st.sampled_from([POWER, RIDGE_POWER, -0.3]),
    st.floats(0.01, 0.1),
)
@example([1.0, -0.3, 0.0], [0.2, 4.0, 4.0], POWER, 0.01)
def test_any_planted_exchange_rates_are_recovered_from_gains(rates, ratios, power, excess):
    """Gains of one participant in all coalitions with three others, without noise.

    The ridge pulls the rate of a silo that is small beside the others most: 0.949 in the example.
    """
    slope = -power * np.log(2) * excess
    others = sampled_coalitions(4)[:, 1:][sampled_coalitions(4)[:, 0]]
    values = CurveValues(
        [1, *ratios],
        [slope, 0, 0, 0],
        [[0] * 4, *([rate, 0, 0, 0] for rate in rates)],
        powers=power,
    )
    rows = np.concatenate([np.ones((len(others), 1), bool), others], 1)
    gains = values.gains(rows)[:, 0]
    worth = others * np.array(ratios)
    found_slope, found, _ = _target(worth, gains, np.full(len(gains), 1e-6), power, excess)
    assert found_slope == pytest.approx(slope, rel=1e-6)
    assert found == pytest.approx(rates, abs=0.055)


@pytest.mark.parametrize("worth", [0.5, 1.0, 3.0])
def test_the_trial_tells_how_much_the_metric_gains(worth):
    """The loss gains in the trial what curves tell, the metric as much, half or three times."""
    plain = planted([0.04] * 4, samples=np.full(4, 100.0))
    metric = replace(
        plain.metric, trial=plain.metric.half + worth * (plain.metric.trial - plain.metric.half)
    )
    everybody = [[True] * 4]
    usual, other = (
        curve_values(scores, "auc").gains(everybody)[0]
        for scores in (plain, replace(plain, metric=metric))
    )
    assert other == pytest.approx(worth * usual, rel=1e-3)


def test_a_trial_whose_metric_is_noise_changes_little_and_adds_doubt():
    plain = planted([0.04] * 4, samples=np.full(4, 100.0))
    random = np.random.default_rng(0)
    metric = replace(
        plain.metric, trial=plain.metric.trial + random.normal(size=plain.metric.trial.shape)
    )
    everybody = [[True] * 4]
    usual, noisy = (
        curve_values(scores, "auc") for scores in (plain, replace(plain, metric=metric))
    )
    ratios = noisy.gains(everybody)[0] / usual.gains(everybody)[0]
    assert ((ratios > 0.5) & (ratios < 1.5)).all()
    assert (noisy.standard_errors(everybody) > usual.standard_errors(everybody)).all()


def test_curves_are_less_steep_where_weight_decay_suits_each_number_of_samples():
    plain = planted([0.04] * 4)
    assert plain.power == POWER
    assert replace(plain, ridge=True).power == RIDGE_POWER > POWER


def test_two_groups_help_inside_and_harm_across_and_harm_has_an_end():
    group = np.array([0, 0, 1, 1])
    deviations = 0.8 * (group[:, None] != group)
    values = curve_values(planted([0.02] * 4, deviations, samples=np.full(4, 100.0)), "auc")
    alike = (group[:, None] == group) & ~np.eye(4, dtype=bool)
    assert (values.rates[alike] > 0).all()
    assert (values.rates[group[:, None] != group] < 0).all()
    gains = values.gains([[True] * 4, [True, False, True, False]])
    assert gains[0] == pytest.approx([-0.2] * 4, abs=0.05)
    assert gains[1, [0, 2]] == pytest.approx([-0.2] * 2, abs=0.05)  # not a half of that


@settings(deadline=None)
@given(st.permutations(range(4)), st.integers(0, 1000))
def test_names_do_not_matter(order, seed):
    deviations = np.abs(np.random.default_rng(seed).normal(size=(4, 4))) * (1 - np.eye(4)) / 10
    scores = planted([0.05, 0.02, 0.04, 0.01], deviations, noise=0.1, seed=seed)
    one = curve_values(scores, "auc").restricted_to([NAMES[k] for k in order])
    own = scores.metric
    swapped = Measures(
        own.quarter[..., order],
        own.half[..., order],
        own.trial[..., order],
        own.others[..., order, :][..., order],
    )
    names = tuple(NAMES[k] for k in order)
    two = curve_values(
        HomeScores(names, scores.samples[order], swapped, swapped, scores.company), "auc"
    )
    coalitions = np.random.default_rng(0).random((8, 4)) < 0.7
    np.testing.assert_allclose(one.gains(coalitions), two.gains(coalitions), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        one.standard_errors(coalitions), two.standard_errors(coalitions), rtol=1e-4, atol=1e-7
    )


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_a_member_with_another_task_never_raises_a_gain(seed):
    deviations = np.zeros((4, 4))
    deviations[:3, 3] = deviations[3, :3] = 5.0
    scores = planted([0.05, 0.02, 0.04, 0.01], deviations, noise=0.02, seed=seed)
    gains = curve_values(scores, "auc").gains([[True] * 4, [True] * 3 + [False]])
    assert (gains[0, :3] <= gains[1, :3]).all()


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_a_member_without_similar_samples_is_worth_nothing(seed):
    labels = np.array([[60.0, 40.0, 0.0], [50.0, 50.0, 0.0], [0.0, 0.0, 100.0]])
    scores = planted([0.04] * 3, noise=0.05, seed=seed, samples=np.full(3, 100.0), labels=labels)
    values = curve_values(scores, "accuracy")
    gains = values.gains([[True, True, True], [True, True, False]])
    assert (gains[0, :2] <= gains[1, :2] + 1e-9).all()


def test_samples_count_as_far_as_their_classes_are_the_same():
    """South has 50 of North's class and 50 of another: half a sample of North's for each."""
    labels = np.array([[100.0, 0.0, 0.0], [50.0, 50.0, 0.0], [0.0, 0.0, 100.0]])
    scores = planted([0.04] * 3, samples=np.full(3, 100.0), labels=labels, tried=False)
    assert scores.ratios[0].tolist() == [1.0, 0.5, 0.0]
    values = curve_values(scores, "accuracy")
    assert values.rates[:, 0] == pytest.approx([0.0, 0.5, 0.0], abs=1e-3)
    assert values.rates[2] == pytest.approx(0.0, abs=1e-6)  # East is worth nothing to anybody


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.5), st.booleans())
def test_curves_are_concave_and_monotone_whatever_was_measured(seed, noise, tried):
    rng = np.random.default_rng(seed)
    scores = planted(
        rng.exponential(0.05, 4),
        rng.exponential(0.1, (4, 4)) * (1 - np.eye(4)),
        noise=noise,
        seed=seed,
        tried=tried,
    )
    values = curve_values(scores, "auc")
    helpful = CurveValues(
        values.samples, values.slopes, np.maximum(values.rates, 0.0), powers=values.powers
    )
    order = rng.permutation(3) + 1
    rows = np.zeros((4, 4), dtype=bool)
    rows[:, 0] = True
    for k, one in enumerate(order):
        rows[k + 1 :, one] = True
    gains = helpful.gains(rows)[:, 0]
    gains[0] = 0.0
    assert (np.diff(gains) >= -1e-12).all()
    x = rows[:, 1:] @ helpful.effects[1:, 0]
    steep = np.diff(gains)[np.diff(x) > 1e-9] / np.diff(x)[np.diff(x) > 1e-9]
    assert (np.diff(steep) <= 1e-9 + 1e-6 * np.abs(steep[:-1])).all()


def test_silos_of_which_a_score_is_not_defined_take_the_consortiums_curve():
    scores = planted([0.05, 0.05, 0.05], np.zeros((3, 3)), noise=0.05)
    for array in (scores.metric.quarter, scores.metric.half, scores.metric.trial):
        array[..., 2] = np.nan
    values = curve_values(scores, "auc")
    for numbers in (values.slopes, values.rates, values.rate_errors):
        assert np.isfinite(numbers).all()
    assert values.slopes[2] > 0


def test_absent_participants_gain_and_give_nothing():
    values = with_absent(CurveValues([10, 20], [1, 2], [[0, 1], [1, 0]], ["a", "c"]), list("abc"))
    gains = values.gains([[True, True, True], [True, False, True]])
    assert gains[0, 1] == 0
    assert gains[0].tolist() == gains[1].tolist()


@pytest.mark.parametrize("n", [4, 14])
def test_coalitions_that_are_valued_have_no_competitors(n):
    apart = np.zeros((n, n), dtype=bool)
    apart[0, 1] = apart[1, 0] = True
    rows = sampled_coalitions(n, apart)
    assert (rows.sum(1) > 1).all()
    assert not (rows[:, 0] & rows[:, 1]).any()
    assert rows.any(0).all()


def test_repeats_do_not_make_a_mean_more_certain_than_its_samples():
    halves = np.array([[[0.3], [0.1]]])
    once, error = measured(halves, np.array([100.0]))
    often, same = measured(halves.repeat(9, 0), np.array([100.0]))
    assert once == often == pytest.approx(0.2)
    assert error == pytest.approx([0.01])  # half the difference, squared
    assert same == pytest.approx([0.01])


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


def test_values_that_do_not_differ_are_pooled():
    values, variances = shrunk(np.array([0.1, 0.3]), np.array([0.04, 0.04]))
    assert values == pytest.approx([0.2, 0.2])
    assert variances == pytest.approx([0.02, 0.02])
