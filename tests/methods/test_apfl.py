"""APFL by hand."""

import numpy as np
import pytest
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import APFL, FedAvg, Local
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=4, batch_size=64, learning_rate=0.1, momentum=0.0)
GROUP = [["a", "b"], ["c"]]
SILOS = lines((6, 3, 4), slopes=[[1.0, 2.0], [2.0, -1.0], [-1.0, 3.0]])


def by_hand(rounds, adapt):
    """Two steps with w, two with v along a ∇ℓ(a v + (1 − a) w), and one with a.

    The paper takes these steps in turn. PFLlib trains v on its own loss instead of the mixture's,
    puts the mixture in its place after a round, and adds 0.02 a to the slope of a.
    """
    w, own, weights, found = START, [START, START], [0.6, 0.6], []
    for _ in range(rounds):
        trained = [descended(lambda u, k=k: SILOS.gradient(k, u), w, [0.1, 0.1]) for k in range(2)]
        moved, slopes = [], []
        for k, (v, a) in enumerate(zip(own, weights, strict=True)):
            seen = []
            u = v
            for _ in range(2):
                seen.append(SILOS.gradient(k, a * u + (1 - a) * w))
                u = u - 0.1 * a * seen[-1]
            moved.append(u)
            slopes.append((v - w) @ np.mean(seen, axis=0))
        if adapt:
            pairs = zip(weights, slopes, strict=True)
            weights = [float(np.clip(a - 0.1 * slope, 0, 1)) for a, slope in pairs]
        own, w = moved, (6 * trained[0] + 3 * trained[1]) / 9
        found.append((w, own, weights))
    return found


@pytest.mark.parametrize("adapt", [True, False])
def test_three_rounds_by_hand(adapt):
    expected = by_hand(3, adapt)
    assert (expected[2][2] != [0.6, 0.6]) == adapt
    for federation in SILOS.federations():
        states, reports = played(APFL(SETTINGS, start_at=0.6, adapt=adapt), federation, GROUP, 3)
        for state, (w, own, weights) in zip(states[1:], expected, strict=True):
            assert_close(state.tensors["shared"][:2], [w, w])
            assert_close(state.tensors["own"][:2], own)
            assert_close(state.tensors["mixture"][:2, 0], weights)
            models = [a * v + (1 - a) * w for v, a in zip(own, weights, strict=True)]
            assert_close(state.parameters[:2], models)
        alone, _ = played(Local(SETTINGS), federation, GROUP, 3)
        assert torch.equal(states[3].parameters[2], alone[3].parameters[2])
        assert reports[2].sample_passes == {"a": 24, "b": 12, "c": 16}


def test_with_nothing_of_its_own_it_is_fedavg():
    for federation in SILOS.federations():
        states, _ = played(APFL(SETTINGS, start_at=0.0, adapt=False), federation, GROUP, 2)
        plain, _ = played(FedAvg(SETTINGS.changed(steps=2)), federation, GROUP, 2)
        torch.testing.assert_close(states[2].parameters[:2], plain[2].parameters[:2])
