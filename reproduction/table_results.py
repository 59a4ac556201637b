"""The numbers of the tables: means over repetitions, paired differences, published numbers."""

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any

from fedegoists.files import csv_bytes
from reproduction.budgets import BOTH
from reproduction.cell_store import CellStore
from reproduction.cells import CellResult, Plan
from reproduction.rate_choice import at_chosen_rates
from reproduction.reproduced_tables import CORRECTED, TABLES, ReproducedTable, sources
from reproduction.variants import BASELINES, HOSPITALS, LOCAL, OURS, OURS_AT_BEST, YARDSTICKS

__all__ = [
    "Difference",
    "TableLine",
    "differences",
    "lines_of",
    "published_value",
    "shown_lines",
    "table_csv",
]

AVERAGE = "Avg"
"""The participant of lines that average over all participants."""
COMPARED_WITH = (*YARDSTICKS, "local")
"""The methods with which every method is compared, in each repetition."""


@dataclass(frozen=True)
class TableLine:
    """One line of a table.

    Attributes
    ----------
    key : tuple of (column, value)
        All key columns but the method.
    values : mapping of int to float
        The value of each repetition; per cent for accuracy and AUC.
    results : tuple of CellResult
        The cells behind it.
    """

    key: tuple[tuple[str, Any], ...]
    method: str
    budget: str
    values: Mapping[int, float]
    results: tuple[CellResult, ...]

    @property
    def mean(self) -> float:
        """The mean over repetitions."""
        return statistics.fmean(self.values.values())

    @property
    def std(self) -> float:
        """The sample standard deviation over repetitions."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else 0.0

    @property
    def n(self) -> int:
        """The number of repetitions."""
        return len(self.values)


def lines_of(table: ReproducedTable, plan: Plan, store: CellStore) -> list[TableLine]:
    """Return the lines of a table from finished cells, for all of its budgets."""
    found: dict[tuple[Any, ...], dict[int, tuple[float, CellResult]]] = {}
    for budget in BOTH if table.budget is None else (table.budget,):
        for key, cell, rated in at_chosen_rates(table, replace(plan, budget=budget), store):
            result = None if rated is None else store.get(rated)
            if result is None:
                continue
            for own, value in _values(table, key, result):
                if math.isfinite(value):
                    place = found.setdefault((own, cell.variant.name, budget), {})
                    place[cell.repetition] = (value, result)
    return [
        TableLine(
            key,
            method,
            budget,
            {repetition: value for repetition, (value, _) in sorted(by_repetition.items())},
            tuple(result for _, result in by_repetition.values()),
        )
        for (key, method, budget), by_repetition in found.items()
    ]


def shown_lines(table: ReproducedTable, plan: Plan, store: CellStore) -> list[TableLine]:
    """Return the lines that are written for a table.

    Tables beyond the paper leave out budgets for which they only have rows of the paper's tables.
    """
    lines, shared = lines_of(table, plan, store), {variant.name for variant in HOSPITALS}
    if table.budget or all(variant.name in shared for variant in table.variants):
        return lines
    run = {line.budget for line in lines if line.method not in shared}
    return [line for line in lines if line.budget in run]


def _values(
    table: ReproducedTable, key: Mapping[str, Any], result: CellResult
) -> Iterable[tuple[tuple[tuple[str, Any], ...], float]]:
    scale = 1.0 if result.metric == "mse" else 100.0
    own = tuple(key.items())
    if not table.of_participants:
        yield own, scale * result.mean
        return
    for name, value in result.test.items():
        yield (("participant", name), *own), scale * value
    yield (("participant", AVERAGE), *own), scale * result.mean


def lower_is_better(lines: Sequence[TableLine]) -> bool:
    """Return whether the metric is an error."""
    return any(result.metric == "mse" for line in lines for result in line.results[:1])


@dataclass(frozen=True)
class Difference:
    """The paired difference of a method to another one, with a 95 % confidence interval."""

    line: TableLine
    against: str
    mean: float
    low: float
    high: float
    n: int


def differences(
    lines: Sequence[TableLine], yardsticks: Sequence[str] = COMPARED_WITH
) -> list[Difference]:
    """Return the paired differences of all lines to some methods, by scenario and budget."""
    places = {(line.key, line.budget, line.method): line for line in lines}
    found = []
    for line in lines:
        for name in yardsticks:
            other = places.get((line.key, line.budget, name))
            if other is None or name == line.method:
                continue
            both = sorted(line.values.keys() & other.values.keys())
            if both:
                gaps = [line.values[repetition] - other.values[repetition] for repetition in both]
                found.append(Difference(line, name, *interval(gaps), len(gaps)))
    return found


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and a 95 % confidence interval by Student's t; not numbers for one value.

    Examples
    --------
    >>> [round(x, 3) for x in interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    from scipy.stats import t

    reach = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - reach, mean + reach


@lru_cache(maxsize=16)
def _published(name: str) -> dict[tuple[str, ...], tuple[float, float]]:
    folder = resources.files("reproduction") / "published"
    path = folder / f"{name}.csv"
    if not path.is_file():
        return {}
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    keys = TABLES[name].keys
    value = "mean" if "mean" in rows[0] else "best_baseline_minus_fedegoists"
    return {
        tuple(_shown(row[key]) for key in keys): (
            float(row[value]),
            float(row.get("std") or "nan"),
        )
        for row in rows
    }


def _shown(value: object) -> str:
    """Return a key as text, with equal numbers written alike."""
    try:
        return f"{float(str(value)):g}"
    except ValueError:
        return str(value)


def published_value(table: ReproducedTable, line: TableLine) -> float | None:
    """Return the published mean of a line, if there is one."""
    key = {**dict(line.key), "method": line.method}
    found = _published(table.name.removesuffix(CORRECTED)).get(
        tuple(_shown(key[column]) for column in table.keys)
    )
    return None if found is None else found[0]


def published_worst(key: Mapping[str, Any]) -> float | None:
    """Return the published value of Table 3."""
    found = _published("table3").get(tuple(_shown(key[k]) for k in TABLES["table3"].keys))
    return None if found is None else found[0]


def table_csv(table: ReproducedTable, lines: Sequence[TableLine]) -> bytes:
    """Return a table with its key columns, budget, mean, standard deviation and repetitions."""
    rows = []
    for line in lines:
        key = {**dict(line.key), "method": line.method}
        numbers = (f"{line.mean:.4f}", f"{line.std:.4f}", line.n)
        rows.append((*(key[column] for column in table.keys), line.budget, *numbers))
    return csv_bytes((*table.keys, "budget", "mean", "std", "n"), rows)


def differences_csv(table: ReproducedTable, lines: Sequence[TableLine]) -> bytes:
    """Return the paired differences of a table."""
    rows = []
    for gap in differences(lines):
        key = {**dict(gap.line.key), "method": gap.line.method}
        numbers = (f"{gap.mean:.4f}", f"{gap.low:.4f}", f"{gap.high:.4f}", gap.n)
        own = (key[column] for column in table.keys)
        rows.append((*own, gap.line.budget, gap.against, *numbers))
    columns = ("budget", "against", "difference", "low", "high", "n")
    return csv_bytes((*table.keys, *columns), rows)


@dataclass(frozen=True)
class WorstCase:
    """Table 3: the best baseline minus a method in the repetition in which baselines are best."""

    key: tuple[tuple[str, Any], ...]
    budget: str
    method: str
    baseline: str
    repetition: int
    value: float
    n: int


def worst_cases(table: ReproducedTable, plan: Plan, store: CellStore) -> list[WorstCase]:
    """Derive Table 3 from the cells of Tables 1 and 2; values are parts of one.

    Before the corrections, baselines are the paper's, untuned; in the corrected table, all rows
    that are trained but our own.
    """
    found = []
    for one in sources(table):
        scenarios: dict[tuple[Any, ...], dict[str, TableLine]] = {}
        for line in lines_of(one, plan, store):
            scenarios.setdefault((line.key, line.budget), {})[line.method] = line
        for (key, budget), by_method in scenarios.items():
            for method in worst_compared(table):
                if method not in by_method:
                    continue
                baselines = _baselines(table, by_method)
                worst = _worst_case(by_method[method], baselines)
                if worst is not None:
                    data = ("dataset", one.scenarios[0][1].data)
                    found.append(replace(worst, key=(data, *key), budget=budget))
    return found


def worst_compared(table: ReproducedTable) -> tuple[str, ...]:
    """Return the methods for which Table 3 has a column."""
    return YARDSTICKS if table.revision == 1 else (YARDSTICKS[0], OURS_AT_BEST)


def _baselines(table: ReproducedTable, by_method: Mapping[str, TableLine]) -> list[TableLine]:
    """Return the lines of a column's baselines; none if any of the paper's is missing."""
    if table.revision > 1:
        return [line for name, line in by_method.items() if not name.startswith(OURS)]
    names = [row.name for row in (LOCAL, *BASELINES) if not row.tuned]
    return [by_method[name] for name in names] if set(names) <= by_method.keys() else []


def _worst_case(own: TableLine, baselines: Sequence[TableLine]) -> WorstCase | None:
    """Return the case of the repetition that suits baselines best; None without any in common."""
    common = set(own.values).intersection(*(line.values for line in baselines))
    if not baselines or not common:
        return None
    best, repetition, baseline = max(
        (line.values[one], -one, line.method) for line in baselines for one in common
    )
    value = (best - own.values[-repetition]) / 100
    return WorstCase(own.key, own.budget, own.method, baseline, -repetition, value, len(common))


def worst_csv(cases: Sequence[WorstCase]) -> bytes:
    """Return Table 3; ``std`` is empty, as each value is of a single repetition."""
    rows = [
        (
            *(value for _, value in case.key),
            case.budget,
            case.method,
            f"{case.value:.6f}",
            "",
            case.n,
            case.baseline,
            case.repetition,
        )
        for case in cases
    ]
    columns = ("dataset", "alpha", "distribution", "budget", "method", "mean", "std", "n")
    return csv_bytes((*columns, "best_baseline", "trial"), rows)
