"""Networks by name: their settings, their defaults, and that each can be trained."""

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation, Train, Trained, TrainSettings
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.data_description import DataDescription
from fedegoists.learning.model_registry import (
    MODELS,
    model_named,
    model_reason,
    suggested_model,
)
from fedegoists.learning.own_models import model_parts
from fedegoists.training.defaults import defaults_for

SHAPES = {
    "logistic": ((6,),),
    "linear": ((6,),),
    "cox": ((6,),),
    "mlp(hidden=7)": ((6,),),
    "cnn(width=4, layers=2)": ((12, 10, 1),),
    "resnet(width=4)": ((12, 10, 3),),
    "lstm(width=5, dropout=0.5)": ((4, 3), (2,)),
    "transformer(width=8, heads=2)": ((4, 3), (2,)),
}


def silos(shapes, task="classification", count=60):
    rng = np.random.default_rng(0)
    kind = np.uint8 if len(shapes[0]) == 3 else np.float32
    inputs = tuple(rng.normal(100, 20, (count, *shape)).astype(kind) for shape in shapes)
    targets = rng.integers(0, 3, count)
    if task == "regression":
        targets = targets.astype(np.float32)
    if task == "survival":
        targets = rng.exponential(size=count).astype(np.float32) * rng.choice([-1, 1], count)
    rows = np.split(np.arange(count), [count - 20, count - 10])
    classes = 3 if task == "classification" else None
    return SiloedData(
        "own", task, Samples(inputs, targets), (SiloIndices("a", *rows),), classes, "", ()
    )


@pytest.mark.parametrize("name", SHAPES)
def test_every_network_can_be_built_and_trained(name):
    (task,) = MODELS[name].tasks[-1:] if name in MODELS else ("classification",)
    data = silos(SHAPES[name], task)
    federation = SimulatedFederation(data, model_parts(data, name).module)
    start = federation.schema.flatten(dict(model_parts(data, name).module.named_parameters()))
    settings = defaults_for(data, 4, name).train
    (reply,) = federation.call(
        {federation.participants[0]: Train(parameters=start, settings=settings)}
    ).values()
    assert isinstance(reply, Trained)
    assert not torch.equal(reply.parameters, start)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlp(hiden=3)", "mlp has no setting 'hiden'; it has hidden"),
        ("mlp(hidden=0)", "hidden is 0; expected 1 to 100000"),
        ("mlp(hidden=2.5)", "hidden is 2.5; expected a whole number"),
        ("mlp(hidden=True)", "hidden is True; expected a whole number"),
        ("mlp(hidden)", "is no model; expected such as mlp"),
        ("mlp(hidden=__import__('os'))", "is no model; expected such as mlp"),
        ("logistic(hidden=3)", "it has none"),
        ("lmp", "unknown model 'lmp'; models are mlp.*or a function in a file"),
    ],
)
def test_settings_of_a_network_are_checked(name, message):
    with pytest.raises(SettingsError, match=message):
        model_named(name)


def test_a_network_with_settings_is_named_by_them():
    entry = MODELS["lstm"].set_to({"width": 5, "dropout": 0.5})
    assert entry.name == "lstm(dropout=0.5, width=5)"
    assert model_named(entry.name) == entry
    assert entry.base == "lstm"


@pytest.mark.parametrize(
    ("rows", "task", "expected"),
    [
        (300, "binary", "logistic"),
        (300, "regression", "linear"),
        (300, "survival", "cox"),
        (5000, "binary", "mlp"),
    ],
)
def test_small_tables_begin_with_a_linear_model_and_it_is_said_why(rows, task, expected):
    from fedegoists.learning.data import SplitSizes

    sizes = {"a": SplitSizes(rows, 9, 9), "b": SplitSizes(rows + 1, 9, 9), "c": SplitSizes(2, 1, 1)}
    classes = 2 if task == "binary" else None
    data = DataDescription("own", task, classes, sizes, ((6,),), ("f4",), "")
    assert suggested_model(data).name == expected
    assert (f"{rows} training rows" in model_reason(data)) == (rows < 1000)


def test_another_optimiser_brings_its_usual_rate_and_a_constant_rate_stays():
    data = silos(((6,),))
    usual = defaults_for(data, 100, "mlp").train
    assert defaults_for(data, 100, "mlp", {"optimiser": "adamw"}).train.learning_rate == 0.001
    adapted = defaults_for(data, 100, "mlp", {"optimiser": "adamw"})
    assert adapted.plain(adapted.train) == usual
    constant = defaults_for(data, 100, "mlp", {"schedule": "constant", "steps": 7})
    assert (constant.train.total_steps, constant.train.steps, constant.rounds) == (None, 7, 15)
    assert isinstance(usual, TrainSettings)
