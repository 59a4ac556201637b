"""The commands of the studies on real hospitals and of the yardstick."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from fedegoists.cli.benefit_commands import DeviceOption
from fedegoists.cli.coalition_commands import ReplaceOption
from fedegoists.cli.output import line
from fedegoists.files import read_text
from fedegoists.folder_swap import check_replaceable, write_folder
from reproduction import COMMAND, RESULTS
from reproduction.default_decisions import (
    CONSORTIA,
    DECIDED_ON,
    decision_page,
    decisions_of,
    read_decisions,
    written_decisions,
)
from reproduction.free_rider_study import (
    BEHAVIOURS,
    RULES,
    losses_csv,
    losses_of,
    read_losses,
    rider_page,
)
from reproduction.free_rider_study import TASKS as RIDDEN
from reproduction.hospital_study import HOSPITALS, SEEDS, hospital_page, hospital_rows
from reproduction.participation_study import (
    BOUNDS,
    CHOSEN_ON,
    IMAGE_TASKS,
    REPORTED_ON,
    REPORTED_ON_IMAGES,
    TASKS,
    USUAL_TASKS,
    endings_csv,
    endings_of,
    participation_page,
    read_endings,
)
from reproduction.repeated_runs import ALONE, Measured, read_rows, rows_csv
from reproduction.running import commit
from reproduction.yardstick_study import TABLES_COMPARED, yardstick_page, yardstick_rows

__all__ = ["Bf16Option", "register"]

T = TypeVar("T")
MOST_DIVISIONS = len(SEEDS)
USUAL_DECISIONS = len(DECIDED_ON)
WRITTEN = "Written by"
PAGE = "decisions.md"
OutOption = Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")]
WorkOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="A folder for checkpoints, to go on later; else none."),
]
DivisionsOption = Annotated[
    int, typer.Option(min=2, max=MOST_DIVISIONS, help="Divisions of the samples.")
]

Bf16Option = Annotated[
    bool, typer.Option("--bf16", help="Compute activations with 16 bits: faster on a GPU.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("hospitals")(hospitals_command)
    app.command("yardsticks")(yardsticks_command)
    app.command("participation")(participation_command)
    app.command("decisions")(decisions_command)
    app.command("free-riders")(free_riders_command)


def hospitals_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"{', '.join(HOSPITALS)}.")
    ] = None,
    out: OutOption = RESULTS / "hospitals",
    work: WorkOption = None,
    divisions: DivisionsOption = MOST_DIVISIONS,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Only these; the rows of others stay as they are."),
    ] = None,
    replace: ReplaceOption = False,
) -> None:
    """Train models and methods on real consortia of hospitals, over several divisions."""
    studies = _checked(names, HOSPITALS)
    check_replaceable(out, [f"{name}.csv" for name in studies], replace=replace)
    for name in studies:
        began, code = time.monotonic(), commit()  # others may commit while this trains
        table, page = out / f"{name}.csv", out / f"{name}.md"
        known = {one.name: one for one in HOSPITALS[name].models}
        chosen = [known[one] for one in _checked(model, known)]
        with _folder(work) as folder:
            rows = hospital_rows(name, folder, SEEDS[:divisions], line, chosen)
        others = [one for one in known if model and one not in model]
        rows += [row for row in read_rows(table) if row.model in others] if others else []
        rows.sort(key=lambda row: list(known).index(row.model))
        content = rows_csv(rows)
        written = read_back(read_rows, content)  # the page is that of the rounded numbers
        parts = "".join(f" --model {one}" for one in model or ())
        about = origin(f"hospitals {name}{parts}", divisions, began, code)
        earlier = kept_origins(read_text(page), about, known) if others else []
        text = hospital_page(HOSPITALS[name], written, "\n\n".join([*earlier, about]))
        _write(out, {table.name: content, page.name: text.encode()})


def yardsticks_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"{', '.join(TABLES_COMPARED)}.")
    ] = None,
    out: OutOption = RESULTS / "yardsticks",
    work: WorkOption = None,
    divisions: DivisionsOption = MOST_DIVISIONS,
    replace: ReplaceOption = False,
) -> None:
    """Compare training alone with linear models of scikit-learn on the same samples."""
    check_replaceable(out, ["yardsticks.csv", "yardsticks.md"], replace=replace)
    began, rows = time.monotonic(), []
    with _folder(work) as folder:
        for name in _checked(names, TABLES_COMPARED):
            known = known_alone(out.parent / "hospitals" / f"{name}.csv")
            rows += yardstick_rows(name, folder, SEEDS[:divisions], line, known)
    content = rows_csv(rows)
    written = read_back(read_rows, content)
    page = yardstick_page(written, origin("yardsticks", divisions, began))
    _write(out, {"yardsticks.csv": content, "yardsticks.md": page.encode()})


def participation_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TASK", help=f"{', '.join(TASKS)}.")
    ] = None,
    out: OutOption = RESULTS / "participation",
    device: DeviceOption = "cpu",
    bf16: Bf16Option = False,
) -> None:
    """Train, deliver, and count the members that end worse than alone.

    The rows of other tasks stay as they are. Images are trained where they are named.
    """
    usual = dict.fromkeys(TASKS if names else USUAL_TASKS)
    table, choice, page = (
        out / name for name in ("participation.csv", "choice.csv", "participation.md")
    )
    told = origins(read_text(page)) if page.exists() else []
    for name in _checked(names, usual):
        began, code = time.monotonic(), commit()  # others may commit while this trains
        run, contents = partial(endings_of, name, tell=line, device=device, bf16=bf16), {}
        if name in IMAGE_TASKS:
            reported, chosen = run(REPORTED_ON_IMAGES), []
        else:
            reported, chosen = run(REPORTED_ON), run(CHOSEN_ON, BOUNDS)
        for path, found in ((table, reported), (choice, chosen)):
            known = read_endings(path) if path.exists() else []
            known = [one for one in known if one.task != name] + found
            known.sort(key=lambda one: TASKS.index(one.task))
            contents[path.name] = endings_csv(known)
        options = f" --device {device}" * (device != "cpu") + " --bf16" * bf16
        alike = tuple(f"{COMMAND} participation {name}{end}" for end in ("`", " --"))
        told = [one for one in told if not any(command in one for command in alike)]
        told.append(origin(f"participation {name}{options}", MOST_DIVISIONS, began, code))
        text = participation_page(
            read_back(read_endings, contents[table.name]),
            read_back(read_endings, contents[choice.name]),
            "\n\n".join(told),
        )
        _write(out, {**contents, page.name: text.encode()})
    line(text)


def decisions_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="DATA", help=f"{', '.join(CONSORTIA)}.")
    ] = None,
    out: OutOption = RESULTS / "decisions",
    work: WorkOption = None,
    first: Annotated[int, typer.Option(min=0, help="The first division of the samples.")] = 0,
    divisions: DivisionsOption = USUAL_DECISIONS,
) -> None:
    """Let the defaults decide on real consortia, without training in the coalitions.

    The rows of other data stay as they are.
    """
    began, code = time.monotonic(), commit()  # others may commit while this learns
    path, page = out / "decisions.csv", out / PAGE
    rows = read_decisions(path) if path.exists() else []
    with _folder(work) as folder:
        for name in _checked(names, CONSORTIA):
            found = decisions_of(name, folder, range(first, first + divisions))
            for one in found:
                line(f"{name}, division {one.seed}: {one.coalitions or 'nobody'}")
            rows = [row for row in rows if row.data != name] + found
    rows.sort(key=lambda row: list(CONSORTIA).index(row.data))
    content = written_decisions(rows)
    about = origin(" ".join(["decisions", *(names or ())]), divisions, began, code)
    replaced = {f"decisions {name}" for name in names or CONSORTIA}
    earlier = [
        one
        for one in (origins(read_text(page)) if page.exists() else [])
        if not any(f"{name} " in one or f"{name}`" in one for name in replaced)
    ]
    text = decision_page(read_back(read_decisions, content), "\n\n".join([*earlier, about]))
    _write(out, {path.name: content, page.name: text.encode()})


def free_riders_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TASK", help=f"{', '.join(RIDDEN)}.")
    ] = None,
    behaviour: Annotated[
        list[str] | None, typer.Option(help=f"Only these: {', '.join(BEHAVIOURS)}.")
    ] = None,
    rule: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(RULES)}.")] = None,
    out: OutOption = RESULTS / "free-riders",
) -> None:
    """Measure what one bad member costs the others, by method and coalition rule.

    What is in DIR already is not measured again: a stopped study goes on.
    """
    began, code = time.monotonic(), commit()  # others may commit while this trains
    table, page = out / "free-riders.csv", out / "free-riders.md"
    earlier = origins(read_text(page)) if page.exists() else []  # of parts that stay as they are
    parts = [f'--behaviour "{one}"' for one in behaviour or ()]
    parts += [f"--rule {one}" for one in rule or ()]
    command = " ".join(["free-riders", *(names or ()), *parts])
    behaviours = _among(BEHAVIOURS, behaviour)
    for place in product(_checked(names, dict.fromkeys(RIDDEN)), behaviours, _among(RULES, rule)):
        known = read_losses(table) if table.exists() else []
        if place in {(one.task, one.behaviour, one.rule) for one in known}:
            continue
        task, behaves, by = place
        known += losses_of(task, behaviours=(behaves,), rules=(by,), tell=line)
        known.sort(key=lambda one: RIDDEN.index(one.task))
        content = losses_csv(known)
        told = [*earlier, origin(command, MOST_DIVISIONS, began, code)]
        text = rider_page(read_back(read_losses, content), "\n\n".join(told))
        _write(out, {table.name: content, page.name: text.encode()})
    if not page.exists():
        about = origin(command, MOST_DIVISIONS, began, code)
        _write(out, {page.name: rider_page(read_losses(table), about).encode()})


def known_alone(path: Path) -> list[Measured]:
    """Return what the study of hospitals measured for linear models that are trained alone."""
    if not path.exists():
        return []
    linear = HOSPITALS[path.stem].models[0].name
    return [row for row in read_rows(path) if (row.model, row.method) == (linear, ALONE)]


def _write(out: Path, contents: Mapping[str, bytes]) -> None:
    """Replace the files of a study, all of them or none."""
    write_folder(out, contents, replace=True, private=False)


def read_back(read: Callable[[Path], list[T]], content: bytes) -> list[T]:
    """Return the rows of a table as they are read from its file, rounded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(content)
        return read(path)


