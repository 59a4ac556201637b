"""Members with the same samples are found, and others are not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.training.redundancy import (
    LEVEL,
    chance_of_agreement,
    loss_profile,
    redundant_members,
)
from tests.silos import Line

FEATURES = 4


def consortium(seed, sizes=(90, 80, 100), shift=0.0):
    """Silos a, b, c of separate samples of one regression; of the last, shifted ones."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sum(sizes), FEATURES)).astype(np.float32)
    x[-sizes[-1] :] += np.float32(shift)
    y = (x.sum(1) + rng.normal(size=len(x))).astype(np.float32)
    silos, first = [], 0
    for name, size in zip("abc", sizes, strict=True):
        rows = first + rng.permutation(size)
        parts = np.split(rows, [3 * size // 5, 4 * size // 5])
        silos.append(SiloIndices(name, *map(np.sort, parts)))
        first += size
    return SiloedData("lines", "regression", Samples((x,), y), tuple(silos), None, "", ())


def with_copy(data, seed, noise=0.0):
    """The same with d, which has the rows of a, divided anew, in another order."""
    rng = np.random.default_rng([seed, 1])
    a = data.silos[0]
    rows = rng.permutation(np.concatenate([a.train, a.validation, a.test]))
    x, y = data.samples.inputs[0], data.samples.targets
    again = x[rows] + noise * rng.normal(size=(len(rows), FEATURES)).astype(np.float32)
    places = len(y) + np.arange(len(rows))
    d = SiloIndices("d", *np.split(places, [len(a.train), len(a.train) + len(a.validation)]))
    samples = Samples((np.concatenate([x, again]),), np.concatenate([y, y[rows]]))
    return replace(data, samples=samples, silos=(*data.silos, d))


def found(data, seed=0, groups=None, level=LEVEL):
    federation = SimulatedFederation(data, Line(FEATURES))
    drawn = torch.randn(8, federation.schema.size, generator=torch.Generator().manual_seed(seed))
    groups = Participant.groups(groups or [data.participants], None)
    return redundant_members(federation, groups, drawn, level)


def test_a_copy_in_another_order_and_division_is_found_on_both_sides():
    assert found(with_copy(consortium(1), 1)) == {"a": ("d",), "d": ("a",)}
    assert found(with_copy(consortium(1), 1, noise=0.05)) == {"a": ("d",), "d": ("a",)}


def test_pairs_in_different_coalitions_are_not_compared():
    assert found(with_copy(consortium(1), 1), groups=[["a", "b"], ["c", "d"]]) == {}


def test_separate_samples_are_hardly_ever_called_the_same():
    alarms = sum(bool(found(consortium(seed), seed)) for seed in range(100))
    assert alarms <= 4  # more have a probability of 0.4 % at the level of 1 %
    assert LEVEL == 0.01


def test_the_level_is_divided_among_all_pairs_that_are_compared():
    data = consortium(3)

    def least(groups, low=0.0, high=3.0):
        for _ in range(12):
            middle = (low + high) / 2
            told = "b" in found(data, groups=groups, level=middle).get("a", ())
            low, high = (low, middle) if told else (middle, high)
        return high

    assert least([["a", "b", "c"]]) == pytest.approx(3 * least([["a", "b"], ["c"]]), abs=0.01)


def test_samples_of_other_distributions_differ_all_the_more():
    assert not any(found(consortium(seed, shift=0.5), seed) for seed in range(20))


def test_the_probability_by_hand():
    # One model, losses ±1 around means that differ by δ: δ² / (1/n + 1/n) has one degree of
    # freedom, and P(χ² ≤ 1) = P(|z| ≤ 1) = 0.6827.
    n = 50
    losses = np.tile([[1.0], [-1.0]], (n // 2, 1))
    moved = losses + np.sqrt(2 / n)
    chance = chance_of_agreement(loss_profile(losses), loss_profile(moved))
    assert chance == pytest.approx(0.6827, abs=1e-4)


def test_divisions_with_equal_numbers_of_each_class_are_no_agreement():
    """Nearly all the variance is between classes, which such divisions have in common."""
    rng, alarms = np.random.default_rng(0), 0
    classes = np.arange(100) % 2
    for _ in range(100):
        one, other = (100 * classes[:, None] + rng.normal(size=(100, 1)) for _ in range(2))
        assert chance_of_agreement(loss_profile(one), loss_profile(other)) < 0.1
        chance = chance_of_agreement(loss_profile(one, classes), loss_profile(other, classes))
        alarms += chance < 0.1
    assert 1 < alarms < 25


@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 12))
def test_the_probability_does_not_depend_on_order_or_side(seed, rows, models):
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(rows, models)), rng.normal(size=(rows + 3, models))
    chance = chance_of_agreement(loss_profile(one), loss_profile(other))
    assert 0 <= chance <= 1
    swapped = chance_of_agreement(loss_profile(other), loss_profile(one[::-1]))
    assert swapped == pytest.approx(chance, abs=1e-9)


def test_models_that_all_fail_tell_nothing():
    broken = np.full((40, 3), np.nan)
    assert chance_of_agreement(loss_profile(broken), loss_profile(broken)) == 1
    half = np.random.default_rng(0).normal(size=(40, 3))
    half[3, 1] = np.inf
    assert chance_of_agreement(loss_profile(half), loss_profile(half[::-1])) == 0
    same = np.zeros((40, 3))
    assert chance_of_agreement(loss_profile(same), loss_profile(same)) == 1
