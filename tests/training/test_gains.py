"""Gains over training alone: which way, how large, and how sure."""

import math
from types import SimpleNamespace

import pytest
import torch

from fedegoists.federation import Participant
from fedegoists.methods import Outcome
from fedegoists.methods.outcome import Row
from fedegoists.training.gains import gains_over_local

STUDENT = 4.302652729911275
"""The 97.5 % quantile of Student's t with two degrees of freedom, from a table."""


def outcome(values):
    """Return what came of three seeds; round 1 was chosen, round 2 is a better test result."""
    names = [Participant("North", seed) for seed in range(len(values))]
    rows = [
        Row(name, number, "test", metric, value + number - 1)
        for name, value in zip(names, values, strict=True)
        for number in (1, 2)
        for metric in ("auc", "mse")
    ]
    scores = [(0.5, 0.0)] * len(values)
    return Outcome(None, torch.zeros(len(values), 1), [1] * len(values), scores, rows)


def silos(count, metric="auc"):
    return SimpleNamespace(
        participants=tuple(Participant("North", seed) for seed in range(count)),
        task=SimpleNamespace(metric=metric, higher_is_better=metric == "auc"),
    )


def gain_of(alone, together, metric="auc"):
    federation = silos(len(alone), metric)
    found = gains_over_local({"local": outcome(alone), "fedavg": outcome(together)}, federation)
    assert [(gain.method, gain.participant) for gain in found] == [("fedavg", "North")]
    return found[0]


@pytest.mark.parametrize(("metric", "sign"), [("auc", 1), ("mse", -1)])
def test_a_gain_is_paired_by_seed_and_positive_where_it_is_better(metric, sign):
    gain = gain_of([0.5, 0.6, 0.7], [0.6, 0.8, 1.0], metric)
    # The differences are 0.1, 0.2 and 0.3, with a deviation of 0.1.
    reach = STUDENT * 0.1 / math.sqrt(3)
    assert (gain.alone, gain.value) == pytest.approx((0.6, 0.8))
    assert gain.gain == pytest.approx(sign * 0.2)
    assert (gain.low, gain.high) == pytest.approx((gain.gain - reach, gain.gain + reach))


def test_the_same_gain_in_all_seeds_is_not_taken_for_certain():
    gain = gain_of([0.5, 0.6, 0.7], [0.6, 0.7, 0.8])
    assert gain.gain == pytest.approx(0.1)
    assert math.isnan(gain.low)
    assert math.isnan(gain.high)


def test_no_difference_in_any_seed_is_none():
    gain = gain_of([0.5, 0.6, 0.7], [0.5, 0.6, 0.7])
    assert (gain.gain, gain.low, gain.high) == (0, 0, 0)


def test_one_seed_says_nothing_of_the_spread():
    assert math.isnan(gain_of([0.5], [0.6]).low)


def test_who_has_no_coalition_has_no_gain():
    both = {"local": outcome([0.5, 0.6]), "fedavg+ft": outcome([0.9, 0.9])}
    assert gains_over_local(both, silos(2), alone=["North"]) == []
    assert len(gains_over_local(both, silos(2), alone=["South"])) == 1


def test_over_divisions_of_the_same_data_the_interval_is_wider_and_says_so():
    both = {"local": outcome([0.5, 0.6, 0.7]), "fedavg": outcome([0.6, 0.8, 1.0])}
    (once,) = gains_over_local(both, silos(3))
    (gain,) = gains_over_local(both, silos(3), ratio={"North": 0.25})
    reach = STUDENT * 0.1 * math.sqrt(1 / 3 + 0.25)
    assert (gain.gain, gain.low, gain.high) == pytest.approx((0.2, 0.2 - reach, 0.2 + reach))
    assert (once.over, gain.over) == ("initialisations", "divisions")
