"""Means of representations, read from gradients, against the representations themselves."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Gradient, LocalTerms, SimulatedFederation, Train, TrainSettings
from fedegoists.federation.requests import Representation
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.learning.own_models import ModelParts
from fedegoists.learning.task import TASKS
from fedegoists.methods import FedDBE, FedPAC
from fedegoists.methods.representation_measures import (
    class_shares,
    mean_representation,
    parts_of_samples,
    probes_of,
)
from tests.methods.hand import CHAIN_START, Chain, lines, played
from tests.silos import simulated

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.5)


def of_classes(sizes=(9, 5), classes=3):
    """Silos with four numbers a sample, and labels at random."""
    rng = np.random.default_rng(3)
    total = sum(sizes) + 6 * len(sizes)
    x = rng.normal(size=(total, 4)).astype(np.float32)
    parts, start = [], 0
    for name, size in zip("abc", sizes, strict=False):
        rows = np.arange(start, start + size + 6)
        parts.append(SiloIndices(name, rows[:size], rows[size:-3], rows[-3:]))
        start += size + 6
    labels = rng.integers(0, classes, total)
    return SiloedData(
        "classes", "classification", Samples((x,), labels), tuple(parts), classes, "", ()
    )


def outputs_of(model, row, x, change=lambda z: z):
    """Outputs and representations of a model, with another input of its output layer."""
    torch.nn.utils.vector_to_parameters(row.clone(), model.parameters())
    seen = []

    def hook(_, inputs):
        seen.append(inputs[0].detach())
        return (change(inputs[0]),)

    handle = model.output.register_forward_pre_hook(hook)
    found = model(torch.as_tensor(x)).detach()
    handle.remove()
    return found, seen[0]


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_means_are_read_from_gradients_whatever_the_labels(execution):
    """Of the hidden numbers below a cross-entropy, after training, weighted by samples."""
    data = of_classes()
    model = build_model("mlp", 0, features=4, outputs=3)
    federation = simulated(data, build_model("mlp", 0, features=4, outputs=3), execution=execution)
    start = federation.schema.drawn(1).numpy()
    states, _ = played(FedDBE(SETTINGS), federation, [["a", "b"]], 1, start)
    x = data.samples.inputs[0]
    hidden = [
        outputs_of(model, row, x[silo.train])[1]
        for silo, row in zip(data.silos, states[1].parameters, strict=True)
    ]
    mean = torch.cat(hidden).mean(0).expand(2, -1)
    torch.testing.assert_close(states[1].tensors["mean"], mean, rtol=1e-4, atol=1e-5)
    assert (mean[0] - hidden[0].mean(0)).abs().max() > 1e-3


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_class_means_are_read_from_the_same_gradients(execution):
    """Of three classes, of which one silo has two only."""
    data = of_classes()
    labels = data.samples.targets.copy()
    own = data.silos[1].train
    labels[own] = np.where(labels[own] == 2, 0, labels[own])
    data = SiloedData("x", data.task, Samples(data.samples.inputs, labels), data.silos, 3, "", ())
    model = build_model("mlp", 0, features=4, outputs=3)
    federation = simulated(data, build_model("mlp", 0, features=4, outputs=3), execution=execution)
    row = federation.schema.drawn(4)
    probes = probes_of(federation.schema, row[None])[0]
    replies = federation.call(
        dict.fromkeys(federation.participants, Gradient(parameters=probes))
    ).values()
    for silo, reply in zip(data.silos, replies, strict=True):
        _, hidden = outputs_of(model, row, data.samples.inputs[0][silo.train])
        chosen = torch.nn.functional.one_hot(torch.from_numpy(labels[silo.train]), 3).float()
        shares, means = class_shares(federation.schema, reply.gradient)
        torch.testing.assert_close(shares, chosen.mean(0), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(means, chosen.T @ hidden / len(hidden), rtol=1e-3, atol=1e-5)
    assert shares[2].abs() < 1e-6


def test_a_logit_tells_both_classes():
    silos = lines((6, 4), positives=(2, 3))
    federation = simulated(silos.data, Chain())
    row = torch.tensor([0.5, -1.0, 2.0, 0.3])
    probes = probes_of(federation.schema, row[None])[0]
    replies = federation.call(
        dict.fromkeys(federation.participants, Gradient(parameters=probes))
    ).values()
    for k, reply in enumerate(replies):
        z, t = silos.designs["train"][k][:, :2] @ [0.5, -1.0], silos.targets["train"][k]
        shares, means = class_shares(federation.schema, reply.gradient)
        np.testing.assert_allclose(shares, [1 - t.mean(), t.mean()], rtol=1e-4)
        np.testing.assert_allclose(
            means[:, 0], [(z * (1 - t)).mean(), (z * t).mean()], rtol=1e-3, atol=1e-6
        )
        mean = mean_representation(federation.schema, reply.gradient)
        np.testing.assert_allclose(mean, [z.mean()], rtol=1e-3)


def test_variances_are_those_of_class_means():
    """(E‖z‖² − Σ ‖share · mean‖²) / n, from a step of no length at an empty output layer."""
    data = of_classes()
    model = build_model("mlp", 0, features=4, outputs=3)
    federation = simulated(data, build_model("mlp", 0, features=4, outputs=3))
    rows = federation.schema.drawn(4).expand(2, -1)
    method = FedPAC(SETTINGS)
    means, _ = method._measured(federation, rows, "any", federation.participants)
    variances, _ = method._variances(federation, rows, 0, means)
    for silo, name in zip(data.silos, federation.participants, strict=True):
        _, z = outputs_of(model, rows[0], data.samples.inputs[0][silo.train])
        hot = torch.nn.functional.one_hot(torch.from_numpy(data.samples.targets[silo.train]), 3)
        each = hot.float()[:, :, None] * z[:, None]
        whole = ((each - each.mean(0)) ** 2).sum((1, 2)).mean() / len(z)
        assert variances[name] == pytest.approx(float(whole), rel=1e-3)


def flat(request, reply):
    """Both gradients are the same, so that their difference tells no mean."""
    return made(request, reply, lambda gradient: torch.ones_like(gradient))


def shouting(request, reply):
    """Gradients as long as a reply may have them, of which shares are no shares."""
    return made(request, reply, lambda gradient: 1e6 * gradient)


def made(request, reply, change):
    if isinstance(request, Gradient):
        return reply.model_copy(update={"gradient": change(reply.gradient)})
    return reply


def far(request, reply):
    """A spread of representations that no numbers have."""
    if isinstance(request, Train) and request.settings.learning_rate == 0:
        return reply.model_copy(update={"loss": 1e300})
    return reply


THREE = lines((9, 4, 7), positives=(4, 3, 3))
MISTAKES = {
    flat: "not finite (mean representation)",
    shouting: "error (shares of classes are ",
    far: "not finite (variance of representations)",
}


@pytest.mark.parametrize(
    ("method", "mistake"),
    [(FedDBE, flat), (FedDBE, shouting), (FedPAC, flat), (FedPAC, shouting), (FedPAC, far)],
)
@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_what_one_silo_tells_wrongly_is_a_failure_and_the_others_go_on(method, mistake, execution):
    """What the others get is as without this member's measures."""
    broken = simulated(THREE.data, Chain(), execution=execution, behaviours={"b": mistake})
    states, reports = played(method(SETTINGS), broken, [["a", "b", "c"]], 2, CHAIN_START)
    (failure,) = reports[0].failures
    assert failure.participant.name == "b"
    assert failure.why.startswith(MISTAKES[mistake])
    for tensor in states[2].tensors.values():
        assert tensor.isfinite().all()
    model = states[1].parameters.double().numpy()
    z = [THREE.designs["train"][k][:, :2] @ model[k][:2] for k in range(3)]
    if method is FedDBE:
        mean = (9 * z[0].mean() + 7 * z[2].mean()) / 16
        np.testing.assert_allclose(states[1].tensors["mean"][:, 0], [mean] * 3, rtol=1e-3)
    elif mistake is not far:
        labels = [THREE.targets["train"][k] for k in range(3)]
        others = [np.concatenate([z[k][labels[k] == one] for k in (0, 2)]).mean() for one in (0, 1)]
        np.testing.assert_allclose(states[1].tensors["centres"], [others] * 3, rtol=1e-3)


