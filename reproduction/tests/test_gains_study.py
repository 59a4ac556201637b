"""The study of gains: random coalitions, its page, and a small run."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation
from fedegoists.training.defaults import defaults_for
from reproduction.gains_command import _repetitions
from reproduction.gains_study import (
    CHOICES,
    GAIN_STUDIES,
    Decided,
    Gain,
    StudyResult,
    _trained,
    decisions_csv,
    gain_page,
    gain_picture,
    gains_csv,
    gains_of,
    planted_digits,
    random_partition,
)
from tests.benefit.consortia import OTHER, TASK, regressions

RIVALS = {frozenset((0, 1)), frozenset((1, 2))}


@given(st.integers(0, 10_000))
def test_random_partitions_hold_everybody_once_and_no_competitors(seed):
    groups = random_partition(5, RIVALS, np.random.default_rng(seed))
    assert sorted(k for group in groups for k in group) == list(range(5))
    assert not any(pair <= set(group) for pair in RIVALS for group in groups)


def test_all_groups_of_digits_are_equal_but_for_the_names_of_labels():
    data = planted_digits(seed=3)
    images, targets = data.samples.inputs[0], data.samples.targets
    assert len(data.silos) == 8
    assert images.shape == (1797, 64)
    from sklearn.datasets import load_digits

    digits = load_digits().target
    for k, silo in enumerate(data.silos):
        rows = np.concatenate([silo.train, silo.validation, silo.test])
        same = targets[rows] == digits[rows]
        assert same.all() if k < 4 else not same.any()


def loaded(*, seed, data_dir=None):
    return regressions({"a": TASK, "b": TASK, "c": OTHER}, train=60, seed=seed)


def test_a_small_study_predicts_who_gains():
    study = replace(GAIN_STUDIES["heart"], load=loaded, model="linear", steps=100, partitions=4)
    result = gains_of(study, repetitions=[10, 11])
    gains = result.gains
    assert {one.repetition for one in gains} == {10, 11}
    assert all(one.members in (2, 3) for one in gains)
    harmed = [one for one in gains if one.members == 3 or one.participant == "c"]
    assert harmed
    assert all(one.realised < 0 for one in harmed if one.participant == "c")
    assert all(one.predicted < 0 for one in harmed if one.participant == "c")
    assert all(one.realised_error > 0 for one in gains)
    assert {one.choice for one in result.decisions} == set(CHOICES)
    assert all("c" not in group for one in result.decisions[:1] for group in one.coalitions)
    assert len(decisions_csv(result.decisions).splitlines()) == 1 + 2 * len(CHOICES)
    assert gain_picture("lines", gains).startswith(b"\x89PNG")
    assert len(gains_csv(gains).splitlines()) == 1 + len(gains)


def test_who_is_alone_gains_nothing_although_coalitions_have_another_weight_decay():
    data = {0: loaded(seed=0)}
    first = defaults_for(data[0], 40, "linear")
    defaults = replace(
        first, train=first.train.changed(weight_decay=1.0), together_decay=first.train.weight_decay
    )
    realised = _trained(data, {(0, "graph"): [[0, 1], [2]]}, defaults, SimulatedFederation)
    gains = {name: gain for (_, _, name), (gain, _) in realised.items()}
    assert gains["c"] == 0
    assert gains["a"] > 0
    assert gains["b"] > 0


def test_the_page_counts_what_intervals_cover():
    """Three of four within 1.645 standard errors of 0.03² + 0.04² = 0.05²; one is not defined."""
    realised = [0.1, 0.02, -0.03, 0.5, float("nan")]
    gains = [
        Gain(0, 0, f"v{k}", 2, 0.05 + 0.01 * (k == 3), 0.03, value, 0.04)
        for k, value in enumerate(realised)
    ]
    decisions = [
        Decided(choice, seed, (("v0", "v1"),) if choice == "curves" else (), gain)
        for choice in CHOICES
        for seed, gain in ((0, 0.1), (1, 0.3))
    ]
    page = gain_page("lines", StudyResult(gains, decisions, 2.5), "origin")
    assert "| cost of the evidence, in trainings alone | 2.5 |" in page
    # The deviation √0.02, times √(1/2 + 1/3) by Nadeau and Bengio.
    assert "| curves | +0.2000 | 0.1291 | 0 |" in page
    assert "| everybody | +0.2000 | 0.1291 | 2 |" in page
    assert "- v0 + v1: 2" in page
    assert "| members in company | 4 |" in page
    assert "cover | 75% |" in page
    assert "| mean gain, predicted | +0.0525 |" in page
    assert "| mean gain, realised | +0.1475 |" in page
    assert page.endswith("origin\n")


def test_repetitions_are_a_range():
    assert list(_repetitions("3-5")) == [3, 4, 5]
    assert list(_repetitions("7")) == [7]
    for wrong in ("5-3", "a-b", "", "-1"):
        with pytest.raises(SettingsError, match="expected such as 0-9"):
            _repetitions(wrong)
