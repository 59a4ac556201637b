"""The commands about training: data, methods, train."""

from collections import Counter
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedegoists.cli.output import errors, line, screen, training_extra
from fedegoists.errors import MissingDependencyError, SettingsError

if TYPE_CHECKING:
    from fedegoists.methods.method_run import Outcome

__all__ = ["DataDirOption", "SetOption", "register"]

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="FEDEGOISTS_DATA",
        help="Where real data is: a folder with cifar10/, cifar100/, eicu_demo/, heart/.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the data set; see `data list`."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    data = typer.Typer(help="Look at data sets.", no_args_is_help=True)
    data.command("list")(list_command)
    data.command("show")(show_command)
    app.add_typer(data, name="data")
    app.command("methods")(methods_command)
    app.command("train")(train_command)


def list_command() -> None:
    """List the data sets that can be trained on."""
    from fedegoists.learning.datasets import available

    table = Table(title="Data sets", title_justify="left", title_style="bold")
    for column in ("name", "what", "options"):
        table.add_column(column, overflow="fold")
    for info in available():
        options = "\n".join(f"{option.name}={option.default}" for option in info.options)
        table.add_row(Text(info.name), Text(info.summary), Text(options))
    screen.print(table)


def show_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A data set, or a folder with one file for each organisation and a schema.toml.",
        ),
    ],
    settings: SetOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Which division among silos.")] = 0,
    data_dir: DataDirOption = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the labels of each silo to .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Show how a data set is divided among silos."""
    from fedegoists.learning.datasets import load

    data = load(name, data_dir=data_dir, seed=seed, **_options(settings))
    table = Table(title=data.description, title_justify="left", title_style="bold")
    table.add_column("silo")
    for column in ("train", "validation", "test"):
        table.add_column(column, justify="right")
    for participant, sizes in data.sizes().items():
        table.add_row(
            Text(participant), f"{sizes.train:,}", f"{sizes.validation:,}", f"{sizes.test:,}"
        )
    screen.print(table)
    for note in data.notes:
        line(f"- {note}")
    if picture is not None:
        from fedegoists.learning.plots import draw_label_distribution

        draw_label_distribution(data, picture)
        line(f"Written to {picture}")


def methods_command() -> None:
    """List the training methods with their papers and settings."""
    with training_extra("training"):
        from fedegoists.methods import METHOD_ENTRIES

    table = Table(title="Methods", title_justify="left", title_style="bold")
    for column in ("name", "what it does and where it comes from", "settings"):
        table.add_column(column, overflow="fold")
    for name, entry in METHOD_ENTRIES.items():
        method, paper = entry.load(), entry.paper
        about = Text(entry.summary)
        if paper is not None:
            about.append(f"\n{paper.authors}: {paper.title}, {paper.venue}", "dim")
        settings = "\n".join(
            f"{one.name}={one.default}: {one.metadata['meaning']} ({method.range_of(one)})"
            for one in method.declared()
        )
        table.add_row(Text(name), about, Text(settings))
    screen.print(table)
    line("Any but local can be fine-tuned on own data: fedavg+ft. See docs/reference-methods.md.")


def train_command(
    data: Annotated[
        str,
        typer.Option(
            help="A data set (see `fedegoists data list`), or a folder with one file for each "
            "organisation and a schema.toml."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write the results.")],
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, with commas between them; +ft adds fine-tuning; all means all of them. "
            "See `fedegoists methods`."
        ),
    ] = "local,fedavg,fedavg+ft",
    method_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="METHOD.KEY=VALUE",
            help="A setting of a method, such as fedprox.mu=0.1. May be repeated.",
        ),
    ] = None,
    coalitions: Annotated[
        str,
        typer.Option(
            help="all, none, published, stable, best, a CSV with participant,coalition, or cliques,"
            " as the paper compares: FedEgoists in published coalitions, all others in cliques."
        ),
    ] = "all",
    benefit: Annotated[
        str,
        typer.Option(
            help="Who benefits whom: a CSV with source,target,weight, learn, or learn:ESTIMATOR; "
            "without it, everybody benefits everybody.",
        ),
    ] = "",
    competition: Annotated[
        str,
        typer.Option(
            help="A CSV with a,b, the probability that any two compete, or published for what the "
            "data set comes with."
        ),
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many trials, seeds 0 and up.")] = 5,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Training steps, rounded up to whole rounds; a default that suits the data."
        ),
    ] = None,
    settings: SetOption = None,
    personal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PREFIX",
            help="Parameters whose names start so never leave a silo, such as output. May be "
            "repeated; none for none at all. By default only FedEgoists keeps output layers.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    data_dir: DataDirOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what DIR holds of the same comparison.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write DIR/tensorboard.")
    ] = False,
) -> None:
    """Train with several methods, side by side, over several trials."""
    with training_extra("training"):
        from fedegoists.methods import METHOD_ENTRIES
        from fedegoists.training import Comparison, compare

    named = [name.strip() for name in methods.split(",") if name.strip()]
    chosen = dict.fromkeys(
        one for name in named for one in (METHOD_ENTRIES if name == "all" else [name])
    )
    comparison = Comparison(
        data=data,
        methods=tuple(chosen),
        method_settings=_method_settings(method_settings),
        coalitions=coalitions,
        benefit=benefit,
        competition=competition,
        seeds=tuple(range(seeds)),
        steps=steps,
        options=_options(settings),
        personal=_personal(personal),
        device=device,
    )
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} rounds"),
        TextColumn("{task.fields[score]}"),
        TimeRemainingColumn(),
        console=errors,
        disable=not errors.is_terminal,
    ) as progress:
        observers: list[Any] = [_ProgressBars(progress)]
        if tensorboard:
            observers.append(_tensorboard(out / "tensorboard"))
        try:
            outcomes = compare(
                comparison, out, data_dir=data_dir, resume=resume, observers=tuple(observers)
            )
        except KeyboardInterrupt:
            line("Stopped. Go on with the same command and --resume.", "yellow")
            raise typer.Exit(130) from None
    _show(out, outcomes)


def _personal(given: list[str] | None) -> tuple[str, ...] | None:
    if not given:
        return None
    return () if given == ["none"] else tuple(given)


def _method_settings(given: list[str] | None) -> dict[str, dict[str, Any]]:
    settings: dict[str, dict[str, Any]] = {}
    for text in given or ():
        target, equals, value = text.partition("=")
        method, dot, key = target.strip().replace("+ft.", ".").partition(".")
        if not equals or not dot or not key:
            raise SettingsError(f"--with {text!r}: expected METHOD.KEY=VALUE")
        settings.setdefault(method, {})[key] = _value(value.strip())
    return settings


class _ProgressBars:
    """One bar for each method, with the validation score of the last evaluation."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.bars: dict[str, TaskID] = {}

    def __call__(self, method: str, done: int, total: int, outcome: "Outcome") -> None:
        if method not in self.bars:
            self.bars[method] = self.progress.add_task(method, total=total, score="")
        score = _mean_validation(outcome)
        self.progress.update(self.bars[method], completed=done, score=score)


