"""Keys and certificates of a kit: who its owner is, and whom it believes.

Every certificate of a consortium is signed by its root. A silo makes its own key; the coordinator
signs the certificate for it and never sees the key. The coordinator signs its calls with a key of
its own, and every silo keeps the certificate of that key since it joined.
"""

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.verification import (
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from fedegoists.errors import FedEgoistsError

ROOT_FILE = "startup/rootCA.pem"
SILO_KEY = "startup/client.key"
SILO_CERTIFICATE = "startup/client.crt"
COORDINATOR_CERTIFICATE = "startup/coordinator.crt"
SIGNING_KEY = "signing.key"
REVOKED_FILE = "revoked.pem"

COORDINATOR_NAME = "coordinator"
"""The name in the certificate of the key that signs calls; no silo can have it."""

PARTICIPANT = x509.NameOID.PSEUDONYM
"""The part of a certificate's subject that holds the participant's name."""


class IdentityError(FedEgoistsError, ValueError):
    """A key, certificate or signature that is missing or not to be trusted."""


PrivateKey = rsa.RSAPrivateKey | Ed25519PrivateKey


@dataclass(frozen=True)
class Trust:
    """The root of a consortium, and the certificates that it has revoked.

    Attributes
    ----------
    root : x509.Certificate
        The certificate that signs all others.
    revoked : frozenset of int
        Serial numbers of revoked certificates.
    edition : int
        The number of the revocation list; a later list has a higher one.
    """

    root: x509.Certificate
    revoked: frozenset[int] = field(default=frozenset())
    edition: int = 0

    @property
    def consortium(self) -> str:
        """The consortium as messages name it: the project, and the fingerprint of its root."""
        return f"{common_name(self.root)}/{fingerprint(self.root)}"

    def check(self, certificate: x509.Certificate, site: str) -> None:
        """Check that the consortium vouches for a certificate now, and that it is this site's.

        Raises
        ------
        IdentityError
            If it is not signed by the root, expired, revoked, or in another name.
        """
        verifier = (
            PolicyBuilder()
            .store(Store([self.root]))
            .time(datetime.datetime.now(datetime.UTC))
            .extension_policies(
                ca_policy=ExtensionPolicy.webpki_defaults_ca(),
                ee_policy=ExtensionPolicy.permit_all(),
            )
            .build_client_verifier()
        )
        try:
            verifier.verify(certificate, [])
        except VerificationError as error:
            raise IdentityError(
                f"the certificate of {site} is not valid in this consortium: {error}"
            ) from None
        if common_name(certificate) != site:
            raise IdentityError(
                f"a certificate of {common_name(certificate)!r} where one of {site!r} is expected"
            )
        if certificate.serial_number in self.revoked:
            raise IdentityError(f"the certificate of {site} is revoked")

    def checked(self, pem: bytes, site: str) -> x509.Certificate:
        """Return the certificate in some PEM text after `check`."""
        try:
            certificate = x509.load_pem_x509_certificate(pem)
        except ValueError as error:
            raise IdentityError(f"not the certificate of {site}: {error}") from None
        self.check(certificate, site)
        return certificate

    def updated(self, revocations: bytes) -> "Trust":
        """Return this with a later revocation list, or unchanged if the list is not later.

        Raises
        ------
        IdentityError
            If the list is not signed by the root.
        """
        edition, revoked = _revocations(revocations, self.root)
        return Trust(self.root, revoked, edition) if edition > self.edition else self


@dataclass(frozen=True)
class KitIdentity:
    """The owner of a kit.

    Attributes
    ----------
    site : str
        The name in the certificate.
    key : private key
        The key of the certificate, which never leaves its machine.
    certificate : x509.Certificate
        Signed by the consortium's root.
    """

    site: str
    key: PrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """The certificate as text, for others to check."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def sign(self, content: bytes) -> bytes:
        """Return a signature of some content; see `verify`."""
        if isinstance(self.key, Ed25519PrivateKey):
            return self.key.sign(content)
        return self.key.sign(content, _PADDING, hashes.SHA256())


_PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


def verify(certificate: x509.Certificate, signature: bytes, content: bytes) -> None:
    """Check that the owner of a certificate signed some content.

    Raises
    ------
    IdentityError
        If the signature is not by the key of the certificate, or of other content.
    """
    key = certificate.public_key()
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, content)
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, content, _PADDING, hashes.SHA256())
        else:
            raise IdentityError("a certificate with a key of an unknown kind")
    except InvalidSignature:
        raise IdentityError(f"not signed by {common_name(certificate)}") from None


def silo_identity(kit: Path) -> KitIdentity:
    """Return the identity of a silo from its kit."""
    return _identity(kit / SILO_KEY, kit / SILO_CERTIFICATE, "`fedegoists deploy install`")


def coordinator_identity(kit: Path) -> KitIdentity:
    """Return the identity that signs calls, from the coordinator's kit."""
    made_by = "`fedegoists deploy init`"
    return _identity(kit / SIGNING_KEY, kit / COORDINATOR_CERTIFICATE, made_by)


def _identity(key_file: Path, certificate_file: Path, made_by: str) -> KitIdentity:
    for file in (key_file, certificate_file):
        if not file.is_file():
            raise IdentityError(f"{file}: missing; {made_by} writes it")
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    except (ValueError, TypeError) as error:
        raise IdentityError(f"{key_file.parent}: unreadable key or certificate: {error}") from None
    if not isinstance(key, rsa.RSAPrivateKey | Ed25519PrivateKey):
        raise IdentityError(f"{key_file}: a key of an unknown kind")
    if key.public_key() != certificate.public_key():
        raise IdentityError(f"{certificate_file}: not the certificate of the key beside it")
    return KitIdentity(common_name(certificate), key, certificate)


def read_trust(kit: Path) -> Trust:
    """Return the consortium's root and revocation list from any of its kits."""
    try:
        trust = Trust(x509.load_pem_x509_certificate((kit / ROOT_FILE).read_bytes()))
    except (OSError, ValueError) as error:
        raise IdentityError(f"{kit / ROOT_FILE}: no root certificate ({error})") from None
    revoked = kit / REVOKED_FILE
    return trust.updated(revoked.read_bytes()) if revoked.is_file() else trust


def coordinator_certificate(kit: Path, trust: Trust) -> x509.Certificate:
    """Return the certificate of the coordinator's calls that a kit keeps, checked."""
    path = kit / COORDINATOR_CERTIFICATE
    if not path.is_file():
        raise IdentityError(f"{path}: missing; join the consortium again with a new invitation")
    certificate = trust.checked(path.read_bytes(), COORDINATOR_NAME)
    if not isinstance(certificate.public_key(), Ed25519PublicKey):
        raise IdentityError(f"{path}: not a certificate for signing calls")
    return certificate


def common_name(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return the name in a certificate or a request for one."""
    return _attribute(certificate, x509.NameOID.COMMON_NAME)


def participant_name(certificate: x509.Certificate) -> str:
    """Return the participant that a silo's certificate was made for."""
    return _attribute(certificate, PARTICIPANT)


def _attribute(
    certificate: x509.Certificate | x509.CertificateSigningRequest, which: x509.ObjectIdentifier
) -> str:
    found = certificate.subject.get_attributes_for_oid(which)
    return str(found[0].value) if found else ""


def fingerprint(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return the fingerprint of a key: 32 hexadecimal digits of the hash of its public part."""
    public = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(public).hexdigest()[:32]


def spoken(digits: str) -> str:
    """Return a fingerprint in groups of four, to be read aloud.

    Examples
    --------
    >>> spoken("00112233445566778899aabbccddeeff")
    '0011-2233-4455-6677-8899-aabb-ccdd-eeff'
    """
    return "-".join(digits[place : place + 4] for place in range(0, len(digits), 4))


def _revocations(pem: bytes, root: x509.Certificate) -> tuple[int, frozenset[int]]:
    """Return the number and the serial numbers of a revocation list signed by the root."""
    try:
        revocations = x509.load_pem_x509_crl(pem)
        number = revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        key = root.public_key()
        assert isinstance(key, rsa.RSAPublicKey)  # FLARE's roots are
        signed = revocations.is_signature_valid(key)
    except (ValueError, x509.ExtensionNotFound) as error:
        raise IdentityError(f"not a revocation list: {error}") from None
    if not signed:
        raise IdentityError("a revocation list that the consortium's root has not signed")
    listed: Sequence[x509.RevokedCertificate] = list(revocations)
    return number, frozenset(one.serial_number for one in listed)
