"""The commands about a consortium: init, run, runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedegoists.cli.deploy import COORDINATOR_KIT
from fedegoists.cli.output import errors, line, screen, show_formation
from fedegoists.errors import FileError, MissingDependencyError, SettingsError
from fedegoists.files import read_text

if TYPE_CHECKING:
    from fedegoists.consortium import ConsortiumRun

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("init")(init_command)
    app.command("run")(run_command)
    app.command("runs")(runs_command)


def init_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.")] = Path(),
    example: Annotated[
        str, typer.Option(help="synthetic, banks (with files of their own) or hospitals.")
    ] = "synthetic",
) -> None:
    """Write a commented consortium.toml to start from."""
    from fedegoists.consortium.examples import init

    written = init(folder, example)  # type: ignore[arg-type]
    for path in written:
        line(f"Written: {path}")
    line(f"Look at it, change it, then: fedegoists run {written[0]}")


def run_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A consortium.toml.")],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Goes before what the file says, such as training.seeds=5. May be repeated.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; the file's by default.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was interrupted.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="simulated, here; or flare, over silos that started their kits.")
    ] = "simulated",
    kit: Annotated[Path, typer.Option(help="The coordinator's kit, for --engine flare.")] = (
        COORDINATOR_KIT
    ),
) -> None:
    """Learn who benefits whom, decide who trains with whom, train, and write a report."""
    try:
        from fedegoists.consortium import Consortium
        from fedegoists.consortium.settings import read_settings
    except ImportError as error:
        raise MissingDependencyError(
            f"a run needs {error.name}: pip install 'fedegoists[train]'"
        ) from None

    if engine not in ("simulated", "flare"):
        raise SettingsError(f"--engine {engine!r}; engines are simulated and flare")
    settings = read_settings(file, changes or ())
    consortium = Consortium(settings) if engine == "simulated" else None
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[remark]}"),
        TimeRemainingColumn(),
        console=errors,
        disable=not errors.is_terminal,
    ) as progress:
        bars: dict[tuple[str, str], TaskID] = {}

        def show(stage: str, what: str, done: int, total: int, remark: str) -> None:
            if (stage, what) not in bars:
                bars[stage, what] = progress.add_task(f"{stage}: {what}", total=total, remark="")
            progress.update(bars[stage, what], completed=done, remark=remark)

        try:
            if consortium is not None:
                result = consortium.run(name, resume=resume, progress=show)
            else:
                from fedegoists.deploy.engine import run_deployed

                result = run_deployed(
                    settings, kit, name, resume=resume, progress=show, tell=progress.console.print
                )
        except KeyboardInterrupt:
            line(f"Stopped. Go on with: fedegoists run {file} --resume", "yellow")
            raise typer.Exit(130) from None
    show_formation(result.formation)
    _show_gains(result)
    line(f"Report: {result.folder / 'report.html'}")
    line(f"Re-check the decision: fedegoists verify {result.folder / 'certificate.json'}")


def _show_gains(result: "ConsortiumRun") -> None:
    if not result.gains:
        return
    methods = list(dict.fromkeys(gain.method for gain in result.gains))
    metric = result.trials.federation.task.metric
    table = Table(title=f"Test {metric}, and the gain over training alone", title_justify="left")
    for column in ("participant", "alone", *methods):
        table.add_column(column, justify="left" if column == "participant" else "right")
    found = {(gain.participant, gain.method): gain for gain in result.gains}
    for participant in result.data.participants:
        own = [found.get((participant, method)) for method in methods]
        known = [gain for gain in own if gain is not None]
        if known:
            cells = ["" if gain is None else f"{gain.value:.3f} ({gain.gain:+.3f})" for gain in own]
            table.add_row(Text(participant), f"{known[0].alone:.3f}", *cells)
    screen.print(table)


def runs_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where runs are.")] = Path("runs"),
) -> None:
    """List runs, with what each came to."""
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder; `fedegoists run` makes one")
    table = Table(title=f"Runs in {folder}", title_justify="left", title_style="bold")
    for column in ("run", "state", "seconds", "coalitions", "welfare"):
        table.add_column(column, justify="left" if column in ("run", "state") else "right")
    for marker in sorted(folder.glob("*/run.json")):
        try:
            state = json.loads(read_text(marker))
            decision = json.loads(read_text(marker.parent / "certificate.json"))
        except (ValueError, FileError):
            state, decision = {"state": "not readable", "stage": "", "seconds": {}}, {}
        together = [group for group in decision.get("coalitions", []) if len(group) > 1]
        table.add_row(
            Text(marker.parent.name),
            Text(f"{state['state']} {state['stage']}".strip()),
            f"{sum(state['seconds'].values()):.0f}",
            str(len(together)),
            f"{decision.get('welfare', 0):.4g}",
        )
    screen.print(table)
