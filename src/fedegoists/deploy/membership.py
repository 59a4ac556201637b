"""Membership of a silo: joining with a key of its own, renewal and revocation.

| at the silo | at the coordinator |
|---|---|
| | `fedegoists.federation.flare.kits.make_kits` writes an invitation |
| `join` makes a key, and a request for its certificate | |
| | `sign` issues the certificate |
| `install` completes the kit | |

`renew` begins like `join`; `sign` and `install` follow.
"""

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare.certificate_authority import (
    certificate_text,
    key_text,
    new_silo_key,
    read_authority,
    read_request,
)
from fedegoists.federation.flare.invitations import (
    CONTENTS_FILE,
    Invitation,
    InvitationContents,
    read_invitation,
)
from fedegoists.federation.flare.kit_identity import (
    REVOKED_FILE,
    SILO_CERTIFICATE,
    SILO_KEY,
    IdentityError,
    common_name,
    fingerprint,
    read_trust,
    silo_identity,
)
from fedegoists.federation.flare.kits import Deployment, hide, read_deployment, require
from fedegoists.files import private_folder, write_bytes

MEMBERS = "members"
"""Folder of the coordinator's kit with every certificate that was issued."""

NEW_KEY = f"{SILO_KEY}.new"
"""A key whose certificate has not been installed yet."""

SOON = datetime.timedelta(days=30)
"""Time before the end of a certificate in which users are warned."""


@dataclass(frozen=True)
class CertificateRequest:
    """A silo's request for a certificate.

    Attributes
    ----------
    file : Path
        The file to send to the coordinator; there is no secret in it.
    fingerprint : str
        The fingerprint of the silo's key, to be compared over another channel.
    """

    file: Path
    fingerprint: str


def join(invitation: Path, kit: Path) -> tuple[Invitation, CertificateRequest]:
    """Unpack an invitation into a new kit, make the silo's key, and write the request.

    FLARE's configuration comes from the FLARE of this machine, not from the invitation.
    """
    require()
    invited = read_invitation(invitation)
    if kit.exists() and any(kit.iterdir()):
        raise FileError(
            f"{kit}: there is something already; `fedegoists deploy renew {kit}` makes a new key"
        )
    from fedegoists.federation.flare.provisioning import silo_configuration

    own = invited.contents
    invited.unpack(kit, silo_configuration(own.project, own.host, own.port, own.site))
    return invited, _request(kit, invited.contents.site)


def renew(kit: Path) -> CertificateRequest:
    """Make a new key for a silo's kit; the old one is used until `install`."""
    return _request(kit, silo_identity(kit).site)


def _request(kit: Path, site: str) -> CertificateRequest:
    key, request = new_silo_key(site)
    write_bytes(kit / NEW_KEY, key_text(key), private=True)
    path = kit / f"{site}.csr"
    write_bytes(path, certificate_text(request))
    return CertificateRequest(path, fingerprint(request))


def install(certificate_file: Path, kit: Path) -> x509.Certificate:
    """Complete a kit with the certificate for its new key; a running silo reconnects with it.

    Raises
    ------
    IdentityError
        If the certificate is not for the key of this kit, or not of its consortium.
    """
    site = _site_of(kit)
    if not (kit / NEW_KEY).is_file():
        raise IdentityError(
            f"{kit}: no key waits for a certificate; `fedegoists deploy renew {kit}` makes one"
        )
    certificate = read_trust(kit).checked(_content(certificate_file), site)
    waiting = x509.load_pem_x509_csr((kit / f"{site}.csr").read_bytes())
    if certificate.public_key() != waiting.public_key():
        raise IdentityError(
            f"{certificate_file}: not for the key that waits in {kit}; have {site}.csr signed"
        )
    (kit / NEW_KEY).replace(kit / SILO_KEY)
    write_bytes(kit / SILO_CERTIFICATE, certificate_text(certificate), private=True)
    (kit / f"{site}.csr").unlink()
    hide(kit)
    return certificate


def _site_of(kit: Path) -> str:
    path = kit / CONTENTS_FILE
    if not path.is_file():
        raise FileError(f"{kit}: not the kit of a silo; `fedegoists deploy join` makes one")
    return InvitationContents.model_validate_json(path.read_bytes()).site


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None


