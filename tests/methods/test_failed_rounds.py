"""A run in which every silo fails, or refuses, has no result."""

import pytest
import torch

from fedegoists.federation import Evaluate, Failure, SimulatedFederation, TrainSettings
from fedegoists.methods import METHODS, RunSettings, run
from fedegoists.methods.failed_rounds import FailedRunError
from tests.own_modules import module, own_silos


class Refusing(SimulatedFederation):
    """Silos of which some refuse requests of a kind, in the first rounds."""

    refused, kind, times = (), Evaluate, 10**6

    def call(self, requests, timeout=None):
        replies = super().call(requests, timeout)
        if not isinstance(next(iter(requests.values())), self.kind) or not self.times:
            return replies
        self.times -= 1
        return {
            name: Failure(name, "refused", "not approved") if name.name in self.refused else reply
            for name, reply in replies.items()
        }


def trained(**changes):
    silos = Refusing(own_silos("linear"), module("linear"))
    for name, value in changes.items():
        setattr(silos, name, value)
    rows = torch.zeros(3, silos.schema.size)
    settings = RunSettings(rounds=2, seed=0)
    method = METHODS["fedavg"](TrainSettings(steps=1))
    return run(method, silos, [silos.participants], rows, settings)


def test_where_every_silo_refuses_an_evaluation_the_run_fails_with_the_reason():
    with pytest.raises(FailedRunError, match=r"evaluation on .* data: every silo.*not approved"):
        trained(refused=("s0", "s1", "s2"))


def test_where_some_silo_answers_the_run_goes_on():
    outcome = trained(refused=("s0", "s1"))
    assert {str(failure.participant) for _, failure in outcome.failures} == {"s0", "s1"}


def test_a_round_that_every_silo_refuses_may_be_followed_by_a_better_one():
    """As when a member of a masked sum was away."""
    from fedegoists.federation import Train

    outcome = trained(refused=("s0", "s1", "s2"), kind=Train, times=1)
    assert outcome.state.round == 2
    assert outcome.state.parameters.any()


class Breaking(SimulatedFederation):
    """Silos that all break in the second round of training."""

    rounds = 0

    def call(self, requests, timeout=None):
        from fedegoists.federation import Train

        if isinstance(next(iter(requests.values())), Train):
            self.rounds += 1
            if self.rounds > 1:
                return {name: Failure(name, "not finite", "parameters") for name in requests}
        return super().call(requests, timeout)


def test_a_run_that_fails_tells_what_it_had_until_then():
    silos = Breaking(own_silos("linear"), module("linear"))
    rows = torch.zeros(3, silos.schema.size)
    method = METHODS["fedavg"](TrainSettings(steps=1))
    with pytest.raises(FailedRunError, match="round 2: every silo failed") as caught:
        run(method, silos, [silos.participants], rows, RunSettings(rounds=5, seed=0))
    outcome = caught.value.outcome
    assert outcome.state.round == 1
    assert {row.round for row in outcome.rows} == {0, 1}
    assert outcome.best.any()
