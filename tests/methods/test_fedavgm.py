"""FedAvgM by hand: the average moves with momentum."""

import numpy as np
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedAvg, FedAvgM
from tests.methods.hand import START, assert_close, lines, played

SETTINGS = TrainSettings(steps=1, batch_size=64, learning_rate=0.1, momentum=0.0)
GROUPS = [["a", "b"], ["c"]]


def test_two_rounds_by_hand():
    """v ← 0.5 v + Δ and w ← w + 0.8 v, as in Flower, which has −v for v."""
    silos = lines((6, 3, 4))

    def average(w):
        return sum(n * (w - 0.1 * silos.gradient(k, w)) for k, n in enumerate((6, 3))) / 9

    velocity = average(START) - START
    first = START + 0.8 * velocity
    velocity = 0.5 * velocity + (average(first) - first)
    second = first + 0.8 * velocity
    alone = START - 0.1 * silos.gradient(2, START)
    for federation in silos.federations():
        method = FedAvgM(SETTINGS, beta=0.5, server_rate=0.8)
        states, reports = played(method, federation, GROUPS, rounds=2)
        assert_close(states[1].parameters, np.array([first, first, alone]))
        assert_close(states[2].parameters[:2], np.array([second, second]))
        assert reports[0].bytes_sent == {"a": 12, "b": 12}


def test_nesterov_and_the_momentum_of_silos_by_hand():
    """Both rounds train from the averaged momentum, and move by the change and β times v."""
    silos, swift = lines((6, 3, 4)), SETTINGS.changed(momentum=0.5)
    w, v, speed = START, np.zeros(3), np.zeros(3)
    for _ in range(2):
        speeds = [0.5 * speed + silos.gradient(k, w) for k in range(2)]
        speed = (6 * speeds[0] + 3 * speeds[1]) / 9
        change = -0.1 * speed
        v = 0.7 * v + change
        w = w + 0.9 * (change + 0.7 * v)
    for federation in silos.federations():
        method = FedAvgM(swift, beta=0.7, server_rate=0.9, nesterov=True, buffers="averaged")
        states, reports = played(method, federation, GROUPS, rounds=2)
        assert_close(states[2].parameters[:2], np.array([w, w]))
        assert_close(states[2].tensors["velocity"][:2], np.array([v, v]))
        assert_close(states[2].tensors["momentum"], np.array([speed, speed, np.zeros(3)]))
        assert reports[1].bytes_sent == {"a": 24, "b": 24}


def test_without_momentum_it_is_fedavg():
    for federation in lines((6, 3, 4)).federations():
        plain, _ = played(FedAvg(SETTINGS), federation, GROUPS, 3)
        still, _ = played(FedAvgM(SETTINGS, beta=0.0), federation, GROUPS, 3)
        torch.testing.assert_close(still[3].parameters, plain[3].parameters)


def test_a_coalition_without_an_answer_stays_where_it_is():
    silos = lines((6, 3, 4))
    whole = next(silos.federations())
    silent = next(silos.federations(behaviours=dict.fromkeys("ab", lambda *_: {})))
    method = FedAvgM(SETTINGS)
    states, _ = played(method, whole, GROUPS, 2)
    after, _ = method.round(
        silent, [tuple(whole.participants[:2]), whole.participants[2:]], states[2], 5
    )
    assert torch.equal(after.parameters[:2], states[2].parameters[:2])
    assert torch.equal(after.tensors["velocity"], states[2].tensors["velocity"])
