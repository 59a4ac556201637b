"""Certificate authorities like those that FLARE's provisioning makes, without FLARE."""

import datetime

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
)


def new_authority(name="consortium"):
    """Make a root as `nvflare.lighter.utils.generate_cert` does."""
    key = rsa.generate_private_key(65537, 2048)
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    root = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=10))
        .not_valid_after(now + datetime.timedelta(days=300))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    return Authority(root, key)


def write_identities(authority, coordinator, silos):
    """Write keys and certificates into a coordinator's kit and silos' kits, by site.

    `silos` maps sites to folders.
    """
    key = Ed25519PrivateKey.generate()
    files = {
        ROOT_FILE: certificate_text(authority.root),
        COORDINATOR_CERTIFICATE: certificate_text(authority.certify_coordinator(key.public_key())),
    }
    (coordinator / "startup").mkdir(parents=True, exist_ok=True)
    (coordinator / SIGNING_KEY).write_bytes(key_text(key))
    for name, content in files.items():
        (coordinator / name).write_bytes(content)
    for site, kit in silos.items():
        (kit / "startup").mkdir(parents=True, exist_ok=True)
        own, request = new_silo_key(site)
        certificate = authority.certify_silo(request, site, site.title(), 30)
        for name, content in files.items():
            (kit / name).write_bytes(content)
        (kit / SILO_KEY).write_bytes(key_text(own))
        (kit / SILO_CERTIFICATE).write_bytes(certificate_text(certificate))
