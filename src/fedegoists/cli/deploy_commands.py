"""The commands of a deployment: deploy init, start, status, model, approve, privacy, demo."""

import time
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedegoists.cli.deploy_member_commands import register_members
from fedegoists.cli.output import line, needs_extra, screen, show_formation
from fedegoists.errors import SettingsError

if TYPE_CHECKING:
    from fedegoists.deploy.membership import IssuedCertificate
    from fedegoists.federation.flare.job_operator import Operator

FOLDER = Path("deploy")
COORDINATOR_KIT = FOLDER / "coordinator"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    deploy = typer.Typer(
        name="deploy", help="Run a consortium over real organisations.", no_args_is_help=True
    )
    deploy.command("init")(init_command)
    register_members(deploy)
    deploy.command("start")(start_command)
    deploy.command("status")(status_command)
    deploy.command("model")(model_command)
    deploy.command("approve")(approve_command)
    deploy.command("privacy")(privacy_command)
    deploy.command("demo")(demo_command)
    app.add_typer(deploy)


def _deployment() -> AbstractContextManager[None]:
    return needs_extra("deployment", "train,flare")


def _whole(text: str) -> None:
    """Print a line without wrapping: a command or a path to copy, or a line of a log."""
    line(text, whole=True)


def _operator(kit: Path) -> "Operator":
    with _deployment():
        from fedegoists.federation.flare.job_operator import Operator

    return Operator(kit)


def init_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A consortium.toml.")],
    out: Annotated[Path, typer.Option(help="Where to write the kits.")] = FOLDER,
) -> None:
    """Write the coordinator's kit and an invitation for every silo."""
    with _deployment():
        from fedegoists.consortium.consortium_settings import read_settings
        from fedegoists.deploy.consortium_kits import make_deployment
        from fedegoists.federation.flare.kit_identity import fingerprint, read_trust, spoken

    settings = read_settings(file)
    deployment = make_deployment(settings, out)
    _whole(f"Written: {out}/coordinator, the coordinator's kit")
    for participant, site in deployment.sites.items():
        _whole(f"Written: {out}/invitations/{site}.zip, the invitation of {participant}")
    _whole(f"Keep {out}/authority to yourself: it can make certificates for this consortium.")
    root = read_trust(out / "coordinator").root
    _whole(f"Fingerprint of the consortium: {spoken(fingerprint(root))}")
    line("Next steps:", "bold")
    line(f"1. Open TCP port {deployment.port} of {deployment.host} to the silos, and no other.")
    line("2. Send each silo its invitation. There: fedegoists deploy join INVITATION")
    _whole(f"3. Each silo sends a request. Here: fedegoists deploy sign REQUEST --out {out}")
    line("   Return the certificate. There: fedegoists deploy install CERTIFICATE KIT")
    _whole(f"4. Here: fedegoists deploy start coordinator {out}/coordinator")
    line("   There: fedegoists deploy start silo KIT")
    _whole(f"   Here, to see who is connected: fedegoists deploy status --kit {out}/coordinator")
    _whole(f"5. fedegoists run {file} --engine flare --kit {out}/coordinator")
    line("To try it with all silos on this machine: fedegoists deploy demo")


def start_command(
    role: Annotated[str, typer.Argument(help="coordinator or silo.")],
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit's folder.")],
) -> None:
    """Start a kit in the foreground; Ctrl-C ends it."""
    with _deployment():
        from fedegoists.deploy.kit_process import KitProcess

    if role not in ("coordinator", "silo"):
        raise SettingsError(f"{role!r} is neither coordinator nor silo")
    process = KitProcess(role, kit, tell=_whole)  # type: ignore[arg-type]
    _whole(f"The {role} starts from {kit}. Ctrl-C ends it; all of its log is in {kit}/log.txt.")
    with process.until_interrupted():
        process.run()


def status_command(
    kit: Annotated[Path, typer.Option(help="The coordinator's kit.")] = COORDINATOR_KIT,
) -> None:
    """Show the connected silos, the running jobs, and when certificates expire."""
    with _deployment():
        from fedegoists.deploy.membership import issued

    with closing(_operator(kit)) as operator:
        status = operator.status()
    sites = operator.deployment.sites
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.started))
    line(f"Server {operator.deployment.host}:{operator.deployment.port}, up since {since}")
    table = Table(title="Silos", title_justify="left", title_style="bold")
    for column in ("participant", "site", "state", "last contact", "certificate until"):
        table.add_column(column)
    warnings: list[str] = []
    for participant, site in sites.items():
        heard = status.silos.get(site)
        told = "" if heard is None else f"{max(time.time() - heard, 0):.0f} s ago"
        certificates = issued(kit, site)
        until, warning = _validity(certificates[-1] if certificates else None)
        # For some seconds FLARE lists a silo whose connections have been ended.
        state = "away" if heard is None or until == "revoked" else "connected"
        if warning:
            warnings.append(f"{participant}: {warning}")
        table.add_row(Text(participant), Text(site), state, told, until)
    screen.print(table)
    for text in warnings:
        line(text, "yellow")
    for job, state in status.jobs.items():
        line(f"Job {job}: {state}")