@dataclass(frozen=True)
class PendingRequest:
    """A request that the coordinator may sign.

    Attributes
    ----------
    participant, site : str
        Who asks.
    fingerprint : str
        Of the key, to be compared over another channel.
    earlier : int
        The number of valid certificates that the participant has already.
    """

    participant: str
    site: str
    fingerprint: str
    earlier: int


def pending(folder: Path, request_file: Path) -> PendingRequest:
    """Return who asks for a certificate, and with which key."""
    request = read_request(request_file)
    deployment = read_deployment(folder / "coordinator")
    site = common_name(request)
    return PendingRequest(
        _participant_of(deployment, site),
        site,
        fingerprint(request),
        len([one for one in issued(folder / "coordinator", site) if one.state != "expired"]),
    )


def sign(folder: Path, request_file: Path, out: Path | None = None) -> Path:
    """Issue the certificate that a silo asks for; return its file, to be sent to the silo."""
    request = read_request(request_file)
    deployment = read_deployment(folder / "coordinator")
    site = common_name(request)
    participant = _participant_of(deployment, site)
    authority = read_authority(folder / "authority")
    certificate = authority.certify_silo(request, site, participant, deployment.days)
    kept = folder / "coordinator" / MEMBERS / site
    private_folder(kept.parent)
    private_folder(kept)
    text = certificate_text(certificate)
    write_bytes(kept / f"{certificate.serial_number:x}.crt", text, private=True)
    path = out or request_file.with_suffix(".crt")
    write_bytes(path, text)
    return path


def _participant_of(deployment: Deployment, site: str) -> str:
    for participant, known in deployment.sites.items():
        if known == site:
            return participant
    raise SettingsError(
        f"{site!r} is not invited; {', '.join(deployment.sites.values())} are. Add it to "
        "deploy.participants and run `fedegoists deploy init` again"
    )


def revoke(folder: Path, participant: str, *, keep_newest: bool = False) -> int:
    """Revoke the certificates of a participant; return their number.

    The server ends its connections within seconds, and silos learn of it with the next call.

    Parameters
    ----------
    keep_newest : bool
        Revoke all but the certificate that was issued last, after a key was lost and renewed.
    """
    server = folder / "coordinator"
    deployment = read_deployment(server)
    if participant not in deployment.sites:
        known = ", ".join(deployment.sites)
        raise SettingsError(f"{participant!r} is not in this consortium; {known} are")
    found = issued(server, deployment.sites[participant])
    meant = [one.certificate for one in found if one.state != "revoked"]
    meant = meant[:-1] if keep_newest else meant
    if not meant:
        raise SettingsError(f"{participant!r} has no certificate that could be revoked")
    trust = read_trust(server)
    serials = trust.revoked | {one.serial_number for one in meant}
    content = read_authority(folder / "authority").revocation_list(serials, trust.edition + 1)
    write_bytes(server / REVOKED_FILE, content, private=True)
    return len(meant)


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate that the coordinator has issued.

    Attributes
    ----------
    state : str
        ``valid``, ``expires soon``, ``expired`` or ``revoked``.
    """

    certificate: x509.Certificate
    state: str

    @property
    def until(self) -> datetime.datetime:
        """The end of its validity."""
        return self.certificate.not_valid_after_utc


def issued(server: Path, site: str) -> list[IssuedCertificate]:
    """Return the certificates of a site, oldest first, from the coordinator's kit."""
    trust = read_trust(server)
    files = sorted((server / MEMBERS / site).glob("*.crt"), key=lambda one: one.stat().st_mtime_ns)
    certificates = [x509.load_pem_x509_certificate(one.read_bytes()) for one in files]
    # By what is signed: the times of files that come from a backup may be others.
    certificates.sort(key=lambda one: one.not_valid_before_utc)
    return [IssuedCertificate(one, certificate_state(one, trust.revoked)) for one in certificates]


def certificate_state(certificate: x509.Certificate, revoked: frozenset[int]) -> str:
    """Return whether a certificate is valid, and for long enough."""
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    if certificate.serial_number in revoked:
        return "revoked"
    if left <= datetime.timedelta():
        return "expired"
    return "expires soon" if left < SOON else "valid"