@pytest.mark.parametrize("method", [FedDBE, FedPAC])
@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_the_loss_of_a_round_is_that_of_training(method, execution):
    """Not that at an output layer of zeros, which is log 2."""
    silos = simulated(THREE.data, Chain(), execution=execution)
    states, reports = played(method(SETTINGS), silos, [["a", "b", "c"]], 1, CHAIN_START)
    request = Train(
        parameters=states[0].parameters[0],
        settings=SETTINGS,
        seed="5/0",
        terms=LocalTerms(
            frozen_first=("body.",), first_steps=1, frozen=("output.",)
        ) if method is FedPAC else None,
    )  # fmt: skip
    replies = silos.call(dict.fromkeys(silos.participants, request))
    for name, reply in replies.items():
        assert reports[0].losses[name.name] == pytest.approx(reply.loss, rel=1e-5)
        assert abs(reply.loss - np.log(2)) > 1e-3


@pytest.mark.parametrize("method", [FedDBE, FedPAC])
def test_models_whose_statistics_are_averaged_are_refused(method):
    """Statistics have no gradient, so all silos would fail at every measure."""
    body = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    layers = OrderedDict(body=body, output=torch.nn.Linear(3, 1))
    for averaged in (False, True):
        model = ModelParts(torch.nn.Sequential(layers), TASKS["binary"], averaged=averaged)
        silos = SimulatedFederation(THREE.data, model)
        if averaged:
            with pytest.raises(SettingsError, match='leave out statistics = "averaged"'):
                method(SETTINGS).check_model(silos)
        else:
            method(SETTINGS).check_model(silos)


