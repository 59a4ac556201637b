"""The commands about training: methods, train."""

import dataclasses
from collections import Counter
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedegoists.cli.live_progress import PlainLines, QuietOption, is_quiet
from fedegoists.cli.output import (
    JsonOption,
    LogOption,
    errors,
    line,
    print_json,
    screen,
    titled_table,
    training_extra,
)
from fedegoists.errors import SettingsError
from fedegoists.install_hints import install_command
from fedegoists.learning.metric_words import metric_words

if TYPE_CHECKING:
    from fedegoists.methods.method_registry import MethodEntry
    from fedegoists.methods.method_run import Observer
    from fedegoists.methods.outcome import Outcome
    from fedegoists.training import ComparisonResult

Value = str | int | float | bool

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="FEDEGOISTS_DATA",
        help="The folder of real data, with cifar10/, cifar100/, eicu_demo/, heart/, tcga_brca/.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the data set; see `data list`."),
]
DataOption = Annotated[
    str,
    typer.Option(
        help="A data set (see `fedegoists data list`), or a folder with one file for each "
        "organisation and a schema.toml."
    ),
]
OutOption = Annotated[Path, typer.Option(metavar="DIR", help="Where to write the results.")]
MethodsOption = Annotated[
    str,
    typer.Option(
        help="Methods, with commas between them; +ft adds fine-tuning; all means all of them. "
        "See `fedegoists methods`."
    ),
]
WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="METHOD.KEY=VALUE",
        help="A setting of a method, such as fedprox.mu=0.1. May be repeated.",
    ),
]
CoalitionsOption = Annotated[
    str,
    typer.Option(
        help="all, none, published, stable, best, a CSV with participant,coalition, or cliques,"
        " as the paper compares: FedEgoists in published coalitions, all others in cliques."
    ),
]
BenefitOption = Annotated[
    str,
    typer.Option(
        help="The benefit graph: a CSV with source,target,weight, learn, or learn:ESTIMATOR; "
        "without it, every participant benefits every other.",
    ),
]
CompetitionOption = Annotated[
    str,
    typer.Option(
        help="A CSV with a,b, the probability that any two compete, or published for the data "
        "set's own competitors."
    ),
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Number of repetitions, seeds 0 and up.")]
StepsOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Training steps, rounded up to whole rounds; the default suits the data."
    ),
]
ModelOption = Annotated[
    str,
    typer.Option(
        help="The network by its name, such as mlp (an unknown name lists all), or auto for the "
        "first that suits the data."
    ),
]
PersonalOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PREFIX",
        help="Parameters whose names start so never leave a silo, such as output. May be "
        "repeated; none for none at all. By default only FedEgoists keeps output layers.",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue the same comparison in DIR.")
]
TensorboardOption = Annotated[
    bool, typer.Option("--tensorboard", help="The same as --log tensorboard.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("methods")(methods_command)
    app.command("train")(train_command)


def methods_command() -> None:
    """List the training methods with their papers and settings."""
    from fedegoists.methods.method_registry import METHOD_ENTRIES

    table = titled_table("Methods", "name", "what it does and where it comes from", "settings")
    complete = find_spec("torch") is not None
    for name, entry in METHOD_ENTRIES.items():
        paper = entry.paper
        about = Text(entry.summary)
        if paper is not None:
            about.append(f"\n{paper.authors}: {paper.title}, {paper.venue}", "dim")
        about.append(f"\nThe server sees {entry.server_sees}. {entry.told}")
        table.add_row(Text(name), about, Text(_settings_of(entry) if complete else ""))
    screen.print(table)
    if not complete:
        line(
            f"Settings are shown where PyTorch is installed: {install_command('train')}", whole=True
        )
    line(
        "What the server sees holds for deployed coalitions of three or more. Silos show single "
        "updates and gradients only with single_updates = true in their silo.toml."
    )
    line(
        "All but local and bagging can be fine-tuned on own data: fedavg+ft. See "
        "docs/reference-methods.md."
    )


def _settings_of(entry: "MethodEntry") -> str:
    """Return the settings of a method, one a line; its code needs PyTorch."""
    method = entry.load()
    return "\n".join(
        f"{one.name}={one.default}: {one.metadata['meaning']} ({method.range_of(one)})"
        for one in method.declared()
    )


def train_command(
    data: DataOption,
    out: OutOption,
    methods: MethodsOption = "local,fedavg,fedavg+ft",
    method_settings: WithOption = None,
    coalitions: CoalitionsOption = "all",
    benefit: BenefitOption = "",
    competition: CompetitionOption = "",
    seeds: SeedsOption = 5,
    steps: StepsOption = None,
    model: ModelOption = "auto",
    settings: SetOption = None,
    personal: PersonalOption = None,
    device: DeviceOption = "cpu",
    data_dir: DataDirOption = None,
    resume: ResumeOption = False,
    tensorboard: TensorboardOption = False,
    log: LogOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
) -> None:
    """Train with several methods, side by side, over several repetitions."""
    with training_extra("training"):
        from fedegoists.training import Comparison, compare
        from fedegoists.training.run_logs import run_logs

    comparison = Comparison(
        data=data,
        methods=_named_methods(methods, model, data),
        method_settings=_method_settings(method_settings),
        coalitions=coalitions,
        benefit=benefit,
        competition=competition,
        seeds=tuple(range(seeds)),
        steps=steps,
        options=options_from(settings),
        personal=() if personal == ["none"] else tuple(personal) if personal else None,
        device=device,
        model=model,
    )
    kinds = dict.fromkeys([*(log or ()), *(["tensorboard"] if tensorboard else [])])
    with run_logs(list(kinds), out, out.name) as logs, _progress() as progress:
        observers: tuple[Observer, ...] = (_ProgressBars(progress), *logs)
        try:
            result = compare(comparison, out, data_dir=data_dir, resume=resume, observers=observers)
        except KeyboardInterrupt:
            line("Stopped. Go on with the same command and --resume.", "yellow")
            raise typer.Exit(130) from None
    if as_json:
        rows = [dataclasses.asdict(row) for row in result.summary.rows]
        print_json({"metric": result.summary.metric, "summary": rows, "folder": str(out)})
    else:
        _show(out, result)


def _named_methods(text: str, model: str, data: str) -> tuple[str, ...]:
    """Return the methods that are named; ``all`` are those that suit the model and the task."""
    from fedegoists.learning.datasets.dataset_registry import DATASETS
    from fedegoists.learning.model_registry import model_named
    from fedegoists.methods.method_registry import methods_for

    named = [name.strip() for name in text.split(",") if name.strip()]
    kind = "network" if model == "auto" else model_named(model).kind
    task = DATASETS[data].task if data in DATASETS else None
    return tuple(
        dict.fromkeys(
            one for name in named for one in (methods_for(kind, task) if name == "all" else [name])
        )
    )


def _method_settings(given: list[str] | None) -> dict[str, dict[str, Value]]:
    settings: dict[str, dict[str, Value]] = {}
    for text in given or ():
        target, equals, value = text.partition("=")
        method, dot, key = target.strip().replace("+ft.", ".").partition(".")
        if not equals or not dot or not key:
            raise SettingsError(f"--with {text!r}: expected METHOD.KEY=VALUE")
        settings.setdefault(method, {})[key] = _value(value.strip())
    return settings


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} rounds"),
        TextColumn("{task.fields[score]}"),
        TimeRemainingColumn(),
        console=errors,
        disable=is_quiet() or not errors.is_terminal,
    )


