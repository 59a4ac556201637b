"""The measured truth: helpers help, strangers hurt, and pairs are what was asked for."""

import numpy as np
import pytest
import torch

from fedegoists.benefit import MeasureSettings, measure
from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.federation.batches import stream_seed
from tests.benefit.consortia import OTHER, TASK, federation, regressions

TRAIN = TrainSettings(steps=100, learning_rate=0.05, batch_size=8)
SETTINGS = MeasureSettings(TRAIN, evaluations=4, repeats=3)


@pytest.fixture(scope="module")
def silos():
    tasks = {"a1": TASK, "a2": TASK, "b": OTHER}
    # So few training samples that a helper's are worth much.
    return federation(regressions(tasks, train=8, validation=60, noise=1.0, seed=3))


def test_helpers_help_and_strangers_hurt(silos):
    truth = measure(silos, SETTINGS)
    gains = truth.mean
    assert gains[0, 1] > 0
    assert gains[1, 0] > 0
    assert (gains[2, :2] < 0).all()
    assert (gains[:2, 2] < 0).all()
    low, high = truth.interval()
    assert (low <= gains).all()
    assert (gains <= high).all()
    assert not truth.edges()[2].any()
    # All together, a1 would rather do without b than without a2.
    assert truth.losses_without is not None
    without = truth.losses_without.mean(0)
    assert without[1, 0] > without[2, 0]


def test_alone_is_plain_local_training(silos):
    """The model of a single participant is what the silo's own training would give."""
    settings = MeasureSettings(
        TrainSettings(steps=5, learning_rate=0.05, batch_size=1000),
        evaluations=1,
        repeats=1,
        leave_one_out=False,
    )
    truth = measure(silos, settings, pairs=[("a2", "a1")])
    start = silos.schema.drawn(stream_seed(0, 0, "measure"))
    train = TrainSettings(steps=5, learning_rate=0.05, batch_size=1000, total_steps=5)
    trained = silos.call("train", {"a1": {"parameters": start, "settings": train}})["a1"]
    loss = silos.call("evaluate", {"a1": {"parameters": trained["parameters"], "split": "test"}})
    assert truth.alone[0, 0] == pytest.approx(loss["a1"]["loss"], rel=1e-4)
    assert np.isfinite(truth.gains[0, 1, 0])
    assert np.isnan(truth.gains[0, 2, 0])
    assert truth.losses_without is None


def test_no_model_is_trained_on_the_data_of_two_competitors():
    """Change one's data: what the other is asked about stays the same."""
    seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    short = MeasureSettings(TrainSettings(steps=3, batch_size=8), evaluations=1, repeats=2)
    for changed in (True, False):
        tasks = {"a1": OTHER if changed else TASK, "a2": TASK, "b": OTHER}
        inner = federation(regressions(tasks, train=8, seed=3))

        def call(operation, payloads, timeout=None, inner=inner, changed=changed):
            if "parameters" in payloads["a2"]:
                seen[changed].append(payloads["a2"]["parameters"].clone())
            return type(inner).call(inner, operation, payloads, timeout)

        inner.call = call
        truth = measure(inner, short, apart=[("a2", "a1")])
    assert all(torch.equal(one, other) for one, other in zip(*seen.values(), strict=True))
    measured = np.isfinite(truth.mean)
    assert measured[0].tolist() == [True, False, True]
    assert measured[:, 1].tolist() == [False, True, True]
    assert truth.losses_without is None
    with pytest.raises(SettingsError, match="compete"):
        measure(inner, short, pairs=[("a1", "a2")], apart=[("a1", "a2")])


def test_what_cannot_be_measured_is_named(silos):
    with pytest.raises(SettingsError, match="not a pair of two participants"):
        measure(silos, SETTINGS, pairs=[("a1", "a1")])
    with pytest.raises(SettingsError, match="evaluations"):
        MeasureSettings(TRAIN, evaluations=1000)
    one = measure(silos, MeasureSettings(TRAIN, evaluations=1, repeats=1, leave_one_out=False))
    with pytest.raises(SettingsError, match="repeats of at least 2"):
        one.interval()


def test_drawn_parameters_start_like_the_layers_do():
    from fedegoists.learning.models import build_model
    from fedegoists.learning.parameters import ParameterSchema

    for name, options in (
        ("mlp", {"features": 20}),
        ("icu-transformer", {"hourly": 6, "static": 3, "hours": 5}),
    ):
        model = build_model(name, 0, **options)
        schema = ParameterSchema.of(model)
        drawn = schema.unflatten(schema.drawn(0))
        for key, value in model.named_parameters():
            assert drawn[key].std(correction=0).item() == pytest.approx(
                value.std(correction=0).item(), rel=0.5, abs=0.02
            )
            assert drawn[key].mean().item() == pytest.approx(value.mean().item(), abs=0.1)
        assert torch.equal(schema.drawn(1), schema.drawn(1))
