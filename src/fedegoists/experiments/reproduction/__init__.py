"""The paper's tables and figures, cell by cell, and the questions it leaves open."""

from fedegoists.experiments.reproduction.cells import Plan, Store
from fedegoists.experiments.reproduction.figures import draw_figures
from fedegoists.experiments.reproduction.passes import Settings
from fedegoists.experiments.reproduction.report import write_tables
from fedegoists.experiments.reproduction.results import lines_of
from fedegoists.experiments.reproduction.running import Progress, left_of, reproduce, rerun
from fedegoists.experiments.reproduction.scenes import TABLES, Table, table_named

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
