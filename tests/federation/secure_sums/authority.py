"""Members of a consortium for tests, with certificates of its root."""

from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedegoists.federation.flare.certificate_authority import new_silo_key
from fedegoists.federation.flare.kit_identity import PARTICIPANT, KitIdentity, Trust
from fedegoists.federation.secure_sums.peer_identity import PeerIdentity
from tests.flare.authorities import new_authority


@cache
def authority():
    return new_authority()


def new_identity(site, root=None, *, rsa=False):
    """A member with a key of its own."""
    root = root or authority()
    if rsa:
        key, request = new_silo_key(site)
        certificate = root.certify_silo(request, site, site, 30)
    else:  # RSA keys take long to make
        key = Ed25519PrivateKey.generate()
        names = [(NameOID.COMMON_NAME, site), (PARTICIPANT, site.title())]
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        certificate = root._certificate(names, key.public_key(), 30, usage)
    return PeerIdentity(KitIdentity(site, key, certificate), Trust(root.root))


@cache
def identity(site):
    """One identity for a site in all tests."""
    return new_identity(site)
