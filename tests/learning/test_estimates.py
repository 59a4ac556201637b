"""Estimates: means, errors by hand, and verdicts that follow from them."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.learning.estimates import (
    Estimate,
    Interval,
    over_divisions,
    over_initialisations,
)

VALUES = st.lists(st.floats(-10, 10), min_size=2, max_size=12)


@given(VALUES, st.floats(0, 2))
def test_divisions_that_overlap_say_less_than_independent_ones(values, ratio):
    one, other = over_divisions(values, ratio), over_initialisations(values)
    assert one.value == pytest.approx(other.value)
    expected = statistics.stdev(values) * math.sqrt(1 / len(values) + ratio)
    assert one.error == pytest.approx(expected)
    if math.isfinite(other.error):
        assert one.error >= other.error - 1e-12


def test_errors_by_hand():
    # Mean 2, standard deviation 1, three values; t with two degrees of freedom at 97.5 %: 4.303.
    found = over_initialisations([1.0, 2.0, 3.0]).interval()
    assert (found.value, found.low, found.high) == pytest.approx((2, -0.484, 4.484), abs=1e-3)
    # Variances 3 and 1 with 2 and 4 degrees of freedom: 16 / (9/2 + 1/4) = 3.368.
    both = Estimate.summed(1.0, [(3.0, 2), (1.0, 4)])
    assert (both.error, both.degrees) == pytest.approx((2.0, 3.368), abs=1e-3)


def test_what_is_not_known_is_uncertain_and_never_a_bound():
    for one in (over_initialisations([0.5]), over_initialisations([0.1, 0.1]), Estimate(math.nan)):
        assert one.lower(0.6) == -math.inf
        assert one.interval().verdict == "uncertain"
    assert over_initialisations([0.0, 0.0]).interval() == Interval(0.0, 0.0, 0.0)
    assert math.isnan(over_divisions([], 0.3).value)


@given(VALUES, st.floats(0.51, 0.99))
def test_bounds_are_below_the_value_and_fall_with_confidence(values, confidence):
    one = over_divisions(values, 0.2)
    assert one.lower(confidence) <= one.value
    assert one.lower(0.995) <= one.lower(confidence)


@given(VALUES)
def test_verdicts_turn_with_the_sign(values):
    turned = {"better": "worse", "worse": "better"}
    one = over_divisions(values, 0.1).interval().verdict
    other = over_divisions([-v for v in values], 0.1).interval().verdict
    assert other == turned.get(one, one)


def test_variances_are_those_of_numpy():
    values = np.array([0.3, 0.1, 0.7, 0.2])
    error = over_initialisations(values.tolist()).error
    assert error == pytest.approx(values.std(ddof=1) / 2)
