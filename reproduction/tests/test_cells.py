"""Cells: shared between tables, and named by their settings."""

from dataclasses import replace

import pytest

from fedegoists.errors import SettingsError
from reproduction.cells import Cell, Plan, cells_of
from reproduction.reproduced_tables import TABLES


def test_tables_share_cells():
    """Table 5 at β = 0.5 and the tables beyond the paper need nothing that Table 1 has."""
    first = {cell for _, cell in cells_of(TABLES["table1"], Plan())}
    fifth = {c for key, c in cells_of(TABLES["table5"], Plan()) if key["beta"] == 0.5}
    assert {c for c in fifth if c.scenario.data == "cifar10"} <= first
    beyond = {c for _, c in cells_of(TABLES["coalitions"], Plan())}
    assert (
        len(beyond - first) == 2 * 2 * 5
    )  # best coalitions: two splits, two methods, five repetitions


def test_a_cells_name_depends_on_everything_but_where_it_runs():
    cell = cells_of(TABLES["table1"], Plan())[0][1]
    changes = [{"repetition": 1}, {"budget": "published"}, {"steps": 7}, {"factor": 2.0}]
    others = [replace(cell, **change) for change in changes]
    assert len({one.digest for one in (cell, *others)}) == 5
    assert isinstance(cell, Cell)


def test_a_corrected_table_never_shows_repetitions_that_choose_its_rates():
    assert Plan(repetitions=10).repetitions_of(TABLES["table7-corrected"]) == 10
    with pytest.raises(SettingsError, match="10 to 12 choose its rates; use at most 10"):
        Plan(repetitions=11).repetitions_of(TABLES["table7-corrected"])
    assert Plan(repetitions=11).repetitions_of(TABLES["table7"]) == 11
