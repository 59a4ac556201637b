"""Writing the finished part of each table as CSV files and a page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedegoists.folder_swap import write_folder
from reproduction import COMMAND
from reproduction.budgets import BUDGETS
from reproduction.cell_store import CellStore
from reproduction.cells import Plan
from reproduction.rate_choice import (
    chosen_rates,
    chosen_rounds,
    chosen_settings,
    preferred_company,
    validation_means,
)
from reproduction.reproduced_tables import ReproducedTable
from reproduction.table_pages import page, worst_page
from reproduction.table_results import (
    differences_csv,
    shown_lines,
    table_csv,
    worst_cases,
    worst_csv,
)

__all__ = ["FOLDER", "table_contents", "write_tables"]

FOLDER = "tables"
"""The folder of the tables, which is replaced as a whole, in the folder of the results."""


def write_tables(tables: Sequence[ReproducedTable], plan: Plan, out: Path) -> list[Path]:
    """Write all tables with any finished cell; a table has all of its budgets.

    A process that is killed meanwhile leaves all of the former tables or all of the new ones.
    """
    store = CellStore(out)
    contents: dict[str, bytes] = {}
    for table in tables:
        contents |= table_contents(table, plan, store)
    if contents:
        write_folder(out / FOLDER, contents, replace=True, private=False)
    return [out / FOLDER / name for name in contents]


def table_contents(table: ReproducedTable, plan: Plan, store: CellStore) -> dict[str, bytes]:
    """Return the files of a table by name; none if it has no finished cell."""
    command = _command(table, plan)
    if table.derived:
        cases = worst_cases(table, plan, store)
        if not cases:
            return {}
        return {
            f"{table.name}.csv": worst_csv(cases),
            f"{table.name}.md": worst_page(table, cases, command).encode(),
        }
    lines = shown_lines(table, plan, store)
    if not lines:
        return {}
    text = page(
        table,
        lines,
        command,
        chosen_rates(table, plan, store),
        {one: replace(plan, budget=one).repetitions_of(table) for one in BUDGETS},
        preferred_company(table, plan, store),
        chosen_rounds(table, plan, store),
        validation_means(table, plan, store),
        chosen_settings(table, plan, store),
    )
    return {
        f"{table.name}.csv": table_csv(table, lines),
        f"{table.name}-differences.csv": differences_csv(table, lines),
        f"{table.name}.md": text.encode(),
    }


def _command(table: ReproducedTable, plan: Plan) -> str:
    parts = [f"{COMMAND} {table.name}"]
    if plan.repetitions is not None:
        parts.append(f"--repetitions {plan.repetitions}")
    if table.budget is None:
        parts.append("--budget both")
    if not plan.choose:
        parts.append("--no-choose")
    if plan.steps is not None:
        parts.append(f"--steps {plan.steps}")
    return " ".join([*parts, "--resume"])
