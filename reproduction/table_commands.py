"""The commands that reproduce the paper's tables and figures, and pack their cells."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedegoists.cli.benefit_commands import DeviceOption
from fedegoists.cli.live_progress import PlainLines, QuietOption, is_quiet
from fedegoists.cli.output import errors, line, screen
from fedegoists.cli.training_commands import DataDirOption
from fedegoists.errors import FileError, SettingsError
from fedegoists.files import read_text
from fedegoists.methods.outcome import Outcome
from reproduction import RESULTS
from reproduction.batched_training import CellGroup, GroupSettings
from reproduction.benefit_graphs import pack_graphs
from reproduction.budgets import BOTH
from reproduction.cell_store import CellStore, pack_cells
from reproduction.cells import Cell, CellResult, Plan
from reproduction.figures import draw_figures
from reproduction.readme_tables import with_tables
from reproduction.real_data_commands import Bf16Option
from reproduction.reproduced_tables import TABLES, ReproducedTable, table_named
from reproduction.running import GroupProgress, done_of, left_of, reproduce, rerun
from reproduction.table_results import lines_of
from reproduction.table_writing import write_tables

__all__ = ["register", "tables_command"]

MOST_COLUMNS = 10
"""Most columns of the table that is shown while training."""
FIGURES = "figures"

RepetitionsOption = Annotated[
    int | None,
    typer.Option(
        "--repetitions",
        "--trials",
        min=1,
        help="Number of repetitions, seeds 0 and up (default: the table's own).",
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Only columns with this value, such as alpha=0.2 or distribution=dirichlet. "
        "May be repeated.",
    ),
]
ChooseOption = Annotated[
    bool,
    typer.Option(
        "--choose/--no-choose",
        help="Whether to choose learning rates on validation data first, for all methods.",
    ),
]
OutOption = Annotated[Path, typer.Option(metavar="DIR", help="Where results are kept.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("tables")(tables_command)
    app.command("pack")(pack_command)
    app.command("readme")(readme_command)


def tables_command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE…", help="table1 to table7, figures, further ones of --list, or all."
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the tables, and how much of each DIR has.")
    ] = False,
    repetitions: RepetitionsOption = None,
    budget: Annotated[str, typer.Option(help="published, converged or both.")] = "converged",
    methods: Annotated[
        str, typer.Option(help="Only these rows, with commas between them, such as local,egomix.")
    ] = "",
    only: OnlyOption = None,
    choose: ChooseOption = True,
    device: DeviceOption = "cpu",
    out: OutOption = RESULTS,
    data_dir: DataDirOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue with the cells of these tables in DIR.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, help="Stop between rounds after this number of seconds."),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="Whether to wait while other processes train all that is left.",
        ),
    ] = True,
    stack: Annotated[
        int, typer.Option(min=1, help="Most silos trained at once; more need more memory.")
    ] = 250,
    bf16: Bf16Option = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps other than the budget's, to try things out.")
    ] = None,
    cell: Annotated[
        str | None, typer.Option(metavar="HASH", help="Train one recorded cell again and compare.")
    ] = None,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
) -> None:
    """Reproduce the paper's tables and figures, and the tables that go beyond it."""
    began = time.monotonic()

    def stop() -> bool:
        return time_limit is not None and time.monotonic() - began >= time_limit

    settings = GroupSettings(out, data_dir, device, stack, bf16, stop, wait=wait)
    if cell is not None:
        _train_again(cell, settings)
        return
    if budget not in (*BOTH, "both"):
        raise SettingsError(f"unknown budget {budget!r}; use {', '.join(BOTH)} or both")
    budgets = BOTH if budget == "both" else tuple(b for b in BOTH if b == budget)
    plans = [Plan(repetitions, one, steps, choose) for one in budgets]
    names = list(dict.fromkeys(n for t in targets or [] for n in (TABLES if t == "all" else [t])))
    tables = [table_named(name) for name in names if name != FIGURES]
    if list_ or not targets:
        _list(tables or list(TABLES.values()), plans, out)
        return
    if tables:
        parts = [_part(table, methods, only or []) for table in tables]
        _check_asked(parts, plans, out, resume)
        for plan in plans:
            _train(parts, plan, settings)
        # Earlier calls may have trained other rows and columns: write the whole tables.
        for path in write_tables(tables, plans[0], out):
            line(f"Written to {path}")
    if FIGURES in names or "all" in targets:
        _draw(settings)