class _ProgressBars:
    """One bar for each method, with the validation score of the last evaluation."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.bars: dict[str, TaskID] = {}
        self.lines = PlainLines(errors)

    def __call__(self, method: str, done: int, total: int, outcome: "Outcome") -> None:
        if not errors.is_terminal:
            self.lines(f"{method}: rounds", done, total, _mean_validation(outcome))
            return
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
    return f"{metric_words(last.metric)} {sum(values) / len(values):.3f}" if values else ""


def _show(out: Path, result: "ComparisonResult") -> None:
    from fedegoists.training.summary import COSTS, EVERYBODY

    summary = result.summary
    table = Table(
        title=f"Test {metric_words(summary.metric)}: mean ± standard deviation over repetitions, "
        "and costs",
        title_justify="left",
    )
    table.add_column("method")
    participants = list(dict.fromkeys(row.participant for row in summary.rows))
    shown = participants if len(participants) <= screen.width // 30 else [EVERYBODY]
    for column in (*shown, "validation,\nall", "sample\npasses", "MB\nsent", "MB\nreceived"):
        table.add_column(column, justify="right")
    for method, outcome in result.outcomes.items():
        cells = [summary.row(method, participant) for participant in shown]
        passes, *sizes = (summary.row(method, metric=cost).mean for cost in COSTS)
        table.add_row(
            Text(method),
            *(f"{cell.mean:.4f} ± {cell.std:.4f}" for cell in cells),
            _validated(outcome, summary.metric),
            f"{passes:,.0f}",
            *(f"{size / 1e6:,.1f}" for size in sizes),
        )
    screen.print(table)
    for method, outcome in result.outcomes.items():
        failed = Counter(str(failure) for _, failure in outcome.failures)
        for failure, times in sorted(failed.items()):
            line(f"{method}: left out {failure}, {times} times", "yellow")
    line(f"Written to {out}: metrics.csv, summary.csv, gains.csv, coalitions.csv, failures.csv")


def _validated(outcome: "Outcome", metric: str) -> str:
    """Return the mean validation metric of all participants' chosen steps, to choose by."""
    scores = [score for score, _ in outcome.best_score]  # an error is a negative score
    validated = (
        row.value for row in outcome.rows if (row.split, row.metric) == ("validation", metric)
    )
    # A participant may have no metric, as AUC with one class. Its mean would not be comparable.
    complete = all(map(isfinite, (*scores, *validated)))
    return f"{abs(fmean(scores)):.4f}" if complete else "not for all"


def options_from(settings: list[str] | None, option: str = "--set") -> dict[str, Value]:
    """Return the values of a repeated option ``KEY=VALUE``."""
    options: dict[str, Value] = {}
    for text in settings or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise SettingsError(f"{option} {text!r}: expected KEY=VALUE")
        if option == "--set" and key.strip() in ("name", "seed", "data_dir"):
            raise SettingsError(f"--set {text!r}: {key.strip()} is not an option of a data set")
        options[key.strip()] = _value(value.strip())
    return options


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.casefold(), text)
