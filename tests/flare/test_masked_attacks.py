"""A server that deviates from the protocol of masked sums learns no single model."""

import pytest
import torch

from fedegoists.federation import Personal, Train
from fedegoists.federation.flare.messages import Answers, Call
from fedegoists.federation.flare.wire import pack, unpack
from fedegoists.federation.secure_sums.sum_requests import MaskedTrain, Unmasked
from tests.flare.masked_silos import SITES, MaskedWire, forget_uploads, write_kits
from tests.flare.silo_kit import START
from tests.flare.test_masked_mixing import PARTICIPANTS, SETTINGS, WEIGHTS, mean_of, requests

VICTIM = PARTICIPANTS[0]


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return write_kits(tmp_path_factory.mktemp("kits"))


@pytest.fixture
def wire(kits):
    forget_uploads(kits)
    return MaskedWire(kits)


def spent(wire, site):
    """What a silo has entered into its privacy ledger about training samples."""
    return wire.silos[site]._guard.ledger.accounts()["train"].answers


def changed(**changes):
    """Tamper with what all silos but the victim are asked."""

    def tamper(site, message):
        call = unpack(Call, message)
        if site == SITES[VICTIM.name] or call.operation != "masked_train":
            return message
        (asked,) = call.asked
        assert isinstance(asked.request, MaskedTrain)
        own = {k: v for k, v in changes.items() if k == "bound"}
        train = asked.request.train.changed(**{k: v for k, v in changes.items() if k != "bound"})
        request = asked.request.changed(train=train, **own)
        return pack(call.changed(asked=(asked.changed(request=request),)))

    return tamper


@pytest.mark.parametrize(
    "changes",
    [
        {"bound": 1e-20},
        {"settings": SETTINGS.changed(learning_rate=0.0)},
        {"parameters": torch.zeros_like(START)},
        {"seed": "another"},
        {"first_step": 7},
    ],
)
def test_members_that_are_asked_for_another_training_refuse(wire, changes):
    wire.tamper = changed(**changes)
    before = spent(wire, "South")
    mixed = wire.federation().mix(requests(), [mean_of(bound=10.0)])
    assert spent(wire, "South") == before  # what is refused costs no privacy
    assert mixed.received == frozenset()
    assert len(mixed.failures) == len(PARTICIPANTS) - 1
    assert all("another one than agreed" in failure.detail for failure in mixed.failures)


def test_a_member_with_another_start_is_left_out_and_receives_the_mean(wire):
    asked = requests()
    asked[VICTIM] = Train(parameters=START + 1, settings=SETTINGS, seed="0/0")
    mixed = wire.federation().mix(asked, [mean_of()])
    (failure,) = mixed.failures
    assert failure.participant == VICTIM
    assert "another model than most" in failure.detail
    assert mixed.received == set(PARTICIPANTS)
    rows = mixed.means["parameters"]
    assert torch.equal(rows[0], rows[1])


def test_models_that_stay_home_have_no_part_in_a_sum_that_is_shown(wire):
    # Nobody compares what such models start from, and a model of zeros learns nothing but the bias
    # of its output layer. So the sum would be the victim's model.
    wire.tamper = changed(parameters=torch.zeros_like(START))
    home = Personal(prefixes=("",), slot="fresh")
    asked = {name: one.changed(personal=home) for name, one in requests().items()}
    before = spent(wire, "South")
    mixed = wire.federation().mix(asked, [mean_of()])
    assert mixed.received == frozenset()
    assert len(mixed.failures) == len(PARTICIPANTS)
    assert all("a sum that is shown" in failure.detail for failure in mixed.failures)
    assert spent(wire, "South") == before


REST = PARTICIPANTS[1:]
WHOLE = sum(WEIGHTS.values())
FULL = SETTINGS.changed(batch_size=1000)
"""Every batch is all samples of a silo: what it trains from a model is always the same."""


def guess(total, others):
    """The victim's model from the means with and without it."""
    total, others = (one.means["parameters"][-1].double() for one in (total, others))
    return (total * WHOLE - others * (WHOLE - WEIGHTS[VICTIM])) / WEIGHTS[VICTIM]


