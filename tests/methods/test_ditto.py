"""Ditto by hand."""

import numpy as np
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import Ditto, FedAvg, Local
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=4, batch_size=64, learning_rate=0.1, momentum=0.5)
GROUP = [["a", "b"], ["c"]]
SILOS = lines((6, 3, 4))


def drawn(k, v, w, lam, steps):
    """Steps along the own gradient with momentum, and beside it λ times the way to w."""
    speed = np.zeros(3)
    for _ in range(steps):
        speed = 0.5 * speed + SILOS.gradient(k, v)
        v = v - 0.1 * speed - 0.1 * lam * (v - w)
    return v


def test_two_rounds_by_hand():
    """One step in four for the shared model; the personal ones are held near that of before.

    PFLlib trains the personal models first, too, but as many steps with each, without momentum.
    """
    w, own, expected = START, [START, START], []
    for _ in range(2):
        trained = [descended(lambda v, k=k: SILOS.gradient(k, v), w, [0.1], 0.5) for k in range(2)]
        own = [drawn(k, own[k], w, 0.7, 3) for k in range(2)]
        w = (6 * trained[0] + 3 * trained[1]) / 9
        expected.append((w, own))
    for federation in SILOS.federations():
        states, reports = played(Ditto(SETTINGS, lam=0.7, shared=0.25), federation, GROUP, 2)
        for state, (shared, models) in zip(states[1:], expected, strict=True):
            assert_close(state.tensors["shared"][:2], [shared] * 2)
            assert_close(state.parameters[:2], models)
        alone, _ = played(Local(SETTINGS), federation, GROUP, 2)
        assert torch.equal(states[2].parameters[2], alone[2].parameters[2])
        # As many samples as any other method, and one model each way.
        assert reports[1].sample_passes == {"a": 24, "b": 12, "c": 16}
        assert reports[1].bytes_sent == reports[1].bytes_received == {"a": 12, "b": 12}


def test_the_shared_model_is_fedavg_with_its_part_of_the_steps():
    for federation in SILOS.federations():
        states, _ = played(Ditto(SETTINGS), federation, GROUP, 3)
        plain, _ = played(FedAvg(SETTINGS.changed(steps=2)), federation, GROUP, 3)
        torch.testing.assert_close(states[3].tensors["shared"][:2], plain[3].parameters[:2])


def test_without_pull_it_is_local_with_its_part_of_the_steps():
    """Batches are all samples here, so that the same steps are taken."""
    for federation in SILOS.federations():
        states, _ = played(Ditto(SETTINGS, lam=0.0), federation, GROUP, 3)
        own, _ = played(Local(SETTINGS.changed(steps=2)), federation, GROUP, 3)
        torch.testing.assert_close(states[3].parameters[:2], own[3].parameters[:2])
