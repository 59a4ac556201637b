"""Five forms of poison by one of five members: what the others get, and who is told."""

import functools
import math

import pytest
import torch

from fedegoists.federation import Evaluate, Participant, Train
from fedegoists.federation.behaviours import times
from fedegoists.federation.robust_sums import RobustSettings
from fedegoists.methods import Callbacks, RunSettings, run
from fedegoists.methods.leave_out_trials import Trials, Watched, rise
from tests.poisons import (
    BAD,
    METHODS,
    NAMES,
    POISONS,
    ROUNDS,
    losses,
    mean_loss,
    method,
    silos,
    start,
    trained,
)

GUARD = RobustSettings()


@functools.cache
def flipped():
    """A run with flipped labels at one member, from beginning to end."""
    return trained("fedavg", "label flip", robust=GUARD)


@functools.cache
def without(name, seed=0):
    """The loss of the others where the bad member is absent."""
    return mean_loss(trained(name, None, absent=True, seed=seed))


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", METHODS)
def test_one_bad_member_costs_the_others_at_most_a_tenth(name, poison):
    outcome = trained(name, poison, robust=GUARD)
    assert mean_loss(outcome) < 1.1 * without(name)
    assert {one.participant for one in outcome.findings} <= {BAD}
    # Honest members are not blamed for what another one did to their model.
    assert {failure.participant.name for _, failure in outcome.failures} <= {BAD}


@pytest.mark.parametrize("poison", ["times -10", "label flip", "drift"])
def test_without_the_guard_it_costs_more(poison):
    """Otherwise the test above would show nothing."""
    assert mean_loss(trained("fedavg", poison)) > 1.1 * without("fedavg")


@pytest.mark.parametrize("name", METHODS)
def test_an_honest_run_is_the_same_bit_for_bit_with_the_guard(name):
    plain, guarded = (trained(name, None, robust=one) for one in (None, GUARD.changed(factor=50.0)))
    assert torch.equal(plain.best, guarded.best)
    assert plain.rows == guarded.rows
    assert guarded.findings == []
    passes = [sum(one.spent["sample_passes"].values()) for one in (plain, guarded)]
    assert passes[0] < passes[1] < 2 * passes[0]  # the audit


def test_a_member_that_is_left_out_is_not_asked_to_train_and_keeps_the_model_it_has():
    asked = []
    outcome = trained("fedavg", "label flip", robust=GUARD, watch=asked.append)
    (found,) = [one for one in outcome.findings if one.kind == "left out"]
    assert (found.participant, found.round) == (BAD, 5)
    bad = NAMES.index(BAD)
    assert outcome.best_round[bad] <= 5
    last = [requests for requests in asked if Participant("a") in requests][-ROUNDS:]
    assert all(Participant(BAD) not in requests for requests in last)
    absent = trained("fedavg", None, absent=True)
    assert losses(outcome) == pytest.approx(losses(absent), rel=1e-4)


# Voices ----------------------------------------------------------------------------------------


def voices(harm):
    """Losses with all members, and without the suspect e, by the harm that each one sees."""
    control = {Participant(name): 1.0 for name in NAMES}
    return control, {
        Participant(name): math.exp(-own) for name, own in zip("abcd", harm, strict=True)
    }


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ((0.0, 0.0, 0.0, 9.0), 0.0),  # one liar
        ((0.1, 0.1, 0.1, -9.0), 0.1),  # one that protects it
        ((0.0, 0.0, 9.0, 9.0), 0.0),  # half is not most
        ((0.0, 0.2, 0.3, 0.4), 0.2),
    ],
)
def test_most_of_the_others_decide_and_no_single_one(harm, expected):
    everybody = tuple(map(Participant, NAMES))
    watched = Watched(NAMES, (everybody,))
    trials = Trials.__new__(Trials)
    trials._first = {}
    assert trials.harm("e", watched, *voices(harm)) == pytest.approx(expected, abs=1e-9)


def test_a_rise_is_measured_against_the_first_loss():
    assert rise(1.0, 2.0, first=0.0) == pytest.approx(math.log(2))
    assert rise(1.0, math.inf, first=1.0) == 10.0
    assert rise(math.inf, math.inf, first=1.0) == 0.0
    assert rise(1e-6, 1e-4, first=1.0) < 0.01


def test_a_member_that_lies_about_its_losses_cannot_have_another_one_left_out():
    calls = []

    def liar(request, reply):
        calls.append(request)
        if isinstance(request, Evaluate):
            lie = reply.losses[0] * 10.0 ** (len(calls) % 7)
            return reply.model_copy(update={"losses": (lie,)})
        return reply

    honest = trained("fedavg", None)
    outcome = trained("fedavg", None, behaviour=liar, robust=GUARD)
    assert outcome.findings == []
    assert mean_loss(outcome) == mean_loss(honest)


# Rollback --------------------------------------------------------------------------------------


def late(begins):
    """A silo that turns bad after some rounds."""
    trained_so_far = []
    poison = times(-200.0)

    def behaviour(request, reply):
        if isinstance(request, Train):
            trained_so_far.append(request)
            if request.first_step >= 10 * begins:
                return poison(request, reply)
        return reply

    return behaviour


def test_an_explosion_is_rolled_back_with_the_layers_that_stay_in_the_silos():
    federation = silos(behaviour=late(8))
    slots, seen = {}, []

    def look(_, done, __, outcome):
        memory = {key: value.clone() for key, value in federation.memory("fedavg").items()}
        memory = {key: own for key, own in memory.items() if key.slot == "fedavg"}
        seen.append(done)
        if done in slots and done == 8:
            assert outcome.state.round == 8
            assert slots[done].keys() == memory.keys()
            assert all(torch.equal(memory[key], own) for key, own in slots[done].items())
        slots[done] = memory

    outcome = run(
        method("fedavg", personal=("output.",)),
        federation,
        [federation.participants],
        torch.stack([start(0)] * len(NAMES)),
        # Bounds alone would stop it.
        RunSettings(rounds=12, seed=0, robust=GUARD.changed(factor=1e9)),
        Callbacks(observers=(look,)),
    )
    assert seen == [*range(1, 9), 8, *range(9, 13)]
    assert [(one.participant, one.kind) for one in outcome.findings][-1] == (BAD, "left out")
    assert len(slots[8]) == len(NAMES)
    honest = {row.value for row in outcome.rows if row.split == "validation"}
    assert max(honest) < 10


def test_a_run_that_was_interrupted_in_a_trial_continues_to_the_same_result(tmp_path):
    whole = flipped()
    calls = []

    def interrupt(requests):
        calls.append(requests)
        if len(calls) == 8:  # five rounds, and the third trial
            raise InterruptedError

    file = tmp_path / "checkpoint"
    with pytest.raises(InterruptedError):
        trained("fedavg", "label flip", robust=GUARD, watch=interrupt, checkpoint=file)
    again = trained("fedavg", "label flip", robust=GUARD, checkpoint=file)
    assert torch.equal(again.best, whole.best)
    assert again.rows == whole.rows
    assert again.findings == whole.findings


def test_a_run_that_stops_with_findings_continues_with_them(tmp_path):
    whole = flipped()
    file, stops = tmp_path / "checkpoint", iter([False] * 9 + [True])
    with pytest.raises(Exception, match="stopped after"):
        trained(
            "fedavg", "label flip", robust=GUARD, checkpoint=file, stop=lambda: next(stops, False)
        )
    again = trained("fedavg", "label flip", robust=GUARD, checkpoint=file)
    assert torch.equal(again.best, whole.best)
    assert again.findings == whole.findings
