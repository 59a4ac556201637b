"""Networks, parameters as vectors, and tasks."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from fedegoists.errors import SettingsError
from fedegoists.learning.model_registry import OUTPUT_LAYER
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import TASKS, area_under_curve
from tests.silos import MODELS

SIZES = {"mlp": 2_201, "cifar10-cnn": 121_182, "cifar100-cnn": 128_832}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_paper(name):
    """Counted by hand: for CIFAR-10, 1,216 + 12,832 + 96,120 + 10,164 + 850."""
    assert ParameterSchema.of(build_model(name, 0, **MODELS[name])).size == SIZES[name]


def test_the_network_of_pfllib_has_its_four_layers():
    """Counted by hand: 2,432 + 51,264 + 819,712 + 5,130 with ten classes."""
    model = build_model("pfllib-cnn", 0, outputs=10)
    schema = ParameterSchema.of(model)
    assert schema.size == 878_538
    assert [name.split(".")[0] for name in schema.names[::2]] == ["conv1", "conv2", "fc1", "output"]
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_model_and_leaves_randomness_alone(name):
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one, same, other = (build_model(name, seed, **MODELS[name]) for seed in (3, 3, 4))
    assert torch.equal(torch.rand(1), expected)
    schema = ParameterSchema.of(one)
    vectors = [schema.flatten(dict(m.named_parameters())) for m in (one, same, other)]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])
    assert any(parameter.startswith(OUTPUT_LAYER) for parameter in schema.names)


@pytest.mark.parametrize("name", MODELS)
def test_flatten_and_unflatten_are_inverse(name):
    model = build_model(name, 0, **MODELS[name])
    schema = ParameterSchema.of(model)
    vector = torch.arange(schema.size, dtype=torch.float32)
    assert torch.equal(schema.flatten(schema.unflatten(vector)), vector)
    stacked = schema.unflatten(torch.stack([vector, vector + 1]))
    for key, value in schema.unflatten(vector + 1).items():
        assert torch.equal(stacked[key][1], value)


def test_masks_and_errors():
    schema = ParameterSchema(("a.weight", "b.weight", "b.bias"), ((2,), (1, 2), (1,)))
    assert schema.mask(["b."]).tolist() == [False, False, True, True, True]
    assert schema.mask([]).tolist() == [False] * 5
    with pytest.raises(SettingsError, match=r"no parameter starts with 'c\.'"):
        schema.mask(["c."])
    with pytest.raises(SettingsError, match="4 parameters where 5 are expected"):
        schema.unflatten(torch.zeros(4))
    with pytest.raises(SettingsError, match="unknown model 'resnext'"):
        build_model("resnext", 0)


def test_attention_is_over_the_hours_of_one_stay():
    """Another patient in the batch changes nothing; another hour of the same one does."""
    model = build_model("icu-transformer", 0, **MODELS["icu-transformer"])
    hourly, static = torch.randn(3, 5, 6), torch.randn(3, 3)
    before = model(hourly, static)
    changed = hourly.clone()
    changed[1, 2] += 1
    after = model(changed, static)
    torch.testing.assert_close(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


def test_missing_values_are_told_from_zeros():
    model = build_model("icu-transformer", 0, **MODELS["icu-transformer"])
    hourly, static = torch.zeros(1, 5, 6), torch.zeros(1, 3)
    missing = hourly.clone()
    missing[0, 1, 2] = torch.nan
    assert torch.isfinite(model(missing, static)).all()
    assert not torch.allclose(model(hourly, static), model(missing, static))


def test_losses_and_scores_by_hand():
    classes = TASKS["classification"]
    logits = torch.tensor([[0.0, 0.0], [0.0, np.log(3.0)]])
    targets = torch.tensor([0, 1])
    assert classes.loss(logits, targets).item() == pytest.approx((np.log(2) + np.log(4 / 3)) / 2)
    assert classes.score(logits, targets) == 1.0
    binary = TASKS["binary"]
    assert binary.loss(torch.zeros(2, 1), torch.tensor([0.0, 1.0])).item() == pytest.approx(
        np.log(2)
    )
    regression = TASKS["regression"]
    outputs, values = torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 0.0])
    assert regression.score(outputs, values) == 5.0
    weights = torch.tensor([1.0, 0.0])
    assert regression.loss(outputs, values, weights).item() == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_area_under_the_curve_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, 40) / 5  # with ties
    targets = rng.integers(0, 2, 40)
    ours = area_under_curve(torch.tensor(scores), torch.tensor(targets).float())
    assert ours == pytest.approx(roc_auc_score(targets, scores))
    assert np.isnan(area_under_curve(torch.tensor(scores), torch.ones(40)))