def _validity(newest: "IssuedCertificate | None") -> tuple[str, str | None]:
    """Return the end of a silo's certificate, and a warning if it needs attention."""
    if newest is None:
        return "none yet", "has not asked for a certificate yet (`fedegoists deploy join` there)"
    until = f"{newest.until:%Y-%m-%d}"
    if newest.state == "valid":
        return until, None
    if newest.state == "revoked":
        return "revoked", None
    return until, f"its certificate {newest.state} ({until}): `fedegoists deploy renew` there"


def model_command(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The silo's kit.")],
    run: Annotated[str | None, typer.Option(help="The run; the last one by default.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; by default KIT/export/RUN.")
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Also write ONNX (needs the extra onnx).")
    ] = False,
) -> None:
    """Export a silo's whole model, with the personal parameters that never left it."""
    with _deployment():
        from fedegoists.deploy.delivered_models import export_silo_model

    for path in export_silo_model(kit, run, out, onnx=onnx):
        _whole(f"Written: {path}")


def approve_command(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The silo's kit.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file in the kit.")] = "model.py",
    sha256: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Approve this hash without asking."),
    ] = None,
) -> None:
    """Show the code or the weights of a model, or the code of a loader, and approve the file."""
    with _deployment():
        from fedegoists.federation.flare.approved_code import approve
        from fedegoists.learning.own_models import file_digest
        from fedegoists.learning.pretrained_weights import SUFFIX, tensors_in

    digest = file_digest(kit / file)
    if sha256 is None:
        if file.endswith(SUFFIX):
            for name, shape in tensors_in(kit / file):
                _whole(f"{name} {shape}")
            risk = "Numbers only: nothing in it runs. Models start from them, or keep them frozen."
        else:
            _whole((kit / file).read_text(encoding="utf-8", errors="backslashreplace"))
            risk = (
                "It will run on this machine with all rights of the silo's user, beside its data."
            )
        _whole(f"SHA-256 of {file}: {digest}")
        line(risk)
        if not typer.confirm("Have you looked at it, and approve it?"):
            raise SettingsError("not approved; the silo refuses to use it")
    elif sha256 != digest:
        raise SettingsError(f"{file} has the SHA-256 {digest}, not {sha256}; nothing was approved")
    approve(kit, file, digest)
    _whole(f"Approved: {file}, SHA-256 {digest}")


def privacy_command(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The silo's kit.")],
) -> None:
    """Show what a silo's answers have told of single samples: epsilon spent and left."""
    with _deployment():
        from fedegoists.federation.flare.privacy_ledger import PrivacyLedger
        from fedegoists.federation.flare.silo_settings import SILO_FILE, read_silo_settings

    privacy = read_silo_settings(kit / SILO_FILE).privacy
    accounts = PrivacyLedger(kit / "state", privacy.epsilon, privacy.delta).accounts()
    budget = "no budget" if privacy.epsilon is None else f"budget epsilon = {privacy.epsilon:g}"
    line(f"Level {privacy.level}, {budget} at delta = {privacy.delta:g}, for every sample")
    table = Table(title="Spent", title_justify="left", title_style="bold")
    for column in ("samples", "operation", "answers", "epsilon", "left"):
        table.add_column(column)
    for split, account in accounts.items():
        left = "" if privacy.epsilon is None else f"{max(privacy.epsilon - account.spent, 0):.3g}"
        table.add_row(split, "all", "", f"{account.spent:.3g}", left)
        for operation, (count, spent) in account.answers.items():
            table.add_row("", operation, f"{count:,}", f"{spent:.3g}", "")
    screen.print(table)
    line("A sample is in one of the three. Operations together tell less than their sum.")


def demo_command(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A consortium.toml of your own, instead of the banks."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where to write; a new folder if left out.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the run of an earlier call in that folder.")
    ] = False,
) -> None:
    """Deploy three example banks, or your own consortium, here; run, and end all processes."""
    with _deployment():
        from fedegoists.deploy.demo_banks import demo, own_demo

    if file is None:
        run = demo(folder, _whole, replace=replace)
    else:
        run = own_demo(file, folder, _whole, replace=replace)
    show_formation(run.formation)
    _whole(f"Report: {run.folder / 'report.html'}")
    _whole(f"Kits, logs and what each silo allows: {run.folder.parents[1] / 'deploy'}")
