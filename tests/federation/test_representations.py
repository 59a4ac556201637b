"""Terms about representations: by automatic differentiation, over the wire, and refused."""

import numpy as np
import pytest
import torch
from torch import nn

from fedegoists.errors import SettingsError
from fedegoists.federation import Failure, LocalTerms, Participant, Train, TrainSettings
from fedegoists.federation.flare.wire import pack, unpack
from fedegoists.federation.pool import pooled_silos
from fedegoists.federation.replies import Trained
from fedegoists.federation.representations import Represented
from fedegoists.federation.requests import Representation
from fedegoists.federation.seam import accepted
from fedegoists.federation.stacked_network import StackedNetwork
from fedegoists.learning.models import build_model
from fedegoists.learning.network import Network
from fedegoists.learning.stacked_cnn import StackedCNN
from fedegoists.learning.task import TASKS
from tests.methods.hand import Chain, lines
from tests.silos import Line, silos, simulated

SILOS = lines((7, 4))
SETTINGS = TrainSettings(
    steps=3, batch_size=64, learning_rate=0.05, momentum=0.5, weight_decay=0.01
)


class Wide(nn.Module):
    """A body of three tanh's, with dropout that is off, below an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 3)
        self.drop = nn.Dropout(0.0)
        self.output = nn.Linear(3, 1)

    def forward(self, x):
        return self.output(self.drop(torch.tanh(self.body(x))))


def called(model, terms, settings=SETTINGS, **how):
    federation = simulated(SILOS.data, model, **how)
    vector = federation.schema.drawn(1)
    requests = {
        one: Train(parameters=vector, settings=settings, terms=terms)
        for one in federation.participants
    }
    return vector, federation.call(requests)


def differentiated(k, vector, shift, mean, strength):
    """Steps with momentum and weight decay along the gradient of the whole loss."""
    model = Wide()
    torch.nn.utils.vector_to_parameters(vector.clone(), model.parameters())
    shift = shift.clone().requires_grad_()
    tensors = [*model.parameters(), shift]
    speeds = [torch.zeros_like(one) for one in tensors]
    x = torch.tensor(SILOS.designs["train"][k][:, :2]).float()
    t = torch.tensor(SILOS.targets["train"][k]).float()
    for _ in range(3):
        z = torch.tanh(model.body(x))
        loss = ((model.output(z + shift)[:, 0] - t) ** 2).mean()
        loss = loss + strength / 2 * ((z.mean(0) - mean) ** 2).sum() / 3
        gradients = torch.autograd.grad(loss, tensors)
        with torch.no_grad():
            for one, speed, gradient in zip(tensors, speeds, gradients, strict=True):
                speed.mul_(0.5).add_(gradient + 0.01 * one)
                one.sub_(0.05 * speed)
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    return flat, shift.detach()


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_shift_and_mean_are_part_of_the_loss(execution):
    """In silos of different sizes, whose batches are padded where they are stacked."""
    shift, mean = torch.tensor([0.3, -0.2, 0.5]), torch.tensor([1.0, 0.0, -1.0])
    terms = LocalTerms(representation=Representation(shift=shift, mean=mean, strength=4.0))
    vector, replies = called(Wide(), terms, execution=execution)
    for k, reply in enumerate(replies.values()):
        model, moved = differentiated(k, vector, shift, mean, 4.0)
        torch.testing.assert_close(reply.parameters, model, rtol=2e-4, atol=2e-6)
        torch.testing.assert_close(reply.shift, moved, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_samples_are_pulled_to_the_centres_of_their_classes(execution, passes):
    """One class is not pulled; also where a batch is computed in parts."""
    silos = lines((7, 4), positives=(3, 1))
    centres, pulls = torch.tensor([[1.0, -1.0, 0.5], [9.0, 9.0, 9.0]]), torch.tensor([2.0, 0.0])
    terms = LocalTerms(representation=Representation(centres=centres, pulls=pulls))
    federation = simulated(silos.data, Wide(), execution=execution)
    vector = federation.schema.drawn(1)
    settings = TrainSettings(steps=1, learning_rate=0.05, passes=passes)
    request = Train(parameters=vector, settings=settings, terms=terms)
    replies = federation.call(dict.fromkeys(federation.participants, request))
    for k, reply in enumerate(replies.values()):
        model = Wide()
        torch.nn.utils.vector_to_parameters(vector.clone(), model.parameters())
        x = torch.tensor(silos.designs["train"][k][:, :2]).float()
        t = torch.tensor(silos.targets["train"][k]).float()
        z = torch.tanh(model.body(x))
        fit = nn.functional.binary_cross_entropy_with_logits(model.output(z)[:, 0], t)
        away = ((z - centres[0]) ** 2).mean(1) * (t == 0)
        gradients = torch.autograd.grad(fit + 2.0 * away.mean(), [*model.parameters()])
        expected = vector - 0.05 * torch.nn.utils.parameters_to_vector(gradients)
        torch.testing.assert_close(reply.parameters, expected, rtol=1e-4, atol=1e-6)


def test_centres_need_classes_and_pulls():
    within = Representation(centres=torch.zeros(1, 3), pulls=torch.zeros(1))
    _, replies = called(Wide(), LocalTerms(representation=within))
    assert all("a regression has none" in one.detail for one in replies.values())
    with pytest.raises(SettingsError, match="give both"):
        Representation(centres=torch.zeros(2, 3))


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_terms_that_say_nothing_change_nothing(execution):
    idle = LocalTerms(representation=Representation(mean=torch.zeros(3)))
    _, plain = called(Wide(), None, execution=execution)
    _, replies = called(Wide(), idle, execution=execution)
    for name, reply in replies.items():
        assert reply.shift is None
        torch.testing.assert_close(reply.parameters, plain[name].parameters)


def test_dropout_below_draws_the_same_looped_and_stacked():
    terms = LocalTerms(representation=Representation(shift=torch.zeros(3)))
    ends = []
    for execution in ("looped", "stacked", "looped"):
        model = Wide()
        model.drop.p = 0.5
        _, replies = called(model, terms, execution=execution)
        ends.append(torch.stack([reply.parameters for reply in replies.values()]))
    torch.testing.assert_close(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def test_they_are_the_same_after_the_wire():
    terms = LocalTerms(
        representation=Representation(shift=torch.ones(2), mean=torch.zeros(2), strength=0.5)
    )
    again = unpack(LocalTerms, pack(terms))
    assert again.kind == terms.kind
    assert torch.equal(again.representation.shift, torch.ones(2))
    assert again.representation.strength == 0.5
    reply = Trained(
        parameters=torch.ones(3), loss=0.0, samples=1, sample_passes=1, shift=torch.ones(2)
    )
    assert torch.equal(unpack(Trained, pack(reply)).shift, torch.ones(2))


class Sequence(nn.Module):
    """Its output layer takes a matrix of each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(2, 1)

    def forward(self, x):
        return self.output(x[:, None, :].expand(-1, 2, -1))[:, 0]


