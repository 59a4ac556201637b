"""A silo's part in a sum: its own model before and after, what it adds, and the mean it takes."""

import math

import torch

from fedegoists.federation import Failure, LocalTerms, Participant, Personal, Train, TrainSettings
from fedegoists.federation.mixing import MixtureStep
from fedegoists.federation.silo_mixing import added_vectors, take_mean, train_at_home
from tests.methods.hand import START, lines

A = Participant("a")
FIRST = torch.tensor(START, dtype=torch.float32)
SETTINGS = TrainSettings(steps=1, batch_size=64, learning_rate=0.1, momentum=0.0)
HOME = Personal(prefixes=("",), slot="egomix", momentum_slot="egomix/momentum")


def silo():
    return next(lines((6, 3)).federations())


def request(start=FIRST, **fields):
    return Train(parameters=start, settings=SETTINGS, **fields)


def test_a_whole_model_is_trained_from_the_silos_memory():
    federation = silo()
    (first,) = train_at_home(federation, {A: request(personal=HOME)}).values()
    assert torch.equal(first.request.parameters, FIRST)  # nothing was kept yet
    (second,) = train_at_home(federation, {A: request(0 * FIRST, personal=HOME)}).values()
    assert torch.equal(second.request.parameters, first.reply.parameters)
    again = silo().call({A: request(first.reply.parameters)})[A]
    torch.testing.assert_close(second.reply.parameters, again.parameters)
    assert second.kept == HOME
    assert second.request.personal is None


def test_a_model_that_is_not_kept_is_trained_as_sent():
    (trained,) = train_at_home(silo(), {A: request()}).values()
    assert trained.kept is None
    vectors, norm = added_vectors(silo(), trained, math.inf)
    assert list(vectors) == ["parameters"]
    assert torch.equal(vectors["parameters"], silo().call({A: request()})[A].parameters)
    assert norm == float((vectors["parameters"] - FIRST).norm())


def test_updates_are_shortened_at_home_and_their_norm_is_told():
    federation = silo()
    (trained,) = train_at_home(federation, {A: request(personal=HOME)}).values()
    update = trained.reply.parameters - FIRST
    vectors, norm = added_vectors(federation, trained, bound=float(update.norm()) / 4)
    torch.testing.assert_close(vectors["parameters"], FIRST + update / 4)
    torch.testing.assert_close(norm, float(update.norm()))


def test_personal_parts_are_no_part_of_an_update():
    federation = silo()
    personal = Personal(prefixes=("output.bias",), slot="fedavg")
    (trained,) = train_at_home(federation, {A: request(personal=personal)}).values()
    vectors, norm = added_vectors(federation, trained, math.inf)
    assert vectors["parameters"][2] == 0
    torch.testing.assert_close(norm, float((vectors["parameters"] - FIRST)[:2].norm()))


def test_a_momentum_that_may_not_leave_counts_as_zero():
    federation = silo()
    asked = request(personal=HOME, terms=LocalTerms(momentum=0 * FIRST))
    (trained,) = train_at_home(federation, {A: asked}).values()
    assert trained.reply.momentum.abs().sum() > 0
    vectors, _ = added_vectors(federation, trained, reply=trained.reply.changed(momentum=None))
    assert vectors["momentum"].abs().sum() == 0


def test_momentum_continues_from_the_silos_memory():
    federation, steady = silo(), SETTINGS.changed(momentum=0.5)
    asked = Train(
        parameters=FIRST, settings=steady, personal=HOME, terms=LocalTerms(momentum=0 * FIRST)
    )
    (first,) = train_at_home(federation, {A: asked}).values()
    (second,) = train_at_home(federation, {A: asked}).values()
    whole = Train(parameters=FIRST, settings=steady.changed(steps=2))
    torch.testing.assert_close(second.reply.parameters, silo().call({A: whole})[A].parameters)
    assert first.reply.momentum is not None


def test_a_mean_becomes_the_next_model_at_home():
    federation = silo()
    asked = request(personal=HOME, terms=LocalTerms(momentum=0 * FIRST))
    (trained,) = train_at_home(federation, {A: asked}).values()
    means = {"parameters": FIRST + 1, "momentum": FIRST - 1}
    step = MixtureStep(own=("output.bias",), outer=0.5)
    take_mean(federation, A, trained, means, step)
    slots, own = federation.silo_memory(A).slots, trained.reply
    mixed = torch.cat([FIRST[:2] + 1, own.parameters[2:]])
    torch.testing.assert_close(slots["egomix/velocity"], mixed - FIRST)
    torch.testing.assert_close(slots["egomix"], mixed + 0.5 * (mixed - FIRST))
    momentum = torch.cat([FIRST[:2] - 1, own.momentum[2:]])
    torch.testing.assert_close(slots["egomix/momentum"], momentum)


def test_training_that_fails_is_a_failure():
    (failed,) = train_at_home(silo(), {A: request(torch.zeros(5))}).values()
    assert isinstance(failed, Failure)
