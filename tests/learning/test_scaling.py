"""Scaling and filling: by hand, and never by what a silo must not know."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedegoists.learning.data import SiloIndices
from fedegoists.learning.scaling import mean_filled, prepared, scaled_targets, standardised

NAN = np.nan


def silo(name: str, train: list[int], test: list[int]) -> SiloIndices:
    return SiloIndices(name, np.array(train), np.array([], dtype=int), np.array(test, dtype=int))


def test_two_silos_by_hand() -> None:
    values = np.array([[0.0], [4.0], [10.0], [100.0], [300.0], [7.0]])
    found = standardised(values, [silo("a", [0, 1], [2]), silo("b", [3, 4], [])])
    # Means 2 and 200, deviations 2 and 100; the last sample is nobody's.
    assert found[:, 0].tolist() == [-1.0, 1.0, 4.0, -1.0, 1.0, 7.0]


def test_hours_are_measurements_of_one_feature() -> None:
    values = np.array([[[1.0, NAN], [3.0, NAN]], [[NAN, 5.0], [5.0, 5.0]]])
    found = standardised(values, [silo("a", [0], [1])])
    assert found[:, :, 0].tolist()[0] == [-1.0, 1.0]
    assert np.isnan(found[1, 0, 0])
    assert found[1, 1, 0] == 3.0
    assert np.isnan(found[:, :, 1]).all()  # never measured in training: no scale


def test_a_constant_becomes_zero_even_where_it_changes_later() -> None:
    # The mean of three times 0.1 is not 0.1, so a deviation of rounding errors must not count.
    found = standardised(np.array([[0.1], [0.1], [0.1], [9.0]]), [silo("a", [0, 1, 2], [3])])
    assert found.ravel().tolist() == [0.0, 0.0, 0.0, 0.0]


def test_numbers_whose_squares_vanish_or_are_huge() -> None:
    values = np.array([[1e-200, -3e38], [2e-200, 3e38], [3e-200, 0.0]])
    found = standardised(values, [silo("a", [0, 1], [2])])
    assert np.isfinite(found).all()
    assert found[:, 1].tolist() == [-1.0, 1.0, 0.0]


def test_only_some_columns() -> None:
    values = np.array([[1.0, 1.0], [3.0, 0.0]])
    assert standardised(values, [silo("a", [0, 1], [])], [0]).tolist() == [[-1, 1], [1, 0]]


def test_missing_values_become_the_training_mean() -> None:
    values = np.array([[1.0, NAN], [NAN, NAN], [4.0, 8.0], [NAN, NAN]])
    found = mean_filled(values, [silo("a", [0, 1, 2], [3])])
    assert found.tolist() == [[1.0, 8.0], [2.5, 8.0], [4.0, 8.0], [2.5, 8.0]]


def test_filling_without_a_mean_gives_zero() -> None:
    assert mean_filled(np.array([[NAN], [5.0]]), [silo("a", [0], [1])]).tolist() == [[0.0], [5.0]]


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        np.float64,
        (8, 3),
        elements=st.floats(-1e6, 1e6).map(lambda x: round(x, 3)) | st.just(NAN),
    ),
    hnp.arrays(np.float64, (4, 3), elements=st.floats(-1e6, 1e6)),
)
def test_other_silos_and_test_samples_do_not_matter(
    values: npt.NDArray[np.float64], changed: npt.NDArray[np.float64]
) -> None:
    silos = [silo("a", [0, 1, 2, 3], [4, 5]), silo("b", [6], [7])]
    other = values.copy()
    other[4:] = changed  # a's test samples and all of b
    for function in (standardised, mean_filled):
        assert np.array_equal(
            function(values, silos)[:4], function(other, silos)[:4], equal_nan=True
        )


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, (6, 2), elements=st.integers(-1000, 1000).map(float)))
def test_training_samples_have_mean_0_and_deviation_1(values: npt.NDArray[np.float64]) -> None:
    found = standardised(values, [silo("a", list(range(6)), [])]).astype(np.float64)
    for given_column, column in zip(values.T, found.T, strict=True):
        assert column.mean() == pytest.approx(0, abs=1e-5)
        assert column.std() == pytest.approx(float(len(set(given_column)) > 1), abs=1e-4)


@pytest.mark.parametrize("filled", [True, False])
def test_a_preparation_does_what_was_done_to_the_samples(filled: bool) -> None:
    # A constant, a code that is not scaled, one with a gap, one never measured in training.
    values = np.array(
        [[5.0, 1.0, 2.0, NAN], [5.0, 0.0, NAN, NAN], [5.0, NAN, 6.0, NAN], [8.0, 1.0, NAN, 3.0]]
    )
    one = silo("a", [0, 1, 2], [3])
    expected = standardised(values, [one], [0, 2, 3])
    if filled:
        expected = mean_filled(expected, [one])
    names = ("a", "b", "c", "d")
    inputs, way = prepared("x", names, values, [one], scaled=[0, 2, 3], filled=filled)
    np.testing.assert_array_equal(inputs, expected)
    given = np.where(np.isnan(values), way.missing[0], values)
    found = (given - way.center[0]) * way.factor[0]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    plain = way.of(0)
    assert plain.columns == names
    assert plain.factor[3] == (0.0 if filled else None)


def test_targets_are_scaled_by_training_samples_of_their_own_silo() -> None:
    targets = np.array([10.0, 30.0, 50.0, 7.0, 7.0, 9.0])
    found, scales = scaled_targets(targets, [silo("a", [0, 1], [2]), silo("b", [3, 4], [5])])
    assert found.tolist() == [-1.0, 1.0, 3.0, 0.0, 0.0, 2.0]
    assert [(one.center, one.spread) for one in scales] == [(20.0, 10.0), (7.0, 1.0)]
    again = np.concatenate(
        [one.center + one.spread * found[k : k + 3] for k, one in zip((0, 3), scales, strict=True)]
    )
    assert again.tolist() == targets.tolist()
