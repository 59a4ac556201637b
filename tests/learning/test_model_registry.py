"""Networks by name: which data each one suits, what is said where one does not, and no PyTorch."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning.model_registry import MODELS, model_for, model_options
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.training.defaults import SCHEDULES, defaults_for, learn_settings
from tests.silos import silos


def shaped(*shapes, task="classification", classes=10):
    return SimpleNamespace(name="tiny", task=task, classes=classes, shapes=shapes)


@pytest.mark.parametrize("name", ["mlp", "cifar10-cnn", "cifar100-cnn", "icu-transformer"])
def test_auto_is_the_network_made_for_the_data(name):
    data = silos(name)
    assert model_for(data).name == model_for(data, name).name == name
    model = build_model(name, 0, **model_options(data))
    names = ParameterSchema.of(model).names
    assert any(one.startswith(MODELS[name].output_layer) for one in names)
    assert defaults_for(data).model == name
    assert learn_settings(data).local.steps == SCHEDULES[MODELS[name].inputs].benefit_steps


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (
            shaped((32, 32, 3)),
            "mlp",
            r"the model 'mlp' does not suit the data set 'tiny' \(mlp: it takes samples of the "
            r"shape \(…\), not samples of the shape \(32, 32, 3\)\); models that do: cifar10-cnn, ",
        ),
        (shaped((28, 28, 1)), "cifar10-cnn", r"\(32, 32, 3\), not samples of the shape \(28, 28"),
        (shaped((7,)), "icu-transformer", r"shape \(…, …\) and \(…\), not"),
        (shaped((32, 32, 3), classes=100), "cifar10-cnn", "it has 10 outputs for 100 classes"),
        (shaped((32, 32, 3), task="binary", classes=2), "cifar10-cnn", "for classifications, not"),
        (shaped((7,)), "mpl", "unknown model 'mpl'; models are mlp, logistic"),
        (
            shaped((28, 28)),
            "auto",
            r"no model suits the data set 'tiny' \(mlp: it takes samples",
        ),
    ],
)
def test_a_network_that_does_not_suit_the_data_is_refused_early(data, name, message):
    with pytest.raises(SettingsError, match=message):
        model_for(data, name)


def test_options_follow_from_the_data():
    assert model_options(shaped((7,), classes=4)) == {"features": 7, "outputs": 4}
    assert model_options(shaped((7,), task="binary", classes=2)) == {"features": 7, "outputs": 1}
    hours = shaped((12, 48), (4,), task="binary", classes=2)
    assert model_options(hours) == {"hourly": 48, "static": 4, "hours": 12}
    several = shaped((12, 48), (4,), classes=3)
    model = build_model("icu-transformer", 0, **model_options(several))
    assert model.output.out_features == 3
    assert model_for(shaped((32, 32, 3), classes=11)).name == "cifar100-cnn"


def test_the_registry_needs_no_pytorch():
    code = (
        "import sys; from fedegoists.learning.model_registry import MODELS, model_for\n"
        "print('torch' in sys.modules)"
    )
    seen = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert seen.stdout.strip() == "False"
