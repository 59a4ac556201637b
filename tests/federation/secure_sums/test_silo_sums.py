"""A member's part: it answers each thing once, and refuses what does not fit."""

import numpy as np
import pytest
import torch

from fedegoists.federation.secure_sums import silo_sums
from fedegoists.federation.secure_sums.fixed_point import decode
from fedegoists.federation.secure_sums.silo_sums import SiloSums
from fedegoists.federation.secure_sums.sum_messages import (
    AgreedSum,
    LostSessionError,
    Roster,
    SumPolicy,
    UnmaskOrder,
)
from tests.federation.secure_sums.authority import identity, new_identity
from tests.federation.secure_sums.sum_party import PURPOSE, Party, refusal, sites_of, vectors_of
from tests.flare.authorities import new_authority

SITES = sites_of(4)
VECTORS = vectors_of(SITES)


def uploaded(party=None, agreement=None):
    """A round in which all have uploaded, and the order that follows."""
    party = party or Party(SITES)
    agreement = agreement or party.agreement()
    for site in SITES:
        party.upload(site, agreement, VECTORS[site])
    order = UnmaskOrder(
        session=agreement.session,
        number=agreement.number,
        agreement=agreement.digest,
        survivors=tuple(SITES),
    )
    return party, order


def test_shares_are_given_once():
    party, order = uploaded()
    shares = party.silos["s00"].unmasked(order)
    assert shares.seeds.keys() == set(SITES)
    assert not shares.keys
    assert "given before" in refusal(party.silos["s00"].unmasked, order)


def test_the_other_kind_of_share_is_never_given_for_a_peer():
    party, order = uploaded()
    fewer = order.changed(survivors=("s00", "s01", "s02"))
    shares = party.silos["s00"].unmasked(fewer)
    assert shares.keys.keys() == {"s03"}
    assert "s03" not in shares.seeds
    assert "given before" in refusal(party.silos["s00"].unmasked, order)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"survivors": ("s00", "s01")}, "2 of 4 members are left"),
        ({"survivors": ("s01", "s02", "s03")}, "no survivors"),
        ({"survivors": ("s00", "s01", "s02", "x")}, "no survivors"),
        ({"agreement": "00" * 32}, "agreement is another"),
        ({"number": 1}, "not one that waits"),
        ({"session": "00" * 32}, "not known here"),
    ],
)
def test_an_order_that_does_not_fit_is_refused_and_reveals_nothing(change, why):
    party, order = uploaded()
    silo = party.silos["s00"]
    assert why in refusal(silo.unmasked, order.changed(**change))
    silo.unmasked(order)  # the right one is still answered


def test_a_sum_left_with_too_few_contributors_is_not_unmasked():
    party = Party(SITES)
    weights = (0.4, 0.3, 0.0, 0.3)
    agreement = party.agreement(sums=(AgreedSum(members=tuple(SITES), weights=weights),))
    party, order = uploaded(party, agreement)
    without = order.changed(survivors=("s00", "s01", "s02"))
    assert "2 members" in refusal(party.silos["s00"].unmasked, without)


def test_a_key_is_used_for_one_upload():
    party = Party(SITES)
    agreement = party.agreement()
    party.upload("s00", agreement, VECTORS["s00"])
    assert "may be over" in refusal(party.upload, "s00", agreement, VECTORS["s00"])
    other = agreement.changed(label="another")
    assert "may be over" in refusal(party.upload, "s00", other, VECTORS["s00"])


def check(party, site, agreement):
    """Why a member refuses an agreement."""
    return refusal(party.silos[site].check, agreement, party.sealed(site, agreement))


def test_keys_of_an_earlier_round_are_refused():
    # A server could have got their secrets when it said that a member dropped out.
    party = Party(SITES)
    old = dict(party.offers)
    party.round(VECTORS)
    stale = old["s01"].key.changed(number=1)
    keys = tuple(stale if site == "s01" else party.offers[site].key for site in SITES)
    agreement = party.agreement().changed(keys=keys)
    assert "s01 are missing, or not for" in check(party, "s00", agreement)
    party.offers["s01"] = old["s01"]  # nor with the shares of then
    assert "s01 are missing, or not for" in check(party, "s00", agreement)


