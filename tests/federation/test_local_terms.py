"""Terms that methods add to local training: what they move, by hand, and over the wire."""

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Failure, LocalTerms, Participant, Train, TrainSettings
from fedegoists.federation.flare.wire import pack, unpack
from tests.methods.hand import (
    BODY,
    CHAIN_START,
    HEAD,
    START,
    assert_close,
    chain_gradient,
    chains,
    descended,
    lines,
)

SILOS = lines((6, 3))
SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.5)
ANCHOR = np.array([1.0, 0.5, -1.0])


def trained(both, start, terms, settings=SETTINGS):
    vector = torch.tensor(start).float()
    requests = {
        Participant(name): Train(parameters=vector, settings=settings, terms=terms)
        for name in SILOS.names
    }
    return list(both.call(requests).values())


def test_a_decoupled_pull_is_not_multiplied_by_momentum():
    terms = LocalTerms(anchor=torch.tensor(ANCHOR).float(), pull=2.0, decoupled=True)
    for both in SILOS.federations():
        for k, reply in enumerate(trained(both, START, terms)):
            w, speed = START, np.zeros(3)
            for _ in range(3):
                speed = 0.5 * speed + SILOS.gradient(k, w)
                w = w - 0.1 * speed - 0.1 * 2.0 * (w - ANCHOR)
            assert_close(reply.parameters, w)


def test_a_pace_multiplies_all_rates():
    for both in SILOS.federations():
        for k, reply in enumerate(trained(both, START, LocalTerms(pace=0.3))):
            slow = descended(lambda w, k=k: SILOS.gradient(k, w), START, [0.03] * 3, 0.5)
            assert_close(reply.parameters, slow)


@pytest.mark.parametrize(("frozen", "moving"), [(("output.",), BODY), (("body.",), HEAD)])
@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_what_is_frozen_does_not_move_with_any_optimiser(frozen, moving, optimiser):
    settings = SETTINGS.changed(optimiser=optimiser, weight_decay=0.2)
    ends = []
    for both in chains(SILOS):
        replies = trained(both, CHAIN_START, LocalTerms(frozen=frozen), settings)
        for reply in replies:
            still = torch.tensor(CHAIN_START).float()[moving == 0]
            assert torch.equal(reply.parameters[moving == 0], still)
            assert (reply.parameters[moving == 1] != torch.tensor(CHAIN_START)[moving == 1]).all()
        ends.append(torch.stack([reply.parameters for reply in replies]))
    torch.testing.assert_close(*ends)
    if optimiser == "sgd":
        expected = descended(
            lambda w: moving * (chain_gradient(SILOS, 0, w) + 0.2 * w), CHAIN_START, [0.1] * 3, 0.5
        )
        assert_close(ends[0][0], expected)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_others_can_be_frozen_first(optimiser):
    """Two steps of the head, then one of the body, each with a momentum from zero."""
    terms = LocalTerms(frozen=("output.",), frozen_first=("body.",), first_steps=2)
    settings = SETTINGS.changed(optimiser=optimiser)
    ends = []
    for both in chains(SILOS):
        replies = trained(both, CHAIN_START, terms, settings)
        ends.append(torch.stack([reply.parameters for reply in replies]))
    torch.testing.assert_close(*ends)
    if optimiser == "sgd":
        head = descended(lambda w: HEAD * chain_gradient(SILOS, 0, w), CHAIN_START, [0.1] * 2, 0.5)
        body = descended(lambda w: BODY * chain_gradient(SILOS, 0, w), head, [0.1], 0.5)
        assert_close(ends[0][0], body)


@pytest.mark.parametrize(
    ("frozen", "why"),
    [(("head.",), "no parameter starts with 'head.'"), (("body.", "output."), "all parameters")],
)
def test_prefixes_of_nothing_and_of_everything_are_refused(frozen, why):
    for both in chains(SILOS):
        for reply in trained(both, CHAIN_START, LocalTerms(frozen=frozen)):
            assert isinstance(reply, Failure)
            assert why in reply.detail


def test_terms_are_the_same_after_the_wire():
    terms = LocalTerms(
        anchor=torch.tensor([1.0, 2.0]), pull=0.5, decoupled=True, frozen=("body.",), pace=0.25
    )
    again = unpack(LocalTerms, pack(terms))
    assert again.kind == terms.kind
    assert (again.decoupled, again.frozen, again.pace) == (True, ("body.",), 0.25)
    assert torch.equal(again.anchor, terms.anchor)


@pytest.mark.parametrize(
    "given", [{"pace": -1.0}, {"pace": float("nan")}, {"frozen": ("x" * 999,)}]
)
def test_terms_outside_their_range_are_refused(given):
    with pytest.raises(SettingsError):
        LocalTerms(**given)
