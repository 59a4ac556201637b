"""Differentially private training, gradients and evaluations of silos."""

import math

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import (
    Describe,
    Evaluate,
    Gradient,
    LocalTerms,
    SimulatedFederation,
    Train,
    TrainSettings,
)
from fedegoists.federation.batches import SecretSeed, poisson_plan, stream_seed
from fedegoists.federation.gradient_privacy import cipher_normals, gaussian_noise, noisy_score
from fedegoists.learning.models import build_model
from fedegoists.learning.own_task import own_task
from fedegoists.learning.task import TASKS
from tests.benefit.consortia import OTHER, TASK, federation, regressions
from tests.federation.test_simulated_federation import assert_alike
from tests.own_modules import module, own_silos
from tests.poisons import CLASSES, FEATURES, table
from tests.silos import federation as classified
from tests.silos import named

DATA = regressions({"a": TASK, "b": OTHER}, train=30, validation=11)
START = torch.tensor([0.5, -1.0, 0.2, 0.0, 0.1])
PRIVATE = TrainSettings(
    steps=7, batch_size=8, learning_rate=0.1, weight_decay=1e-3, clip=1.5, noise=0.7
)


def replies(execution, request, **options):
    silos = federation(DATA, execution=execution, **options)
    return named(silos.call(dict.fromkeys(silos.participants, request)))


@pytest.mark.parametrize("changes", [{}, {"noise": 0.0}, {"batch_size": 100}, {"momentum": 0.0}])
@pytest.mark.parametrize("terms", [None, LocalTerms(anchor=START, pull=0.3, inner_steps=2)])
def test_private_training_is_the_same_looped_and_stacked(changes, terms):
    request = Train(parameters=START, settings=PRIVATE.changed(**changes), terms=terms, seed=3)
    looped, stacked = (replies(execution, request) for execution in ("looped", "stacked"))
    for name, reply in looped.items():
        assert_alike(stacked[name], reply)
        assert reply.loss == 0.0  # a loss would tell of the samples, too
        assert reply.sample_passes == 7 * min(request.settings.batch_size, 30)


def test_silos_with_noise_of_their_own_are_stacked():
    """As deployed silos do, whose budgets and sizes differ."""

    def trained(execution):
        silos = federation(DATA, execution=execution)
        requests = {
            name: Train(parameters=START, settings=PRIVATE.changed(noise=noise), seed=3)
            for name, noise in zip(silos.participants, (0.5, 2.0), strict=True)
        }
        assert len({str(request.alike) for request in requests.values()}) == 1
        return named(silos.call(requests))

    looped, stacked = trained("looped"), trained("stacked")
    for name, reply in looped.items():
        assert_alike(stacked[name], reply)


def test_a_private_step_by_hand():
    """One step of y = w·x + b: clipped gradients 2 (ŷ − y) (x, 1) of a sample, and noise."""
    settings = PRIVATE.changed(steps=1, weight_decay=0.0, momentum=0.0)
    reply = replies("looped", Train(parameters=START, settings=settings, seed=3))["a"]
    seed = stream_seed(3, "a")
    plan, weights = poisson_plan(30, 8, 1, seed)
    drawn = plan[0][weights[0] > 0]
    rows = DATA.silos[0].train[drawn]
    x, y = DATA.samples.inputs[0][rows], DATA.samples.targets[rows]
    design = np.hstack([x, np.ones((len(rows), 1))])
    each = 2 * (design @ START.numpy() - y)[:, None] * design
    each *= np.minimum(1, 1.5 / np.linalg.norm(each, axis=1, keepdims=True))
    # Divided by the mean size of a batch, not by its own, which is a secret.
    gradient = each.sum(0) / 8 + gaussian_noise(torch.Size([5]), 0.7 * 1.5 / 8, seed, 0).numpy()
    np.testing.assert_allclose(reply.parameters, START.numpy() - 0.1 * gradient, atol=1e-5)


