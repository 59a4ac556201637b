"""The commands for membership: deploy join, sign, install, renew, revoke, fingerprints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedegoists.cli.output import line, needs_extra, screen
from fedegoists.errors import SettingsError

if TYPE_CHECKING:
    from fedegoists.deploy.membership import CertificateRequest

FOLDER = Path("deploy")

Kit = Annotated[Path, typer.Argument(metavar="KIT", help="The silo's kit.")]
Out = Annotated[Path, typer.Option(help="The folder that `deploy init` wrote.")]
Digits = Annotated[
    str | None,
    typer.Option(
        metavar="DIGITS", help="The fingerprint that you were told; any other is refused."
    ),
]


def register_members(deploy: typer.Typer) -> None:
    """Add the commands to ``deploy``."""
    deploy.command("join")(join_command)
    deploy.command("sign")(sign_command)
    deploy.command("install")(install_command)
    deploy.command("renew")(renew_command)
    deploy.command("revoke")(revoke_command)
    deploy.command("fingerprints")(fingerprints_command)


def _whole(text: str) -> None:
    line(text, whole=True)


def _expect(told: str | None, found: str, of: str) -> None:
    """Compare a fingerprint with the one a user was told."""
    if told is not None and told.replace("-", "").replace(" ", "").casefold() != found:
        raise SettingsError(f"the fingerprint of {of} is another one: stop, and ask why")


def join_command(
    invitation: Annotated[
        Path, typer.Argument(metavar="INVITATION", help="The file from the coordinator.")
    ],
    kit: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The new kit; by default the site's name.")
    ] = None,
    fingerprint: Digits = None,
) -> None:
    """At a silo: make a key here, and a request for its certificate."""
    with needs_extra("deployment", "train,flare"):
        from fedegoists.deploy.membership import join
        from fedegoists.federation.flare.invitations import read_invitation
        from fedegoists.federation.flare.kit_identity import fingerprint as fingerprint_of
        from fedegoists.federation.flare.kit_identity import spoken

    invited = read_invitation(invitation)
    root = fingerprint_of(invited.trust.root)
    _expect(fingerprint, root, "the consortium")
    place = kit or Path(invited.contents.site)
    _, request = join(invitation, place)
    name = invited.contents.participant
    _whole(f"Written: {place}, the kit of {name}. Its key was made here and never leaves it.")
    _whole(f"Fingerprint of the consortium: {spoken(root)}")
    line(
        "Compare it with the coordinator's (`fedegoists deploy fingerprints` there), for example "
        "over the telephone. If it differs, somebody has changed the invitation: stop."
    )
    _send(request, place)


def _send(request: "CertificateRequest", kit: Path) -> None:
    from fedegoists.federation.flare.kit_identity import spoken

    line("Next steps:", "bold")
    _whole(f"1. Send {request.file} to the coordinator. There is no secret in it.")
    _whole(f"2. Read it the fingerprint of your key: {spoken(request.fingerprint)}")
    _whole(f"3. With the certificate that comes back: fedegoists deploy install CERTIFICATE {kit}")


def sign_command(
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="The .csr file from a silo.")],
    out: Out = FOLDER,
    fingerprint: Digits = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write it; by default beside the request."),
    ] = None,
) -> None:
    """At the coordinator: issue the certificate that a silo asks for."""
    with needs_extra("deployment", "train,flare"):
        from fedegoists.deploy.membership import pending, sign
        from fedegoists.federation.flare.kit_identity import spoken

    asks = pending(out, request)
    _whole(f"{asks.participant} asks for a certificate for the key {spoken(asks.fingerprint)}")
    if asks.earlier:
        line(
            f"It has {asks.earlier} already. If a key was lost, revoke the earlier ones after the "
            "silo has installed this one: `fedegoists deploy revoke NAME --keep-newest`.",
            "yellow",
        )
    _expect(fingerprint, asks.fingerprint, "this key")
    if fingerprint is None:
        typer.confirm(
            f"Did {asks.participant} itself read this fingerprint to you, over another channel?",
            abort=True,
        )
    path = sign(out, request, certificate)
    _whole(f"Written: {path}. Send it to {asks.participant}; there is no secret in it.")


def install_command(
    certificate: Annotated[
        Path, typer.Argument(metavar="CERTIFICATE", help="The .crt file from the coordinator.")
    ],
    kit: Kit,
) -> None:
    """At a silo: complete the kit with its certificate; a running silo reconnects with it."""
    with needs_extra("deployment", "train,flare"):
        from fedegoists.deploy.membership import install
        from fedegoists.federation.flare.kit_identity import SILO_CERTIFICATE

    renewed = (kit / SILO_CERTIFICATE).is_file()
    installed = install(certificate, kit)
    _whole(f"{kit} has a certificate until {installed.not_valid_after_utc:%Y-%m-%d}.")
    if renewed:
        _whole("A running silo connects again with it, within a few seconds.")
    else:
        _whole(f"Edit {kit}/silo.toml, then: fedegoists deploy start silo {kit}")


def renew_command(kit: Kit, out: Out = FOLDER) -> None:
    """At a silo, or at the coordinator for its own kit: make a new key."""
    with needs_extra("deployment", "train,flare"):
        from fedegoists.deploy.membership import renew
        from fedegoists.federation.flare.kits import DEPLOY_FILE, renew_coordinator

    if (kit / DEPLOY_FILE).is_file():
        renew_coordinator(out)
        _whole(f"The server and the operator have new certificates in {out}/coordinator.")
        return
    request = renew(kit)
    line("A new key was made. The old one is used until its certificate is installed.")
    _send(request, kit)


def revoke_command(
    participant: Annotated[str, typer.Argument(help="The participant.")],
    out: Out = FOLDER,
    keep_newest: Annotated[
        bool, typer.Option("--keep-newest", help="All certificates but the last one.")
    ] = False,
) -> None:
    """At the coordinator: revoke a participant's certificates; the server disconnects it."""
    with needs_extra("deployment", "train,flare"):
        from fedegoists.deploy.membership import revoke

    number = revoke(out, participant, keep_newest=keep_newest)
    line(f"{number} certificates of {participant} are revoked.")
    if not keep_newest:
        line("It cannot come back unless you sign another request of it.")


def fingerprints_command(out: Out = FOLDER) -> None:
    """At the coordinator: show the fingerprints of the consortium and its members."""
    with needs_extra("deployment", "train,flare"):
        from fedegoists.deploy.membership import issued
        from fedegoists.federation.flare.kit_identity import (
            coordinator_certificate,
            fingerprint,
            read_trust,
            spoken,
        )
        from fedegoists.federation.flare.kits import read_deployment

    server = out / "coordinator"
    trust = read_trust(server)
    _whole(f"Consortium: {spoken(fingerprint(trust.root))}")
    signing = coordinator_certificate(server, trust)
    _whole(f"The coordinator's signatures: {spoken(fingerprint(signing))}")
    table = Table(title="Silos", title_justify="left", title_style="bold")
    for column in ("participant", "fingerprint", "until", "state"):
        table.add_column(column)
    for participant, site in read_deployment(server).sites.items():
        for one in issued(server, site):
            digits = spoken(fingerprint(one.certificate))
            table.add_row(Text(participant), digits, f"{one.until:%Y-%m-%d}", one.state)
    screen.print(table)