def pack_command(out: OutOption = RESULTS) -> None:
    """Move finished cells and benefit graphs into one compressed file for each table."""
    for path in [*pack_cells(out), *pack_graphs(out)]:
        line(f"Written to {path}")


def readme_command() -> None:
    """Write the tables of the laboratory's README again, from the committed cells."""
    path = RESULTS.parent / "README.md"
    path.write_text(with_tables(read_text(path), CellStore(RESULTS)), encoding="utf-8")
    line(f"Written to {path}")


def _part(table: ReproducedTable, methods: str, only: Sequence[str]) -> ReproducedTable:
    """Return a part of a table: some rows and some columns."""
    if table.derived:
        return table
    scenarios = table.scenarios
    for text in only:
        key, equals, value = text.partition("=")
        keys = sorted({known for own, _ in table.scenarios for known in own})
        if not equals or key not in keys:
            columns = f"columns by {', '.join(keys)}" if keys else "one column only"
            raise SettingsError(f"--only {text!r}: {table.name} has {columns}")
        known = sorted({str(own.get(key)) for own, _ in table.scenarios})
        if value not in known:
            raise SettingsError(f"--only {text!r}: {table.name} has {key} {', '.join(known)}")
        scenarios = tuple((own, one) for own, one in scenarios if str(own.get(key)) == value)
    rows = {variant.name: variant for variant in table.variants}
    variants = tuple(rows[name] for name in _rows_in(methods, list(rows), table.name))
    return replace(table, scenarios=scenarios, variants=variants or table.variants)


