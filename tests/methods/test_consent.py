"""Methods show the server single updates only where silos consent, and say so at the start."""

import pytest

from fedegoists.federation import TrainSettings
from fedegoists.learning.models import build_model
from fedegoists.methods import METHOD_ENTRIES, METHODS, RunSettings
from fedegoists.methods import run as run_method
from fedegoists.methods.consent import (
    ConsentError,
    check_all_consent,
    check_consent,
    exposed_coalitions,
)
from tests.federation.sums import SummingFederation
from tests.silos import FOR_NETWORKS, MODELS, groups, initial, silos

QUICK = TrainSettings(steps=2, batch_size=16, learning_rate=0.05)
NAMES = ("s0", "s1", "s2", "s3", "s4")
THREE = groups([NAMES[:3], NAMES[3:4], NAMES[4:]])
TWO = groups([NAMES[:3], NAMES[3:]])


class Consenting(SummingFederation):
    """A federation some of whose silos consent; a call that would be refused is an error."""

    willing: tuple[str, ...] = ()

    def consents(self, participant):
        return participant.name in self.willing

    def call(self, requests, timeout=None):
        for name, request in requests.items():
            personal = getattr(request, "personal", None)
            shows = request.operation in ("train", "loss_and_gradient")
            hidden = self.at_home or (personal is not None and personal.whole)
            assert hidden or not shows or self.consents(name), (name, request)
        return super().call(requests, timeout)

    at_home = False

    def mix(self, requests, sums, timeout=None):
        type(self).at_home = all(self.masks(one.coalition) for one in sums)
        try:
            return super().mix(requests, sums, timeout)
        finally:
            type(self).at_home = False


def federation(*willing):
    data = silos("mlp", sizes=(50, 45, 60, 55, 40))
    made = Consenting(data, build_model("mlp", 0, **MODELS["mlp"]))
    made.willing = willing
    return made


BY_SUMS = [name for name, one in METHOD_ENTRIES.items() if one.server_sees in ("nothing", "sums")]


@pytest.mark.parametrize("name", METHODS)
def test_without_consent_only_methods_by_sums_train(name):
    over, method = federation(), METHODS[name](QUICK)
    settings = RunSettings(rounds=2, seed=1)
    if name in BY_SUMS:
        check_all_consent(method, over)
        outcome = run_method(method, over, THREE, initial("mlp", 5), settings)
        assert not outcome.failures
        return
    sees = METHOD_ENTRIES[name].server_sees
    wanted = rf"{name} shows the server {sees} .* s0, s1, s2 did not .*single_updates = true .*silo"
    with pytest.raises(ConsentError, match=wanted):
        run_method(method, over, THREE, initial("mlp", 5), settings)
    assert not over.seen  # nothing was asked before
    with pytest.raises(ConsentError, match="s0, s1, s2, s3, s4"):
        check_all_consent(method, over)


@pytest.mark.parametrize("name", FOR_NETWORKS)
def test_with_consent_of_the_coalition_every_method_trains(name):
    over = federation("s0", "s1", "s2")
    method = METHODS[name](QUICK)
    run_method(method, over, THREE, initial("mlp", 5), RunSettings(rounds=1, seed=1))


def test_where_sums_are_not_masked_all_members_have_to_consent(monkeypatch):
    method, over = METHODS["fedavg"](QUICK), federation("s0", "s1")
    monkeypatch.setattr(over, "masks", lambda _: False)
    with pytest.raises(ConsentError, match=r's2 did not consent .* secure_sums = "auto"'):
        check_consent(method, over, THREE)


@pytest.mark.parametrize("name", ["fedavg", "egomix"])
def test_two_members_cannot_be_hidden(name):
    method = METHODS[name](QUICK)
    with pytest.raises(
        ConsentError, match=r"s3, s4 are not hidden .* coalition of 2, and s4 did not .* three"
    ):
        check_consent(method, federation("s3"), TWO)
    assert exposed_coalitions(method, federation(), TWO) == [TWO[1]]
    check_consent(method, federation("s3", "s4"), TWO)
    assert not exposed_coalitions(METHODS["local"](QUICK), federation(), TWO)