def of_three_classes(execution):
    module = build_model("mlp", 0, features=FEATURES, outputs=CLASSES, hidden=20)
    return SimulatedFederation(table(), module, execution=execution)


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_weights_of_classes_are_clipped_with_the_gradients(execution):
    silos = of_three_classes(execution)
    start, (name, *_) = silos.schema.drawn(0), silos.participants

    def answers(scale):
        weights = (scale, 0.25 * scale, 0.0)
        gradient = Gradient(parameters=start[None], clip=0.1, class_weights=weights, seed=1)
        once = TrainSettings(
            steps=1, batch_size=10**6, learning_rate=1.0, momentum=0.0, clip=0.1
        ).changed(class_weights=weights)
        trained = silos.call({name: Train(parameters=start, settings=once, seed=1)})[name]
        return silos.call({name: gradient})[name].gradient[0], start - trained.parameters

    for one in answers(1e6):
        assert one.norm() <= 0.1 * 1.001  # the mean of gradients that are no longer than that
    for small, smaller in zip(answers(1e-3), answers(5e-4), strict=True):
        assert torch.allclose(small, 2 * smaller, rtol=1e-3, atol=1e-7)  # and not clipped at all


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_balanced_classes_are_not_private(execution):
    silos = of_three_classes(execution)
    start, (name, *_) = silos.schema.drawn(0), silos.participants
    private = PRIVATE.changed(class_weights="balanced")
    for request in (
        Train(parameters=start, settings=private, seed=1),
        Gradient(parameters=start[None], clip=0.1, noise=1.0, class_weights="balanced", seed=1),
    ):
        failure = silos.call({name: request})[name]
        assert "give class_weights as numbers" in str(failure)


def test_a_poisson_sample_draws_every_sample_independently():
    plan, weights = poisson_plan(40, 10, 4000, seed=5)
    taken = np.zeros((4000, 40), bool)
    for row, own, given in zip(taken, plan, weights, strict=True):
        assert len(set(own[given > 0])) == (given > 0).sum()
        row[own[given > 0]] = True
    assert taken.mean(0) == pytest.approx(np.full(40, 0.25), abs=0.04)
    assert taken.sum(1).var() == pytest.approx(40 * 0.25 * 0.75, rel=0.1)  # binomial
    assert np.corrcoef(taken[:, 0], taken[:, 1])[0, 1] == pytest.approx(0, abs=0.06)
    whole, even = poisson_plan(5, 9, 2, seed=0)
    assert np.sort(whole).tolist() == [[0, 1, 2, 3, 4]] * 2
    assert even == pytest.approx(np.full((2, 5), 0.2))


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_a_noisy_gradient_does_not_tell_the_size_of_its_batch(execution):
    request = Gradient(parameters=START[None], batch_size=8, clip=1.0, noise=0.5, seed=1)
    one, other = (replies(execution, request.changed(step=step))["a"] for step in (0, 1))
    assert one.samples == other.samples == 8
    assert one.losses == (0.0,)
    assert not torch.equal(one.gradient, other.gradient)


def test_noisy_gradients_are_the_same_looped_and_stacked():
    request = Gradient(parameters=START.repeat(3, 1), share=0.3, clip=1.0, noise=0.5, seed=1)
    looped, stacked = (replies(execution, request) for execution in ("looped", "stacked"))
    for name, reply in looped.items():
        assert_alike(stacked[name], reply)


def test_a_sample_that_is_no_number_is_not_betrayed_by_a_failure():
    """A model that overflows on some samples only: the answer must not fail because of them."""
    huge = START * 1e30
    for request in (
        Gradient(parameters=huge[None], clip=1.0, noise=1.0),
        Evaluate(parameters=huge, split="validation", bound=2.0, noise=1.0),
    ):
        for execution in ("looped", "stacked"):
            reply = replies(execution, request)["a"]
            assert hasattr(reply, "samples"), reply


def test_losses_are_bounded_and_noise_is_as_large_as_stated():
    plain = replies("looped", Evaluate(parameters=START, split="validation"))["a"]
    request = Evaluate(parameters=START, split="validation", bound=100.0)
    bounded = replies("stacked", request)["a"]
    assert bounded.losses == pytest.approx(plain.losses)
    tight = replies("looped", request.changed(bound=0.01))["a"].losses[0]
    assert 0 < tight <= 0.01
    noisy = [
        replies("looped", request.changed(noise=3.0, step=step, bound=5.0))["a"].losses[0]
        for step in range(300)
    ]
    assert np.std(noisy) == pytest.approx(3.0 * 5.0 / 11, rel=0.15)
    with pytest.raises(SettingsError, match="set bound"):
        Evaluate(parameters=START, split="test", noise=1.0)