class Aside(nn.Module):
    """It does not call its output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(2, 1)

    def forward(self, x):
        return nn.functional.linear(x, self.output.weight, self.output.bias)


class Nameless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 1)

    def forward(self, x):
        return self.last(x)


@pytest.mark.parametrize("execution", ["looped", "stacked"])
@pytest.mark.parametrize(
    ("model", "changes", "why"),
    [
        (Line(2), {"clip": 1.0, "noise": 1.0}, "no privacy"),
        (Line(2), {"clip": 1.0}, "no privacy"),
        (Line(2), {"passes": 2}, "accumulate = 1"),
        (Chain(), {}, "takes (1,)"),
        (Sequence(), {}, "a representation is a vector"),
        (Aside(), {}, "does not call its layer"),
        (Nameless(), {}, "none of this name"),
    ],
)
def test_what_cannot_be_done_is_refused(model, changes, why, execution):
    terms = LocalTerms(representation=Representation(mean=torch.zeros(2)))
    _, replies = called(model, terms, SETTINGS.changed(**changes), execution=execution)
    for reply in replies.values():
        assert isinstance(reply, Failure)
        assert why in reply.detail


def test_they_stand_alone():
    with pytest.raises(SettingsError, match="beside anchor"):
        LocalTerms(anchor=torch.zeros(3), representation=Representation(shift=torch.zeros(2)))


@pytest.mark.parametrize(
    ("shift", "reason"),
    [
        (torch.zeros(3), "wrong shape"),
        (torch.tensor([0.0, np.inf]), "not finite"),
        (None, None),
    ],
)
def test_a_shift_that_does_not_fit_is_a_failure(shift, reason):
    terms = LocalTerms(representation=Representation(shift=torch.zeros(2)))
    request = Train(parameters=torch.ones(3), settings=SETTINGS, terms=terms)
    reply = Trained(parameters=torch.ones(3), loss=0.0, samples=1, sample_passes=1, shift=shift)
    found = accepted(Participant("a"), request, reply)
    assert getattr(found, "reason", None) == reason
    unasked = accepted(Participant("a"), request.changed(terms=None), reply)
    assert isinstance(unasked, Failure) == (shift is not None)


@pytest.mark.parametrize(
    ("name", "options", "width"), [("cifar10-cnn", {}, 84), ("pfllib-cnn", {"outputs": 10}, 512)]
)
def test_kernels_made_for_a_network_know_the_terms_of_its_copy(monkeypatch, name, options, width):
    """And are not used where something else is added to the loss, of which they do not know."""
    monkeypatch.setattr(StackedCNN, "suits", lambda _, bf16: True)
    data = silos("cifar10-cnn")
    network = Network(build_model(name, 0, **options), TASKS["classification"])
    pool = pooled_silos({None: data}, torch.device("cpu"))[Participant("s0")]
    assert StackedNetwork(network, pool)._cnn is not None
    terms = LocalTerms(representation=Representation(shift=torch.zeros(width)))
    request = Train(parameters=network.schema.drawn(0), settings=SETTINGS, terms=terms)
    copy = Represented(network).network_for(request)
    assert StackedNetwork(copy, pool)._cnn is not None
    copy.mean_strength = None
    assert StackedNetwork(copy, pool)._cnn is None
