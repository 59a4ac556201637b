"""The accountant against published values, closed forms and a second implementation."""

import math

import numpy as np
import pytest

from fedegoists.errors import SettingsError
from fedegoists.federation import privacy_loss
from fedegoists.federation.privacy_loss import NoisyAnswers, epsilon, noise_for

pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")


def sampled_gaussian_renyi(rate, noise, order):
    """Rényi divergence at a whole order, by the binomial sum of Mironov, Talwar and Zhang."""
    terms = [
        math.comb(order, k)
        * (1 - rate) ** (order - k)
        * rate**k
        * math.exp((k * k - k) / (2 * noise**2))
        for k in range(order + 1)
    ]
    return math.log(math.fsum(terms)) / (order - 1)


def converted(renyi, order, delta):
    """Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020."""
    return renyi + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


@pytest.mark.parametrize(
    ("noise", "batch", "epochs", "published"),
    [
        # The MNIST tutorial of TensorFlow Privacy: 60,000 samples, δ = 1e-5.
        (1.3, 250, 15, 1.19),
        (1.1, 250, 60, 3.01),
        (0.7, 250, 45, 7.10),
        # Abadi et al. 2016, Section 3.2: q = 0.01, σ = 4, 10,000 steps.
        (4.0, 600, 100, 1.26),
    ],
)
def test_published_values_of_private_training(noise, batch, epochs, published):
    """They were converted by ε = RDP + ln(1/δ) / (α − 1); today's conversion is tighter."""
    rate = batch / 60_000
    steps = round(epochs / rate)
    divergences = zip(privacy_loss.ORDERS, privacy_loss._renyi(noise, rate), strict=True)
    as_then = min(steps * one + math.log(1e5) / (order - 1) for order, one in divergences)
    assert as_then == pytest.approx(published, rel=0.02)
    found = epsilon([NoisyAnswers(noise, rate, steps)], 1e-5)
    assert 0.7 * published < found < published


@pytest.mark.parametrize(("noise", "count"), [(1.0, 1), (4.0, 1), (3.0, 100)])
def test_the_gaussian_mechanism_has_a_closed_form(noise, count):
    """Rényi divergence count · α / (2z²) at the order α."""
    found = epsilon([NoisyAnswers(noise, 1.0, count)], 1e-5)
    orders = np.linspace(1.01, 200, 40_000)
    best = min(converted(count * a / (2 * noise**2), a, 1e-5) for a in orders)
    assert best - 1e-9 <= found <= 1.02 * best


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.6])
def test_sampling_agrees_with_the_binomial_sum(rate):
    found = epsilon([NoisyAnswers(2.0, rate, 200)], 1e-5)
    whole = min(
        converted(200 * sampled_gaussian_renyi(rate, 2.0, order), order, 1e-5)
        for order in range(2, 64)
    )
    assert 0.9 * whole < found <= whole + 1e-9
    assert found < epsilon([NoisyAnswers(2.0, 1.0, 200)], 1e-5)


def test_answers_compose_by_their_divergences():
    parts = [NoisyAnswers(3.0, 1.0, 4), NoisyAnswers(3.0, 1.0, 5)]
    assert epsilon(parts, 1e-5) == pytest.approx(epsilon([NoisyAnswers(1.0)], 1e-5), rel=1e-9)
    mixed = [NoisyAnswers(1.5, 0.1, 30), NoisyAnswers(4.0, 1.0, 2)]
    together = epsilon(mixed, 1e-5)
    apart = [epsilon([one], 1e-5) for one in mixed]
    assert max(apart) < together < sum(apart)


def test_several_answers_about_one_batch_are_one_with_less_noise():
    assert NoisyAnswers(2.0, 0.1, 5).together(4) == NoisyAnswers(1.0, 0.1, 5)
    at_once = epsilon([NoisyAnswers(2.0, 0.1, 5).together(4)], 1e-5)
    fresh = epsilon([NoisyAnswers(2.0, 0.1, 20)], 1e-5)
    assert at_once > fresh  # a batch that is used again is no new sample


def test_without_noise_nothing_is_promised():
    assert epsilon([NoisyAnswers(0.0, 0.01)], 1e-5) == math.inf
    assert epsilon([], 1e-5) == 0.0
    with pytest.raises(SettingsError, match="delta is 0"):
        epsilon([NoisyAnswers(1.0)], 0.0)


@pytest.mark.parametrize(("target", "rate", "steps"), [(8.0, 0.1, 400), (1.0, 1.0, 50)])
def test_the_noise_for_a_budget_spends_it(target, rate, steps):
    noise = noise_for(target, 1e-5, rate, steps)
    assert 0.99 * target < epsilon([NoisyAnswers(noise, rate, steps)], 1e-5) <= target
    assert epsilon([NoisyAnswers(0.99 * noise, rate, steps)], 1e-5) > target
    with pytest.raises(SettingsError, match="epsilon is 0"):
        noise_for(0.0, 1e-5, rate, steps)
