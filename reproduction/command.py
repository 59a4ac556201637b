"""The command that reproduces the paper's tables and figures."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from fedegoists.cli.output import errors, line, screen, training_extra
from fedegoists.cli.training_commands import DataDirOption
from fedegoists.errors import FileError, SettingsError

if TYPE_CHECKING:
    from fedegoists.methods.method_run import Outcome
    from reproduction import Plan, Table
    from reproduction.batched_training import Pass
    from reproduction.cells import Cell, Result

__all__ = ["register"]

MOST_COLUMNS = 10


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("reproduce")(reproduce_command)


def reproduce_command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE…", help="table1 to table7, figures, further ones of --list, or all."
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List what there is, and how much of it DIR has.")
    ] = False,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many, seeds 0 and up (default: 5; 20 for Table 4, converged)."
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="published, converged or both.")] = "converged",
    methods: Annotated[
        str, typer.Option(help="Only these rows, with commas between them, such as local,egomix.")
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only columns with this value, such as alpha=0.2 or distribution=dirichlet. "
            "May be repeated.",
        ),
    ] = None,
    choose: Annotated[
        bool,
        typer.Option(
            "--choose/--no-choose",
            help="Whether to choose learning rates on validation data first, for all methods.",
        ),
    ] = True,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results are kept.")] = Path(
        "reproduction"
    ),
    data_dir: DataDirOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what DIR holds of these tables.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, help="Stop between rounds after so many seconds, to go on later."),
    ] = None,
    stack: Annotated[
        int, typer.Option(min=1, help="Silos trained at once, at most; more need more memory.")
    ] = 250,
    bf16: Annotated[
        bool, typer.Option("--bf16", help="Compute activations with 16 bits: faster on a GPU.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Other than the budget's, to try things out.")
    ] = None,
    cell: Annotated[
        str | None, typer.Option(metavar="HASH", help="Train one recorded cell again and compare.")
    ] = None,
) -> None:
    """Reproduce the paper: tables and figures, and answers to what it leaves open."""
    with training_extra("training"):
        from reproduction import (
            TABLES,
            Plan,
            Settings,
            draw_figures,
            table_named,
            write_tables,
        )
        from reproduction.budgets import BOTH

    began = time.monotonic()

    def stop() -> bool:
        return time.monotonic() - began >= (time_limit if time_limit is not None else float("inf"))

    settings = Settings(out, data_dir, device, stack, bf16, stop)
    if cell is not None:
        _train_again(cell, settings)
        return
    if budget not in (*BOTH, "both"):
        raise SettingsError(f"unknown budget {budget!r}; use {', '.join(BOTH)} or both")
    budgets = BOTH if budget == "both" else tuple(b for b in BOTH if b == budget)
    plans = [Plan(trials, one, steps, choose) for one in budgets]
    if list_ or not targets:
        _list(plans, out)
        return
    names = list(dict.fromkeys(n for t in targets for n in (TABLES if t == "all" else [t])))
    tables = [_only(table_named(name), methods, only or []) for name in names if name != "figures"]
    if tables:
        _check_asked(tables, plans, out, resume)
        for plan in plans:
            _work_through(tables, plan, settings)
        # What earlier calls did for other rows and columns belongs to the tables as well.
        whole = [table_named(table.name) for table in tables]
        for path in write_tables(whole, plans[0], out):
            line(f"Written to {path}")
    if "figures" in names or "all" in targets:
        made, left = draw_figures(out, data_dir)
        line(f"Drawn to {out / 'figures'}: {len(made)} figures")
        for why in left:
            line(f"not drawn: {why}", "yellow")


def _only(table: "Table", methods: str, only: Sequence[str]) -> "Table":
    """Return a part of a table: some rows and some columns."""
    if table.derived:
        return table
    scenes = table.scenes
    for text in only:
        key, equals, value = text.partition("=")
        keys = sorted({known for own, _ in table.scenes for known in own})
        if not equals or key not in keys:
            columns = f"columns by {', '.join(keys)}" if keys else "one column only"
            raise SettingsError(f"--only {text!r}: {table.name} has {columns}")
        known = sorted({str(own.get(key)) for own, _ in table.scenes})
        if value not in known:
            raise SettingsError(f"--only {text!r}: {table.name} has {key} {', '.join(known)}")
        scenes = tuple((own, scene) for own, scene in scenes if str(own.get(key)) == value)
    rows = {variant.name: variant for variant in table.variants}
    variants = tuple(rows[name] for name in _rows_in(methods, list(rows), table.name))
    return replace(table, scenes=scenes, variants=variants or table.variants)


def _rows_in(text: str, known: Sequence[str], table: str) -> list[str]:
    """Return the rows that a text names, with commas between them and in some of their names."""
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
    tables: "Sequence[Table]", plans: "Sequence[Plan]", out: Path, resume: bool
) -> None:
    """Refuse to go on with results unasked."""
    from reproduction import Store
    from reproduction.running import done_of

    store = Store(out)
    for plan in plans:
        done, total = map(sum, zip(*(done_of(table, plan, store) for table in tables), strict=True))
        if done and not resume:
            raise FileError(
                f"{out} holds {done} of these {total} cells already; use --resume to go on, "
                "or another folder"
            )


def _list(plans: "Sequence[Plan]", out: Path) -> None:
    from reproduction import TABLES, Store
    from reproduction.running import done_of

    store = Store(out)
    grid = Grid(title="What can be reproduced", title_justify="left", title_style="bold")
    for column in ("name", "what", *(f"cells done, {plan.budget}" for plan in plans)):
        grid.add_column(column, overflow="fold")
    for table in TABLES.values():
        counts = ["{} of {}".format(*done_of(table, plan, store)) for plan in plans]
        if table.budget:
            counts = [*("" for _ in plans[1:]), f"{counts[0]}, {table.budget}"]
        grid.add_row(Text(table.name), Text(table.title), *counts)
    grid.add_row("figures", "labels of all silos; competition, baseline and final coalitions")
    screen.print(grid)


def _work_through(tables: "Sequence[Table]", plan: "Plan", settings: Any) -> None:
    """Train what is missing, with a table that fills in; say what is left."""
    from reproduction import Progress, reproduce

    view = _View(tables, plan, settings.out)
    live = Live(console=errors, get_renderable=view.shown, refresh_per_second=2, transient=True)
    with live if errors.is_terminal else _quiet():
        left = reproduce(
            tables,
            plan,
            replace(settings, observers=(view.round,)),
            progress=Progress(view.begins, view.ends, view.waits),
        )
    what = ", ".join(dict.fromkeys(table.budget or plan.budget for table in tables))
    if left:
        line(f"{what}: {len(left)} cells are left; go on with --resume", "yellow")
    else:
        line(f"{what}: all cells are done")


def _quiet() -> Any:
    from contextlib import nullcontext

    return nullcontext()


class _View:
    """What is shown while training: the first unfinished table, and how far the pass has come."""

    def __init__(self, tables: "Sequence[Table]", plan: "Plan", out: Path) -> None:
        from reproduction import Store

        self.tables, self.plan = tables, plan
        self.store: Store = Store(out)
        self.status = ""
        self.grid: Grid | None = None
        self.began = time.monotonic()

    def begins(self, work: "Pass", number: int, total: int) -> None:
        self.status = f"pass {number + 1} of {total}: {work.words()}"
        self.began = time.monotonic()

    def waits(self) -> None:
        self.status = "others are at all that is left; waiting for them"
        self.grid = None

    def round(self, method: str, done: int, total: int, outcome: "Outcome") -> None:  # noqa: ARG002
        self.status = f"{self.status.split(' | ')[0]} | {method}: {done} of {total} rounds"

    def ends(self, work: "Pass", results: "Mapping[Cell, Result]") -> None:
        seconds = time.monotonic() - self.began
        means = [result.mean for result in results.values()]
        line(f"{work.words()}: mean {sum(means) / len(means):.4f}, {seconds:.0f} s")
        self.grid = None

    def shown(self) -> Group:
        if self.grid is None:
            self.grid = self._grid()
        return Group(self.grid, Text(self.status))

    def _grid(self) -> Grid:
        from reproduction import left_of, lines_of

        table = next(
            (one for one in self.tables if left_of([one], self.plan, self.store)),
            self.tables[-1],
        )
        budget = table.budget or self.plan.budget
        grid = Grid(title=f"{table.title}, {budget}", title_justify="left")
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


def _train_again(digest: str, settings: Any) -> None:
    from reproduction import rerun

    found = rerun(digest, settings)
    line(found.cell.words())
    grid = Grid()
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
