"""Who is believed: certificates of the root, in the right name, valid, and not revoked."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedegoists.federation.flare.certificate_authority import (
    Authority,
    certificate_text,
    key_text,
    new_silo_key,
)
from fedegoists.federation.flare.kit_identity import (
    COORDINATOR_CERTIFICATE,
    ROOT_FILE,
    SIGNING_KEY,
    SILO_CERTIFICATE,
    SILO_KEY,
    IdentityError,
    KitIdentity,
    Trust,
    coordinator_certificate,
    coordinator_identity,
    participant_name,
    read_trust,
    silo_identity,
    verify,
)
from tests.flare.authorities import new_authority


@pytest.fixture(scope="module")
def authority():
    return new_authority()


@pytest.fixture(scope="module")
def north(authority):
    key, request = new_silo_key("north")
    return KitIdentity("north", key, authority.certify_silo(request, "north", "North Bank", 30))


def test_a_silos_certificate_is_believed_in_its_own_name_only(authority, north):
    trust = Trust(authority.root)
    trust.check(north.certificate, "north")
    assert participant_name(trust.checked(north.pem, "north")) == "North Bank"
    with pytest.raises(IdentityError, match="where one of 'south' is expected"):
        trust.check(north.certificate, "south")


def test_the_certificate_of_another_consortium_is_not_believed(north):
    with pytest.raises(IdentityError, match="not valid in this consortium"):
        Trust(new_authority().root).check(north.certificate, "north")


def test_a_silo_cannot_issue_certificates(authority, north):
    _, request = new_silo_key("south")
    forged = Authority(north.certificate, north.key).certify_silo(request, "south", "South", 30)
    with pytest.raises(IdentityError, match="not valid in this consortium"):
        Trust(authority.root).check(forged, "south")


def test_an_expired_certificate_is_not_believed(authority):
    key = rsa.generate_private_key(65537, 2048)
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "north")])
    expired = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority.root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now - datetime.timedelta(days=1))
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), False
        )
        .sign(authority.key, hashes.SHA256())
    )
    with pytest.raises(IdentityError, match="valid at validation time"):
        Trust(authority.root).check(expired, "north")


def test_a_signature_is_of_one_content_by_one_key(authority, north):
    other = KitIdentity("coordinator", Ed25519PrivateKey.generate(), north.certificate)
    for signer, certificate in (
        (north, north.certificate),
        (other, authority.certify_coordinator(other.key.public_key())),
    ):
        signature = signer.sign(b"content")
        verify(certificate, signature, b"content")
        with pytest.raises(IdentityError, match="not signed by"):
            verify(certificate, signature, b"contents")
        with pytest.raises(IdentityError, match="not signed by"):
            verify(
                authority.certify_coordinator(Ed25519PrivateKey.generate().public_key()),
                signature,
                b"content",
            )


def test_a_revoked_certificate_is_not_believed_and_lists_only_get_newer(authority, north):
    trust = Trust(authority.root)
    first = authority.revocation_list([north.certificate.serial_number], 1)
    second = authority.revocation_list([], 2)
    with pytest.raises(IdentityError, match="the certificate of north is revoked"):
        trust.updated(first).check(north.certificate, "north")
    trust.updated(first).updated(second).check(north.certificate, "north")
    assert (
        trust.updated(second).updated(first).revoked == frozenset()
    )  # an old list changes nothing
    with pytest.raises(IdentityError, match="root has not signed"):
        trust.updated(new_authority().revocation_list([1], 5))
    with pytest.raises(IdentityError, match="not a revocation list"):
        trust.updated(b"nonsense")


def test_a_request_gives_a_key_and_no_other_name(authority):
    _, request = new_silo_key("south")
    with pytest.raises(IdentityError, match="a request of 'south', not of 'north'"):
        authority.certify_silo(request, "north", "North", 30)
    broken = bytearray(request.public_bytes(serialization_der()))
    broken[-1] ^= 1
    changed = x509.load_der_x509_csr(bytes(broken))
    with pytest.raises(IdentityError, match="it was changed"):
        authority.certify_silo(changed, "south", "South", 30)


def serialization_der():
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.DER


def test_a_kit_gives_its_owner_and_whom_it_believes(authority, north, tmp_path):
    (tmp_path / "startup").mkdir()
    with pytest.raises(IdentityError, match="no root certificate"):
        read_trust(tmp_path)
    (tmp_path / ROOT_FILE).write_bytes(certificate_text(authority.root))
    trust = read_trust(tmp_path)
    with pytest.raises(IdentityError, match=r"client\.key: missing"):
        silo_identity(tmp_path)
    (tmp_path / SILO_KEY).write_bytes(key_text(north.key))
    (tmp_path / SILO_CERTIFICATE).write_bytes(north.pem)
    assert silo_identity(tmp_path).site == "north"
    key = Ed25519PrivateKey.generate()
    (tmp_path / SIGNING_KEY).write_bytes(key_text(key))
    with pytest.raises(IdentityError, match="join the consortium again"):
        coordinator_certificate(tmp_path, trust)
    (tmp_path / COORDINATOR_CERTIFICATE).write_bytes(north.pem)
    with pytest.raises(IdentityError, match="where one of 'coordinator' is expected"):
        coordinator_certificate(tmp_path, trust)
    certificate = authority.certify_coordinator(key.public_key())
    (tmp_path / COORDINATOR_CERTIFICATE).write_bytes(certificate_text(certificate))
    assert coordinator_certificate(tmp_path, trust) == certificate
    assert coordinator_identity(tmp_path).certificate == certificate
    (tmp_path / SILO_KEY).write_bytes(key_text(new_silo_key("north")[0]))
    with pytest.raises(IdentityError, match="not the certificate of the key beside it"):
        silo_identity(tmp_path)
