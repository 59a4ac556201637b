"""Contributions in every round, worked out in numpy for a quadratic loss."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.federation.seam import Failure
from fedegoists.learning.data import Samples
from fedegoists.methods import FedAvg, FedAvgM
from fedegoists.methods.recorded_silos import RecordedSilos
from fedegoists.training.contributions import contributions
from tests.methods.hand import START, descended, lines, played

STEP = TrainSettings(steps=2, batch_size=64, learning_rate=0.1, momentum=0.0)


def by_orders(silos, sizes, trained, start):
    """The mean over all orders of what joining adds, straight from the definition."""
    count = len(sizes)

    def value(chosen, i):
        if not chosen:
            return 0.0
        weights = np.array([sizes[k] for k in chosen])
        mean = weights / weights.sum() @ np.array([trained[k] for k in chosen])
        return silos.loss(i, start, "validation") - silos.loss(i, mean, "validation")

    found = np.zeros((count, count))
    orders = list(itertools.permutations(range(count)))
    for order in orders:
        for place, j in enumerate(order):
            for i in range(count):
                found[j, i] += value(order[: place + 1], i) - value(order[:place], i)
    return found / len(orders)


@pytest.mark.parametrize("sizes", [(6, 3), (6, 3, 4)])
def test_two_rounds_by_hand(sizes):
    silos, names = lines(sizes), list("abc"[: len(sizes)])
    model, expected = START, []
    for _ in range(2):
        trained = [
            descended(lambda w, k=k: silos.gradient(k, w), model, [0.1, 0.1])
            for k in range(len(sizes))
        ]
        expected.append(by_orders(silos, sizes, trained, model))
        model = np.array(sizes) / sum(sizes) @ np.array(trained)
    for both in silos.federations():
        recorded = RecordedSilos(both, FedAvg(STEP))
        states, _ = played(FedAvg(STEP), recorded, [names], 2)
        for one, by_hand in zip(recorded.rounds, expected, strict=True):
            np.testing.assert_allclose(one.given, by_hand, rtol=2e-3, atol=2e-5)
        plain, _ = played(FedAvg(STEP), both, [names], 2)
        assert states[-1].parameters.equal(plain[-1].parameters)
    total = sum(expected)
    for j, one in enumerate(contributions(recorded.rounds)):
        others = [i for i in range(len(sizes)) if i != j]
        assert one.gave.value == pytest.approx(total[j, others].sum(), rel=2e-3, abs=2e-5)
        assert one.received == pytest.approx(total[others, j].sum(), rel=2e-3, abs=2e-5)


def test_a_member_with_random_targets_is_last_and_found():
    silos = lines((60, 50, 60, 50, 60), slopes=[(2.0, -1.0)] * 5)
    rng, samples, bad = np.random.default_rng(0), silos.data.samples, silos.data.silos[4]
    targets = samples.targets.copy()
    for part in (bad.train, bad.validation):
        targets[part] = rng.permutation(targets[part])
    data = replace(silos.data, samples=Samples(samples.inputs, targets))
    silos = replace(silos, data=data)
    recorded = RecordedSilos(next(iter(silos.federations())), FedAvg(STEP))
    played(FedAvg(STEP), recorded, [list("abcde")], 8)
    found = contributions(recorded.rounds)
    assert min(found, key=lambda one: one.gave.value).participant == "e"
    assert [one.participant for one in found if one.gave_nothing] == ["e"]


def test_an_update_of_zero_dilutes_those_of_others():
    """Two members with equal weights: the idle one gives ½ (v(both) − v(other)), here below 0."""
    silos = lines((60, 60), slopes=[(2.0, -1.0)] * 2)
    federation = next(iter(silos.federations(behaviours={"b": _idle})))
    recorded = RecordedSilos(federation, FedAvg(STEP))
    states, _ = played(FedAvg(STEP), recorded, [["a", "b"]], 1)
    (only,) = recorded.rounds
    alone = 2 * states[-1].parameters[0].numpy() - START
    first = silos.loss(0, START, "validation")
    both = first - silos.loss(0, states[-1].parameters[0].numpy(), "validation")
    other = first - silos.loss(0, alone, "validation")
    assert only.given[1, 0] == pytest.approx((both - other) / 2, rel=1e-3)
    assert only.given[1, 0] < 0


def _idle(request, reply):
    if not hasattr(request, "settings"):
        return reply
    return reply.model_copy(update={"parameters": request.parameters})


class _FailingOnce:
    """Silos of which one fails in the evaluations of one round's subsets."""

    def __init__(self, federation, participant):
        self._federation, self._name, self._left = federation, participant, 1

    def __getattr__(self, name):
        return getattr(self._federation, name)

    def call(self, requests, timeout=None):
        replies = self._federation.call(requests, timeout)
        several = [one for one, request in requests.items() if len(request.parameters) > 2]
        for one in several:
            if one.name == self._name and self._left:
                self._left -= 1
                replies[one] = Failure(one, "timeout", "no answer")
        return replies


def test_a_receiver_whose_evaluation_fails_is_left_out_of_that_round_and_named():
    silos = lines((6, 3, 4))
    federation = next(iter(silos.federations()))
    whole = RecordedSilos(federation, FedAvg(STEP))
    played(FedAvg(STEP), whole, [list("abc")], 2)
    recorded = RecordedSilos(_FailingOnce(federation, "b"), FedAvg(STEP))
    played(FedAvg(STEP), recorded, [list("abc")], 2)
    first, second = recorded.rounds
    assert [(one.participant.name, one.reason) for one in first.left_out] == [("b", "timeout")]
    assert second.left_out == ()
    assert np.isnan(first.given[:, 1]).all()
    np.testing.assert_array_equal(first.given[:, [0, 2]], whole.rounds[0].given[:, [0, 2]])
    np.testing.assert_array_equal(second.given, whole.rounds[1].given)
    assert {one.left_out for one in contributions(recorded.rounds)} == {(("b", 1),)}


def test_deployed_silos_and_other_methods_are_refused():
    federation = next(iter(lines((6, 3)).federations()))
    with pytest.raises(SettingsError, match="choose fedavg"):
        RecordedSilos(federation, FedAvgM(STEP))
    with pytest.raises(SettingsError, match="choose fedavg"):
        RecordedSilos(federation, FedAvg(STEP, personal=("output.",)))

    class Deployed:
        deployed = True

    with pytest.raises(SettingsError, match="in simulations only"):
        RecordedSilos(Deployed(), FedAvg(STEP))
