"""The simulated federation: the same numbers looped and stacked, and failures as values."""

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Failure, TrainSettings
from fedegoists.federation.federation import accepted
from fedegoists.federation.operations import batch_plan, learning_rates, stream_seed
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.parameters import ParameterSchema
from tests.silos import MODELS, SIZES, federation, initial, silos

SETTINGS = TrainSettings(steps=4, batch_size=48, learning_rate=0.05, weight_decay=1e-3)


def call(model, execution, operation, **payload):
    silos_ = federation(model, execution=execution)
    start = initial(model)
    return silos_.call(
        operation,
        {n: {"parameters": start[k], **payload} for k, n in enumerate(silos_.participants)},
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("operation", "payload"),
    [
        ("train", {"settings": SETTINGS, "seed": 3, "keep_momentum": True}),
        ("loss_and_gradient", {"batch_size": 32, "seed": 3}),
        ("loss_and_gradient", {"split": "validation"}),
        ("evaluate", {"split": "test"}),
    ],
)
def test_looped_equals_stacked_on_every_model(model, operation, payload):
    if operation == "train" and model.startswith("cifar"):
        payload = {**payload, "settings": TrainSettings(**{**vars(SETTINGS), "augment": True})}
    looped = call(model, "looped", operation, **payload)
    stacked = call(model, "stacked", operation, **payload)
    assert looped.keys() == stacked.keys() == {"s0", "s1", "s2"}
    for name, one in looped.items():
        other = stacked[name]
        assert one.keys() == other.keys()
        for key, value in one.items():
            if isinstance(value, torch.Tensor):
                # Rounding can decide which of two nearly equal pixels a pooling layer takes.
                torch.testing.assert_close(value, other[key], rtol=1e-3, atol=3e-4)
            else:
                assert value == pytest.approx(other[key], rel=1e-4, abs=1e-6)


def test_training_is_momentum_descent_worked_out_in_numpy():
    """One silo with as many samples as a batch holds, a linear model, two steps by hand."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    data = SiloedData(
        "line",
        "regression",
        Samples((x.astype(np.float32),), y.astype(np.float32)),
        (SiloIndices("a", np.arange(8), np.arange(8, 10), np.arange(10, 12)),),
        None,
        "",
        (),
    )
    from fedegoists.federation import SimulatedFederation
    from tests.silos import Line

    start = np.array([0.5, -1.0, 0.25])  # two weights and a bias
    settings = TrainSettings(
        steps=2, batch_size=64, learning_rate=0.1, momentum=0.5, weight_decay=0.01
    )
    w, v = start.copy(), np.zeros(3)
    design = np.hstack([x[:8], np.ones((8, 1))])
    for _ in range(2):
        gradient = 2 * design.T @ (design @ w - y[:8]) / 8 + 0.01 * w
        v = 0.5 * v + gradient
        w = w - 0.1 * v
    for execution in ("looped", "stacked"):
        silo = SimulatedFederation(data, Line(2), execution=execution)
        payload = {"parameters": torch.tensor(start).float(), "settings": settings}
        reply = silo.call("train", {"a": {**payload, "keep_momentum": True}})["a"]
        np.testing.assert_allclose(reply["parameters"], w, rtol=1e-5)
        np.testing.assert_allclose(reply["momentum"], v, rtol=1e-5)
        assert reply["samples"] == 8
        assert reply["sample_passes"] == 16


def test_training_in_two_halves_with_momentum_is_training_at_once():
    settings = TrainSettings(steps=6, batch_size=200, total_steps=6)
    half = TrainSettings(steps=3, batch_size=200, total_steps=6)
    silo = federation("mlp")
    start = initial("mlp")[0]
    whole = silo.call("train", {"s0": {"parameters": start, "settings": settings}})["s0"]
    payload = {"settings": half, "keep_momentum": True}
    first = silo.call("train", {"s0": {**payload, "parameters": start}})["s0"]
    second = silo.call(
        "train",
        {
            "s0": {
                **payload,
                "parameters": first["parameters"],
                "momentum": first["momentum"],
                "first_step": 3,
            }
        },
    )["s0"]
    torch.testing.assert_close(second["parameters"], whole["parameters"], rtol=1e-5, atol=1e-6)


def test_batches_pass_over_all_samples_before_repeating():
    plan = batch_plan(10, 4, 5, seed=1)
    order = plan.flatten().tolist()
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10))
    assert torch.equal(plan, batch_plan(10, 4, 5, seed=1))
    assert not torch.equal(plan, batch_plan(10, 4, 5, seed=2))
    assert batch_plan(3, 64, 2, seed=0).shape == (2, 3)


def test_the_learning_rate_falls_along_a_cosine():
    settings = TrainSettings(steps=2, learning_rate=1.0, total_steps=4)
    assert learning_rates(settings, 0) == pytest.approx([1.0, 0.5 + 0.5 * 2**-0.5])
    assert learning_rates(settings, 2) == pytest.approx([0.5, 0.5 - 0.5 * 2**-0.5])
    assert learning_rates(TrainSettings(steps=2), 7) == [0.01, 0.01]


def test_seeds_depend_on_every_part_and_on_nothing_else():
    assert stream_seed(1, "a") == stream_seed(1, "a") != stream_seed(1, "b")
    assert stream_seed("1", "23") != stream_seed("12", "3")


@pytest.mark.parametrize("broken_silo", [0, 1])
def test_a_silo_with_broken_numbers_fails_alone(broken_silo):
    """The first silo's first sample is the first of the pool; the second has less than a batch."""
    data = silos("mlp")
    inputs = data.samples.inputs[0].copy()
    inputs[data.silos[broken_silo].train] = 1e30
    broken = SiloedData(
        data.name, data.task, Samples((inputs,), data.samples.targets), data.silos, None, "", ()
    )
    for execution in ("looped", "stacked"):
        replies = federation("mlp", broken, execution=execution).call(
            "train",
            {
                name: {"parameters": initial("mlp")[0], "settings": SETTINGS}
                for name in ("s0", "s1", "s2")
            },
        )
        whole = federation("mlp", data, execution=execution).call(
            "train",
            {
                name: {"parameters": initial("mlp")[0], "settings": SETTINGS}
                for name in ("s0", "s1", "s2")
            },
        )
        failed = f"s{broken_silo}"
        assert isinstance(replies[failed], Failure)
        assert replies[failed].reason == "not finite"
        for name in {"s0", "s1", "s2"} - {failed}:
            torch.testing.assert_close(replies[name]["parameters"], whole[name]["parameters"])