def test_a_mask_key_that_is_not_the_peers_own_is_refused():
    party = Party(SITES)
    agreement = party.agreement()
    forged = agreement.keys[1].changed(key=agreement.keys[2].key)
    keys = (agreement.keys[0], forged, *agreement.keys[2:])
    assert "s01 are missing, or not for" in check(party, "s00", agreement.changed(keys=keys))
    mine = (agreement.keys[0].changed(key="11" * 32), *agreement.keys[1:])
    assert "another one" in check(party, "s00", agreement.changed(keys=mine))


def test_shares_that_are_not_for_this_member_are_refused_before_anything_leaves():
    party = Party(SITES)
    agreement = party.agreement()
    encoded = party.encoded(agreement, "s00", VECTORS["s00"])
    sealed = party.sealed("s00", agreement)
    for wrong in (
        {**sealed, "s01": party.offers["s01"].shares["s02"]},
        {**sealed, "s01": "00" * 94},
        {site: one for site, one in sealed.items() if site != "s01"},
    ):
        why = refusal(party.silos["s00"].masked, agreement, wrong, encoded)
        assert "shares of s01" in why
    party.silos["s00"].masked(agreement, sealed, encoded)  # the key is not spent


def test_too_few_members_are_refused():
    party = Party(SITES)
    few = party.agreement(sites=SITES[:2])
    assert "too few" in check(party, "s00", few)
    assert "at least 3" in refusal(Party, SITES[:2])


def test_a_heavy_weight_is_refused():
    party = Party(SITES)
    heavy = party.agreement(weights=[0.94, 0.02, 0.02, 0.02])
    assert "of one member" in check(party, "s03", heavy)


def test_vectors_are_only_for_agreed_sums():
    party = Party(SITES)
    agreement = party.agreement()
    sealed = party.sealed("s00", agreement)
    ring = np.zeros(3, np.uint32)
    for wrong in ({}, {1: ring}, {0: ring, 1: ring}):
        assert "other sums" in refusal(party.silos["s00"].masked, agreement, sealed, wrong)


def test_a_roster_with_a_stranger_or_with_other_keys_is_refused():
    silos = {site: SiloSums(identity(site)) for site in SITES}
    keys = {site: silo.advertise(PURPOSE) for site, silo in silos.items()}
    stranger = new_identity("s03", new_authority()).signed(PURPOSE, "aa" * 32)
    roster = Roster(purpose=PURPOSE, peers=(*(keys[site] for site in SITES[:3]), stranger))
    assert "not valid in this consortium" in refusal(silos["s00"].join, roster)
    elsewhere = Roster(purpose=PURPOSE.changed(run="other"), peers=roster.peers)
    with pytest.raises(LostSessionError):
        silos["s00"].join(elsewhere)


def test_a_session_is_joined_once():
    party = Party(SITES)
    with pytest.raises(LostSessionError):
        party.silos["s00"].join(party.roster)


def test_a_member_that_restarted_says_that_its_session_is_lost():
    party = Party(SITES)
    party.silos["s00"] = SiloSums(identity("s00"))
    with pytest.raises(LostSessionError):
        party.upload("s00", party.agreement(), VECTORS["s00"])


def test_old_sessions_are_forgotten(monkeypatch):
    monkeypatch.setattr(silo_sums, "MOST_SESSIONS", 2)
    silo = SiloSums(identity("s00"))
    first = silo.advertise(PURPOSE)
    for _ in range(2):
        silo.advertise(PURPOSE)
    others = (SiloSums(identity(site)).advertise(PURPOSE) for site in SITES[1:])
    with pytest.raises(LostSessionError):
        silo.join(Roster(purpose=PURPOSE, peers=(first, *others)))


def test_a_member_that_missed_a_round_offers_a_key_for_the_next():
    party = Party(SITES)
    party.round({site: VECTORS[site] for site in SITES[:3]})
    party.offers["s03"] = party.silos["s03"].offer(party.roster.session, 1)
    (total,) = party.round(VECTORS)
    expected = torch.stack(list(VECTORS.values())).double().mean(0)
    assert (decode(total.total) - expected).abs().max() < 4 * 2.0**-24
    assert "is over" in refusal(party.silos["s03"].offer, party.roster.session, 0)
    again = party.silos["s03"].offer(party.roster.session, 2)
    assert again == party.offers["s03"]


def test_a_policy_of_its_own_holds():
    party = Party(SITES, SumPolicy(largest_weight=0.5))
    heavy = party.agreement(weights=[0.6, 0.2, 0.1, 0.1])
    assert "at most 0.5" in check(party, "s03", heavy)
