"""SlowMo by hand."""

import numpy as np
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedAvg, FedAvgM, Local, SlowMo
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=2, batch_size=64, learning_rate=0.1, momentum=0.5)
GROUP = [["a", "b"], ["c"]]
SILOS = lines((6, 3, 4))


def by_hand(rates, beta, slow_rate):
    """Algorithm 1: the average of two silos with 6 and 3 samples, and u in units of the rate.

    The paper has a plain mean over its workers.
    """
    w, u, found = START, np.zeros(3), []
    for number in range(2):
        own = rates[2 * number : 2 * number + 2]
        trained = [descended(lambda v, k=k: SILOS.gradient(k, v), w, own, 0.5) for k in range(2)]
        average = (6 * trained[0] + 3 * trained[1]) / 9
        u = beta * u + (w - average) / own[0]
        w = w - slow_rate * own[0] * u
        found.append((w, u))
    return found


def test_two_rounds_by_hand_with_a_falling_rate():
    falling = SETTINGS.changed(total_steps=8)
    rates = [0.05 * (1 + np.cos(np.pi * t / 8)) for t in range(4)]
    expected = by_hand(rates, 0.6, 0.9)
    for federation in SILOS.federations():
        method = SlowMo(falling, beta=0.6, slow_rate=0.9)
        states, reports = played(method, federation, GROUP, 2)
        for state, (w, u) in zip(states[1:], expected, strict=True):
            assert_close(state.parameters[:2], [w, w])
            assert_close(state.tensors["slow"][:2], [u, u])
        alone, _ = played(Local(falling), federation, GROUP, 2)
        assert torch.equal(states[2].parameters[2], alone[2].parameters[2])
        assert reports[1].bytes_sent == reports[1].bytes_received == {"a": 12, "b": 12}


def test_at_one_rate_it_is_fedavgm_and_without_momentum_fedavg():
    for federation in SILOS.federations():
        slow, _ = played(SlowMo(SETTINGS, beta=0.6), federation, GROUP, 3)
        same, _ = played(FedAvgM(SETTINGS, beta=0.6), federation, GROUP, 3)
        torch.testing.assert_close(slow[3].parameters, same[3].parameters)
        still, _ = played(SlowMo(SETTINGS, beta=0.0), federation, GROUP, 3)
        plain, _ = played(FedAvg(SETTINGS), federation, GROUP, 3)
        torch.testing.assert_close(still[3].parameters, plain[3].parameters)


def test_averaged_buffers_by_hand():
    """The second round of both starts with (6 v_a + 3 v_b)/9, and twice as much travels."""

    def trained(k, w, speed):
        for _ in range(2):
            speed = 0.5 * speed + SILOS.gradient(k, w)
            w = w - 0.1 * speed
        return w, speed

    w, speed = START, np.zeros(3)
    for _ in range(2):
        (one, fast), (other, faster) = (trained(k, w, speed) for k in range(2))
        w, speed = (6 * one + 3 * other) / 9, (6 * fast + 3 * faster) / 9
    for federation in SILOS.federations():
        method = SlowMo(SETTINGS, beta=0.0, buffers="averaged")
        states, reports = played(method, federation, GROUP, 2)
        assert_close(states[2].parameters[:2], [w, w])
        assert_close(states[2].tensors["momentum"], [speed, speed, np.zeros(3)])
        assert reports[1].bytes_sent == {"a": 24, "b": 24}


def test_beyond_the_end_of_the_schedule_nothing_moves():
    over = SETTINGS.changed(total_steps=2)
    for federation in SILOS.federations():
        states, _ = played(SlowMo(over), federation, GROUP, 3)
        assert torch.equal(states[2].parameters[:2], states[3].parameters[:2])
        assert states[3].tensors["slow"].isfinite().all()