def test_a_slow_silo_is_a_failure():
    replies = federation("mlp").call(
        "train", {"s0": {"parameters": initial("mlp")[0], "settings": SETTINGS}}, timeout=0.0
    )
    assert replies == {"s0": Failure("s0", "timeout", "0 s")}


def test_replies_of_the_wrong_shape_are_refused():
    schema = ParameterSchema(("w",), ((3,),))
    reply = {"parameters": torch.zeros(3), "loss": 0.5}
    assert accepted("a", reply, schema) is reply
    failure = accepted("a", {"parameters": torch.zeros(2)}, schema)
    assert isinstance(failure, Failure)
    assert failure.reason == "wrong shape"
    failure = accepted("a", {"loss": float("nan")}, schema)
    assert isinstance(failure, Failure)
    assert str(failure) == "a: not finite (loss)"


def test_several_trials_are_one_federation_and_share_samples():
    data = silos("mlp")
    both = federation("mlp", {"0": data, "7": data})
    assert both.participants == ("0/s0", "0/s1", "0/s2", "7/s0", "7/s1", "7/s2")
    assert both._silos["7/s0"].inputs[0].data_ptr() == both._silos["0/s0"].inputs[0].data_ptr()
    assert len(both._silos["0/s0"].targets) == sum(SIZES)
    other = federation("mlp", {"0": data, "7": silos("mlp", seed=5)})
    assert len(other._silos["0/s0"].targets) == 2 * sum(SIZES)
    payload = {"parameters": initial("mlp")[0], "split": "test"}
    apart = federation("mlp", silos("mlp", seed=5)).call("evaluate", {"s1": payload})["s1"]
    assert other.call("evaluate", {"7/s1": payload})["7/s1"] == pytest.approx(apart)


def test_a_trial_gives_the_same_numbers_alone_and_beside_others():
    payload = {"parameters": initial("mlp")[0], "settings": SETTINGS}
    alone = federation("mlp", {"7": silos("mlp")}).call("train", {"7/s0": payload})
    beside = federation("mlp", {"3": silos("mlp"), "7": silos("mlp")}).call(
        "train", dict.fromkeys(("3/s0", "7/s0"), payload)
    )
    torch.testing.assert_close(alone["7/s0"]["parameters"], beside["7/s0"]["parameters"])


def test_describe():
    reply = federation("cifar10-cnn").call("describe", {"s0": {}})["s0"]
    assert (reply["train_samples"], reply["validation_samples"]) == (80, 15)
    assert sum(reply["labels"]) == 80
    assert len(reply["labels"]) == 10


def test_errors():
    silo = federation("mlp")
    with pytest.raises(SettingsError, match="unknown operation 'steal'"):
        silo.call("steal", {"s0": {}})
    with pytest.raises(SettingsError, match="'x' is not in this federation"):
        silo.call("train", {"x": {}})
    with pytest.raises(SettingsError, match="unknown device 'abacus'"):
        federation("mlp", device="abacus")
    if not torch.cuda.is_available():
        with pytest.raises(SettingsError, match="no usable GPU here; use --device cpu"):
            federation("mlp", device="cuda")
    with pytest.raises(SettingsError, match="steps is 0"):
        TrainSettings(steps=0)
