"""A price for reports of received benefit: what it ends, what it does not, and what it costs.

    python -m benchmarks.bench_priced_reports       # 522 consortia, minutes on one core

Method ``best``, and each participant pays what its report of received benefit takes from all
others: the others' welfare if it reported a tiny benefit from everybody, less their welfare with
its report. By the proposition on the page about incentives, a lie then pays only if it leads to a
partition of a higher total than the best valid one; the most is gained by the true report plus a
tiny benefit from everybody who gives nothing. Both are tried for each participant of the consortia
of `bench_incentives`. Of those with six participants, all reports of a large benefit from some of
the true givers are tried as well; none may pay.

*Withheld*: instead of money, a participant loses benefit, at most all that it receives.
"""

import itertools
import statistics
import sys
from typing import NamedTuple

import numpy as np

from benchmarks.bench_incentives import COMPETITIONS, DENSITIES, SEEDS
from benchmarks.measure import random_consortium, report
from fedegoists.coalitions.incentives.received_lies import reported
from fedegoists.coalitions.incentives.reporting import NOTHING, Truth, decision_rule
from fedegoists.coalitions.welfare import utilities, welfare
from fedegoists.graphs import BenefitGraph

TINY = 1e-7
"""A benefit that matters for who may be together, and for nothing else; of the largest one."""

TRIED_ALL = 6
"""Participants up to which all reports about true givers are tried."""


class Priced(NamedTuple):
    """One consortium: who gains by which lie in spite of the price, and what prices take.

    Attributes
    ----------
    exaggerate : int
        Participants that gain by any report that names true givers only, as far as tried.
    invent_giver : int
        Participants that gain by naming a giver that gives nothing to them.
    gain : float
        The mean over these of what they gain, relative to the best welfare.
    prices, withheld : float
        The sum of all prices, and of what is withheld for them, relative to the best welfare.
    """

    n: int
    density: float
    competition: float
    seed: int
    exaggerate: int
    invent_giver: int
    gain: float
    prices: float
    withheld: float


def with_tiny(truth: Truth, i: int, *, true: bool) -> list[list[int]]:
    """Return the decision if i reports a tiny benefit from all that truly give it nothing.

    Parameters
    ----------
    true : bool
        Whether its true benefits stay; otherwise they are tiny, too.
    """
    weights = truth.benefit.weights.copy()
    tiny = TINY * weights.max(initial=0.0)
    own = weights[:, i].copy() if true else np.zeros(len(weights))
    own[own == 0] = tiny
    own[i] = 0.0
    weights[:, i] = own
    return truth.decide(BenefitGraph(weights, truth.names), truth.competition)


def of_others(truth: Truth, i: int, partition: list[list[int]]) -> float:
    """Return the true welfare of all others."""
    weights = truth.benefit.weights
    return welfare(weights, partition) - float(utilities(weights, partition)[i])


def price_of_report(truth: Truth, i: int) -> float:
    """Return what the true report of i takes from the others, beside one that accepts all."""
    accepting = of_others(truth, i, with_tiny(truth, i, true=False))
    return accepting - of_others(truth, i, truth.partition)


def measured(n: int, density: float, competition: float, seed: int) -> Priced:
    """Return the numbers of one consortium."""
    truth = Truth(
        *random_consortium(n, density, competition, seed), decision_rule("best", 0, 1, None)
    )
    weights, best = truth.benefit.weights, truth.welfare
    close = max(NOTHING * weights.sum(), 10 * n * TINY * weights.max(initial=0.0))
    gains, exaggerate, prices, withheld = [], 0, 0.0, 0.0
    for i in range(n):
        price = price_of_report(truth, i)
        assert price >= -close
        prices += price
        withheld += min(max(price, 0.0), float(truth.utilities[i]))
        # Net of prices, a lie brings what it adds to the total welfare.
        reached = welfare(weights, with_tiny(truth, i, true=True)) - best
        if reached > close:
            gains.append(reached)
        if n <= TRIED_ALL:
            givers = np.flatnonzero(weights[:, i]).tolist()
            claims = (
                sum(1 << k for k in some)
                for size in range(len(givers) + 1)
                for some in itertools.combinations(givers, size)
            )
            outcomes = [reported(truth, i, claim) for claim in claims]
            exaggerate += any(welfare(weights, one.partition) - best > close for one in outcomes)
    return Priced(
        n, density, competition, seed, exaggerate, len(gains),
        statistics.fmean(gains) / best if gains and best else 0.0,
        prices / best if best else 0.0,
        withheld / best if best else 0.0,
    )  # fmt: skip


def main() -> None:
    """Measure all consortia, or those of some sizes, and print and keep the table."""
    sizes = [int(one) for one in sys.argv[1:]] or list(SEEDS)
    found = [
        measured(n, density, competition, seed)
        for n in sizes
        for density in DENSITIES
        for competition in COMPETITIONS
        for seed in range(SEEDS[n])
    ]
    rows = [_row("all", "all", "all", found)]
    rows += [_row(n, "all", "all", [one for one in found if one.n == n]) for n in sizes]
    rows += [
        _row("all", density, competition,
             [one for one in found if (one.density, one.competition) == (density, competition)])
        for density in DENSITIES
        for competition in COMPETITIONS
    ]  # fmt: skip
    columns = (
        *("n", "density", "competition", "consortia", "participants"),
        *("true givers only, gain", "of participants tried", "a giver invented, gain"),
        *("their gain / welfare", "prices / welfare", "withheld / welfare"),
    )
    report("priced_reports", "Method best, reports of received benefit priced", columns, rows)


def _row(n: object, density: object, competition: object, own: list[Priced]) -> tuple[object, ...]:
    people = sum(one.n for one in own)
    gaining = [one for one in own if one.invent_giver]
    return (
        n,
        density,
        competition,
        len(own),
        people,
        sum(one.exaggerate for one in own),
        sum(one.n for one in own if one.n <= TRIED_ALL),
        f"{sum(one.invent_giver for one in own) / people:.1%}",
        f"{statistics.fmean(one.gain for one in gaining):.1%}" if gaining else "–",
        f"{statistics.fmean(one.prices for one in own):.1%}",
        f"{statistics.fmean(one.withheld for one in own):.1%}",
    )


if __name__ == "__main__":
    main()
