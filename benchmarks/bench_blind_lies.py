"""Misreports of a participant that knows nothing of the others' reports.

    python -m benchmarks.bench_blind_lies       # n = 6 and 7, minutes on one core

Where reports are confidential, or the models that a silo judges have no names, a liar knows the
benefits that it receives, and nothing else. So it has to choose a rule by which it changes them,
whatever the others report. For every participant of the consortia of `bench_incentives` with six
and seven participants the rules below are tried under method ``best``. *On average* is the change
of true utility by a rule, summed over all participants, relative to the sum with true reports.
"""

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.bench_incentives import COMPETITIONS, DENSITIES, SEEDS
from benchmarks.measure import random_consortium, report
from fedegoists import BenefitGraph
from fedegoists.coalitions.incentives.reporting import NOTHING, Truth, decision_rule
from fedegoists.coalitions.welfare import utilities

Column = npt.NDArray[np.float64]
SIZES = (6, 7)


def only_largest(column: Column, count: int) -> Column:
    """Return ten times the largest benefits, and nothing for the others."""
    kept = np.sort(column)[-count]
    return np.where((column >= kept) & (column > 0), 10 * column, 0.0)


RULES: dict[str, Callable[[Column], Column]] = {
    "all ten times as large": lambda column: 10 * column,
    "all twice as large": lambda column: 2 * column,
    "all half as large": lambda column: column / 2,
    "the largest ten times as large": lambda c: np.where(c == c.max(), 10 * c, c),
    "the largest ten times as large, no others": lambda column: only_largest(column, 1),
    "the two largest ten times as large, no others": lambda column: only_largest(column, 2),
    "a tiny one from all that give nothing": lambda c: np.where(c > 0, c, 1e-7 * c.max(initial=1)),
}


def changes(n: int, density: float, competition: float, seed: int) -> list[list[float]]:
    """Return for each rule and participant the change of its true utility, and the utility."""
    truth = Truth(
        *random_consortium(n, density, competition, seed), decision_rule("best", 0, 1, None)
    )
    weights, found = truth.benefit.weights, []
    for i in range(n):
        now, row = float(truth.utilities[i]), []
        rounding = NOTHING * max(float(truth.highest[i]), now)
        for rule in RULES.values():
            lie = weights.copy()
            lie[:, i] = rule(weights[:, i])
            lie[i, i] = 0.0
            partition = truth.decide(BenefitGraph(lie, truth.names), truth.competition)
            change = float(utilities(weights, partition)[i]) - now
            row.append(0.0 if abs(change) <= rounding else change)
        found.append([*row, now])
    return found


def main() -> None:
    """Measure all consortia of two sizes, and print and keep the table."""
    sizes = [int(one) for one in sys.argv[1:]] or list(SIZES)
    by_density = {
        density: np.array(
            [
                row
                for n in sizes
                for competition in COMPETITIONS
                for seed in range(SEEDS[n])
                for row in changes(n, density, competition, seed)
            ]
        )
        for density in DENSITIES
    }
    whole = np.concatenate(list(by_density.values()))
    rows = []
    for k, name in enumerate(RULES):
        own = whole[:, k]
        rows.append(
            (
                name,
                len(whole),
                f"{(own > 0).mean():.1%}",
                f"{(own < 0).mean():.1%}",
                f"{own.sum() / whole[:, -1].sum():+.1%}",
                *(f"{one[:, k].sum() / one[:, -1].sum():+.1%}" for one in by_density.values()),
            )
        )
    columns = ("rule", "participants", "gain", "lose", "on average",
               *(f"density {density}" for density in DENSITIES))  # fmt: skip
    report("blind_lies", "Misreports without knowledge of others' reports", columns, rows)


if __name__ == "__main__":
    main()
