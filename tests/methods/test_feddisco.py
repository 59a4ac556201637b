"""FedDisco by hand."""

import math

import numpy as np
import pytest
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedAvg, FedDisco
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=2, batch_size=64, learning_rate=0.5, momentum=0.5)
GROUP = [["a", "b", "c"]]


def silos():
    """Labels 3:3, 4:0 and 1:4, so 6, 4 and 5 of the 15 samples."""
    return lines((6, 4, 5), positives=(3, 0, 4))


def averaged(weights):
    """The models of all after two logistic steps, in proportion to some weights."""
    trained = [
        descended(lambda w, k=k: silos().gradient(k, w), START, [0.5, 0.5], 0.5) for k in range(3)
    ]
    return np.average(trained, axis=0, weights=weights)


def test_the_first_round_by_hand():
    """Divergences from uniform: 0, log 2, and log 2 less the entropy of 1:4."""
    entropy = -(0.2 * math.log(0.2) + 0.8 * math.log(0.8))
    divergences = [0.0, math.log(2), math.log(2) - entropy]
    raw = [max(n / 15 - 0.4 * d + 0.1, 0) for n, d in zip((6, 4, 5), divergences, strict=True)]
    assert all(weight > 0 for weight in raw)
    for federation in silos().federations():
        states, reports = played(FedDisco(SETTINGS, a=0.4, b=0.1), federation, GROUP, 1)
        assert_close(states[0].tensors["discrepancy"][:, 0], divergences)
        assert_close(states[1].parameters, [averaged(raw)] * 3)
        assert reports[0].sample_passes == {"a": 12, "b": 8, "c": 10}
        assert reports[0].bytes_sent == reports[0].bytes_received == dict.fromkeys("abc", 12)


def test_negative_weights_are_zero():
    """With a = 1: 4/15 − log 2 + 0.1 < 0, so b gets the average without having a part in it."""
    c = 5 / 15 - (math.log(2) + 0.2 * math.log(0.2) + 0.8 * math.log(0.8)) + 0.1
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
