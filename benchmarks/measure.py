"""What the benchmarks share: random consortia, a stopwatch, and tables to print and keep."""

import csv
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fedegoists import BenefitGraph, CompetitionGraph

__all__ = ["RESULTS", "random_consortium", "report", "seconds"]

RESULTS = Path(__file__).parent / "results"


def random_consortium(
    n: int, density: float, competition: float, seed: int
) -> tuple[BenefitGraph, CompetitionGraph]:
    """Return graphs in which every edge and every pair is drawn independently."""
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random((n, n)) < density, rng.random((n, n)), 0.0)
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu(rng.random((n, n)) < competition, 1)
    return BenefitGraph(weights), CompetitionGraph.from_numpy(rivals | rivals.T)


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    every: int = 1,
) -> None:
    """Print a table, or every so many rows of it, and keep it all as CSV under `RESULTS`."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows[::every]:
        table.add_row(*map(str, row))
    Console(width=110).print(table)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*columns, "python"])
        writer.writerows([*row, platform.python_version()] for row in rows)
