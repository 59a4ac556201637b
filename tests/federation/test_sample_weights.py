"""Sample weights: a row of weight 2 is as good as two rows, in both engines and all tasks."""

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Failure, Participant, SimulatedFederation
from fedegoists.federation.requests import Evaluate, Gradient, Train, TrainSettings
from fedegoists.learning.array_models import ArrayNetwork
from fedegoists.learning.data import DataError, Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.learning.own_task import own_task
from fedegoists.learning.task import TASKS
from tests.federation.test_array_trainer import Mean

TASKS_WITH_CLASSES = {"classification": 3, "binary": 2, "regression": None, "survival": None}
ENGINES = ("looped", "stacked")


def samples(task, weights=None, *, doubled=False):
    """Two silos with 12 rows for training, 4 for validation and 2 for test.

    Rows 0, 3, 6 … of the training and the validation rows are there twice if asked.
    """
    rng = np.random.default_rng(5)
    x = rng.normal(size=(36, 4)).astype(np.float32)
    classes = TASKS_WITH_CLASSES[task]
    y = rng.normal(size=36) + 3 if classes is None else rng.integers(0, classes, 36)
    if task == "survival":
        y = np.where(rng.random(36) < 0.7, 1, -1) * rng.permutation(36).astype(float) - 0.5
    rows, silos, start = [], [], 0
    for k in range(2):
        parts = []
        for low, high in ((0, 12), (12, 16), (16, 18)):
            own = [
                row
                for row in range(18 * k + low, 18 * k + high)
                for _ in range(2 if doubled and row % 3 == 0 else 1)
            ]
            parts.append(np.arange(start, start + len(own)))
            rows += own
            start += len(own)
        silos.append(SiloIndices(f"s{k}", *parts))
    held = Samples((x[rows],), y[rows], weights)
    return SiloedData("weighted", task, held, tuple(silos), classes, "", ())


def twice():
    return np.where(np.arange(36) % 3 == 0, 2.0, 1.0)


def network(task):
    torch.manual_seed(1)
    outputs = TASKS_WITH_CLASSES[task] if task == "classification" else 1
    return torch.nn.Linear(4, outputs)


def answers(data, task, execution, request):
    module = network(task)
    federation = SimulatedFederation(data, module, task=TASKS[task], execution=execution)
    start = federation.schema.flatten(dict(module.named_parameters())).detach()
    asked = {Participant(name): request(start) for name in ("s0", "s1")}
    return federation.call(asked)


@pytest.mark.parametrize("execution", ENGINES)
@pytest.mark.parametrize("task", TASKS_WITH_CLASSES)
def test_weight_two_trains_as_a_copy_of_the_row(task, execution):
    settings = TrainSettings(steps=5, batch_size=100, learning_rate=0.1)

    def request(start):
        return Train(parameters=start, settings=settings)

    weighted = answers(samples(task, twice()), task, execution, request)
    copied = answers(samples(task, doubled=True), task, execution, request)
    plain = answers(samples(task), task, execution, request)
    for name, one in weighted.items():
        assert torch.allclose(one.parameters, copied[name].parameters, atol=1e-5)
        assert not torch.allclose(one.parameters, plain[name].parameters, atol=1e-3)
        if task != "survival":  # copies of all who are at risk add a constant
            assert one.loss == pytest.approx(copied[name].loss, rel=1e-5)


@pytest.mark.parametrize("execution", ENGINES)
@pytest.mark.parametrize("task", ["classification", "binary", "regression"])
@pytest.mark.parametrize("kind", [Evaluate, Gradient])
def test_weight_two_evaluates_as_a_copy_of_the_row(kind, task, execution):
    def request(start):
        return kind(parameters=start, split="validation")

    weighted = answers(samples(task, twice()), task, execution, request)
    copied = answers(samples(task, doubled=True), task, execution, request)
    plain = answers(samples(task), task, execution, request)
    for name, one in weighted.items():
        assert one.losses == pytest.approx(copied[name].losses, rel=1e-5)
        assert one.losses != pytest.approx(plain[name].losses, rel=1e-3)