def test_the_area_under_the_curve_is_made_of_noisy_counts():
    targets = torch.tensor([0.0] * 300 + [1.0] * 200)
    outputs = torch.cat([torch.linspace(-3, 1, 300), torch.linspace(-1, 3, 200)])[:, None]
    exact = noisy_score("binary", outputs, targets, 0.0, torch.zeros(32))
    assert exact == pytest.approx(0.875, abs=0.02)  # 1 − (1/2)·(1/2)²
    draws = [
        noisy_score("binary", outputs, targets, 3.0, torch.randn(32, generator=generator))
        for seed in range(100)
        for generator in [torch.Generator().manual_seed(seed)]
    ]
    assert 0.001 < np.std(draws) < 0.03
    assert math.isnan(noisy_score("binary", outputs, targets * 0, 0.0, torch.zeros(32)))
    accuracy = noisy_score("classification", torch.eye(4), torch.arange(4), 8.0, -torch.ones(32))
    assert accuracy == 0.0  # 1 − 8/4, which no accuracy is


def test_noise_from_a_secret_is_normal_and_depends_on_every_bit():
    normals = cipher_normals(bytes(32), 100_001).double()
    assert normals.mean().item() == pytest.approx(0, abs=0.01)
    assert normals.std().item() == pytest.approx(1, abs=0.01)
    assert (normals**4).mean().item() == pytest.approx(3, abs=0.1)
    assert (normals[:-1] * normals[1:]).mean().item() == pytest.approx(0, abs=0.02)
    seeds = [SecretSeed(2**200), SecretSeed(2**200 + 1), SecretSeed(2**232 + 2**200)]
    shape = torch.Size([4])
    one, other, third = (gaussian_noise(shape, 1.0, seed, 0) for seed in seeds)
    assert not torch.equal(one, other)
    assert not torch.equal(one, third)  # PyTorch would look at 32 bits of the seed
    assert torch.equal(one, gaussian_noise(shape, 1.0, seeds[0], 0))


def secret_silos():
    return {"secrets": {"a": b"secret of a", "b": b"secret of b"}}


def test_different_requests_share_neither_noise_nor_batches():
    """With shared noise, the difference of two answers would be exact."""
    for request in (
        Train(parameters=START, settings=PRIVATE.changed(learning_rate=1e-3, steps=1), seed=3),
        Gradient(parameters=START[None], clip=1.0, noise=5.0, seed=3),
    ):
        near = request.changed(parameters=request.parameters + 1e-5)
        one, again, other = (
            replies("looped", asked, **secret_silos())["a"] for asked in (request, request, near)
        )
        assert_alike(one, again)  # a run that is resumed goes on as before
        vector = "parameters" if isinstance(request, Train) else "gradient"
        change = (getattr(one, vector) - getattr(other, vector)).norm()
        assert change > 1e-4


def test_label_counts_have_noise_and_are_counts():
    silos = classified("icu-transformer", execution="looped")
    name = silos.participants[0]

    def counts(noise):
        return silos.call({name: Describe(noise=noise)})[name].labels

    assert sum(counts(0.0)) == 80
    assert counts(3.0) != counts(0.0)
    assert counts(3.0) == counts(3.0)  # the same noise: asking again tells nothing new
    assert all(isinstance(count, int) and count >= 0 for count in counts(1e4))


def test_a_metric_without_a_known_sensitivity_gets_no_noise_but_a_refusal():
    """Otherwise the usual metric would go under the name, and the direction, of the own one."""
    silos = SimulatedFederation(
        own_silos("linear"),
        module("linear"),
        task=own_task(TASKS["classification"], metrics={"errors": (lambda _o, _t: 0.5, "lower")}),
    )
    plain = Evaluate(parameters=torch.zeros(silos.schema.size), split="test")
    name = silos.participants[0]
    assert silos.call({name: plain})[name].scores == (0.5,)
    failure = silos.call({name: plain.changed(bound=1.0, noise=1.0)})[name]
    assert "errors is a metric of the model's own file" in failure.detail


def test_an_augmentation_cannot_mix_samples_where_these_are_limited():
    """With the mean of a batch subtracted, single samples are zero: only biases have gradients."""
    silos = SimulatedFederation(
        own_silos("linear"), module("linear"), augment=lambda x: x - x.mean(0, keepdim=True)
    )
    name, start = silos.participants[0], torch.zeros(silos.schema.size)
    weights = ~silos.schema.mask(["bias"])
    settings = TrainSettings(steps=1, batch_size=8)
    for limited in (False, True):
        clip = 1.0 if limited else None
        trained = silos.call({name: Train(parameters=start, settings=settings.changed(clip=clip))})
        asked = silos.call({name: Gradient(parameters=start, batch_size=8, clip=clip)})
        for found in (trained[name].parameters, asked[name].gradient):
            assert found.any()
            assert bool(found[weights].abs().max() < 1e-6) is limited
