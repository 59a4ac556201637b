"""FedProx by hand."""

import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedAvg, FedProx
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.5)


def test_two_rounds_by_hand():
    """Every gradient has + μ (w − w_shared), with w_shared as it was when the round began."""
    silos = lines((6, 3, 4))
    models = [START] * 3
    for _ in range(2):
        a, b = (
            descended(
                lambda w, k=k, anchor=models[k]: silos.gradient(k, w) + 0.7 * (w - anchor),
                models[k],
                [0.1] * 3,
                0.5,
            )
            for k in range(2)
        )
        # c is alone: nothing holds it.
        c = descended(lambda w: silos.gradient(2, w), models[2], [0.1] * 3, 0.5)
        models = [(6 * a + 3 * b) / 9, (6 * a + 3 * b) / 9, c]
    for federation in silos.federations():
        states, reports = played(FedProx(SETTINGS, mu=0.7), federation, [["a", "b"], ["c"]], 2)
        assert_close(states[2].parameters, models)
        assert reports[1].sample_passes == {"a": 18, "b": 9, "c": 12}
        assert reports[1].bytes_sent == reports[1].bytes_received == {"a": 12, "b": 12}


def test_without_a_pull_it_is_fedavg():
    for federation in lines((6, 3)).federations():
        held, _ = played(FedProx(SETTINGS, mu=0.0), federation, [["a", "b"]], 2)
        free, _ = played(FedAvg(SETTINGS), federation, [["a", "b"]], 2)
        assert torch.equal(held[2].parameters, free[2].parameters)


def test_a_strong_pull_keeps_silos_at_the_shared_model():
    """A stationary point has ∇ℓ(w) = −μ (w − w_shared): the way is about |∇ℓ|/μ long."""
    silos = lines((6, 3))
    settings = TrainSettings(steps=200, batch_size=64, learning_rate=1e-3, momentum=0.0)
    for federation in silos.federations():
        reply = played(FedProx(settings, mu=500.0), federation, [["a", "b"]], 1)[0][1]
        way = (6 * silos.gradient(0, START) + 3 * silos.gradient(1, START)) / 9 / 500
        assert abs(reply.parameters[0].numpy() - START + way).max() < 1e-4
