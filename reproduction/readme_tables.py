"""The tables of `reproduction/README.md` that are made of cells, written between its marks."""

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from fedegoists.methods.method_registry import TUNED
from reproduction.cell_store import CellStore
from reproduction.cells import Plan
from reproduction.reproduced_tables import CORRECTED, TABLES
from reproduction.table_results import TableLine, lines_of
from reproduction.variants import FAIR_IMAGES, INTERPOLATED_ENDING, SCREENED

__all__ = ["README_TABLES", "with_tables"]

MISSING = "–"
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
UNTUNED = ("local", "fedegoists", "egomix-0.8-wide")
"""Rows that are shown without fine-tuning: EgoMix as well as with it."""

Columns = Mapping[str, Mapping[str, TableLine]]
"""The lines of each column by row."""


def with_tables(text: str, store: CellStore) -> str:
    """Return a text with the tables between its marks made anew.

    Raises
    ------
    KeyError
        For a mark that names no table.
    """
    return MARKED.sub(
        lambda mark: f"{mark[1]}\n{README_TABLES[mark['name']](store)}\n\n{mark[3]}", text
    )


def _columns(table: str, wanted: Mapping[str, Mapping[str, Any]], store: CellStore) -> Columns:
    """Return the lines of some scenarios of a table."""
    lines = lines_of(TABLES[table], Plan(), store)
    return {
        name: {line.method: line for line in lines if dict(line.key) == key}
        for name, key in wanted.items()
    }


def _shown_rows() -> list[str]:
    """Return one row for each method: its models after all that follows training."""
    rows = [row for row in FAIR_IMAGES if row.base.name not in UNTUNED]
    tuned = {row.base.name: row.name for row in rows if row.ending == TUNED}
    tuned |= {row.base.name: row.name for row in FAIR_IMAGES if row.ending == INTERPOLATED_ENDING}
    return [*UNTUNED, *tuned.values()]


def _written(columns: Columns, rows: Sequence[str], *, mean: bool = False) -> str:
    """Return a table, sorted by the mean over the columns that all rows have."""
    trained = [name for name in rows if any(name in own for own in columns.values())]
    common = [own for own in columns.values() if all(name in own for name in trained)]
    heads = ["method", *columns, *(["mean"] if mean else [])]
    parts = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in sorted(trained, key=lambda row: -sum(own[row].mean for own in common)):
        values = [own[name].mean if name in own else None for own in columns.values()]
        if mean:
            known = [value for value in values if value is not None]
            values.append(fmean(known) if len(known) == len(columns) else None)
        cells = (MISSING if value is None else f"{value:.1f}" for value in values)
        parts.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(parts)


def _images(store: CellStore) -> str:
    """Return all methods on the four divisions of images at the deciding competition."""
    columns: dict[str, Mapping[str, TableLine]] = {}
    for data, number in (("CIFAR-10", 1), ("CIFAR-100", 2)):
        wanted = {
            f"{data}, {words}": {"alpha": 0.2, "distribution": how}
            for how, words in (("dirichlet", "Dirichlet"), ("pathological", "pathological"))
        }
        columns |= _columns(f"table{number}{CORRECTED}", wanted, store)
    return _written(columns, _shown_rows())


def _levels(number: int) -> Callable[[CellStore], str]:
    """Return a function that writes a table by competition."""

    def written(store: CellStore) -> str:
        wanted = {
            f"{words} {alpha:g}": {"alpha": alpha, "distribution": how}
            for how, words in (("dirichlet", "Dirichlet,"), ("pathological", "pathological,"))
            for alpha in (0.05, 0.1, 0.2, 0.3, 0.4)
        }
        columns = _columns(f"table{number}{CORRECTED}", wanted, store)
        return _written(columns, _screened_rows(), mean=True)

    return written


def _screened_rows() -> list[str]:
    bases = {row.name: row.base.name for row in FAIR_IMAGES}
    return [name for name in _shown_rows() if bases[name] in SCREENED]


def _by_beta(store: CellStore) -> str:
    wanted = {
        f"{words}, {beta:g}": {"dataset": data, "beta": beta}
        for data, words in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100"))
        for beta in (0.01, 0.1, 0.5)
    }
    columns = _columns(f"table5{CORRECTED}", wanted, store)
    return _written(columns, _screened_rows(), mean=True)


def _pfllib(store: CellStore) -> str:
    wanted = {
        f"{words}, {how.replace('d', 'D', 1)}": {"dataset": data, "distribution": how}
        for data, words in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100"))
        for how in ("dirichlet 0.1", "dirichlet 0.5", "pathological")
    }
    return _written(_columns("pfllib", wanted, store), _shown_rows(), mean=True)


README_TABLES: Mapping[str, Callable[[CellStore], str]] = {
    "images": _images,
    "levels-cifar10": _levels(1),
    "levels-cifar100": _levels(2),
    "beta": _by_beta,
    "pfllib": _pfllib,
}
"""Functions that write the tables, by name."""
