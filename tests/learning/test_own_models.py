"""Models from a user's own file."""

import json

import pytest
import torch
from torch import nn

from fedegoists.consortium.consortium_settings import ConsortiumSettings, read_settings
from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.models import build_model
from fedegoists.learning.own_models import model_parts
from tests.own_modules import own_silos

PLAIN = """
from torch import nn

def build(data):
    return nn.Sequential(nn.Linear(data.shapes[0][0], 5), nn.ReLU(), nn.Linear(5, data.classes))
"""
WHOLE = """
import torch
from torch import nn

def loss(outputs, targets):
    return 2 * nn.functional.cross_entropy(outputs, targets, reduction=REDUCTION)

def errors(outputs, targets):
    return (outputs.argmax(-1) != targets).float().mean()

def build():
    return {
        "model": nn.Linear(6, 3),
        "loss": loss,
        "metrics": {"errors": (errors, "lower")},
        "optimiser": {"optimiser": "adamw", "learning_rate": 0.003},
        "augment": lambda x: x + torch.randn_like(x),
    }
"""


def written(tmp_path, text):
    path = tmp_path / "model.py"
    path.write_text(text, encoding="utf-8")
    return f"{path}:build"


def test_the_function_sees_the_data_and_its_seed_decides_the_parameters(tmp_path):
    name, data = written(tmp_path, PLAIN), own_silos("linear")
    one, same, other = (model_parts(data, name, seed).module for seed in (0, 0, 1))
    assert one[0].in_features == 6
    assert one[2].out_features == 3
    assert torch.equal(one[0].weight, same[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)
    options = json.loads(json.dumps(model_options(data, name)))  # as a card keeps them
    again = build_model(name, 0, **options)
    assert torch.equal(again[0].weight, one[0].weight)


@pytest.mark.parametrize(("reduction", "engine"), [('"none"', "stacked"), ('"mean"', "looped")])
def test_an_own_loss_and_metric_are_used(tmp_path, reduction, engine):
    text = WHOLE.replace("REDUCTION", reduction).replace('"augment": lambda', '# "augment": lambda')
    data = own_silos("linear")
    parts = model_parts(data, written(tmp_path, text))
    assert dict(parts.settings) == {"optimiser": "adamw", "learning_rate": 0.003}
    silos = SimulatedFederation(data, parts.module, task=parts.task)
    assert silos.engine.name == engine
    assert (silos.task.metric, silos.task.higher_is_better) == ("errors", False)
    plain = SimulatedFederation(data, nn.Linear(6, 3))
    from fedegoists.federation import Evaluate

    request = Evaluate(parameters=torch.linspace(-1, 1, 21), split="test")
    own, usual = (one.call({one.participants[0]: request}) for one in (silos, plain))
    (found,), (expected,) = own.values(), usual.values()
    assert found.losses[0] == pytest.approx(2 * expected.losses[0], rel=1e-5)
    assert found.scores[0] == pytest.approx(1 - expected.scores[0])


def test_an_own_augmentation_is_drawn_from_the_seed(tmp_path):
    from fedegoists.federation import Train, TrainSettings

    data = own_silos("linear")
    parts = model_parts(data, written(tmp_path, WHOLE.replace("REDUCTION", '"none"')))

    def trained(seed, **own):
        silos = SimulatedFederation(data, nn.Linear(6, 3), **own)
        request = Train(parameters=torch.zeros(21), settings=TrainSettings(steps=3), seed=seed)
        return silos.call({silos.participants[0]: request})[silos.participants[0]].parameters

    torch.manual_seed(1)
    one = trained(0, augment=parts.augment)
    torch.manual_seed(2)
    assert torch.equal(one, trained(0, augment=parts.augment))
    assert not torch.equal(one, trained(0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build(:", "raised SyntaxError"),
        ("x = 1", "has no function 'build'"),
        ("def build(data):\n    return data.colour", "raised AttributeError.*call it yourself"),
        ("def build():\n    return 3", "returned a int; expected a torch.nn.Module, an Arr"),
        (WHOLE.replace('"loss": loss', '"los": loss'), "returned the key 'los'; keys are model"),
        (WHOLE.replace('"loss": loss', '"loss": 3'), "loss is 3; expected a function"),
        (WHOLE.replace('"lower"', '"less"'), "the metric 'errors' is .*expected a function, or a"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, text, message):
    with pytest.raises(SettingsError, match=message):
        model_parts(own_silos("linear"), written(tmp_path, text.replace("REDUCTION", '"none"')))


def test_a_loss_that_fails_is_named_before_anything_trains(tmp_path):
    text = WHOLE.replace("REDUCTION", '"sideways"')
    data = own_silos("linear")
    parts = model_parts(data, written(tmp_path, text))
    with pytest.raises(SettingsError, match="the loss raised ValueError for outputs of the shape"):
        SimulatedFederation(data, parts.module, task=parts.task)


def test_a_file_that_changed_is_another_model(tmp_path):
    data, name = own_silos("linear"), written(tmp_path, PLAIN)
    options = model_options(data, name)
    written(tmp_path, PLAIN.replace("5", "7"))
    assert model_parts(data, name).module[0].out_features == 7
    with pytest.raises(SettingsError, match="has changed since this model was made"):
        build_model(name, 0, **options)


def test_the_file_is_looked_for_beside_the_consortium(tmp_path):
    written(tmp_path, PLAIN)
    file = tmp_path / "consortium.toml"
    file.write_text('[data]\nsource = "synthetic-weak"\n[training]\nmodel = "model.py:build"\n')
    assert read_settings(file).training.model == f"{tmp_path / 'model.py'}:build"
    with pytest.raises(ValueError, match="for a model that is chosen by name"):
        ConsortiumSettings(
            data={"source": "x"}, training={"model": "a.py:f", "model_settings": {"hidden": 3}}
        )
    with pytest.raises(SettingsError, match="no such file; it is looked for beside"):
        model_parts(own_silos("linear"), str(tmp_path / "other.py:build"))
