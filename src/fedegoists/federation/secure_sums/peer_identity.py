"""The identity of a member of secure sums: it signs its mask keys, and checks those of others."""

from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedegoists.federation.flare.kit_identity import (
    COORDINATOR_NAME,
    IdentityError,
    KitIdentity,
    Trust,
    participant_name,
    read_trust,
    silo_identity,
    verify,
)
from fedegoists.federation.secure_sums.sum_messages import PeerKeys, SumError, SumPurpose


@dataclass(frozen=True)
class PeerIdentity:
    """A member's key and certificate, and the root by which it checks those of others."""

    own: KitIdentity
    trust: Trust

    @classmethod
    def of_kit(cls, kit: Path) -> "PeerIdentity":
        """Read them from a kit.

        Raises
        ------
        SumError
            If the kit has no certificate, or one that does not belong to its key.
        """
        try:
            return cls(silo_identity(kit), read_trust(kit))
        except IdentityError as error:
            raise SumError(f"no sums are masked without a certificate: {error}") from None

    @property
    def site(self) -> str:
        """The name in the certificate."""
        return self.own.site

    def signed(self, purpose: SumPurpose, channel: str) -> PeerKeys:
        """Return a public key with this member's signature."""
        content = _content(purpose, self.site, channel)
        return PeerKeys(
            site=self.site,
            channel=channel,
            certificate=self.own.pem.decode(),
            signature=self.own.sign(content).hex(),
        )

    def check(self, purpose: SumPurpose, keys: PeerKeys) -> None:
        """Refuse keys that are not signed by a silo of the consortium with this name.

        Raises
        ------
        SumError
            With the reason.
        """
        content = _content(purpose, keys.site, keys.channel)
        try:
            certificate = self.trust.checked(keys.certificate.encode(), keys.site)
            _check_silo(certificate, keys.site)
            verify(certificate, bytes.fromhex(keys.signature), content)
        except IdentityError as error:
            raise SumError(f"the mask keys of {keys.site} cannot be trusted: {error}") from None


def _check_silo(certificate: x509.Certificate, site: str) -> None:
    """Refuse certificates that are not for silos, as the coordinator has several of its own.

    With them it could be all other members of a sum, and know their parts.
    """
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    silo = list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH] and participant_name(certificate)
    if not silo or site == COORDINATOR_NAME:
        raise IdentityError(f"the certificate of {site} is not one of a silo")


def _content(purpose: SumPurpose, site: str, channel: str) -> bytes:
    return f"fedegoists mask keys\n{purpose.model_dump_json()}\n{site}\n{channel}".encode()
