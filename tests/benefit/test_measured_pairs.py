"""The measured truth: helpers help, strangers hurt, and pairs are what was asked for."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.benefit import MeasureSettings, measure
from fedegoists.errors import SettingsError
from fedegoists.federation import (
    Describe,
    Evaluate,
    Gradients,
    Participant,
    Train,
    TrainSettings,
)
from fedegoists.federation.batches import stream_seed
from tests.benefit.consortia import OTHER, TASK, federation, regressions

TRAIN = TrainSettings(steps=100, learning_rate=0.05, batch_size=8)
SETTINGS = MeasureSettings(train=TRAIN, evaluations=4, repeats=3)


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
        train=TrainSettings(steps=5, learning_rate=0.05, batch_size=1000),
        evaluations=1,
        repeats=1,
        leave_one_out=False,
    )
    truth = measure(silos, settings, pairs=[("a2", "a1")])
    start = silos.schema.drawn(stream_seed(0, 0, "measure"))
    train = TrainSettings(steps=5, learning_rate=0.05, batch_size=1000, total_steps=5)
    a1 = Participant("a1")
    trained = silos.call({a1: Train(parameters=start, settings=train)})[a1]
    tested = silos.call({a1: Evaluate(parameters=trained.parameters, split="test")})[a1]
    assert truth.alone[0, 0] == pytest.approx(tested.losses[0], rel=1e-4)
    assert np.isfinite(truth.gains[0, 1, 0])
    assert np.isnan(truth.gains[0, 2, 0])
    assert truth.losses_without is None


def silent(request, reply):
    raise ConnectionError("gone")


def beyond(request, reply):
    if not isinstance(reply, Gradients):
        return reply
    return reply.model_copy(update={"gradient": 1e9 * reply.gradient})


@pytest.mark.parametrize("behaviour", [silent, beyond])
def test_what_a_bad_silo_took_part_in_is_not_measured_and_all_else_is(behaviour):
    tasks = {"a1": TASK, "a2": TASK, "x": OTHER}
    data = regressions(tasks, train=8, seed=3)
    short = MeasureSettings(train=TrainSettings(steps=30, batch_size=8), evaluations=2, repeats=2)
    honest = measure(federation(data), short)
    truth = measure(federation(data, behaviours={"x": behaviour}), short)
    assert honest.failures == ()
    assert np.isnan(truth.gains[:, 2, :2]).all()
    assert np.isnan(truth.gains[:, :2, 2]).all()
    np.testing.assert_allclose(truth.gains[:, :2, :2], honest.gains[:, :2, :2], rtol=1e-5)
    np.testing.assert_allclose(truth.alone[:, :2], honest.alone[:, :2], rtol=1e-5)
    assert "a1, x: no result in every repeat" in truth.failures


def test_a_pair_by_hand():
    """One step from w with all samples, batches as large as the data; gradients by hand.

    With 8 and 24 samples the pair's gradient is g = (8 g₁ + 24 g₂)/32, as on pooled data, and a
    step of rate η leads to w − η g, where g₁ is the mean over samples of 2 (ŵ·x − y) (x, 1).
    """
    data = regressions({"a": TASK, "b": OTHER}, train=24, seed=5)
    first = replace(data.silos[0], train=data.silos[0].train[:8])
    silos = federation(replace(data, silos=(first, data.silos[1])))
    train = TrainSettings(steps=1, learning_rate=0.1, batch_size=100)
    truth = measure(
        silos, MeasureSettings(train=train, evaluations=1, repeats=1, leave_one_out=False)
    )
    w = silos.schema.drawn(stream_seed(0, 0, "measure")).double().numpy()

    def design(rows):
        inputs = data.samples.inputs[0][rows].astype(float)
        return np.hstack([inputs, np.ones((len(rows), 1))]), data.samples.targets[rows]

    def stepped(rows):
        x, y = design(rows)
        return w - 0.1 * 2 * (x @ w - y) @ x / len(rows)

    def loss(weights):
        x, y = design(first.test)
        return ((x @ weights - y) ** 2).mean()

    alone = loss(stepped(first.train))
    pooled = loss(stepped(np.concatenate([first.train, data.silos[1].train])))
    assert truth.alone[0, 0] == pytest.approx(alone, rel=1e-4)
    assert truth.gains[0, 1, 0] == pytest.approx(1 - pooled / alone, rel=1e-3)


def test_no_model_is_trained_on_the_data_of_two_competitors():
    """Change one's data: what the other is asked about stays the same."""
    seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    short = MeasureSettings(train=TrainSettings(steps=3, batch_size=8), evaluations=1, repeats=2)
    for changed in (True, False):
        tasks = {"a1": OTHER if changed else TASK, "a2": TASK, "b": OTHER}
        inner = federation(regressions(tasks, train=8, seed=3))

        def call(requests, timeout=None, inner=inner, changed=changed):
            request = requests[Participant("a2")]
            if not isinstance(request, Describe):
                seen[changed].append(request.parameters.clone())
            return type(inner).call(inner, requests, timeout)

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
        MeasureSettings(train=TRAIN, evaluations=1000)
    one = measure(
        silos, MeasureSettings(train=TRAIN, evaluations=1, repeats=1, leave_one_out=False)
    )
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
