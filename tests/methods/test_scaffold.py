"""SCAFFOLD by hand."""

import math

import numpy as np
import pytest
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedAvg, Scaffold
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.0)


@pytest.mark.parametrize("sizes", [(6, 3), (5, 5)])
def test_three_rounds_by_hand(sizes):
    """Without momentum, c_i ← c_i − c + (w − w_i)/(K·rate) as in the paper; K = 3, rate 0.1.

    The paper and PFLlib take plain means over silos, which these are where all have as many
    samples; otherwise they are by sample count here.
    """
    silos = lines(sizes)
    shares = np.array(sizes) / sum(sizes)
    w, c, own = START, np.zeros(3), np.zeros((2, 3))
    expected = []
    for _ in range(3):
        added = c - own
        trained = np.array(
            [
                descended(lambda v, k=k, more=added[k]: silos.gradient(k, v) + more, w, [0.1] * 3)
                for k in range(2)
            ]
        )
        following = own - c + (w - trained) / (3 * 0.1)
        w = w + 0.8 * (shares @ trained - w)
        c = c + shares @ (following - own)
        own = following
        expected.append((w, own, c))
    for federation in silos.federations():
        states, reports = played(Scaffold(SETTINGS, server_rate=0.8), federation, [["a", "b"]], 3)
        for state, (w, own, c) in zip(states[1:], expected, strict=True):
            assert_close(state.parameters, [w, w])
            assert_close(state.tensors["control"], own)
            assert_close(state.tensors["shared_control"], [c, c])
        assert reports[0].sample_passes == {"a": 3 * sizes[0], "b": 3 * sizes[1]}
        # A model and a control variate of three numbers, both ways.
        assert reports[0].bytes_sent == reports[0].bytes_received == {"a": 24, "b": 24}


def test_the_first_round_is_fedavg():
    """Control variates of zero correct nothing; in the second round they do."""
    settings = SETTINGS.changed(momentum=0.5)
    for federation in lines((6, 3, 4)).federations():
        groups = [["a", "b"], ["c"]]
        corrected, _ = played(Scaffold(settings), federation, groups, 2)
        plain, _ = played(FedAvg(settings), federation, groups, 2)
        torch.testing.assert_close(corrected[1].parameters, plain[1].parameters)
        assert not torch.allclose(corrected[2].parameters[:2], plain[2].parameters[:2], rtol=1e-3)
        assert torch.equal(corrected[2].parameters[2], plain[2].parameters[2])  # alone


def test_control_variates_are_mean_gradients_with_momentum_and_a_falling_rate():
    """The gradient of step s weighs Σ_{t ≥ s} rate_t · 0.5^(t−s), whatever was added to it."""
    silos = lines((6, 3))
    settings = SETTINGS.changed(momentum=0.5, total_steps=8)
    rates = [0.05 * (1 + math.cos(math.pi * t / 8)) for t in range(6)]
    w, c, own = START, np.zeros(3), np.zeros((2, 3))
    expected = []
    for first in (0, 3):
        trained, means = [], []
        for k in range(2):
            v, speed, seen = w, np.zeros(3), []
            for rate in rates[first : first + 3]:
                seen.append(silos.gradient(k, v))
                speed = 0.5 * speed + seen[-1] - own[k] + c
                v = v - rate * speed
            weights = [
                sum(rates[first + t] * 0.5 ** (t - s) for t in range(s, 3)) for s in range(3)
            ]
            trained.append(v)
            means.append(np.average(seen, axis=0, weights=weights))
        w = (6 * trained[0] + 3 * trained[1]) / 9
        own = np.array(means)
        c = (6 * own[0] + 3 * own[1]) / 9
        expected.append((w, own, c))
    for federation in silos.federations():
        states, _ = played(Scaffold(settings), federation, [["a", "b"]], 2)
        for state, (w, own, c) in zip(states[1:], expected, strict=True):
            assert_close(state.parameters, [w, w])
            assert_close(state.tensors["control"], own)
            assert_close(state.tensors["shared_control"], [c, c])


def test_a_rate_of_zero_leaves_control_variates_alone():
    """After the end of a falling rate nothing moves, and nothing is learned about gradients."""
    for federation in lines((6, 3)).federations():
        states, reports = played(
            Scaffold(SETTINGS.changed(total_steps=3)), federation, [["a", "b"]], 3
        )
        assert not any(report.failures for report in reports)
        for name in ("control", "shared_control"):
            assert torch.equal(states[3].tensors[name], states[1].tensors[name])
        # The average of equal models may be rounded, on some processors more than on others.
        torch.testing.assert_close(states[3].parameters, states[1].parameters, rtol=1e-6, atol=0)


@pytest.mark.parametrize("silent", [{1}, {0}])
def test_the_shared_control_variate_stays_the_mean_when_a_silo_is_silent(silent):
    """Algorithm 1, line 17: the change of c counts those who were silent, with a change of zero."""
    silos = lines((6, 3))
    rounds = []

    def sometimes(operation, reply):
        rounds.append(operation)
        return {} if len(rounds) - 1 in silent else reply

    for federation in silos.federations(behaviours={"b": sometimes}):
        rounds.clear()
        states, reports = played(Scaffold(SETTINGS), federation, [["a", "b"]], 3)
        assert [bool(report.failures) for report in reports] == [k in silent for k in range(3)]
        for before, state, report in zip(states, states[1:], reports, strict=False):
            control = state.tensors["control"]
            if report.failures:
                assert torch.equal(control[1], before.tensors["control"][1])
        final = states[3].tensors
        mean = (6 * final["control"][0] + 3 * final["control"][1]) / 9
        assert_close(final["shared_control"], [mean.numpy()] * 2)
