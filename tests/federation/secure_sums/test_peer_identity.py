"""Signatures of mask keys: only a member of the consortium can speak under its name."""

import dataclasses

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedegoists.federation.flare.kit_identity import (
    PARTICIPANT,
    KitIdentity,
    Trust,
    coordinator_identity,
)
from fedegoists.federation.secure_sums.peer_identity import PeerIdentity
from fedegoists.federation.secure_sums.sum_messages import SumError
from tests.federation.secure_sums.authority import authority, identity, new_identity
from tests.federation.secure_sums.sum_party import PURPOSE
from tests.flare.authorities import new_authority, write_identities

CHANNEL = "aa" * 32


@pytest.mark.parametrize("rsa", [False, True])
def test_keys_of_every_kind_sign_and_are_checked(rsa):
    one, other = new_identity("one", rsa=rsa), new_identity("other")
    keys = one.signed(PURPOSE, CHANNEL)
    other.check(PURPOSE, keys)
    forgeries = [
        (PURPOSE, keys.changed(channel="cc" * 32)),
        (PURPOSE, keys.changed(signature=other.signed(PURPOSE, CHANNEL).signature)),
        (PURPOSE.changed(run="another"), keys),
    ]
    for purpose, forged in forgeries:
        with pytest.raises(SumError, match="not signed by one"):
            other.check(purpose, forged)


def test_a_certificate_of_another_authority_is_refused():
    stranger = new_identity("one", new_authority())
    with pytest.raises(SumError, match="not valid in this consortium"):
        identity("other").check(PURPOSE, stranger.signed(PURPOSE, CHANNEL))


def test_a_revoked_certificate_is_refused():
    one, other = identity("one"), identity("other")
    serial = one.own.certificate.serial_number
    warned = dataclasses.replace(other, trust=Trust(other.trust.root, frozenset([serial])))
    keys = one.signed(PURPOSE, CHANNEL)
    other.check(PURPOSE, keys)
    with pytest.raises(SumError, match="is revoked"):
        warned.check(PURPOSE, keys)


def test_a_member_cannot_use_the_name_of_another():
    keys = identity("one").signed(PURPOSE, CHANNEL)
    with pytest.raises(SumError, match="'one' where one of 'third'"):
        identity("other").check(PURPOSE, keys.changed(site="third"))


def test_something_that_is_no_certificate_is_refused():
    keys = identity("one").signed(PURPOSE, CHANNEL).changed(certificate="nothing")
    with pytest.raises(SumError, match="not the certificate of one"):
        identity("other").check(PURPOSE, keys)


def test_a_kit_is_read(tmp_path):
    silos = {site: tmp_path / site for site in ("one", "other")}
    write_identities(new_authority(), tmp_path / "coordinator", silos)
    one, other = (PeerIdentity.of_kit(kit) for kit in silos.values())
    assert one.site == "one"
    other.check(PURPOSE, one.signed(PURPOSE, CHANNEL))


def test_a_kit_without_its_certificate_says_so(tmp_path):
    with pytest.raises(SumError, match=r"without a certificate: .*client\.key: missing"):
        PeerIdentity.of_kit(tmp_path)


def test_a_certificate_of_the_coordinator_is_no_silo(tmp_path):
    root = authority()
    write_identities(root, tmp_path / "coordinator", {})
    signing = PeerIdentity(coordinator_identity(tmp_path / "coordinator"), Trust(root.root))
    forged = [signing]
    # FLARE's server and operator have certificates without a participant, or for other uses.
    for site, participant, usage in [
        ("host", "", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("host", "Host", ExtendedKeyUsageOID.SERVER_AUTH),
        ("coordinator", "Coordinator", ExtendedKeyUsageOID.CLIENT_AUTH),
    ]:
        key = Ed25519PrivateKey.generate()
        names = [(NameOID.COMMON_NAME, site)] + [(PARTICIPANT, participant)] * bool(participant)
        certificate = root._certificate(names, key.public_key(), 30, usage)
        forged.append(PeerIdentity(KitIdentity(site, key, certificate), Trust(root.root)))
    for one in forged:
        with pytest.raises(SumError, match="not one of a silo"):
            identity("other").check(PURPOSE, one.signed(PURPOSE, CHANNEL))
