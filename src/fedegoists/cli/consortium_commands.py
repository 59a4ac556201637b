"""The commands about a consortium: init, run, runs."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedegoists.cli.deploy_commands import COORDINATOR_KIT
from fedegoists.cli.live_progress import LiveView, QuietOption
from fedegoists.cli.output import (
    JsonOption,
    LogOption,
    errors,
    line,
    near,
    print_json,
    screen,
    show_formation,
    titled_table,
    training_extra,
)
from fedegoists.consortium.engine import ENGINES, Engine, SiloAccess, engine_named
from fedegoists.errors import SettingsError
from fedegoists.learning.metric_words import metric_words

if TYPE_CHECKING:
    from fedegoists.consortium import ConsortiumRun
    from fedegoists.consortium.report.bottom_line import BottomLine
    from fedegoists.consortium.run_list import ListedRun

OTHER_NAMES = {"simulated": "simulation"}
"""Earlier names of engines."""


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("init")(init_command)
    app.command("run")(run_command)
    app.command("runs")(runs_command)


MOST_SHOWN = 12
"""Written files that are named."""


def init_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.")] = Path(),
    example: Annotated[
        str,
        typer.Option(
            help="registries, banks, images, survival, text or trees, with made-up files; "
            "synthetic or hospitals; or own, for your data."
        ),
    ] = "registries",
) -> None:
    """Write a commented consortium.toml to start from."""
    from fedegoists.consortium.example_files import init

    with training_extra(f"the example {example}"):  # some are made by a network
        written = init(folder, example)  # type: ignore[arg-type]
    for path in written[:MOST_SHOWN]:
        line(f"Written: {path}", whole=True)
    if len(written) > MOST_SHOWN:
        line(f"and {len(written) - MOST_SHOWN:,} more files")
    line(f"Look at it, change it, then: fedegoists run {shlex.quote(str(written[0]))}", whole=True)


def run_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A consortium.toml.")],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Overrides the file, such as training.seeds=5. May be repeated.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; the file's by default.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was interrupted.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace a finished run of this name, when the new one is complete."
        ),
    ] = False,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="RUN", help="A run's folder: start from its models, where they fit."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="; ".join(f"{one.name}: {one.where}" for one in ENGINES.values()))
    ] = "simulation",
    kit: Annotated[Path, typer.Option(help="The coordinator's kit, for --engine flare.")] = (
        COORDINATOR_KIT
    ),
    log: LogOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
) -> None:
    """Learn the benefit graph, form coalitions, train, and write a report."""
    run_consortium(
        file,
        changes or (),
        name,
        resume=resume,
        replace=replace,
        start=start,
        engine=engine,
        kit=kit,
        logs=log or (),
        as_json=as_json,
    )


def run_consortium(
    file: Path,
    changes: Sequence[str] = (),
    name: str | None = None,
    *,
    resume: bool = False,
    replace: bool = False,
    start: Path | None = None,
    engine: str = "simulation",
    kit: Path = COORDINATOR_KIT,
    logs: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Run a consortium.toml with a live view, then print the coalitions and the gains."""
    with training_extra("a run"):
        import torch

        from fedegoists.consortium.consortium_settings import read_settings
        from fedegoists.consortium.pipeline import STAGES, Consortium
        from fedegoists.training.run_logs import run_logs

    kind = engine_named(OTHER_NAMES.get(engine, engine))
    settings = read_settings(file, changes)
    if start is not None:
        training = settings.training.model_copy(update={"start": str(start.resolve())})
        settings = settings.model_copy(update={"training": training})

    def work(reached: Engine, again: bool) -> "ConsortiumRun":
        consortium = Consortium(settings, reached)
        if reached.local and consortium.model.inputs == "table":
            # Networks for tables are too small for a second thread.
            torch.set_num_threads(1)
        called = name or settings.name
        with run_logs(logs, Path(settings.output.folder) / called, called) as observers:
            return consortium.run(
                name, resume=again, replace=replace, progress=view, observers=observers
            )

    try:
        with LiveView(STAGES, errors) as view:
            access = SiloAccess(name or settings.name, kit, progress=view)
            result = kind.over_silos(settings, access, work, resume=resume)
    except KeyboardInterrupt:
        again = ["fedegoists", "run", str(file)]
        for change in changes:
            again += ["--set", change]
        if name is not None:
            again += ["--name", name]
        if start is not None:
            again += ["--from", str(start)]
        for log in logs:
            again += ["--log", log]
        if not kind.local:
            again += ["--engine", engine, "--kit", str(kit)]
        line(f"Stopped. Go on with: {shlex.join([*again, '--resume'])}", "yellow", whole=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(_as_dict(result))
    else:
        _show_result(result)
    if result.incomplete or result.undelivered:
        raise typer.Exit(1)


def _as_dict(result: "ConsortiumRun") -> dict[str, object]:
    """Return the decision and what each participant ends with."""
    from fedegoists.consortium.delivered_gains import run_delivered

    found = _advice(result)
    return {
        "run": str(near(result.folder)),
        "advice": found.advice,
        "reasons": found.reasons,
        "coalitions": result.formation.coalitions,
        "metric": result.summary.metric,
        "delivered": [
            {
                "participant": one.participant,
                "keeps": one.delivered,
                "value": _known(one.value),
                "alone": _known(one.alone),
                "gain": [_known(end) for end in (one.gain.value, one.gain.low, one.gain.high)],
            }
            for one in run_delivered(result)
        ],
        "contributions": None
        if result.ledger is None
        else [
            {
                "participant": one.participant,
                "gave": [_known(end) for end in (one.gave.value, one.gave.low, one.gave.high)],
                "share_of_costs": _known(one.share_of_costs),
                "gave_nothing": one.gave_nothing,
                "redundant_with": one.redundant_with,
            }
            for one in result.ledger.contributions
        ],
        "incomplete": result.incomplete,
        "undelivered": result.undelivered,
    }


def _known(value: float) -> float | None:
    """Return a number for JSON, which has no NaN."""
    return value if math.isfinite(value) else None


def _show_result(result: "ConsortiumRun") -> None:
    """Print the coalitions, the gains and the advice."""
    show_formation(result.formation)
    for participant, words in result.begun.items():
        line(f"{participant} starts {words}.")
    for participant, what in result.incomplete:
        line(f"Incomplete: {participant}: {what}.", "bold red")
    for participant in result.undelivered:
        line(f"{participant} has not received its model; see its silo.log.", "bold red")
    if len(result.formation.coalitions) == len(result.data.participants) > 1:
        line("No coalition was formed; the report says why, and what would change it.", "yellow")
    _show_expected(result)
    _show_gains(result)
    _show_delivered(result)
    for remark in () if result.ledger is None else result.ledger.remarks:
        line(f"Contributions: {remark}.", "yellow")
    _show_advice(result)
    folder = near(result.folder)
    certificate = shlex.quote(str(folder / "certificate.json"))
    line(f"Report: {folder / 'report.html'}", "bold", whole=True)
    line(f"Re-check the decision: fedegoists verify {certificate}", whole=True)


def _show_expected(result: "ConsortiumRun") -> None:
    """Print what is not known yet about expected gains, and what would tell."""
    from fedegoists.consortium.report.expected_gains import expected_gains

    expected = expected_gains(result.formation)
    for sentence in () if expected is None else expected.sentences:
        line(sentence)


def _advice(result: "ConsortiumRun") -> "BottomLine":
    """Return the recommendation as the report has it."""
    from fedegoists.consortium.report.bottom_line import bottom_line
    from fedegoists.consortium.report.manager_page import headline
    from fedegoists.consortium.report.results_section import Results

    return bottom_line(result, Results.of(result), headline(result.formation)[1])


def _show_advice(result: "ConsortiumRun") -> None:
    found = _advice(result)
    line(f"\nRecommendation: {found.advice}", "bold green")
    for reason in found.reasons:
        line(reason)


def _show_delivered(result: "ConsortiumRun") -> None:
    """Print the model that each participant keeps, with its test result."""
    from fedegoists.consortium.delivered_gains import run_delivered

    metric = metric_words(result.summary.metric)
    for one in run_delivered(result):
        told = f"{one.participant} keeps: {one.delivered}"
        if math.isfinite(one.value):
            told += f"; test {metric} {one.value:.4g}"
        if math.isfinite(one.alone) and one.method != "local":
            told += f", alone {one.alone:.4g}"
        line(f"{told}.")


def _show_gains(result: "ConsortiumRun") -> None:
    if not result.gains:
        if len(result.alone) == len(result.data.participants) and len(result.wanted) > 1:
            line(
                "Everybody trained alone, with every method: differences between methods are those "
                "of their schedules and of chance, not of training together."
            )
        return
    from fedegoists.consortium.report.results_section import few_test_samples

    methods = list(dict.fromkeys(gain.method for gain in result.gains))
    task, few = result.repetitions.federation.task, few_test_samples(result)
    better = "higher" if task.higher_is_better else "lower"
    table = Table(
        title=f"Test {task.metric_words} ({better} is better); in brackets the gain over training "
        "alone, + is better",
        title_justify="left",
        title_style="bold",
    )
    for column in ("participant", "alone", *methods):
        table.add_column(column, justify="left" if column == "participant" else "right")
    found = {(gain.participant, gain.method): gain for gain in result.gains}
    for participant in result.data.participants:
        own = [found.get((participant, method)) for method in methods]
        known = [gain for gain in own if gain is not None]
        mark = " †" if participant in few else ""
        if known:
            cells = ["" if gain is None else f"{gain.value:.3f} ({gain.gain:+.3f})" for gain in own]
            table.add_row(Text(f"{participant}{mark}"), f"{known[0].alone:.3f}", *cells)
        elif participant in result.alone:
            alone = result.summary.row("local", participant).mean
            table.add_row(Text(f"{participant}{mark}"), f"{alone:.3f}", *["–"] * len(methods))
    screen.print(table)
    if result.alone:
        line("–: trains alone, so there is no gain.")
    if few:
        line("†: too few test samples for a result; see the intervals in the report.", "yellow")


def runs_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Their folder.")] = Path("runs"),
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Runs to compare; without names, all are listed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List runs with their results, or compare some of them."""
    with training_extra("runs"):
        from fedegoists.consortium.run_list import read_runs

    found = {run.name: run for run in read_runs(folder)}
    for name in names or ():
        if name not in found:
            raise SettingsError(f"no run {name!r} in {folder}; there are {', '.join(found)}")
    chosen = [found[name] for name in dict.fromkeys(names or found)]
    if as_json:
        print_json([run.as_dict() for run in chosen])
    elif names:
        _show_comparison(chosen)
    else:
        _show_runs(folder, chosen)


def _show_runs(folder: Path, runs: "Sequence[ListedRun]") -> None:
    methods = list(dict.fromkeys(method for run in runs for method in run.means))
    metrics = list(dict.fromkeys(run.metric for run in runs if run.metric))
    table = Table(title=f"Runs in {folder}", title_justify="left", title_style="bold")
    for column in ("run", "state", "seconds", "together", "benefit", *methods):
        left = column in ("run", "state")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    for run in runs:
        inside = sum(map(len, run.together))
        table.add_row(
            Text(run.name),
            Text(f"{run.state} {run.stage}".strip()),
            f"{run.seconds:.0f}",
            f"{inside} of {len(run.coalitions) + inside - len(run.together)}"
            if run.coalitions
            else "",
            "" if run.welfare is None else f"{run.welfare:.4g}",
            *(f"{run.means[method][0]:.4g}" if method in run.means else "" for method in methods),
        )
    screen.print(table)
    if metrics:
        words = " or ".join(map(metric_words, metrics))
        line(f"Methods: mean test {words} over participants.")
    if len(runs) > 1:
        line(f"To compare: fedegoists runs {shlex.quote(str(folder))} NAME NAME", whole=True)


def _show_comparison(runs: "Sequence[ListedRun]") -> None:
    from fedegoists.consortium.run_list import differing_settings

    table = titled_table("Runs compared", "")
    for run in runs:
        table.add_column(Text(run.name), overflow="fold")
    table.add_row("state", *(Text(f"{run.state} {run.stage}".strip()) for run in runs))
    table.add_row("seconds", *(f"{run.seconds:.0f}" for run in runs), end_section=True)
    for key, values in differing_settings(runs).items():
        table.add_row(Text(key), *(Text("not set" if v is None else str(v)) for v in values))
    table.add_section()
    table.add_row("coalitions", *(Text(_groups(run)) for run in runs))
    table.add_row(
        "total benefit",
        *("" if run.welfare is None else f"{run.welfare:.4g}" for run in runs),
        end_section=True,
    )
    for method in dict.fromkeys(method for run in runs for method in run.means):
        metric = next(run.metric for run in runs if method in run.means)
        table.add_row(
            Text(f"{method}, mean {metric_words(metric)}"), *(_mean(run, method) for run in runs)
        )
    screen.print(table)


def _mean(run: "ListedRun", method: str) -> str:
    if method not in run.means:
        return ""
    mean, std, seeds = run.means[method]
    return f"{mean:.4g} ± {std:.2g}" if seeds > 1 else f"{mean:.4g}"


def _groups(run: "ListedRun") -> str:
    if not run.coalitions:
        return ""
    return "\n".join(", ".join(group) for group in run.together) or "none"
