"""Scores over test samples: as other libraries compute them, and with honest intervals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from fedegoists.learning.sample_scores import (
    BinaryScores,
    auc_interval,
    average_precision,
    calibration_groups,
    contributions,
    few_samples,
    gain_estimate,
    metric_interval,
    wilson,
    youden,
)

SAMPLES = st.lists(
    st.tuples(st.integers(0, 12).map(lambda k: k / 12), st.booleans()), min_size=2, max_size=60
).filter(lambda rows: len({label for _, label in rows}) == 2)


def arrays(rows):
    scores, labels = zip(*rows, strict=True)
    return np.array(scores), np.array(labels, dtype=float)


@given(SAMPLES)
@settings(max_examples=60, deadline=None)
def test_areas_are_those_of_scikit_learn(rows):
    scores, labels = arrays(rows)
    above, below = contributions("binary", scores, labels)
    expected = roc_auc_score(labels, scores)
    assert above.mean() == pytest.approx(expected)
    assert below.mean() == pytest.approx(expected)
    precision = average_precision(scores, labels > 0.5)
    assert precision == pytest.approx(average_precision_score(labels, scores))


@given(st.floats(0, 1), st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_an_interval_of_an_area_holds_it_and_has_a_length(auc, positives, negatives):
    found = auc_interval(auc, positives, negatives)
    assert 0 <= found.low <= auc <= found.high <= 1
    assert found.high - found.low > 1e-3
    # More samples make it shorter.
    more = auc_interval(auc, 4 * positives, 4 * negatives)
    assert more.high - more.low < found.high - found.low


def test_a_perfect_area_from_four_patients_says_little():
    found = BinaryScores.of(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1]))
    assert found.auc.value == 1
    assert found.auc.low < 0.5
    assert found.auprc.low < 0.5
    assert found.calibration == ()
    assert few_samples(4, 2)


def test_intervals_of_fractions_are_those_of_the_table():
    # Newcombe, Statistics in Medicine 17 (1998), Table I, method 3.
    for hits, count, low, high in (
        (81, 263, 0.2553, 0.3662),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        found = wilson(hits / count, count)
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_the_gain_of_a_regression_is_the_paired_t_interval():
    targets = np.zeros(4)
    own, other = np.array([0.0, 1, 2, 1]), np.array([1.0, 2, 2, 3])
    groups = [contributions("regression", one, targets) for one in (own, other)]
    found = gain_estimate(groups[:1], groups[1:], -1.0).interval()
    # The squared errors differ by 1, 3, 0 and 8: mean 3, deviation 3.5590; t is 3.18245.
    assert found.value == pytest.approx(3)
    assert found.high - 3 == pytest.approx(3.18245 * 3.5590 / 2, rel=1e-4)


def test_repetitions_add_to_the_uncertainty_of_a_gain():
    rng = np.random.default_rng(0)
    labels = np.array([0.0, 1.0] * 40)
    steady = [contributions("binary", labels + rng.normal(size=80), labels)] * 3
    base = [contributions("binary", rng.normal(size=80), labels)] * 3
    shaky = [contributions("binary", labels * k + rng.normal(size=80), labels) for k in (0, 1, 3)]
    one, several = (
        gain_estimate(steady[:1], base[:1], 1.0).interval(),
        gain_estimate(steady, base, 1.0).interval(),
    )
    # The same in all repetitions: they add no variance.
    assert several.value == pytest.approx(one.value)
    assert several.high - several.low == pytest.approx(one.high - one.low)
    wide = gain_estimate(shaky, base, 1.0).interval()
    assert wide.high - wide.low > 2 * (several.high - several.low)


def test_the_interval_of_a_paired_gain_covers_the_truth():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        labels = (rng.random(120) < 0.4).astype(float)
        common = labels + rng.normal(size=120)
        one, two = (common + 0.5 * rng.normal(size=120) for _ in range(2))
        groups = [contributions("binary", scores, labels) for scores in (one, two)]
        found = gain_estimate(groups[:1], groups[1:], 1.0).interval()  # the truth is 0
        covered += found.low <= 0 <= found.high
    assert 180 <= covered <= 198  # 190 expected, deviation 3.1


def test_no_difference_is_none_and_one_class_has_no_interval():
    labels = np.array([0.0, 1, 0, 1])
    same = [contributions("binary", np.array([1.0, 2, 3, 4]), labels)]
    found = gain_estimate(same, same, 1.0).interval()
    assert (found.value, found.low, found.high) == (0, 0, 0)
    ones = [contributions("binary", np.array([1.0, 2]), np.ones(2))]
    assert math.isnan(gain_estimate(ones, ones, 1.0).interval().value)
    assert math.isnan(metric_interval("binary", ones).low)


def test_an_accuracy_has_the_interval_of_a_fraction():
    right = np.array([1.0, 1, 1, 0])
    found = metric_interval("classification", [contributions("classification", right, right)])
    assert (found.value, found.low) == pytest.approx((0.75, wilson(0.75, 4).low))


def test_thresholds_and_calibration_count_what_is_there():
    probabilities = np.array([0.1] * 10 + [0.4] * 10 + [0.8] * 10)
    labels = np.array([1.0] + [0] * 9 + [1] * 4 + [0] * 6 + [1] * 8 + [0] * 2)
    found = BinaryScores.of(probabilities, labels, (0.5,), (probabilities, labels))
    groups = [(one.predicted, one.observed.value, one.samples) for one in found.calibration]
    assert groups == [
        pytest.approx(one) for one in ((0.1, 0.1, 10), (0.4, 0.4, 10), (0.8, 0.8, 10))
    ]
    given_one, best = found.thresholds
    assert given_one.sensitivity.value == pytest.approx(8 / 13)
    assert given_one.specificity.value == pytest.approx(15 / 17)
    assert given_one.precision.value == pytest.approx(8 / 10)
    assert given_one.negative_value.value == pytest.approx(15 / 20)
    # At 0.4: 12/13 + 9/17 = 1.453; at 0.8: 8/13 + 15/17 = 1.498.
    assert best.threshold == pytest.approx(0.8)
    assert youden(probabilities, np.zeros(30)) is None
    assert calibration_groups(probabilities[:19], labels[:19] > 0) == ()


def test_one_event_has_a_concordance_without_an_interval():
    one = contributions("survival", np.array([0.9, 0.1]), np.array([1.0, -2.0]))
    found = metric_interval("survival", [one])
    assert found.value == 1.0
    assert np.isnan(found.low)
    assert np.isnan(found.high)
