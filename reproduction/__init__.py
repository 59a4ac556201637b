"""The paper's tables and figures, cell by cell, and the questions it leaves open."""

from reproduction.batched_training import Settings
from reproduction.cells import Plan, Store
from reproduction.figures import draw_figures
from reproduction.running import Progress, left_of, reproduce, rerun
from reproduction.scenarios import TABLES, Table, table_named
from reproduction.table_files import write_tables
from reproduction.table_results import lines_of

__all__ = [
    "TABLES",
    "Plan",
    "Progress",
    "Settings",
    "Store",
    "Table",
    "draw_figures",
    "left_of",
    "lines_of",
    "reproduce",
    "rerun",
    "table_named",
    "write_tables",
]
