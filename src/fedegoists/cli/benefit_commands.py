"""The command that learns who benefits whom."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedegoists.cli.output import errors, line, screen, training_extra
from fedegoists.cli.training_commands import DataDirOption, SetOption
from fedegoists.cli.training_commands import _options as options_from
from fedegoists.errors import SettingsError

if TYPE_CHECKING:
    from reproduction.benefit_study import StudyResult

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("benefit")(benefit_command)


def benefit_command(
    data: Annotated[
        str,
        typer.Option(help="A data set (see `fedegoists data list`), or a folder with one's own."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write the results.")],
    estimator: Annotated[
        str | None,
        typer.Option(
            help="transfer, hypernetwork, pairs or alignment; several with commas are compared, "
            "and the first one's graph is written. Default: hypernetwork for images, else transfer."
        ),
    ] = None,
    competition: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A CSV with a,b: a model of one is never shown to the other."
        ),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0, help="An edge where the weight is above this number.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="Without a threshold: how sure an edge must be (default: 0.95)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which division among silos.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="So many trials, from --seed on, to see how stable it is.")
    ] = 1,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Independent runs on the same data (default: 5).")
    ] = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Also train everybody alone and in pairs, and compare."),
    ] = False,
    measure_repeats: Annotated[
        int, typer.Option(min=2, help="How often the truth is measured.")
    ] = 3,
    leave_one_out: Annotated[
        bool, typer.Option(help="Whether --measure also trains all together and all but one.")
    ] = True,
    clip: Annotated[
        float | None,
        typer.Option(help="Shorten each sample's gradient to this norm (hypernetwork only)."),
    ] = None,
    noise: Annotated[
        float, typer.Option(min=0, help="Gaussian noise, in multiples of what a sample can change.")
    ] = 0.0,
    learn: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Another setting of learning, such as steps=400."),
    ] = None,
    settings: SetOption = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    data_dir: DataDirOption = None,
) -> None:
    """Learn who benefits whom, and write a benefit graph that `form` can use."""
    with training_extra("learning"):
        from reproduction.benefit_study import BenefitStudy, study

    own: dict[str, Any] = _checked(options_from(learn, "--learn"))
    own |= {"clip": clip, "noise": noise}
    if repeats is not None:
        own["repeats"] = repeats
    names: Any = tuple(name.strip() for name in (estimator or "").split(",") if name.strip())
    if estimator is not None and not names:
        raise SettingsError("name at least one estimator")
    plan = BenefitStudy(
        data=data,
        estimators=names,
        seeds=tuple(range(seed, seed + seeds)),
        threshold=threshold,
        confidence=confidence,
        measured=measure,
        options=options_from(settings),
        settings=own,
        measure_settings={"repeats": measure_repeats, "leave_one_out": leave_one_out},
        competition=competition,
        device=device,
    )
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
        console=errors,
        disable=not errors.is_terminal,
    ) as progress:
        result = study(plan, out, data_dir=data_dir, progress=_Bars(progress))
    _show(next(iter(result.estimates)), str(seed), result, threshold, confidence)
    files = "benefit.csv, weights.csv, estimates.csv, heatmap.png, thresholds.png, report.md"
    line(f"Written to {out}: {files}")


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return settings of learning that exist and are not options of the command."""
    from fedegoists.benefit import LearnSettings

    options = ("noise", "repeats")
    known = [name for name in LearnSettings.numbers() if name not in options]
    for key in given:
        if key in options:
            raise SettingsError(f"--learn {key}: use --{key}")
        if key not in known:
            raise SettingsError(f"--learn {key}: settings are {', '.join(known)}")
    return given


class _Bars:
    """One bar for each stage, with the mean loss."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.bars: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int, loss: float) -> None:
        if stage not in self.bars:
            self.bars[stage] = self.progress.add_task(stage, total=total, loss="")
        shown = f"loss {loss:.4f}" if loss == loss else ""
        self.progress.update(self.bars[stage], completed=done, loss=shown)


def _show(
    estimator: str,
    seed: str,
    result: "StudyResult",
    threshold: float | None,
    confidence: float | None,
) -> None:
    estimate = result.estimates[estimator][seed]
    graph = estimate.graph(threshold, confidence=confidence)
    table = Table(title=f"Who benefits from whom: {estimator}", title_justify="left")
    table.add_column("participant")
    table.add_column("benefits from", overflow="fold")
    for i, name in enumerate(graph.participants):
        sources = sorted(
            (j for j in range(graph.n) if graph.weights[j, i] > 0),
            key=lambda j, i=i: -graph.weights[j, i],  # type: ignore[misc]
        )
        shown = ", ".join(f"{graph.participants[j]} {graph.weights[j, i]:.3f}" for j in sources)
        table.add_row(Text(name), Text(shown or "nobody"))
    screen.print(table)
    for failure in estimate.failures:
        gone = failure.startswith(tuple(f"{name}: " for name in estimate.absent))
        line(f"{'left out' if gone else 'did not always answer'}: {failure}", "yellow")
