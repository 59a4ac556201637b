"""Bounds on what one member can do to its coalition."""

import pytest
import torch

from fedegoists.federation import Failure, Gradient, Train, TrainSettings
from fedegoists.federation.behaviours import garbage, times
from fedegoists.federation.mixing import Sum
from fedegoists.federation.robust_sums import BoundedSilos, RobustSettings, robust_mean
from tests.silos import federation, initial, participant

NAMES = tuple(map(participant, ("s0", "s1", "s2")))
START = initial("mlp")[0]
TRAIN = Train(parameters=START, settings=TrainSettings(steps=3, learning_rate=0.05))
GRADIENT = Gradient(parameters=START[None], batch_size=16)


def bounded(behaviours, **settings):
    silos = federation("mlp", behaviours=behaviours)
    return BoundedSilos(silos, [NAMES], RobustSettings(**settings)), silos


def lengths(replies):
    return {name.name: float((one.parameters - START).norm()) for name, one in replies.items()}


def test_updates_are_shortened_to_a_multiple_of_the_median_and_refused_far_beyond_it():
    honest = lengths(federation("mlp").call(dict.fromkeys(NAMES, TRAIN)))
    silos, _ = bounded({"s1": times(-2.5)}, factor=2)
    replies = silos.call(dict.fromkeys(NAMES, TRAIN))
    assert lengths(replies)["s1"] == pytest.approx(2 * sorted(lengths(replies).values())[1], 1e-3)
    assert {name: lengths(replies)[name] for name in ("s0", "s2")} == {
        name: honest[name] for name in ("s0", "s2")
    }
    (excess,) = silos.drained()
    assert (excess.participant, excess.kind) == (NAMES[1], "norm")
    assert silos.drained() == []
    silos, _ = bounded({"s1": garbage(100.0)})
    refused = silos.call(dict.fromkeys(NAMES, TRAIN))[NAMES[1]]
    assert isinstance(refused, Failure)
    assert "as long as is plausible" in refused.detail


def test_honest_replies_are_passed_on_bit_for_bit():
    silos, plain = bounded({}, factor=50)
    for request in (TRAIN, GRADIENT):
        requests = dict.fromkeys(NAMES, request)
        for name, reply in silos.call(requests).items():
            given = plain.call(requests)[name]
            for field in ("parameters", "gradient"):
                if hasattr(reply, field):
                    assert torch.equal(getattr(reply, field), getattr(given, field))


def test_gradients_have_a_bound_too():
    silos, _ = bounded({"s2": times(30.0)}, factor=2)
    replies = silos.call(dict.fromkeys(NAMES, GRADIENT))
    own = replies[NAMES[2]]
    norms = sorted(float(replies[name].gradient.norm()) for name in NAMES[:2])
    assert isinstance(own, Failure) or float(own.gradient.norm()) <= 4.001 * norms[-1]


def test_two_members_cannot_be_compared():
    silos = federation("mlp", behaviours={"s1": times(-100.0)})
    pair = BoundedSilos(silos, [NAMES[:2]], RobustSettings())
    replies = pair.call(dict.fromkeys(NAMES[:2], TRAIN))
    assert lengths(replies)["s1"] > 20 * lengths(replies)["s0"]


def test_members_that_are_silent_are_not_asked_and_have_no_part_in_means():
    silos, plain = bounded({})
    silos.silent = frozenset({NAMES[0]})
    requests = dict.fromkeys(NAMES, TRAIN)
    mixed = silos.mix(requests, [Sum(NAMES, dict.fromkeys(NAMES, 1.0), NAMES)])
    without = plain.mix(
        dict.fromkeys(NAMES[1:], TRAIN), [Sum(NAMES[1:], dict.fromkeys(NAMES[1:], 1.0), NAMES[1:])]
    )
    assert torch.equal(mixed.means["parameters"][1:], without.means["parameters"])
    assert [failure.participant for failure in mixed.failures] == [NAMES[0]]


class Masking:
    """A federation that says it masks, to see what it is asked for."""

    def __init__(self, inner):
        self.inner, self.sums = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def masks(self, coalition):
        return len(coalition) >= 3

    def mix(self, requests, sums, timeout=None):
        self.sums.append(sums)
        return self.inner.mix(requests, sums, timeout)


def test_where_models_are_hidden_the_bound_is_from_the_rounds_before():
    inner = Masking(federation("mlp", behaviours={"s1": times(40.0)}))
    silos = BoundedSilos(inner, [NAMES], RobustSettings(factor=2))
    one = Sum(NAMES, dict.fromkeys(NAMES, 1.0), NAMES)
    first = silos.mix(dict.fromkeys(NAMES, TRAIN), [one])
    assert inner.sums[0][0].bound == float("inf")  # norms are measured
    silos.mix(dict.fromkeys(NAMES, TRAIN), [one])
    assert inner.sums[1][0].bound == pytest.approx(2 * sorted(first.norms.values())[1])
    assert {(one.participant.name, one.kind) for one in silos.drained()} == {("s1", "norm")}
    silos.silent = frozenset({NAMES[2]})
    mixed = silos.mix(dict.fromkeys(NAMES, TRAIN), [one])
    assert inner.sums[2][0].coalition == NAMES[:2]
    assert mixed.names == NAMES
    assert torch.equal(mixed.means["parameters"][2], START)
    # A mean for a member that is not asked is not made.
    each = [Sum(NAMES, dict.fromkeys(NAMES, 1.0), (name,), shown=False) for name in NAMES]
    silos.mix(dict.fromkeys(NAMES, TRAIN), each)
    assert [sums.receivers for sums in inner.sums[3]] == [(NAMES[0],), (NAMES[1],)]


def test_committed_sample_counts_are_bounded_by_the_coalition():
    silos, plain = bounded({}, samples_factor=1.2)
    assert [plain.samples(name) for name in NAMES] == [80, 30, 60]
    assert [silos.samples(name) for name in NAMES] == [72, 30, 60]
    assert [(one.participant.name, one.kind) for one in silos.drained()] == [("s0", "samples")]


@pytest.mark.parametrize(("rule", "expected"), [("trimmed", 2.5), ("median", 2.5), ("mean", 251.5)])
def test_robust_means_by_hand(rule, expected):
    rows = torch.tensor([[1000.0], [1.0], [3.0], [2.0]])
    assert robust_mean(rows, rule).item() == expected
    assert robust_mean(torch.tensor([[1.0], [2.0], [900.0]]), "median").item() == 2.0


@pytest.mark.parametrize("rule", ["trimmed", "median"])
def test_a_robust_rule_hardly_moves_with_one_bad_member(rule):
    one = Sum(NAMES, dict.fromkeys(NAMES, 1.0), NAMES)
    requests = dict.fromkeys(NAMES, TRAIN)
    moved = {}
    for name, behaviours in (("honest", {}), ("bad", {"s1": times(-1000.0)})):
        silos, _ = bounded(behaviours, factor=1e9, rule=rule)
        means = silos.mix(requests, [one]).means["parameters"]
        assert torch.equal(means[0], means[2])
        moved[name] = means[0] - START
    assert float(moved["bad"].norm()) < 2 * float(moved["honest"].norm())
