"""The certificate authority of a consortium: issues and revokes the certificates of its members.

FLARE's provisioning makes the root; its key is in ``authority/cert.json`` on the coordinator's
machine and nowhere else.
"""

import datetime
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedegoists.errors import FileError
from fedegoists.federation.flare.kit_identity import (
    COORDINATOR_NAME,
    PARTICIPANT,
    IdentityError,
    KitIdentity,
    common_name,
)
from fedegoists.files import read_text

AUTHORITY_FILE = "cert.json"

KEY_BITS = 3072
"""FLARE signs with RSA; its own default of 2048 bits is the least that is still recommended."""

EARLY = datetime.timedelta(hours=1)
"""Certificates are valid from before they are made, for silos whose clock is behind."""

PublicKey = rsa.RSAPublicKey | Ed25519PublicKey


@dataclass(frozen=True)
class Authority:
    """The root of a consortium with its key.

    Attributes
    ----------
    root : x509.Certificate
        The certificate that signs all others.
    key : rsa.RSAPrivateKey
        Its key.
    """

    root: x509.Certificate
    key: rsa.RSAPrivateKey

    @property
    def identity(self) -> KitIdentity:
        """The root as a signer of content."""
        return KitIdentity(common_name(self.root), self.key, self.root)

    def certify_silo(
        self, request: x509.CertificateSigningRequest, site: str, participant: str, days: int
    ) -> x509.Certificate:
        """Return a certificate for the key of a silo's request.

        Only the key is taken from the request; the names are those of the consortium.

        Raises
        ------
        IdentityError
            If the request was not signed with its own key, or is in another name.
        """
        if not request.is_signature_valid:
            raise IdentityError("the request is not signed with its own key: it was changed")
        if common_name(request) != site:
            raise IdentityError(f"a request of {common_name(request)!r}, not of {site!r}")
        key = request.public_key()
        if not isinstance(key, rsa.RSAPublicKey) or key.key_size < 2048:
            raise IdentityError("the request has no RSA key of at least 2048 bits")
        subject = [
            (x509.NameOID.COMMON_NAME, site),
            (x509.NameOID.ORGANIZATION_NAME, organisation(site)),
            (PARTICIPANT, participant),
        ]
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        return self._certificate(subject, key, days, usage)

    def certify_coordinator(self, key: Ed25519PublicKey) -> x509.Certificate:
        """Return a certificate for the key with which the coordinator signs calls.

        It is valid as long as the root: without it no silo answers.
        """
        left = self.root.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        subject = [(x509.NameOID.COMMON_NAME, COORDINATOR_NAME)]
        return self._certificate(subject, key, left.days, ExtendedKeyUsageOID.CODE_SIGNING)

    def _certificate(
        self,
        subject: Iterable[tuple[x509.ObjectIdentifier, str]],
        key: PublicKey,
        days: int,
        usage: x509.ObjectIdentifier,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        begin = max(now - EARLY, self.root.not_valid_before_utc)
        end = min(now + datetime.timedelta(days=days), self.root.not_valid_after_utc)
        if end <= now:
            raise IdentityError(
                f"the consortium's root expired on {end:%Y-%m-%d}: make a new consortium with "
                "`fedegoists deploy init --out`"
            )
        names = [x509.NameAttribute(kind, value) for kind, value in subject]
        signing = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name(names))
            .issuer_name(self.root.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(signing, critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                # TLS asks for a name here; it is the site's, not a host's.
                x509.SubjectAlternativeName([x509.DNSName(names[0].value)]),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )

    def revocation_list(self, serials: Iterable[int], edition: int) -> bytes:
        """Return a signed list of all revoked certificates; `edition` numbers the lists."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.root.subject)
            .last_update(now)
            .next_update(self.root.not_valid_after_utc)
            .add_extension(x509.CRLNumber(edition), critical=False)
        )
        for serial in sorted(serials):
            one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(one.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def read_authority(folder: Path) -> Authority:
    """Read the authority from the folder that FLARE's provisioning keeps."""
    path = folder / AUTHORITY_FILE
    if not path.is_file():
        raise FileError(
            f"{path}: missing; certificates are signed and revoked where it is kept (--out)"
        )
    try:
        content = json.loads(read_text(path))
        root = x509.load_pem_x509_certificate(content["root_cert"].encode())
        key = serialization.load_pem_private_key(content["root_pri_key"].encode(), None)
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path}: not written by `fedegoists deploy init` ({error})") from None
    assert isinstance(key, rsa.RSAPrivateKey)  # as FLARE makes them
    return Authority(root, key)


def organisation(site: str) -> str:
    """Return the organisation of a site as FLARE wants it written."""
    return re.sub(r"[^A-Za-z0-9_]", "_", site)


def new_silo_key(site: str) -> tuple[rsa.RSAPrivateKey, x509.CertificateSigningRequest]:
    """Return a new key for a silo, and the request for its certificate."""
    key = rsa.generate_private_key(65537, KEY_BITS)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, site)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return key, request


def key_text(key: rsa.RSAPrivateKey | Ed25519PrivateKey) -> bytes:
    """Return a private key as PEM text."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def certificate_text(certificate: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """Return a certificate, or a request for one, as PEM text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_request(path: Path) -> x509.CertificateSigningRequest:
    """Read a silo's request for a certificate."""
    try:
        return x509.load_pem_x509_csr(read_text(path).encode())
    except ValueError as error:
        raise FileError(f"{path}: not a request for a certificate ({error})") from None
