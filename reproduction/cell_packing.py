"""Packing cells: one compressed file for each table instead of one small file for each cell.

While cells are trained, each is a small file of its own: several processes can write to one folder,
and a process that is killed loses only the cells in training. `pack_cells` then moves all of them
to ``cells/TABLE.jsonl.gz``, one cell a line.

A cell that several tables show is stored once: in the file of the first table, in the order of
`reproduction.reproduced_tables.TABLES`, that has its scenario, variant and budget. Cells at other
learning rates, by which rates are chosen, are there as well. ``cells/groups.jsonl.gz`` lists the
groups of cells that were trained together; the line of a cell has the name of its group.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reproduction.budgets import BOTH
from reproduction.cells import Cell
from reproduction.packed_lines import Record
from reproduction.reproduced_tables import TABLES

__all__ = ["GROUPS", "group_name", "line_order", "packed_cell", "table_holding", "unpacked_cell"]

GROUPS = "groups"
"""Name of the file that lists which cells were trained together."""
OTHER = "other"
"""Name of the file of cells that no table has, such as those with other numbers of steps."""
ABOUT = {
    "pass": "group",
    "pass_silos": "group_silos",
    "pass_seconds": "group_seconds",
    "rounds": "trained_rounds",
}
"""Column names of what a file says ``about`` a cell; all others are the same."""
TRAINED_AS = ("budget", "steps", "factor", "until", "revision")
SPENT = ("sample_passes", "bytes_sent", "bytes_received")
MEASURED = ("test", "validation", "curves")
"""What has a number for every participant, which may be undefined."""


def group_name(digests: Iterable[str]) -> str:
    """Return the name of a group of cells: a hash of their digests."""
    return hashlib.sha256(" ".join(sorted(digests)).encode()).hexdigest()[:16]


def table_holding(cell: Cell) -> str:
    """Return the name of the table in whose file a cell is stored."""
    return _HOLDERS.get(_place(cell.scenario.competition, cell), OTHER)


def _place(competition: str, cell: Cell) -> tuple[Any, ...]:
    # Settings that were tried, or chosen, are not those of the row.
    variant = replace(cell.variant, settings=()) if cell.revision > 1 else cell.variant
    where = (cell.scenario.data, cell.scenario.options, competition)
    return *where, variant, cell.budget, cell.revision


def _holders() -> dict[tuple[Any, ...], str]:
    found: dict[tuple[Any, ...], str] = {}
    for table in TABLES.values():
        for _, scenario in () if table.derived else table.scenarios:
            for variant in table.variants:
                for budget in BOTH if table.budget is None else (table.budget,):
                    cell = Cell(scenario, 0, variant, budget, revision=table.revision)
                    # Without competition where a method does not depend on it.
                    for competition in (scenario.competition, ""):
                        found.setdefault(_place(competition, cell), table.name)
    return found


_HOLDERS = _holders()


def line_order(record: Record) -> tuple[Any, ...]:
    """Return the key by which the lines of a file are sorted."""
    until = record.get("until") or 0
    first = (record["budget"], record["data"], str(record["options"]), record["variant"])
    settings = (str(record["variant_settings"]), record.get("revision", 1))
    return *first, record["competition"], record["factor"], until, record["repetition"], *settings


def packed_cell(digest: str, content: Mapping[str, Any]) -> Record:
    """Return the line of a cell, made of the content of its file.

    Single values become columns; what differs between participants stays nested. Undefined numbers
    become null.
    """
    settings, about = content["settings"], content["about"]
    scenario, variant = settings["scene"], settings["variant"]
    return {
        "cell": digest,
        "data": scenario["data"],
        "options": dict(scenario["options"]),
        "competition": scenario["competition"],
        "variant": variant["name"],
        **{key: variant[key] for key in ("method", "where", "benefit", "rivals")},
        "variant_settings": dict(variant["settings"]),
        "length": variant["passes"],
        "repetition": settings["trial"],
        **{key: settings[key] for key in TRAINED_AS if key in settings},
        "metric": content["metric"],
        **{key: _null_for_nan(content[key]) for key in MEASURED if key in content},
        "best_rounds": content["rounds"],
        **{kind: content["spent"][kind] for kind in SPENT},
        **{ABOUT.get(key, key): value for key, value in about.items()},
        "group": group_name(about["pass"]),
    }


def unpacked_cell(record: Record, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the content of a cell's file, made of its line: the inverse of `packed_cell`."""
    rest = dict(record)
    del rest["cell"]
    settings: dict[str, Any] = {
        "scene": {
            "data": rest.pop("data"),
            "options": _pairs(rest.pop("options")),
            "competition": rest.pop("competition"),
        },
        "variant": {
            "name": rest.pop("variant"),
            **{key: rest.pop(key) for key in ("method", "where", "benefit", "rivals")},
            "settings": _pairs(rest.pop("variant_settings")),
            "passes": rest.pop("length"),
        },
        "trial": rest.pop("repetition"),
    }
    keys = [key for key in TRAINED_AS if key in rest]
    settings |= {key: rest.pop(key) for key in keys}
    content = {
        "settings": settings,
        "metric": rest.pop("metric"),
        **{key: _nan_for_null(rest.pop(key)) for key in MEASURED if key in rest},
        "rounds": rest.pop("best_rounds"),
        "spent": {kind: rest.pop(kind) for kind in SPENT},
    }
    rest["group"] = list(groups[rest["group"]])
    names = {column: key for key, column in ABOUT.items()}
    content["about"] = {names.get(column, column): value for column, value in rest.items()}
    return content


def _pairs(given: Mapping[str, Any]) -> list[list[Any]]:
    return [[key, value] for key, value in given.items()]


def _null_for_nan(value: Any) -> Any:
    """Return nested numbers as valid JSON, which knows no NaN."""
    if isinstance(value, dict):
        return {key: _null_for_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_null_for_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _nan_for_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _nan_for_null(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_nan_for_null(one) for one in value]
    return math.nan if value is None else value