def _rows_in(text: str, known: Sequence[str], table: str) -> list[str]:
    """Return the rows named in a text, with commas between names and inside some of them."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found = []
    while parts:
        starts = [", ".join(parts[:count]) for count in range(len(parts), 0, -1)]
        name = next((one for one in starts if one in known), None)
        if name is None:
            raise SettingsError(f"{table} has no row {parts[0]!r}; it has {'; '.join(known)}")
        found.append(name)
        parts = parts[len(parts) - starts.index(name) :]
    return found


def _check_asked(
    tables: Sequence[ReproducedTable], plans: Sequence[Plan], out: Path, resume: bool
) -> None:
    """Refuse to continue with earlier results unless --resume is given."""
    store = CellStore(out)
    for plan in plans:
        done, total = map(sum, zip(*(done_of(table, plan, store) for table in tables), strict=True))
        if done and not resume:
            raise FileError(
                f"{out} holds {done} of these {total} cells already; use --resume to go on, "
                "or another folder"
            )


def _list(tables: Sequence[ReproducedTable], plans: Sequence[Plan], out: Path) -> None:
    store = CellStore(out)
    grid = Table(title="What can be reproduced", title_justify="left", title_style="bold")
    for column in ("name", "what", *(f"cells done, {plan.budget}" for plan in plans)):
        grid.add_column(column, overflow="fold")
    for table in tables:
        counts = ["{} of {}".format(*done_of(table, plan, store)) for plan in plans]
        if table.budget:
            counts = [*("" for _ in plans[1:]), f"{counts[0]}, {table.budget}"]
        grid.add_row(Text(table.name), Text(table.title), *counts)
    grid.add_row(FIGURES, "labels of all silos; competition, baseline and final coalitions")
    screen.print(grid)


def _train(tables: Sequence[ReproducedTable], plan: Plan, settings: GroupSettings) -> None:
    """Train the missing cells, show the table meanwhile, and say how many cells are left."""
    view = _TrainingView(tables, plan, settings.out)
    live = Live(console=errors, get_renderable=view.shown, refresh_per_second=2, transient=True)
    with live if errors.is_terminal and not is_quiet() else nullcontext():
        left = reproduce(
            tables,
            plan,
            replace(settings, observers=(view.round,)),
            progress=GroupProgress(view.begins, view.ends, view.waits),
        )
    what = ", ".join(dict.fromkeys(table.budget or plan.budget for table in tables))
    if left:
        line(f"{what}: {len(left)} cells are left; go on with --resume", "yellow")
    else:
        line(f"{what}: all cells are done")


class _TrainingView:
    """The display during training: the first unfinished table, and the progress of the group."""

    def __init__(self, tables: Sequence[ReproducedTable], plan: Plan, out: Path) -> None:
        self.tables, self.plan, self.store = tables, plan, CellStore(out)
        self.status = ""
        self.lines = PlainLines(errors)
        self.grid: Table | None = None
        self.began = time.monotonic()

    def begins(self, group: CellGroup, number: int, total: int) -> None:
        self.status = f"group {number + 1} of {total}: {group.words()}"
        if not errors.is_terminal:
            self.lines.say(self.status)
        self.began = time.monotonic()

    def waits(self) -> None:
        self.status = "waiting for other processes, which train all that is left"
        self.grid = None

    def round(self, method: str, done: int, total: int, outcome: Outcome) -> None:  # noqa: ARG002
        self.status = f"{self.status.split(' | ')[0]} | {method}: {done} of {total} rounds"
        if not errors.is_terminal:
            self.lines(f"{method}: rounds", done, total)

    def ends(self, group: CellGroup, results: Mapping[Cell, CellResult]) -> None:
        seconds = time.monotonic() - self.began
        means = [result.mean for result in results.values()]
        line(f"{group.words()}: mean {sum(means) / len(means):.4f}, {seconds:.0f} s")
        self.grid = None

    def shown(self) -> Group:
        if self.grid is None:
            self.grid = self._grid()
        return Group(self.grid, Text(self.status))

    def _grid(self) -> Table:
        table = next(
            (one for one in self.tables if left_of([one], self.plan, self.store)),
            self.tables[-1],
        )
        budget = table.budget or self.plan.budget
        grid = Table(title=f"{table.title}, {budget}", title_justify="left")
        lines = [one for one in lines_of(table, self.plan, self.store) if one.budget == budget]
        columns = list(dict.fromkeys(one.key for one in lines))[:MOST_COLUMNS]
        grid.add_column("method")
        for key in columns:
            grid.add_column(" ".join(str(value) for _, value in key), justify="right")
        places = {(one.key, one.method): one for one in lines}
        for variant in table.variants:
            cells = [places.get((key, variant.name)) for key in columns]
            grid.add_row(
                Text(variant.name),
                *("" if one is None else f"{one.mean:.4g} ({one.n})" for one in cells),
            )
        return grid


def _draw(settings: GroupSettings) -> None:
    made, left = draw_figures(settings.out, settings.data_dir)
    line(f"Drawn to {settings.out / 'figures'}: {len(made)} figures")
    for why in left:
        line(f"not drawn: {why}", "yellow")


def _train_again(digest: str, settings: GroupSettings) -> None:
    found = rerun(digest, settings)
    line(found.cell.words())
    grid = Table()
    for column in ("participant", "recorded", "again"):
        grid.add_column(column, justify="right")
    for name, value in found.again.items():
        grid.add_row(Text(name), f"{found.recorded[name]:.6f}", f"{value:.6f}")
    screen.print(grid)
    if found.largest_difference == 0:
        line("the same numbers")
        return
    line(f"other numbers: by {found.largest_difference:.6f} at most", "yellow")
    raise typer.Exit(1)
