"""pFedMe by hand."""

import itertools

import numpy as np
import pytest

from fedegoists.federation import TrainSettings
from fedegoists.methods import PFedMe
from tests.methods.hand import START, Lines, assert_close, lines, played, starts
from tests.silos import run

SETTINGS = TrainSettings(steps=4, batch_size=64, learning_rate=0.1, momentum=0.9)
METHOD = PFedMe(SETTINGS, lam=2.0, inner_steps=2, outer_rate=0.3, beta=0.7)


def by_hand(silos: Lines, rounds: int):
    """θ and w after some rounds of two batches with two steps each, without momentum.

    Silos count alike, as in the paper; public code averages by sample count, and evaluates w in the
    place of θ, since both are the same tensors by then.
    """
    w, personal = START, []
    for _ in range(rounds):
        personal, moved = [], []
        for k in range(2):
            theta, own = w, w
            for _ in range(2):
                for _ in range(2):
                    theta = theta - 0.1 * (silos.gradient(k, theta) + 2.0 * (theta - own))
                own = own - 0.3 * 2.0 * (own - theta)
            personal.append(theta)
            moved.append(own)
        w = 0.3 * w + 0.7 * (moved[0] + moved[1]) / 2  # alike, although a has twice the samples
    return np.array(personal), w


def test_two_rounds_by_hand():
    silos = lines((6, 3))
    for federation in silos.federations():
        states, reports = played(METHOD, federation, [["a", "b"]], 2)
        for rounds in (1, 2):
            personal, w = by_hand(silos, rounds)
            assert_close(states[rounds].parameters, personal)
            assert_close(states[rounds].tensors["shared"], [w, w])
        # Each of the four steps sees all samples; w travels, θ stays where it is.
        assert reports[0].sample_passes == {"a": 24, "b": 12}
        assert reports[0].bytes_sent == reports[0].bytes_received == {"a": 12, "b": 12}


def test_the_personal_models_are_evaluated():
    silos = lines((6, 3))
    personal, w = by_hand(silos, 2)
    for federation in silos.federations():
        outcome = run(METHOD, federation, [["a", "b"]], starts(2), rounds=2, seed=5)
        for k, name in enumerate(silos.names):
            (loss,) = (
                row.value
                for row in outcome.rows
                if (row.participant.name, row.round, row.split, row.metric)
                == (name, 2, "test", "loss")
            )
            assert loss == pytest.approx(silos.loss(k, personal[k], "test"), rel=1e-4)
            assert loss != pytest.approx(silos.loss(k, w, "test"), rel=1e-3)


def test_personal_models_approach_the_shared_one_as_lambda_grows():
    """At the minimum θ − w = −∇ℓ(θ)/λ."""
    silos = lines((6, 3))
    slopes = [np.linalg.norm(silos.gradient(k, START)) for k in range(2)]
    for federation in silos.federations():
        ways = []
        for lam in (1.0, 10.0, 100.0, 1000.0):
            settings = TrainSettings(steps=100, batch_size=64, learning_rate=1 / (lam + 10))
            method = PFedMe(settings, lam=lam, inner_steps=100)
            states, _ = played(method, federation, [["a", "b"]], 1)
            ways.append(np.linalg.norm(states[1].parameters.numpy() - START, axis=1))
        assert all((after < before / 3).all() for before, after in itertools.pairwise(ways))
        np.testing.assert_allclose(1000 * ways[-1], slopes, rtol=0.02)


def test_the_shared_model_moves_although_a_round_has_fewer_steps_than_a_batch():
    """Three steps where five would use one batch: w follows θ after the three."""
    silos = lines((6, 3))
    settings = TrainSettings(steps=3, batch_size=64, learning_rate=0.1)
    moved = []
    for k in range(2):
        theta = START
        for _ in range(3):
            theta = theta - 0.1 * (silos.gradient(k, theta) + 2.0 * (theta - START))
        moved.append(START - 0.3 * 2.0 * (START - theta))
    for federation in silos.federations():
        method = PFedMe(settings, lam=2.0, inner_steps=5, outer_rate=0.3)
        states, _ = played(method, federation, [["a", "b"]], 1)
        assert_close(states[1].tensors["shared"], [(moved[0] + moved[1]) / 2] * 2)