@pytest.mark.parametrize(
    ("settings", "without_first", "restarted"),
    [(SETTINGS, False, False), (FULL, False, True), (FULL, True, False)],
    ids=["batches", "all samples, after a restart", "all samples, without it first"],
)
def test_a_round_again_without_one_member_does_not_tell_its_model(
    wire, settings, without_first, restarted
):
    asked = requests(settings=settings)
    groups = [PARTICIPANTS, REST]
    results = {}
    for group in reversed(groups) if without_first else groups:
        mixed = wire.federation().mix({name: asked[name] for name in group}, [mean_of(group)])
        assert mixed.failures == ()
        assert mixed.received == set(group)  # a run goes on where a member is away
        results[group] = mixed
        if restarted:
            wire.restart()
    own = wire.simulation().call(asked)[VICTIM].parameters
    guessed = guess(results[PARTICIPANTS], results[REST])
    assert (guessed - own).norm() > 0.5 * (own - START).norm()


def test_many_rounds_again_do_not_wear_the_noise_off(wire):
    asked = requests(settings=FULL)
    federation = wire.federation()
    whole = federation.mix(asked, [mean_of()])
    own = wire.simulation().call(asked)[VICTIM].parameters
    guesses = []
    for number in range(8):  # each with another seed
        again = requests(REST, number, START, settings=FULL)
        guesses.append(guess(whole, federation.mix(again, [mean_of(REST)])))
    mean = torch.stack(guesses).mean(0)
    assert (mean - own).norm() > 0.5 * (own - START).norm()


def test_a_round_again_of_which_one_member_drops_out_is_not_unmasked(wire):
    asked = requests(settings=FULL)
    federation = wire.federation()
    assert federation.mix(asked, [mean_of()]).received == set(PARTICIPANTS)
    wire.lose = {SITES[VICTIM.name]: ["masked_train"]}
    again = wire.federation().mix(asked, [mean_of()])
    assert again.received == frozenset()
    assert any("carried out before with other members" in str(one) for one in again.failures)
    # The next attempt, without it, goes on.
    wire.lose = {SITES[VICTIM.name]: ["always", "before advertise"]}
    assert wire.federation().mix(asked, [mean_of()]).received == set(PARTICIPANTS)


def test_a_round_again_with_a_member_that_had_dropped_out_does_not_tell_its_model(wire):
    asked = requests(settings=FULL)
    wire.lose = {SITES[VICTIM.name]: ["masked_train"]}
    first = wire.federation().mix(asked, [mean_of()])
    wire.lose = {}
    again = wire.federation().mix(asked, [mean_of()])
    assert again.failures == ()
    own = wire.simulation().call(asked)[VICTIM].parameters
    assert (guess(again, first) - own).norm() > 0.5 * (own - START).norm()


class Liar:
    """A silo that gives wrong shares of all masks."""

    def __init__(self, silo):
        self.silo = silo

    def answer(self, caller, message):
        answers = unpack(Answers, self.silo.answer(caller, message))
        (given,) = answers.answered
        if isinstance(given.reply, Unmasked):
            wrong = dict.fromkeys(given.reply.shares.seeds, "00" + "ab" * 32)
            shares = given.reply.shares.changed(seeds=wrong)
            given = given.changed(reply=given.reply.changed(shares=shares))
        return pack(answers.changed(answered=(given,)))


def test_a_member_that_gives_wrong_shares_is_named_and_does_not_stop_the_sum(wire):
    wire.silos["East"] = Liar(wire.silos["East"])
    mixed = wire.federation().mix(requests(), [mean_of()])
    assert mixed.received == set(PARTICIPANTS)
    (failure,) = mixed.failures
    assert (str(failure.participant), failure.detail) == ("East", "gave wrong shares of masks")
    assert not any("East" in line for line in wire.told)  # which members may read


def test_a_round_again_with_all_members_is_the_same(wire):
    before = spent(wire, "South")
    first = wire.federation().mix(requests(), [mean_of()])
    # Also after trials of others, who add noise.
    trial = wire.federation().mix(requests(REST, 1, START), [mean_of(REST)])
    again = wire.federation().mix(requests(), [mean_of()])
    assert trial.received == set(REST)
    assert torch.equal(first.means["parameters"], again.means["parameters"])
    assert spent(wire, "South") != before
