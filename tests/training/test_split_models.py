"""Methods with a personal output layer, from a comparison's settings to a method."""

import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning.datasets import load
from fedegoists.training.decisions import Decisions
from fedegoists.training.repetitions import Repetitions, Wanted, method_of, train_methods

SPLIT = ("fedper", "fedrep", "fedbabu")


def repetitions(model):
    data = {0: load("synthetic-weak", seed=0)}
    found = Repetitions.simulated(data, steps=2, device="cpu", model=model)
    group = [tuple(found.federation.participants)]
    return found, Decisions(group, group, None)


def test_a_model_without_body_is_refused_before_others_have_trained_it(tmp_path):
    found, decisions = repetitions("linear")
    trained = []

    def place(name):
        trained.append(name)
        return tmp_path / name

    whys = dict.fromkeys(SPLIT, "silos keep output. and share the rest")
    whys["feddbe"] = "representations are what goes into the layer output, .* above other layers"
    for name, why in whys.items():
        with pytest.raises(SettingsError, match=f"{name}: {why}"):
            train_methods(Wanted(("local", name)), found, decisions, place)
    assert trained == []


@pytest.mark.parametrize("name", SPLIT)
def test_the_head_is_the_models_output_layer_in_any_task_or_what_a_user_names(name):
    found, decisions = repetitions("mlp")
    method = method_of(name, Wanted((name,)), found, decisions)
    assert method.personal == ("output.",)
    assert found.federation.task.name == "regression"
    named = method_of(name, Wanted((name,), personal=("hidden.",)), found, decisions)
    assert named.body(found.federation.schema) == ("output.weight", "output.bias")
