"""FedFomo by hand."""

import numpy as np
import pytest
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedFomo, Local
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.5)
GROUP = [["a", "b", "c"], ["d"]]
SILOS = lines((6, 3, 4, 5), slopes=[[1.0, 2.0], [1.2, 1.8], [-1.0, -2.0], [1.0, 0.0]])


def by_hand(rounds, rate):
    """(ℓ_i(w_i) − ℓ_i(w_j))/‖w_j − w_i‖ on validation data, where positive, over their sum.

    PFLlib adds 1e-5 to the lengths, and sends each silo some of the models.
    """
    models, found = [START] * 3, []
    for _ in range(rounds):
        trained = [
            descended(lambda v, k=k: SILOS.gradient(k, v), models[k], [0.1] * 3, 0.5)
            for k in range(3)
        ]
        following, weights = [], []
        for i in range(3):
            before = SILOS.loss(i, models[i], "validation")
            raw = [
                max(before - SILOS.loss(i, w, "validation"), 0) / np.linalg.norm(w - models[i])
                for w in trained
            ]
            x = np.array(raw) / sum(raw)
            weights.append(x)
            apart = [w - models[i] for w in trained]
            following.append(models[i] + rate * sum(s * v for s, v in zip(x, apart, strict=True)))
        models = following
        found.append((models, weights))
    return found


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_two_rounds_by_hand(rate):
    expected = by_hand(2, rate)
    first = np.array(expected[0][1])
    # Somebody listens to another, and nobody to c, which learns the contrary, but c itself.
    assert first[0, 1] + first[1, 0] > 0
    assert first[:2, 2].tolist() == [0, 0]
    for federation in SILOS.federations():
        states, reports = played(FedFomo(SETTINGS, server_rate=rate), federation, GROUP, 2)
        for state, (models, _) in zip(states[1:], expected, strict=True):
            assert_close(state.parameters[:3], models)
        alone, _ = played(Local(SETTINGS), federation, GROUP, 2)
        assert torch.equal(states[2].parameters[3], alone[2].parameters[3])
        # It sends its own model and receives those of the two others.
        assert reports[0].bytes_sent == dict.fromkeys("abc", 12)
        assert reports[0].bytes_received == dict.fromkeys("abc", 24)


def test_where_nothing_is_better_one_goes_on_with_ones_own_model():
    """At a rate so high that every model gets worse."""
    wild = SETTINGS.changed(learning_rate=5.0, steps=1, halve=False)
    for federation in SILOS.federations():
        states, _ = played(FedFomo(wild), federation, GROUP, 1)
        own, _ = played(Local(wild), federation, GROUP, 1)
        assert torch.equal(states[1].parameters, own[1].parameters)
