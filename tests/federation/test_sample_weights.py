"""Sample weights: a row of weight 2 is as good as two rows, in both engines and all tasks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.federation.requests import Evaluate, Gradient, Train, TrainSettings
from fedegoists.learning.data import DataError, Samples, SiloedData, SiloIndices
from fedegoists.learning.own_task import own_task
from fedegoists.learning.task import TASKS

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
def test_a_large_weight_does_not_break_the_limit_of_a_sample(execution):
    """However much a sample counts, it adds at most `clip` over the number of samples."""

    def request(start):
        return Gradient(parameters=start, split="train", clip=0.01)

    def gradient(target):
        heavy = np.ones(36)
        heavy[0] = 1000.0
        data = samples("regression", heavy)
        targets = data.samples.targets.copy()
        targets[0] = target
        changed = replace(data, samples=Samples(data.samples.inputs, targets, heavy))
        found = answers(changed, "regression", execution, request)
        return found[Participant("s0")].gradient

    apart = (gradient(100.0) - gradient(-100.0)).norm().item()
    assert apart == pytest.approx(2 * 0.01 / 12, rel=1e-4)


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
