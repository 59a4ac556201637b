"""FedALA by hand."""

import numpy as np
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedALA, FedAvg, Local
from tests.methods.hand import (
    CHAIN_START,
    HEAD,
    assert_close,
    chain_gradient,
    chains,
    descended,
    lines,
    played,
)

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.5)
GROUP = [["a", "b"], ["c"]]
SILOS = lines((6, 3, 4), slopes=[[1.0, 2.0], [-2.0, 1.0], [-1.0, 3.0]])


def by_hand(rounds, rate, first, later):
    """The head of a start is own + (shared − own) x, with x learned on training data.

    Public code repeats the first learning of x until the loss varies little; here it has a number
    of steps.
    """
    shared, own, x, found = CHAIN_START, [CHAIN_START] * 2, [np.ones(4)] * 2, []
    for number in range(rounds):
        trained = []
        for k in range(2):
            for _ in range((0, first)[number] if number < 2 else later):
                start = shared + HEAD * (own[k] - shared) * (1 - x[k])
                slope = chain_gradient(SILOS, k, start) * (shared - own[k])
                x[k] = np.clip(x[k] - rate * slope, 0, 1)
            start = shared + HEAD * (own[k] - shared) * (1 - x[k])
            gradient = lambda v, k=k: chain_gradient(SILOS, k, v)  # noqa: E731
            trained.append(descended(gradient, start, [0.1] * 3, 0.5))
        own, shared = trained, (6 * trained[0] + 3 * trained[1]) / 9
        found.append((shared, own, [HEAD * one for one in x]))
    return found


def test_three_rounds_by_hand():
    expected = by_hand(3, 0.8, 2, 1)
    for both in chains(SILOS):
        method = FedALA(SETTINGS, rate=0.8, first_steps=2, later_steps=1)
        states, reports = played(method, both, GROUP, 3, CHAIN_START)
        for state, (shared, own, x) in zip(states[1:], expected, strict=True):
            assert_close(state.tensors["shared"][:2], [shared] * 2)
            assert_close(state.parameters[:2], own)
            assert_close(state.tensors["weights"][:2] * torch.tensor(HEAD), x)
        assert any(((one > 0) & (one < 1)).any() for _, _, x in expected for one in x)
        alone, _ = played(Local(SETTINGS), both, GROUP, 3, CHAIN_START)
        assert torch.equal(states[3].parameters[2], alone[3].parameters[2])
        # Two steps of the weights before the second round: two more models and batches.
        assert reports[1].bytes_sent == {"a": 3 * 16, "b": 3 * 16}
        assert reports[1].sample_passes == {"a": 18 + 12, "b": 9 + 6, "c": 12}


def test_without_steps_of_the_weights_it_is_fedavg():
    """Everything is taken of the shared model; own models are these after local training."""
    for both in chains(SILOS):
        method = FedALA(SETTINGS, first_steps=0, later_steps=0)
        states, _ = played(method, both, GROUP, 3, CHAIN_START)
        plain, _ = played(FedAvg(SETTINGS), both, GROUP, 3, CHAIN_START)
        torch.testing.assert_close(states[3].tensors["shared"][:2], plain[3].parameters[:2])
