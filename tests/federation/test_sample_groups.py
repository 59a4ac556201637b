"""Samples of one patient, and copies, are one piece of evidence: in errors, halves and choices."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.federation.requests import Evaluate, Train, TrainSettings
from fedegoists.federation.silo_operations import evaluated_part, training_part
from fedegoists.learning.data import DataError, Samples, SiloedData, SiloIndices
from fedegoists.learning.estimates import mean_variance
from fedegoists.learning.safe_choice import pseudo_values
from fedegoists.learning.sample_scores import (
    BinaryScores,
    contributing_groups,
    contributions,
    few_samples,
    gain_estimate,
    metric_interval,
)

TASKS = ("binary", "classification", "regression", "survival")
NORTH = Participant("North")


def scored(task, count, seed):
    """Scores of two models, and targets."""
    rng = np.random.default_rng(seed)
    targets = {
        "binary": np.arange(count) % 2,
        "survival": np.where(rng.random(count) < 0.6, 1, -1) * (1.0 + rng.permutation(count)),
    }.get(task, rng.normal(size=count))
    models = rng.normal(size=(2, count)) + targets
    return (models > 0).astype(float) if task == "classification" else models, targets


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(TASKS), st.integers(6, 40), st.integers(2, 4), st.integers(0, 999))
def test_copies_change_no_interval(task, count, times, seed):
    models, targets = scored(task, count, seed)
    groups = np.tile(np.arange(count), times)
    single = [contributions(task, one, targets) for one in models]
    copied = [contributions(task, np.tile(one, times), np.tile(targets, times)) for one in models]
    own = contributing_groups(task, np.tile(targets, times), groups)
    for found, expected in (
        (metric_interval(task, copied[:1], own), metric_interval(task, single[:1])),
        (
            gain_estimate(copied[:1], copied[1:], 1.0, own).interval(),
            gain_estimate(single[:1], single[1:], 1.0).interval(),
        ),
    ):
        ends = [(one.value, one.low, one.high) for one in (found, expected)]
        np.testing.assert_allclose(*ends, rtol=1e-6, atol=1e-9)


def test_without_groups_copies_would_pass_for_evidence():
    (one, other), targets = scored("binary", 20, 0)
    single = [contributions("binary", model, targets) for model in (one, other)]
    copied = [
        contributions("binary", np.tile(model, 3), np.tile(targets, 3)) for model in (one, other)
    ]
    lengths = [
        found.high - found.low
        for parts in (single, copied)
        for found in [gain_estimate(parts[:1], parts[1:], 1.0).interval()]
    ]
    assert lengths[1] < 0.7 * lengths[0]


def test_a_patient_with_samples_of_both_classes_counts_once():
    """By hand: two patients whose contributions to both means point the same way."""
    up, down = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    zero = (np.zeros(2), np.zeros(2))
    first = np.array([0, 1])
    apart, together = (
        gain_estimate([(up, down)], [zero], 1.0, (first, other)).interval()
        for other in (np.array([2, 3]), first)
    )
    # Apart: 0.25 + 0.25 with 2 degrees; together each patient adds ±0.5, (0.25 + 0.25) · 2 with 1.
    assert apart.high - 0.5 == pytest.approx(4.302653 * 0.5**0.5, rel=1e-5)
    assert together.high - 0.5 == pytest.approx(12.706205, rel=1e-5)


def test_groups_of_unequal_size_by_hand():
    """Deviations −2, −2 | 1, 3 from the mean 3: sums −4 and 4 over 4 samples."""
    variance, degrees = mean_variance(np.array([1.0, 1.0, 4.0, 6.0]), np.array([7, 7, 9, 9]))
    assert (variance, degrees) == (pytest.approx(2 * (1 + 1)), 1)
    assert np.isnan(mean_variance(np.array([1.0, 2.0]), np.array([3, 3]))[0])


def test_few_patients_are_few_however_often_they_come():
    labels = np.repeat([0.0, 1.0], 8)
    groups = np.tile(np.arange(16), 3)
    found = BinaryScores.of(np.tile(labels, 3), np.tile(labels, 3), groups=groups)
    once = BinaryScores.of(labels, labels)
    assert (found.positives, once.positives) == (24, 8)
    assert (found.auc, found.auprc) == (once.auc, once.auprc)
    assert found.thresholds[0].sensitivity == once.thresholds[0].sensitivity
    assert found.calibration == once.calibration == ()
    assert few_samples(16, 8, 8, "groups of test samples") == (
        "8 positive and 8 negative groups of test samples, fewer than 10 of each"
    )


def test_the_jackknife_leaves_out_whole_patients():
    values = np.array([1.0, 4.0, 7.0])

    def mean(rows):
        return float(np.repeat(values, 2)[rows].mean())

    found = pseudo_values(mean, 6, np.repeat([5, 6, 9], 2))
    np.testing.assert_allclose(found, values)


def repeated_patients(copies=3, patients=20, *, groups=True):
    """One silo whose patients are all there several times."""
    rng = np.random.default_rng(1)
    x = np.repeat(rng.normal(size=(3 * patients, 4)).astype(np.float32), copies, axis=0)
    y = (x[:, 0] > 0).astype(np.int64)
    own = np.repeat(np.arange(3 * patients), copies)
    parts = np.split(np.arange(len(y)), 3)
    held = Samples((x,), y, None, own if groups else None)
    return SiloedData("repeated", "binary", held, (SiloIndices("North", *parts),), 2, "", ())


def federation(data, execution="looped"):
    torch.manual_seed(0)
    return SimulatedFederation(data, torch.nn.Linear(4, 1), execution=execution)


@pytest.mark.parametrize("repeat", range(3))
def test_halves_and_parts_have_no_patient_in_common(repeat):
    data = repeated_patients()
    silo = federation(data)._silos[NORTH]
    some = torch.zeros(5)
    for split in ("validation", "test"):
        requests = [
            Evaluate(parameters=some, split=split, share=0.5, step=2 * repeat + half, seed="v")
            for half in (0, 1)
        ]
        patients = [
            set(silo.groups_in(split)[evaluated_part(silo, one, 7)].tolist()) for one in requests
        ]
        assert not patients[0] & patients[1]
        assert {len(one) for one in patients} == {10}
    train = Train(parameters=some, settings=TrainSettings(steps=1), share=0.25, part=repeat)
    own = training_part(silo, train, 7)
    assert len(own.splits["train"]) == 15
    assert len(set(own.groups_in("train").tolist())) == 5


def test_private_answers_are_about_a_known_number_of_samples():
    silo = federation(repeated_patients())._silos[NORTH]
    some = torch.zeros(5)
    private = Evaluate(parameters=some, split="test", share=0.32, bound=1.0, seed="v")
    assert len(evaluated_part(silo, private, 7)) == 19  # of 60; six patients would be 18
    clipped = Train(parameters=some, settings=TrainSettings(steps=1, clip=1.0), share=0.32)
    assert len(training_part(silo, clipped, 7).splits["train"]) == 19


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_both_engines_draw_the_same_patients(share):
    data = repeated_patients()
    request = Evaluate(
        parameters=torch.linspace(-1, 1, 5), split="validation", share=share, step=1, seed="v"
    )
    train = Train(
        parameters=torch.zeros(5), settings=TrainSettings(steps=3), share=share, part=1, seed="t"
    )
    replies = [federation(data, one).call({NORTH: request})[NORTH] for one in ("looped", "stacked")]
    assert replies[0].samples == replies[1].samples == int(20 * share) * 3
    assert replies[0].losses == pytest.approx(replies[1].losses, rel=1e-5)
    trained = [federation(data, one).call({NORTH: train})[NORTH] for one in ("looped", "stacked")]
    torch.testing.assert_close(trained[0].parameters, trained[1].parameters)


def test_a_share_of_less_than_a_patient_is_refused():
    request = Evaluate(parameters=torch.zeros(5), split="validation", share=0.04, seed="v")
    found = federation(repeated_patients()).call({NORTH: request})[NORTH]
    assert "a share of 0.04 of 20 validation samples is none" in str(found)


def test_groups_are_numbers_for_all_samples():
    with pytest.raises(DataError, match="expected a whole number for each of the 3 targets"):
        Samples((np.zeros((3, 1)),), np.zeros(3), None, np.zeros(2, dtype=int))
