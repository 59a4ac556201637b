"""Writing what is done: a CSV and a page for each table, and figures."""

from collections.abc import Sequence
from pathlib import Path

from fedegoists.experiments.reproduction.cells import Plan, Store
from fedegoists.experiments.reproduction.choice import chosen_rates
from fedegoists.experiments.reproduction.pages import page, worst_page
from fedegoists.experiments.reproduction.results import (
    Line,
    differences_csv,
    lines_of,
    table_csv,
    worst_cases,
    worst_csv,
)
from fedegoists.experiments.reproduction.scenes import Table
from fedegoists.experiments.reproduction.variants import PAPER
from fedegoists.files import write_all

__all__ = ["write_tables"]


def write_tables(tables: Sequence[Table], plan: Plan, out: Path) -> list[Path]:
    """Write the tables of which any cell is done; both budgets stand in one table."""
    store = Store(out)
    contents: list[tuple[Path, bytes]] = []
    for table in tables:
        command = f"fedegoists reproduce {table.name} --trials {plan.trials} --budget both"
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
        lines = _of_budgets_run(table, lines_of(table, plan, store))
        if lines:
            text = page(table, lines, command, chosen_rates(table, plan, store), plan.trials)
            contents += [
                (out / f"{table.name}.csv", table_csv(table, lines)),
                (out / f"{table.name}-differences.csv", differences_csv(table, lines)),
                (out / f"{table.name}.md", text.encode()),
            ]
    if contents:
        write_all(contents)
    return [path for path, _ in contents]


def _of_budgets_run(table: Table, lines: Sequence[Line]) -> list[Line]:
    """Leave out budgets under which a table has nothing but rows that the paper's tables have."""
    shared = {variant.name for variant in PAPER}
    if all(variant.name in shared for variant in table.variants):
        return list(lines)
    run = {line.budget for line in lines if line.method not in shared}
    return [line for line in lines if line.budget in run]
