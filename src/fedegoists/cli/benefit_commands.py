"""The command that learns who benefits from whom."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedegoists.cli.coalition_commands import ReplaceOption
from fedegoists.cli.live_progress import PlainLines, QuietOption, is_quiet
from fedegoists.cli.output import JsonOption, errors, line, print_json, screen, training_extra
from fedegoists.cli.training_commands import DataDirOption, SetOption, options_from
from fedegoists.errors import SettingsError
from fedegoists.folder_swap import check_replaceable

if TYPE_CHECKING:
    from fedegoists.training.benefit_learning import BenefitPlan, LearnedBenefits

DataOption = Annotated[
    str, typer.Option(help="A data set (see `fedegoists data list`), or a folder with one's own.")
]
OutOption = Annotated[Path, typer.Option(metavar="DIR", help="Where to write the results.")]
EstimatorOption = Annotated[
    str | None,
    typer.Option(
        help="transfer, hypernetwork, pairs or alignment; several with commas are compared, "
        "and the first one's graph is written. Default: hypernetwork for images, else transfer."
    ),
]
CompetitionOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="A CSV with a,b: a model of one is never shown to the other."
    ),
]
ThresholdOption = Annotated[
    float | None, typer.Option(min=0, help="An edge where the weight is above this number.")
]
ConfidenceOption = Annotated[
    float | None,
    typer.Option(help="Without a threshold: how sure an edge must be (default: 0.95)."),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Which division among silos.")]
SeedsOption = Annotated[
    int, typer.Option(min=1, help="Number of repetitions, from --seed on, to see how stable it is.")
]
RepeatsOption = Annotated[
    int | None, typer.Option(min=1, help="Independent runs on the same data (default: 5).")
]
ClipOption = Annotated[
    float | None,
    typer.Option(help="Shorten each sample's gradient to this norm (hypernetwork only)."),
]
NoiseOption = Annotated[
    float, typer.Option(min=0, help="Gaussian noise, in multiples of what a sample can change.")
]
LearnOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Another setting of learning, such as steps=400."),
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")]
BENEFIT_FILES = (
    "benefit.csv",
    "weights.csv",
    "benefit_errors.csv",
    "estimates.csv",
    "heatmap.png",
    "thresholds.png",
    "report.md",
)
MOVED = ("--measure", "--leave-one-out", "--no-leave-one-out")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("benefit")(benefit_command)


def benefit_command(
    data: DataOption,
    out: OutOption,
    estimator: EstimatorOption = None,
    competition: CompetitionOption = None,
    threshold: ThresholdOption = None,
    confidence: ConfidenceOption = None,
    seed: SeedOption = 0,
    seeds: SeedsOption = 1,
    repeats: RepeatsOption = None,
    clip: ClipOption = None,
    noise: NoiseOption = 0.0,
    learn: LearnOption = None,
    settings: SetOption = None,
    device: DeviceOption = "cpu",
    data_dir: DataDirOption = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
    measure: Annotated[bool, typer.Option(*MOVED, hidden=True)] = False,
    measure_repeats: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Learn who benefits whom, and write a benefit graph that `form` can use."""
    if measure or measure_repeats is not None:
        raise SettingsError(
            "measuring the truth (--measure, --measure-repeats, --leave-one-out) is a study of the "
            "laboratory; in a checkout of the repository, with the other options as they are: "
            "python -m reproduction benefit-study"
        )
    check_replaceable(out, BENEFIT_FILES, replace=replace)
    with training_extra("learning"):
        from fedegoists.training.benefit_learning import learn_benefits, write_benefits

    plan = benefit_plan(
        data=data,
        estimator=estimator,
        competition=competition,
        threshold=threshold,
        confidence=confidence,
        seed=seed,
        seeds=seeds,
        repeats=repeats,
        clip=clip,
        noise=noise,
        learn=learn,
        settings=settings,
        device=device,
    )
    with LearningBars.shown() as bars:
        learned = learn_benefits(plan, data_dir=data_dir, progress=bars)
    write_benefits(learned, out, replace=replace)
    if as_json:
        estimate = learned.first
        print_json(
            {
                "estimator": estimate.estimator,
                "edges": [list(edge) for edge in learned.graph.edges()],
                "failures": list(estimate.failures),
                "folder": str(out),
            }
        )
    else:
        show_benefits(learned, out)


def benefit_plan(
    *,
    data: str,
    estimator: str | None,
    competition: str | None,
    threshold: float | None,
    confidence: float | None,
    seed: int,
    seeds: int,
    repeats: int | None,
    clip: float | None,
    noise: float,
    learn: list[str] | None,
    settings: list[str] | None,
    device: str,
) -> "BenefitPlan":
    """Return the plan that the options of the command describe."""
    from fedegoists.training.benefit_learning import BenefitPlan

    own: dict[str, object] = {**_learn_settings(learn), "clip": clip, "noise": noise}
    if repeats is not None:
        own["repeats"] = repeats
    names = tuple(name.strip() for name in (estimator or "").split(",") if name.strip())
    if estimator is not None and not names:
        raise SettingsError("name at least one estimator")
    return BenefitPlan(
        data=data,
        estimators=names,
        seeds=tuple(range(seed, seed + seeds)),
        threshold=threshold,
        confidence=confidence,
        options=options_from(settings),
        settings=own,
        competition=competition,
        device=device,
    )


def _learn_settings(learn: list[str] | None) -> dict[str, object]:
    """Return the settings given with --learn; refuse unknown ones and options of the command."""
    from fedegoists.benefit import LearnSettings

    given = options_from(learn, "--learn")
    options = ("noise", "repeats")
    known = [name for name in LearnSettings.numbers() if name not in options]
    for key in given:
        if key in options:
            raise SettingsError(f"--learn {key}: use --{key}")
        if key not in known:
            raise SettingsError(f"--learn {key}: settings are {', '.join(known)}")
    return dict(given)


class LearningBars:
    """One progress bar for each stage of learning, with the mean loss."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.bars: dict[str, TaskID] = {}
        self.lines = PlainLines(errors)

    @classmethod
    @contextmanager
    def shown(cls) -> "Iterator[LearningBars]":
        """Show the bars on a terminal for as long as the block runs."""
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=errors,
            disable=is_quiet() or not errors.is_terminal,
        ) as progress:
            yield cls(progress)

    def __call__(self, stage: str, done: int, total: int, loss: float) -> None:
        """Show the progress of a stage."""
        if stage not in self.bars:
            self.bars[stage] = self.progress.add_task(stage, total=total, loss="")
        shown = f"loss {loss:.4f}" if loss == loss else ""
        if not errors.is_terminal:
            self.lines(stage, done, total, shown)
        self.progress.update(self.bars[stage], completed=done, loss=shown)


def show_benefits(learned: "LearnedBenefits", out: Path, *further: str) -> None:
    """Print the graph of the first estimate, its failures and the names of the written files."""
    estimate, graph = learned.first, learned.graph
    table = Table(title=f"Who benefits from whom: {estimate.estimator}", title_justify="left")
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
    line(f"Written to {out}: {', '.join((*BENEFIT_FILES, *further))}")
