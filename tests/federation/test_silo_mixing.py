"""A silo's part in a sum: its own model before and after, what it adds, and the mean it takes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.errors import SettingsError
from fedegoists.federation import Failure, LocalTerms, Participant, Personal, Train, TrainSettings
from fedegoists.federation.mixing import MixtureStep
from fedegoists.federation.silo_mixing import (
    added_vectors,
    take_mean,
    train_at_home,
    with_noise,
)
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


APART = HOME.changed(unmixed=("output.bias",))


def test_what_takes_no_part_in_sums_is_zero_in_what_a_silo_adds():
    federation = silo()
    asked = request(personal=APART, terms=LocalTerms(momentum=0 * FIRST))
    (trained,) = train_at_home(federation, {A: asked}).values()
    whole = silo().call({A: request(terms=LocalTerms(momentum=0 * FIRST))})[A]
    assert torch.equal(federation.silo_memory(A).slots["egomix"], whole.parameters)
    vectors, norm = added_vectors(federation, trained, math.inf)
    for vector, own in (("parameters", whole.parameters), ("momentum", whole.momentum)):
        assert torch.equal(vectors[vector], torch.cat([own[:2], torch.zeros(1)]))
    torch.testing.assert_close(norm, float((whole.parameters - FIRST)[:2].norm()))
    # Also if a reply were not as it should be, and with noise of other company.
    loud = trained.reply.changed(parameters=FIRST + 9, momentum=FIRST + 9)
    added, _ = added_vectors(federation, trained, 1.0, loud)
    assert [float(own[2]) for own in added.values()] == [0, 0]
    noisy = with_noise(federation, trained, added, 2.0, b"key" * 11)
    assert [float(own[2]) for own in noisy.values()] == [0, 0]
    assert all((noisy[vector] != added[vector])[:2].all() for vector in added)


@pytest.mark.parametrize("step", [MixtureStep(), MixtureStep(own=("output.",), outer=0.5)])
def test_no_mean_changes_what_takes_no_part_in_sums(step):
    federation = silo()
    asked = request(personal=APART, terms=LocalTerms(momentum=0 * FIRST))
    (trained,) = train_at_home(federation, {A: asked}).values()
    own = federation.silo_memory(A).slots["egomix"].clone()
    means = {"parameters": FIRST + 100, "momentum": FIRST + 100}
    take_mean(federation, A, trained, means, step)
    slots = federation.silo_memory(A).slots
    assert slots["egomix"][2] == own[2]
    assert slots["egomix/momentum"][2] == 0
    if step.outer:
        assert slots["egomix/velocity"][2] == 0


KEPT = [
    APART,
    HOME.changed(momentum_slot=None, unmixed=APART.unmixed),
    Personal(prefixes=APART.unmixed, slot="egomix"),
    Personal(prefixes=APART.unmixed, slot="egomix", momentum_slot="egomix/momentum"),
]
"""Requests after which the bias takes no part in sums."""


def silo_with(personal, *, begun):
    """A silo that keeps a bias of 1.1 already, or nothing yet."""
    federation = silo()
    if begun:
        own = FIRST[federation.schema.mask(personal.prefixes)] + 1
        federation.silo_memory(A).slots["egomix"] = own
    return federation


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize(
    "vectors", [("anchor",), ("correction",), ("momentum",), ("anchor", "correction", "momentum")]
)
@pytest.mark.parametrize("personal", KEPT)
def test_nothing_that_is_sent_moves_what_takes_no_part_in_sums(personal, vectors, begun):
    """Its momentum begins at zero, it is pulled to where it begins, and nothing corrects it."""
    ends = []
    for sent in (0 * FIRST, FIRST + 50):
        federation = silo_with(personal, begun=begun)
        # The layer below stays, so that only these vectors could make a difference.
        terms = LocalTerms(**dict.fromkeys(vectors, sent), pull=0.5, frozen=("output.weight",))
        steady = SETTINGS.changed(momentum=0.5, steps=2)
        federation.call({A: request(personal=personal, terms=terms).changed(settings=steady)})
        ends.append(federation.silo_memory(A).slots["egomix"][-1])
    assert ends[0] == ends[1]


@pytest.mark.parametrize(("begun", "bias"), [(True, 1.1), (False, 0.1)])
@pytest.mark.parametrize("personal", KEPT)
def test_where_a_cosine_pulls_has_the_bias_that_the_silo_begins_with(personal, begun, bias):
    memory = silo_with(personal, begun=begun).silo_memory(A)
    towards = memory.own_term("towards", FIRST + 50, FIRST, personal)
    torch.testing.assert_close(towards, torch.cat([FIRST[:2] + 50, torch.tensor([bias])]))


PREFIXES = st.sampled_from(["", "o", "output.", "output.weight", "output.bias"])


@given(
    st.lists(PREFIXES, min_size=1, max_size=2),
    st.lists(PREFIXES, max_size=2),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 0.01, math.inf]),
    st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_whatever_a_request_says_withheld_parameters_are_zeros_in_sums_and_stay(
    prefixes, unmixed, moving, begun, bound, seed
):
    slot = "egomix/momentum" if moving else None
    personal = HOME.changed(prefixes=tuple(prefixes), unmixed=tuple(unmixed), momentum_slot=slot)
    federation, noise = silo(), torch.Generator().manual_seed(seed)
    slots, withheld = federation.silo_memory(A).slots, federation.schema.mask(personal.withheld)
    here = int(federation.schema.mask(prefixes).sum())
    if begun:
        slots |= {"egomix": torch.randn(here, generator=noise)}
        slots |= {"egomix/momentum": torch.randn(here, generator=noise)}
    terms = LocalTerms(momentum=torch.randn(3, generator=noise))
    (trained,) = train_at_home(federation, {A: request(personal=personal, terms=terms)}).values()
    vectors, _ = added_vectors(federation, trained, bound)
    noisy = with_noise(federation, trained, vectors, 0.5, b"key" * 11)
    assert not any(own[withheld].any() for own in (*vectors.values(), *noisy.values()))
    if trained.kept is not None:
        own = slots["egomix"][withheld].clone()
        mean = torch.randn(3, generator=noise)
        step = MixtureStep(own=("output.bias",), outer=0.5)
        take_mean(federation, A, trained, {"parameters": mean, "momentum": mean}, step)
        assert torch.equal(slots["egomix"][withheld], own)
        assert not slots["egomix/velocity"][withheld].any()


def test_a_slot_with_fewer_numbers_is_not_spread_over_a_model():
    federation = silo()
    federation.silo_memory(A).slots["egomix"] = torch.ones(1)
    with pytest.raises(SettingsError, match="holds 1 numbers where 3 are personal"):
        federation.call({A: request(personal=HOME)})


def test_training_that_fails_is_a_failure():
    (failed,) = train_at_home(silo(), {A: request(torch.zeros(5))}).values()
    assert isinstance(failed, Failure)
