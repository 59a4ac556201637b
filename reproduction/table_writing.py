"""Writing what is done: a CSV and a page for each table, and figures."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedegoists.files import write_all
from reproduction.budgets import BUDGETS
from reproduction.cells import Plan, Store
from reproduction.rate_choice import (
    chosen_rates,
    chosen_rounds,
    preferred_company,
    validation_means,
)
from reproduction.scenarios import Table
from reproduction.table_pages import page, worst_page
from reproduction.table_results import (
    differences_csv,
    shown_lines,
    table_csv,
    worst_cases,
    worst_csv,
)

__all__ = ["write_tables"]


def write_tables(tables: Sequence[Table], plan: Plan, out: Path) -> list[Path]:
    """Write the tables of which any cell is done; both budgets stand in one table."""
    store = Store(out)
    contents: list[tuple[Path, bytes]] = []
    for table in tables:
        command = f"fedegoists reproduce {table.name}"
        command += "" if plan.trials is None else f" --trials {plan.trials}"
        command += "" if table.budget else " --budget both"
        command += "" if plan.choose else " --no-choose"
        command += f" --steps {plan.steps}" if plan.steps is not None else ""
        command += " --out DIR --resume"
        if table.derived:
            cases = worst_cases(plan, store)
            if cases:
                contents += [
                    (out / f"{table.name}.csv", worst_csv(cases)),
                    (out / f"{table.name}.md", worst_page(table, cases, command).encode()),
                ]
            continue
        lines = shown_lines(table, plan, store)
        if lines:
            text = page(
                table,
                lines,
                command,
                chosen_rates(table, plan, store),
                {one: replace(plan, budget=one).trials_of(table) for one in BUDGETS},
                preferred_company(table, plan, store),
                chosen_rounds(table, plan, store),
                validation_means(table, plan, store),
            )
            contents += [
                (out / f"{table.name}.csv", table_csv(table, lines)),
                (out / f"{table.name}-differences.csv", differences_csv(table, lines)),
                (out / f"{table.name}.md", text.encode()),
            ]
    if contents:
        write_all(contents)
    return [path for path, _ in contents]