class Watched(Chain):
    """It notes how many samples go through it at once."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def forward(self, x):
        self.seen.add(len(x))
        return super().forward(x)


@pytest.mark.parametrize("method", [FedDBE, FedPAC])
@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_measures_need_no_more_memory_than_training(method, execution, monkeypatch):
    """All samples of a silo go through the network in parts; what comes out is the same."""
    data = lines((23, 9, 4), positives=(9, 4, 2)).data
    settings = SETTINGS.changed(batch_size=4)
    ends = []
    for parts in (None, 1):
        if parts:
            monkeypatch.setattr(f"{method.__module__}.parts_of_samples", lambda *_: 1)
        model = Watched()
        silos = simulated(data, model, execution=execution)
        model.seen.clear()
        states, reports = played(method(settings), silos, [["a", "b", "c"]], 2, CHAIN_START)
        assert not any(report.failures for report in reports)
        assert max(model.seen) == (23 if parts else 4)
        ends.append(states[2].tensors)
    for name, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][name], rtol=1e-3, atol=1e-5)


def test_parts_follow_the_parts_of_training():
    """Where a batch of 64 goes through a network in 16 parts, so do all samples, four at a time."""
    for samples in (1, 4, 5, 64, 999):
        settings = SETTINGS.changed(batch_size=64, passes=16)
        parts = parts_of_samples(samples, settings)
        assert -(-samples // parts) <= 4
        assert parts == 1 or samples / (parts // 2) > 4
    assert parts_of_samples(2**40, SETTINGS) <= 10_000


@pytest.mark.parametrize("weights", [None, "balanced", (1.0, 9.0), (0.0, 1.0)])
@pytest.mark.parametrize("counted", [False, True], ids=["alike", "sample weights"])
@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_a_batch_of_all_samples_has_the_mean_that_was_measured(execution, counted, weights):
    """Classes may weigh in the loss; m is of samples as they are, and so is the batch's mean."""
    data = THREE.data
    if counted:
        own = np.where(np.arange(len(data.samples.targets)) % 2, 3.0, 1.0)
        held = Samples(data.samples.inputs, data.samples.targets, own)
        data = replace(data, samples=held)
    silos = simulated(data, Chain(), execution=execution)
    row = torch.tensor(CHAIN_START).float()
    probes = probes_of(silos.schema, row[None])[0]
    measured = silos.call(dict.fromkeys(silos.participants, Gradient(parameters=probes)))

    def losses(strength):
        settings = SETTINGS.changed(steps=1, learning_rate=0.0, class_weights=weights)
        requests = {}
        for name, reply in measured.items():
            mean = mean_representation(silos.schema, reply.gradient)
            within = Representation(mean=mean, strength=strength)
            terms = LocalTerms(representation=within)
            requests[name] = Train(parameters=row, settings=settings, terms=terms)
        return [reply.loss for reply in silos.call(requests).values()]

    assert losses(1e4) == pytest.approx(losses(0.0), abs=1e-5)