def _checked(names: list[str] | None, known: Mapping[str, object]) -> list[str]:
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
    return names or list(known)


def _among(known: Sequence[T], given: list[str] | None) -> list[T]:
    """Return the known names that are given, all if none are."""
    chosen = _checked(given, {str(one): one for one in known})
    return [one for one in known if str(one) in chosen]


@contextmanager
def _folder(work: Path | None) -> Iterator[Path]:
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        yield work
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def origins(page: str) -> list[str]:
    """Return the lines of a page that say how its results were made, the oldest first."""
    return [text for text in page.splitlines() if text.startswith(WRITTEN)]


def kept_origins(page: str, latest: str, models: Iterable[str]) -> list[str]:
    """Return the origins of a page of which the latest run has replaced only a part."""
    earlier = origins(page)
    again = {name for name in models if any(f"--model {name}" in one for one in [*earlier, latest])}
    return [
        one
        for one in earlier
        if one.split("` at ")[0] != latest.split("` at ")[0]  # the same command
        and ("--model" in one or again != set(models))  # all models, each replaced since
    ]


def origin(command: str, divisions: int, began: float, code: str | None = None) -> str:
    """Return a line that says how results were made.

    Parameters
    ----------
    code : str, optional
        The commit, if it was looked up before; else the present one.
    """
    if divisions != MOST_DIVISIONS:
        command = f"{command} --divisions {divisions}"
    return described_origin(f"{COMMAND} {command}", began, code)


def described_origin(command: str, began: float, code: str | None = None) -> str:
    """Return a line with the whole command that made results, the commit and the time."""
    import torch

    return (
        f"{WRITTEN} `{command}` at commit {code or commit() or 'unknown'}, torch "
        f"{torch.__version__}, {time.monotonic() - began:.0f} s."
    )
