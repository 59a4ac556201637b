"""Agreements: what they may say, and which sums a member refuses."""

import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Train, TrainSettings
from fedegoists.federation.secure_sums.agreed_training import agreed_seed
from fedegoists.federation.secure_sums.sum_messages import (
    AgreedSum,
    Agreement,
    MaskKey,
    SumError,
    SumPolicy,
    threshold,
)
from tests.federation.secure_sums.sum_party import Party, sites_of

POLICY = SumPolicy()
ABC = ("a", "b", "c")


def agreed(*weights, receiver=None):
    members = tuple("abcdefgh"[: len(weights)])
    return AgreedSum(members=members, weights=weights, receiver=receiver)


@pytest.mark.parametrize("members", range(3, 40))
def test_nobody_gets_both_kinds_of_shares_from_two_groups_of_members(members):
    # Two groups, told different things, would have to be disjoint, up to those who collude.
    assert 2 * threshold(members) - members > members / 3 - 1


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (agreed(0.5, 0.5), "2 members"),
        (agreed(0.5, 0.5, 0.0), "2 members"),
        (agreed(0.92, 0.04, 0.04), "0.92 of a sum"),
    ],
)
def test_a_sum_that_tells_of_one_member_is_refused(one, why):
    with pytest.raises(SumError, match=why):
        POLICY.check([one], one.members)


@pytest.mark.parametrize(
    "one",
    [
        agreed(0.9, 0.05, 0.05),
        agreed(0.98, 0.01, 0.01, receiver="a"),
        agreed(1.0, receiver="a"),
    ],
)
def test_other_sums_are_not(one):
    POLICY.check([one], one.members)


@pytest.mark.parametrize(
    "sums",
    [
        [agreed(0.3, 0.3, 0.3), agreed(0.3, 0.3, 0.3)],
        [agreed(0.25, 0.25, 0.25, 0.25), agreed(0.25, 0.25, 0.25)],
        [agreed(0.4, 0.3, 0.3, receiver="a"), agreed(0.3, 0.4, 0.3, receiver="a")],
        [agreed(0.3, 0.3, 0.3), agreed(0.4, 0.3, 0.3, receiver="a")],
    ],
)
def test_sums_whose_difference_tells_of_one_member_are_refused(sums):
    for one in sums:
        POLICY.check([one], "abcd")
    with pytest.raises(SumError, match="tell"):
        POLICY.check(sums, "abcd")


def test_sums_of_other_members_are_accepted_beside_each_other():
    apart = agreed(0.3, 0.3, 0.3).changed(members=("d", "e", "f"))
    POLICY.check([agreed(0.3, 0.3, 0.3), apart], "abcdef")
    mixtures = [agreed(0.4, 0.3, 0.3, receiver=site) for site in "abc"]
    POLICY.check(mixtures, "abc")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (agreed(1.0, receiver="d"), "2 members"),
        (agreed(0.5, 0.5, receiver="a"), "2 members"),
        (agreed(0.5, 0.47, 0.03, receiver="a"), "0.94 of a sum"),
    ],
)
def test_the_part_of_a_receiver_does_not_hide_that_of_others_from_it(one, why):
    with pytest.raises(SumError, match=why):
        POLICY.check([one], "abcd")


def test_parts_are_not_rounded_to_nothing():
    key = MaskKey(site="a", number=0, key="0" * 64, commitment="0" * 64)
    with pytest.raises(SettingsError, match="bits"):
        Agreement(session="0" * 64, number=0, keys=(key,), sums=(agreed(1.0),), bits=2)


def test_a_member_that_has_dropped_out_does_not_count():
    with pytest.raises(SumError, match="2 members"):
        POLICY.check([agreed(0.3, 0.3, 0.3)], ("a", "b"))
    with pytest.raises(SumError, match="of one member"):
        POLICY.check([agreed(0.5, 0.02, 0.02, 0.4)], ABC)


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": ("a", "a"), "weights": (0.5, 0.5)},
        {"members": ("a", "b"), "weights": (0.5,)},
        {"members": ("a", "b"), "weights": (0.7, 0.7)},
        {"members": ("a", "b"), "weights": (-0.1, 0.7)},
        {"members": ("a", "b"), "weights": (0.5, float("nan"))},
    ],
)
def test_a_sum_that_makes_no_sense_cannot_be_made(wrong):
    with pytest.raises(SettingsError):
        AgreedSum(**wrong)


def test_an_agreement_has_keys_of_its_round_and_members_with_keys():
    party = Party(sites_of(4))
    whole = party.agreement()
    for wrong in (
        {"number": 1},
        {"keys": whole.keys[::-1]},
        {"keys": whole.keys[:1] * 2},
        {"keys": whole.keys[:3]},
    ):
        with pytest.raises(SettingsError):
            whole.changed(**wrong)


def test_every_part_of_an_agreement_changes_its_hash():
    whole = Party(sites_of(4)).agreement()
    others = [
        whole.changed(label="another round"),
        whole.changed(bits=20),
        whole.changed(session="00" * 32),
        whole.changed(sums=(whole.sums[0].changed(weights=(0.2, 0.25, 0.25, 0.25)),)),
        whole.changed(sums=(whole.sums[0].changed(receiver="s00"),)),
    ]
    assert len({one.digest for one in (whole, *others)}) == 6


def test_batches_of_a_sum_are_those_of_earlier_versions():
    """Recorded: measurements and continued runs depend on the batches that silos draw."""
    keys = tuple(MaskKey(site=site, number=0, key="0" * 64, commitment="0" * 64) for site in ABC)
    sums = (agreed(30 / 133, 50 / 133, 53 / 133, receiver="a"),)
    agreement = Agreement(session="0" * 64, number=0, keys=keys, sums=sums)
    train = Train(parameters=torch.zeros(2), settings=TrainSettings(), seed="0/1")
    assert agreed_seed(train, agreement).startswith("d13d68fe0ec2f303")