def test_only_ratios_within_a_split_matter():
    def request(start):
        return Train(parameters=start, settings=TrainSettings(steps=3, learning_rate=0.1))

    plain = answers(samples("binary"), "binary", "looped", request)
    alike = answers(samples("binary", np.full(36, 7.5)), "binary", "looped", request)
    for name, one in plain.items():
        assert torch.allclose(one.parameters, alike[name].parameters, atol=1e-6)


@pytest.mark.parametrize("execution", ENGINES)
@pytest.mark.parametrize("private", ["gradient", "training", "evaluation"])
def test_weights_are_refused_with_privacy(private, execution):
    """Weights are relative to their mean: adding a sample would change what all others tell."""

    def request(start):
        if private == "gradient":
            return Gradient(parameters=start, split="train", clip=0.01)
        if private == "training":
            return Train(parameters=start, settings=TrainSettings(steps=2, clip=0.01))
        return Evaluate(parameters=start, split="validation", bound=1.0, noise=1.0)

    for one in answers(samples("regression", twice()), "regression", execution, request).values():
        assert isinstance(one, Failure)
        assert "weights of samples are relative to their mean" in one.detail


def test_weights_reach_minibatches_on_average():
    """Over one pass, the mean over batches is the weighted mean of all samples."""
    settings = TrainSettings(steps=4, batch_size=3, learning_rate=0.0)

    def request(start):
        return Train(parameters=start, settings=settings)

    def whole(start):
        return Gradient(parameters=start, split="train")

    data = samples("regression", twice())
    passes = answers(data, "regression", "looped", request)
    for name, one in answers(data, "regression", "looped", whole).items():
        assert passes[name].loss == pytest.approx(one.losses[0], rel=1e-5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(35), "expected one number for each of the 36 samples"),
        (np.r_[np.ones(35), 0.0], "sample 35 has the weight 0.0"),
        (np.r_[np.nan, np.ones(35)], "sample 0 has the weight nan"),
        (np.array(["1"] * 36), "expected one number for each"),
    ],
)
def test_weights_are_numbers_above_zero(weights, message):
    with pytest.raises(DataError, match=message):
        samples("binary", weights)


def test_a_loss_of_whole_batches_is_refused_before_training():
    own = own_task(TASKS["regression"], lambda outputs, targets: (outputs[:, 0] - targets).mean())
    with pytest.raises(SettingsError, match="weights of classes or samples"):
        SimulatedFederation(samples("regression", twice()), network("regression"), task=own)


@pytest.mark.parametrize("task", ["classification", "binary", "regression"])
def test_boosted_trees_start_from_the_weighted_mean_and_tell_the_weighted_loss(task):
    pytest.importorskip("lightgbm")
    data, weights = samples(task, twice()), twice()
    outputs = 3 if task == "classification" else 1
    forest = build_model("trees", 0, features=4, outputs=outputs, trees=9)
    federation = SimulatedFederation(data, forest)
    start = federation.schema.flatten(dict(forest.named_parameters())).detach()
    settings = TrainSettings(steps=3, learning_rate=0.3)
    name = Participant("s0")
    reply = federation.call({name: Train(parameters=start, settings=settings)})[name]
    y, w = data.samples.targets[:12], weights[:12] / weights[:12].mean()
    if task == "regression":
        expected = [np.average(y, weights=w)]
    elif task == "binary":
        yes = w @ y + 0.5
        expected = [np.log(yes / (13 - yes))]
    else:
        shares = (np.bincount(y, w, 3) + 0.5) / 13.5
        expected = np.log(shares)
    found = federation.schema.unflatten(reply.parameters)["intercept"].tolist()
    assert found == pytest.approx(expected, rel=1e-5)
    told = federation.call({name: Evaluate(parameters=reply.parameters, split="train")})[name]
    assert reply.loss == pytest.approx(told.losses[0], rel=1e-5)


def test_models_on_arrays_refuse_weights():
    data = samples("regression", twice())
    module = ArrayNetwork(Mean(), seed=0)
    federation = SimulatedFederation(data, module)
    request = Train(parameters=torch.zeros(1), settings=TrainSettings(steps=1))
    for one in federation.call(dict.fromkeys(federation.participants, request)).values():
        assert isinstance(one, Failure)
        assert "a model on arrays takes no weights of samples; leave them out" in one.detail
