"""FedDisco by hand."""

import math

import numpy as np
import pytest
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedAvg, FedDisco
from tests.methods.hand import START, assert_close, descended, lines, played
from tests.silos import groups

SETTINGS = TrainSettings(steps=2, batch_size=64, learning_rate=0.5, momentum=0.5)
GROUP = [["a", "b", "c"]]


DIVERGENCES = [0.0, math.log(2), math.log(2) + 0.2 * math.log(0.2) + 0.8 * math.log(0.8)]


def silos():
    """Labels 3:3, 4:0 and 1:4, so 6, 4 and 5 of the 15 samples."""
    return lines((6, 4, 5), positives=(3, 0, 4))


def averaged(weights, start=START):
    """The models of all after two logistic steps, in proportion to some weights."""
    trained = [
        descended(lambda w, k=k: silos().gradient(k, w), start, [0.5, 0.5], 0.5) for k in range(3)
    ]
    return np.average(trained, axis=0, weights=weights)


def test_two_rounds_by_hand():
    """Divergences from uniform: 0, log 2, and log 2 less the entropy of 1:4; then their shares.

    Public code divides by the sum over the members, which equation 7 of the paper does not show.
    """
    shares = np.array(DIVERGENCES) / sum(DIVERGENCES)
    np.testing.assert_allclose(shares, [0, 0.7824, 0.2176], atol=5e-5)
    raw = [6 / 15 + 0.1, 4 / 15 - 0.4 * shares[1] + 0.1, 5 / 15 - 0.4 * shares[2] + 0.1]
    np.testing.assert_allclose(raw, [0.5, 0.0537, 0.3463], atol=5e-5)
    for federation in silos().federations():
        states, reports = played(FedDisco(SETTINGS, a=0.4, b=0.1), federation, GROUP, 2)
        assert_close(states[0].tensors["discrepancy"][:, 0], DIVERGENCES)
        first = averaged(raw)
        assert_close(states[1].parameters, [first] * 3)
        assert_close(states[2].parameters, [averaged(raw, first)] * 3)
        assert reports[0].sample_passes == {"a": 12, "b": 8, "c": 10}
        assert reports[0].bytes_sent == reports[0].bytes_received == dict.fromkeys("abc", 12)


def test_negative_weights_are_zero():
    """With a = 1: 4/15 − 0.78 + 0.1 < 0, so b gets the average without having a part in it."""
    c = 5 / 15 - DIVERGENCES[2] / sum(DIVERGENCES) + 0.1
    for federation in silos().federations():
        states, _ = played(FedDisco(SETTINGS, a=1.0, b=0.1), federation, GROUP, 1)
        assert_close(states[1].parameters, [averaged([6 / 15 + 0.1, 0, c])] * 3)


def test_without_discrepancy_weights_are_data_shares_plus_b():
    for federation in silos().federations():
        states, _ = played(FedDisco(SETTINGS, a=0.0, b=0.2), federation, GROUP, 1)
        assert_close(
            states[1].parameters, [averaged([6 / 15 + 0.2, 4 / 15 + 0.2, 5 / 15 + 0.2])] * 3
        )
        even, _ = played(FedDisco(SETTINGS, a=0.0, b=0.0), federation, GROUP, 2)
        plain, _ = played(FedAvg(SETTINGS), federation, GROUP, 2)
        torch.testing.assert_close(even[2].parameters, plain[2].parameters)


def test_data_shares_where_all_weights_are_zero():
    """b and c are both far from uniform; with a large they would have no weight at all."""
    groups = [["a"], ["b", "c"]]
    for federation in silos().federations():
        fallen, _ = played(FedDisco(SETTINGS, a=50.0, b=0.1), federation, groups, 1)
        plain, _ = played(FedAvg(SETTINGS), federation, groups, 1)
        torch.testing.assert_close(fallen[1].parameters, plain[1].parameters)


def test_a_regression_has_no_labels_to_be_uneven():
    for federation in lines((6, 3)).federations():
        states, _ = played(FedDisco(SETTINGS), federation, [["a", "b"]], 1)
        assert states[0].tensors["discrepancy"].tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize(
    "labels", [None, (), [3, 1], "many", (3, -1), (math.nan, 1), ((1, 2),), {"0": 4}, (0, 0)]
)
def test_who_has_no_usable_counts_counts_as_the_least_balanced(labels):
    """One silo's nonsense must not stop the others."""

    def nonsense(request, reply):
        described = request.operation == "describe"
        return reply.model_copy(update={"labels": labels}) if described else reply

    for federation in silos().federations(behaviours={"b": nonsense}):
        states, _ = played(FedDisco(SETTINGS), federation, GROUP, 1)
        worst = states[0].tensors["discrepancy"].max()
        assert states[0].tensors["discrepancy"][1] == worst > 0
        # To tell no counts is no failure; to tell what are none is one.
        failed = [failure.participant.name for failure in states[0].failures]
        assert failed == ([] if labels is None else ["b"])
        assert states[0].tensors["discrepancy"][2].item() > 0
        assert torch.isfinite(states[1].parameters).all()


def test_only_members_of_the_coalition_count():
    """Beside b, c has 0.22 of the divergence; beside a, which has none, all of it."""
    names = groups([["a", "b", "c"]])[0]
    a, b, c = names
    samples = dict(zip(names, (6.0, 4.0, 5.0), strict=True))
    uneven = dict(zip(names, DIVERGENCES, strict=True))
    method = FedDisco(a=0.5, b=0.1)
    together = method.weights((b, c), samples, uneven)
    assert together[c] == pytest.approx(5 / 9 - 0.5 * 0.2176 + 0.1, abs=1e-4)
    assert method.weights((a, c), samples, uneven)[c] == pytest.approx(5 / 11 - 0.5 + 0.1)
    # With as many classes as one likes, members that are uneven alike keep their data shares.
    alike = method.weights(names, samples, dict.fromkeys(names, 4.6))
    assert list(alike.values()) == pytest.approx([n / 15 - 0.5 / 3 + 0.1 for n in (6, 4, 5)])


def test_who_hides_counts_is_judged_by_its_own_coalition():
    """d hides its labels beside a, which is balanced; b, far from uniform, is elsewhere."""

    def hides(request, reply):
        described = request.operation == "describe"
        return reply.model_copy(update={"labels": None}) if described else reply

    four = lines((6, 4, 5, 4), positives=(3, 0, 4, 0))
    for federation in four.federations(behaviours={"d": hides}):
        states, _ = played(FedDisco(SETTINGS), federation, [["a", "d"], ["b", "c"]], 0)
        assert_close(states[0].tensors["discrepancy"][:, 0], [*DIVERGENCES, 0.0])