def _mean_validation(outcome: "Outcome") -> str:
    if not outcome.rows:
        return ""
    last = outcome.rows[-1]
    values = [
        row.value
        for row in outcome.rows
        if row.round == last.round and row.split == "validation" and row.metric == last.metric
    ]
    return f"{last.metric} {sum(values) / len(values):.3f}" if values else ""


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingDependencyError(
            "--tensorboard needs tensorboard: pip install 'fedegoists[train]'"
        ) from None
    writer = SummaryWriter(str(folder))

    def observe(method: str, done: int, total: int, outcome: "Outcome") -> None:
        if outcome.rows and outcome.rows[-1].round == done:
            for row in outcome.rows:
                if row.round == done:
                    tag = f"{method}/{row.split} {row.metric}/{row.participant}"
                    writer.add_scalar(tag, row.value, done)
        if done == total:
            writer.flush()

    return observe


def _show(out: Path, outcomes: "dict[str, Outcome]") -> None:
    import csv

    from fedegoists.training.summary import COSTS, EVERYBODY

    with (out / "summary.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    metric = next(row["metric"] for row in rows if row["metric"] not in COSTS)
    table = Table(
        title=f"Test {metric}: mean ± std over seeds, and what it cost", title_justify="left"
    )
    table.add_column("method")
    participants = list(dict.fromkeys(row["participant"] for row in rows))
    shown = participants if len(participants) <= screen.width // 30 else [EVERYBODY]
    for column in (*shown, "validation,\nall", "sample\npasses", "MB\nsent", "MB\nreceived"):
        table.add_column(column, justify="right")
    found = {(row["method"], row["participant"], row["metric"]): row for row in rows}
    for method in outcomes:
        cells = [found[method, participant, metric] for participant in shown]
        costs = [float(found[method, EVERYBODY, cost]["mean"]) for cost in COSTS]
        table.add_row(
            Text(method),
            *(f"{float(cell['mean']):.4f} ± {float(cell['std']):.4f}" for cell in cells),
            _validated(outcomes[method], metric),
            f"{costs[0]:,.0f}",
            *(f"{cost / 1e6:,.1f}" for cost in costs[1:]),
        )
    screen.print(table)
    for method, outcome in outcomes.items():
        failed = Counter(str(failure) for _, failure in outcome.failures)
        for failure, times in sorted(failed.items()):
            line(f"{method}: left out {failure}, {times} times", "yellow")
    line(f"Written to {out}: metrics.csv, summary.csv, coalitions.csv, failures.csv")


def _validated(outcome: "Outcome", metric: str) -> str:
    """Return the mean validation metric of everybody's chosen step, to choose by."""
    scores = [score for score, _ in outcome.best_score]  # an error is a negative score
    validated = (
        row.value for row in outcome.rows if (row.split, row.metric) == ("validation", metric)
    )
    # Somebody may have no metric, as AUC with one class. A mean without would not be comparable.
    complete = all(map(isfinite, (*scores, *validated)))
    return f"{abs(fmean(scores)):.4f}" if complete else "not for all"


def _options(settings: list[str] | None, option: str = "--set") -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in settings or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise SettingsError(f"{option} {text!r}: expected KEY=VALUE")
        if option == "--set" and key.strip() in ("name", "seed", "data_dir"):
            raise SettingsError(f"--set {text!r}: {key.strip()} is not an option of a data set")
        options[key.strip()] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.casefold(), text)
