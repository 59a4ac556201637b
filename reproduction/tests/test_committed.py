"""What `reproduction/` shows is what its cells say."""

from pathlib import Path

import pytest

from reproduction import TABLES, Plan
from reproduction.cells import Store, cell_from
from reproduction.table_results import (
    differences_csv,
    shown_lines,
    table_csv,
    worst_cases,
    worst_csv,
)

FOLDER = Path(__file__).parents[2] / "reproduction"
COMMITTED = sorted(name for name in TABLES if (FOLDER / f"{name}.csv").exists())


@pytest.fixture(scope="module")
def store():
    return Store(FOLDER)


@pytest.mark.parametrize("name", COMMITTED)
def test_tables_are_those_of_the_cells(name, store):
    table = TABLES[name]
    shown = (FOLDER / f"{name}.csv").read_bytes()
    if table.derived:
        assert shown == worst_csv(worst_cases(Plan(), store))
        return
    lines = shown_lines(table, Plan(), store)
    assert shown == table_csv(table, lines)
    assert (FOLDER / f"{name}-differences.csv").read_bytes() == differences_csv(table, lines)


@pytest.mark.parametrize("number", range(1, 8))
def test_all_of_the_papers_tables_have_both_budgets(number):
    head, *lines = (FOLDER / f"table{number}.csv").read_text(encoding="utf-8").splitlines()
    assert "budget" in head
    for name in ("published", "converged"):
        assert any(f",{name}," in line for line in lines)


def test_every_cell_has_its_own_name_and_all_of_its_pass(store):
    names = {path.stem for path in (FOLDER / "cells").glob("*.json")}
    assert names
    for name in names:
        content = store.load(name)
        assert cell_from(content["settings"]).digest == name
        assert set(content["about"]["pass"]) <= names
        assert name in content["about"]["command"]
