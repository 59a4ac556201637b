"""What the coordinator sees of single participants is said before training."""

import pytest

from fedegoists.benefit import LearnSettings
from fedegoists.consortium.exposure import (
    check_estimator_consent,
    check_methods,
    exposures,
    masked_sums,
)
from fedegoists.methods.consent import ConsentError
from fedegoists.training.repetitions import Wanted
from tests.methods.test_consent import NAMES, federation

COALITIONS = [NAMES[:3], NAMES[3:]]


def test_a_coalition_of_two_is_named_with_the_reason():
    (seen,) = exposures(Wanted(("local", "fedavg+ft")), federation("s3", "s4"), COALITIONS)
    assert (seen.method, seen.members) == ("fedavg", ("s3", "s4"))
    assert str(seen).startswith("fedavg: the coordinator sees the single updates of s3, s4: a sum")


def test_a_method_that_needs_single_updates_exposes_all_its_coalitions():
    seen = exposures(Wanted(("scaffold",)), federation(*NAMES), COALITIONS)
    assert [one.members for one in seen] == [NAMES[:3], NAMES[3:]]
    assert all(one.reason == "the method needs single updates" for one in seen)


def test_methods_are_checked_before_coalitions_are_known():
    check_methods(Wanted(("local", "egomix")), federation())
    with pytest.raises(ConsentError, match="pfedme"):
        check_methods(Wanted(("local", "pfedme+ft")), federation())


def test_a_pair_without_consent_stops_before_training():
    with pytest.raises(ConsentError, match="s3, s4 did not consent"):
        exposures(Wanted(("fedavg",)), federation(), COALITIONS)


def test_coalitions_with_masked_sums_are_named_for_the_methods_that_need_no_more():
    wanted = Wanted(("local", "fedavg+ft", "egomix", "scaffold"))
    (one,) = masked_sums(wanted, federation(*NAMES), COALITIONS)
    assert (one.members, one.methods) == (NAMES[:3], ("fedavg", "egomix"))
    assert masked_sums(Wanted(("local", "scaffold")), federation(*NAMES), COALITIONS) == ()


def test_an_estimator_is_refused_before_it_asks_silos_that_do_not_consent():
    transfer = LearnSettings(estimator="transfer")
    check_estimator_consent(transfer, federation(*NAMES))
    with pytest.raises(ConsentError, match=r"transfer shows the server models .* s0, s2 did not"):
        check_estimator_consent(transfer, federation("s1", "s3", "s4"))
    with pytest.raises(ConsentError, match="gradients of each participant"):
        check_estimator_consent(LearnSettings(estimator="hypernetwork"), federation())


def test_curves_need_no_consent_where_models_stay_at_home():
    with pytest.raises(ConsentError, match="transfers = false, with which only scores leave"):
        check_estimator_consent(LearnSettings(estimator="curves"), federation())
    check_estimator_consent(LearnSettings(estimator="curves", transfers=False), federation())
