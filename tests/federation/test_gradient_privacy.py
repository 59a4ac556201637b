"""Gradients of single samples, made a few at a time."""

import pytest
import torch

from fedegoists.federation import Gradient, Participant
from fedegoists.federation import gradient_privacy as privacy
from fedegoists.federation.gradient_privacy import clipped_gradient
from fedegoists.learning.models import build_model
from fedegoists.learning.network import Network
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import TASKS
from tests.silos import MODELS, federation, initial

MODEL = build_model("mlp", 0, **MODELS["mlp"])
SCHEMA = ParameterSchema.of(MODEL)
CLIP = 8.0


def batch(count):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(count, 20, generator=generator),), torch.randn(count, generator=generator)


def one_by_one(vector, inputs, targets, weights):
    """Every sample's gradient by plain differentiation, shortened and added up."""
    total = torch.zeros_like(vector)
    lengths = []
    for k, weight in enumerate(weights):
        leaf = vector.clone().requires_grad_()
        outputs = torch.func.functional_call(MODEL, SCHEMA.unflatten(leaf), (inputs[0][k : k + 1],))
        (own,) = torch.autograd.grad(TASKS["regression"].loss(outputs, targets[k : k + 1]), leaf)
        lengths.append(own.norm())
        total += weight * min(1.0, CLIP / own.norm()) * own
    return total, torch.stack(lengths)


@pytest.mark.parametrize("at_once", [1, 4, 5, 10, 11, 1000])
@pytest.mark.parametrize("uneven", [False, True])
def test_a_few_samples_at_a_time_give_what_all_at_once_do(monkeypatch, at_once, uneven):
    """Eleven samples: parts of 4, 5 or 10 leave a shorter one; with weights, two are padding."""
    vector = initial("mlp", 1)[0]
    inputs, targets = batch(11)
    weights = torch.tensor([0.3, 0.05, 0.1, 0.1, 0.05, 0.1, 0.1, 0.15, 0.05, 0.0, 0.0])
    given = (vector, inputs, targets) + ((weights,) if uneven else ())
    expected, lengths = one_by_one(
        vector, inputs, targets, weights if uneven else torch.full((11,), 1 / 11)
    )
    assert (lengths > CLIP).any()
    assert (lengths < CLIP).any()
    monkeypatch.setattr(privacy, "AT_ONCE", at_once * SCHEMA.size)
    function = clipped_gradient(Network(MODEL, TASKS["regression"]).loss, SCHEMA, CLIP)
    gradient, loss = function(*given)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)
    assert loss == 0


@pytest.mark.parametrize("model", ["mlp", "cifar10-cnn", "icu-transformer"])
@pytest.mark.parametrize("at_once", [7, 100])
def test_parts_of_models_and_samples_change_no_answer(monkeypatch, model, at_once):
    """Silos with 80, 30 and 60 samples: 100 are two models with padding; 7 leave a shorter part."""
    asked = {"seed": 3, "clip": 2.0, "noise": 0.5, "batch_size": 50}
    requests = {
        Participant(f"s{k}"): Gradient(parameters=initial(model, 2, seed=k), **asked)
        for k in range(3)
    }
    whole = federation(model, execution="stacked").call(requests)
    size = initial(model, 1).shape[1]
    monkeypatch.setattr(privacy, "AT_ONCE", at_once * size)
    for execution in ("looped", "stacked"):
        parts = federation(model, execution=execution).call(requests)
        for name, reply in whole.items():
            torch.testing.assert_close(parts[name].gradient, reply.gradient, rtol=1e-4, atol=1e-5)
