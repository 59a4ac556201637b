"""Clipped and noisy gradients, and how much they tell."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.benefit import ESTIMATOR_ENTRIES, LearnSettings, learn
from fedegoists.benefit.privacy_account import privacy_spent
from fedegoists.errors import SettingsError
from fedegoists.federation import Gradient
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.gradient_privacy import gaussian_noise
from tests.benefit.consortia import OTHER, TASK, federation, regressions
from tests.benefit.test_learning_benefit import quick
from tests.silos import Line, named

DATA = regressions({"a": TASK, "b": OTHER}, train=12, validation=7)


def gradient(execution, **fields):
    silos = federation(DATA, execution=execution)
    start = torch.tensor([0.5, -1.0, 0.2, 0.0, 0.1])
    request = Gradient(parameters=start, seed=1, **fields)
    return named(silos.call(dict.fromkeys(silos.participants, request)))


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_every_samples_gradient_is_shortened(execution):
    """By hand: for y = w·x + b the gradient of (ŷ − y)² is 2 (ŷ − y) (x, 1)."""
    reply = gradient(execution, clip=1.5)["a"]
    rows = DATA.silos[0].train
    x, y = DATA.samples.inputs[0][rows], DATA.samples.targets[rows]
    design = np.hstack([x, np.ones((12, 1))])
    each = 2 * (design @ np.array([0.5, -1.0, 0.2, 0.0, 0.1]) - y)[:, None] * design
    lengths = np.linalg.norm(each, axis=1, keepdims=True)
    assert (lengths > 1.5).any()
    assert (lengths < 1.5).any()
    expected = (each * np.minimum(1, 1.5 / lengths)).mean(0)
    np.testing.assert_allclose(reply.gradient, expected, rtol=1e-4, atol=1e-5)
    assert reply.losses == (0.0,)  # a loss would tell of the samples too


def test_a_wide_limit_changes_nothing():
    plain, wide = gradient("stacked")["b"], gradient("stacked", clip=1e6)["b"]
    torch.testing.assert_close(plain.gradient, wide.gradient)


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_noise_is_as_large_as_stated(execution):
    clean, noisy = (gradient(execution, clip=2.0, noise=z)["a"] for z in (0.0, 3.0))
    added = noisy.gradient - clean.gradient
    drawn = gaussian_noise(torch.Size([1, 5]), 3.0 * 2.0 / 12, stream_seed(1, "a"), 0)[0]
    torch.testing.assert_close(added, drawn, rtol=1e-4, atol=1e-5)
    many = gaussian_noise(torch.Size([20000]), 0.5, 1, 0)
    assert many.std().item() == pytest.approx(0.5, rel=0.03)


def test_noise_without_a_limit_is_refused():
    with pytest.raises(SettingsError, match="set clip"):
        gradient("stacked", noise=1.0)
    with pytest.raises(Exception, match="clip is 0"):
        LearnSettings(estimator="hypernetwork", clip=0.0)


def test_a_share_of_the_samples_is_one_of_two_disjoint_halves():
    whole, *halves = (
        gradient("stacked", **part)["a"]
        for part in ({}, {"share": 0.5, "step": 4}, {"share": 0.5, "step": 5})
    )
    assert [reply.samples for reply in (whole, *halves)] == [12, 6, 6]
    mean = sum(half.losses[0] for half in halves) / 2
    assert mean == pytest.approx(whole.losses[0], rel=1e-5)


def test_the_account_by_hand():
    """All samples in one answer: the Gaussian mechanism, whose ε a table of RDP orders bounds.

    With noise z, RDP of order α is α/(2z²); at z = 4 and δ = 1e-5 the best order gives
    ε = α/32 + ln(1e5)/(α − 1) < 1.25 before the tighter conversion.
    """
    pytest.importorskip("dp_accounting")
    settings = LearnSettings(
        estimator="hypernetwork",
        clip=1.0,
        noise=4.0,
        steps=1,
        batch_size=25,
        repeats=1,
        preference_steps=1,
    )
    spent = privacy_spent(settings, training=25)
    bound = min(a / 32 + math.log(1e5) / (a - 1) for a in range(2, 100))
    assert 0.5 * bound < spent.epsilon < bound
    assert spent.training == spent.validation == spent.epsilon
    # A quarter of the samples in each of four steps tells less of one than all of them in one.
    sampled = privacy_spent(settings.changed(steps=4), training=100)
    assert sampled.training < sampled.validation == sampled.epsilon
    # Four repeats are four answers about the same samples: half of the noise.
    repeated = privacy_spent(settings.changed(repeats=4), training=25)
    halved = privacy_spent(settings.changed(noise=2.0), training=25)
    assert repeated.epsilon == pytest.approx(halved.epsilon)


def test_without_noise_nothing_is_promised():
    assert privacy_spent(LearnSettings(), 100).epsilon == math.inf


def test_a_graph_can_be_learned_from_noisy_gradients():
    data = regressions({"a1": TASK, "a2": TASK, "b1": OTHER, "b2": OTHER}, train=120)
    estimate = learn(federation(data, Line(4)), quick("hypernetwork", clip=5.0, noise=0.5))
    weights = estimate.weights
    assert min(weights[0, 1], weights[1, 0]) > max(weights[2:, :2].max(), weights[:2, 2:].max())


def test_the_privacy_loss_of_an_estimator_that_is_not_accounted_for_is_refused(monkeypatch):
    entry = replace(ESTIMATOR_ENTRIES["hypernetwork"], summary="asks for other gradients")
    monkeypatch.setitem(ESTIMATOR_ENTRIES, "other", entry)
    settings = LearnSettings(estimator="other", clip=1.0, noise=1.0)
    with pytest.raises(SettingsError, match="'other' is not accounted for; use 'hypernetwork'"):
        privacy_spent(settings, 100)
