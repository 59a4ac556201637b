"""The commands about deployment: deploy init, start, status, model, expel, renew, demo."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedegoists.cli.output import line, screen, show_formation
from fedegoists.errors import MissingDependencyError, SettingsError

if TYPE_CHECKING:
    from fedegoists.federation.flare.job_operator import Operator

__all__ = ["register"]

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


def _needs_training(error: ImportError) -> MissingDependencyError:
    return MissingDependencyError(
        f"deployment needs {error.name}: pip install 'fedegoists[train,flare]'"
    )


def _whole(text: str) -> None:
    """Print one line that is not broken: a command or a path to copy, or a line of a log."""
    line(text, whole=True)


def _operator(kit: Path) -> "Operator":
    try:
        from fedegoists.federation.flare.job_operator import Operator
    except ImportError as error:
        raise _needs_training(error) from None
    return Operator(kit)


def init_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A consortium.toml.")],
    out: Annotated[Path, typer.Option(help="Where to write the kits.")] = FOLDER,
) -> None:
    """Make certificates and a kit for the coordinator and for every silo."""
    try:
        from fedegoists.consortium.consortium_settings import read_settings
        from fedegoists.deploy.new_kits import make_deployment
    except ImportError as error:
        raise _needs_training(error) from None
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
    try:
        from fedegoists.deploy.processes import KitProcess
    except ImportError as error:
        raise _needs_training(error) from None
    if role not in ("coordinator", "silo"):
        raise SettingsError(f"{role!r} is neither coordinator nor silo")
    process = KitProcess(role, kit, tell=_whole)  # type: ignore[arg-type]
    _whole(f"The {role} starts from {kit}. Ctrl-C ends it; all of its log is in {kit}/log.txt.")
    with process.until_interrupted():
        process.run()


def status_command(
    kit: Annotated[Path, typer.Option(help="The coordinator's kit.")] = COORDINATOR_KIT,
) -> None:
    """Show which silos are connected and which jobs really run."""
    operator = _operator(kit)
    try:
        status = operator.status()
    finally:
        operator.close()
    sites = operator.deployment.sites
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.started))
    line(f"Server {operator.deployment.host}:{operator.deployment.port}, up since {since}")
    table = Table(title="Silos", title_justify="left", title_style="bold")
    for column in ("participant", "certificate", "state", "last heard of"):
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
    run: Annotated[str | None, typer.Option(help="Which run's; the last one's by default.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write; by default KIT/export/RUN."),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Also write ONNX (needs the extra onnx).")
    ] = False,
) -> None:
    """Write a silo's whole model for use elsewhere, with the layers that never left."""
    try:
        from fedegoists.deploy.delivered_models import export_silo_model
    except ImportError as error:
        raise _needs_training(error) from None
    for path in export_silo_model(kit, run, out, onnx=onnx):
        _whole(f"Written: {path}")


def expel_command(
    participant: Annotated[str, typer.Argument(help="Who is turned away from now on.")],
    kit: Annotated[Path, typer.Option(help="The coordinator's kit.")] = COORDINATOR_KIT,
) -> None:
    """Have the server turn a member's certificate away."""
    operator = _operator(kit)
    try:
        sites = operator.deployment.sites
        if participant not in sites:
            raise SettingsError(
                f"{participant!r} is not in this consortium; {', '.join(sites)} are"
            )
        operator.remove(sites[participant])
    finally:
        operator.close()
    line(f"{participant} is turned away. Take it out of consortium.toml as well.")


def renew_command(
    participant: Annotated[str, typer.Argument(help="Who gets a new key and certificate.")],
    out: Annotated[Path, typer.Option(help="Where `deploy init` wrote the kits.")] = FOLDER,
) -> None:
    """Make a new key and certificate for a member."""
    try:
        from fedegoists.federation.flare.kits import renew_kit
    except ImportError as error:
        raise _needs_training(error) from None
    kit = renew_kit(out, participant)
    _whole(f"Written: {kit}/startup. Hand it to {participant}, who replaces its own with it.")


def demo_command(
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where to write; a new folder if left out.")
    ] = None,
) -> None:
    """Deploy three example banks on this machine, run, and end everything again."""
    try:
        from fedegoists.deploy.demo_banks import demo
    except ImportError as error:
        raise _needs_training(error) from None
    run = demo(folder, _whole)
    show_formation(run.formation)
    _whole(f"Report: {run.folder / 'report.html'}")
    _whole(f"Kits, logs and what each silo allows: {run.folder.parents[1] / 'deploy'}")
