"""The commands of a deployment: deploy init, start, status, model, expel, renew, demo."""

import time
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedegoists.cli.output import line, needs_extra, screen, show_formation
from fedegoists.errors import SettingsError

if TYPE_CHECKING:
    from fedegoists.federation.flare.job_operator import Operator

FOLDER = Path("deploy")
COORDINATOR_KIT = FOLDER / "coordinator"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    deploy = typer.Typer(
        name="deploy", help="Run a consortium over real organisations.", no_args_is_help=True
    )
    deploy.command("init")(init_command)
    deploy.command("start")(start_command)
    deploy.command("status")(status_command)
    deploy.command("model")(model_command)
    deploy.command("expel")(expel_command)
    deploy.command("renew")(renew_command)
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
    """Write certificates and kits for the coordinator and every silo."""
    with _deployment():
        from fedegoists.consortium.consortium_settings import read_settings
        from fedegoists.deploy.consortium_kits import make_deployment

    settings = read_settings(file)
    deployment = make_deployment(settings, out)
    _whole(f"Written: {out}/coordinator, the coordinator's kit")
    for participant, site in deployment.sites.items():
        _whole(f"Written: {out}/silos/{site}, the kit of {participant}")
    _whole(f"Keep {out}/authority to yourself: it can make certificates for this consortium.")
    line("Next steps:", "bold")
    line(f"1. Open TCP port {deployment.port} of {deployment.host} to the silos, and no other.")
    line("2. Hand each silo its kit over a channel you trust; its readme.txt says how to go on.")
    _whole(f"3. Here: fedegoists deploy start coordinator {out}/coordinator")
    line("4. There: fedegoists deploy start silo KIT")
    _whole(f"   Here, to see who is connected: fedegoists deploy status --kit {out}/coordinator")
    _whole(f"5. fedegoists run {file} --engine flare --kit {out}/coordinator")


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
    """Show the connected silos and the running jobs."""
    with closing(_operator(kit)) as operator:
        status = operator.status()
    sites = operator.deployment.sites
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.started))
    line(f"Server {operator.deployment.host}:{operator.deployment.port}, up since {since}")
    table = Table(title="Silos", title_justify="left", title_style="bold")
    for column in ("participant", "certificate", "state", "last contact"):
        table.add_column(column)
    for participant, site in sites.items():
        heard = status.silos.get(site)
        told = "" if heard is None else f"{max(time.time() - heard, 0):.0f} s ago"
        state = "away" if heard is None else "connected"
        table.add_row(Text(participant), Text(site), state, told)
    screen.print(table)
    for job, state in status.jobs.items():
        line(f"Job {job}: {state}")


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


def expel_command(
    participant: Annotated[str, typer.Argument(help="The participant to expel.")],
    kit: Annotated[Path, typer.Option(help="The coordinator's kit.")] = COORDINATOR_KIT,
) -> None:
    """Expel a participant: the server refuses its certificate from now on."""
    with closing(_operator(kit)) as operator:
        sites = operator.deployment.sites
        if participant not in sites:
            raise SettingsError(
                f"{participant!r} is not in this consortium; {', '.join(sites)} are"
            )
        operator.remove(sites[participant])
    line(f"{participant} is expelled. Remove it from consortium.toml as well.")


def renew_command(
    participant: Annotated[str, typer.Argument(help="The participant.")],
    out: Annotated[Path, typer.Option(help="The folder that `deploy init` wrote.")] = FOLDER,
) -> None:
    """Write a new key and certificate for a participant."""
    with _deployment():
        from fedegoists.federation.flare.kits import renew_kit

    kit = renew_kit(out, participant)
    _whole(f"Written: {kit}/startup. Hand it to {participant}, who replaces its own with it.")


def demo_command(
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where to write; a new folder if left out.")
    ] = None,
) -> None:
    """Deploy three example banks on this machine, run, and end all processes."""
    with _deployment():
        from fedegoists.deploy.demo_banks import demo

    run = demo(folder, _whole)
    show_formation(run.formation)
    _whole(f"Report: {run.folder / 'report.html'}")
    _whole(f"Kits, logs and what each silo allows: {run.folder.parents[1] / 'deploy'}")
