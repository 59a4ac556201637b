"""What participants gain by false reports under each formation method, and what that costs.

    python -m benchmarks.bench_incentives            # everything, 10 minutes on one core
    python -m benchmarks.bench_incentives 8:0.3      # eight participants, density 0.3: a piece
    python -m benchmarks.bench_incentives table      # the tables, from the pieces so far

Random consortia of 6 to 10 participants, three densities of benefits and three of competition, 18
to 4 seeds each: 522 in all. For each participant and method every report of received benefit that
matters is tried, also where a proof says that none pays; then each invented and each hidden
competitor, two names, and leaving with others. Welfare is relative to method best.
"""

import csv
import itertools
import math
import statistics
import sys
import time

from benchmarks.measure import RESULTS, random_consortium, report
from fedegoists import form
from fedegoists.coalitions.incentives.competitor_lies import (
    competitor_temptations,
    invented,
    price_of_names,
    priced_gain,
)
from fedegoists.coalitions.incentives.inspection_rates import inspection_probability
from fedegoists.coalitions.incentives.leaving_together import leaving_temptations
from fedegoists.coalitions.incentives.received_lies import tried_all
from fedegoists.coalitions.incentives.reporting import NOTHING, Truth, decision_rule
from fedegoists.coalitions.incentives.two_names import duplicate_temptation

SEEDS = {6: 18, 7: 18, 8: 12, 9: 6, 10: 4}
"""The number of consortia of each kind, by the number of participants."""

DENSITIES = (0.3, 0.6, 1.0)
COMPETITIONS = (0.1, 0.2, 0.4)
METHODS = ("best", "stable", "published", "truthful")
COLUMNS = (
    "n",
    "density",
    "competition",
    "seed",
    "method",
    "welfare",
    "cliques",
    "misreport",
    "invent",
    "hide",
    "duplicate",
    "leave",
    "invent priced",
    "prices",
    "relative gains",
    "seconds",
)


def measured(n: int, density: float, competition: float, seed: int, method: str) -> list[object]:
    """Return the numbers of one consortium under one method: who gains by what."""
    graphs = random_consortium(n, density, competition, seed)
    began = time.perf_counter()
    truth = Truth(*graphs, decision_rule(method, 0, 1, None))
    gains, priced, prices, relative = [0] * 5, 0, [], []
    leaving = leaving_temptations(truth, 1, math.inf)
    for i in range(n):
        outcomes, complete = tried_all(truth, i, method, math.inf)
        assert complete
        highest = max(outcome.utility for outcome in outcomes)
        found = [
            truth.best_of("misreport", i, outcomes, highest),
            *competitor_temptations(truth, i),
            duplicate_temptation(truth, i),
            leaving[i],
        ]
        for k, temptation in enumerate(found):
            gains[k] += temptation.gain > 0
        now = float(truth.utilities[i])
        if found[0].gain > 0:
            relative.append(found[0].gain / now if now else math.inf)
        if method == "best":
            rounding = NOTHING * float(truth.highest[i])
            priced += any(priced_gain(truth, i, one) > rounding for one in invented(truth, i))
            prices.append(price_of_names(truth, i))
    best = form(*graphs).welfare
    return [
        n,
        density,
        competition,
        seed,
        method,
        truth.welfare / best if best else 1.0,
        form(*graphs, "cliques").welfare / best if best else 1.0,
        *gains,
        priced if method == "best" else "",
        math.fsum(prices) / best if best and method == "best" else "",
        ";".join(f"{gain:.4g}" for gain in relative),
        f"{time.perf_counter() - began:.2f}",
    ]


def piece(n: int, density: float, first: int = 0) -> None:
    rows = [
        measured(n, density, competition, seed, method)
        for competition, seed in itertools.product(COMPETITIONS, range(first, SEEDS[n]))
        for method in METHODS
    ]
    title = f"False reports, n = {n}, density {density}"
    report(f"incentives_n{n}_{density}", title, COLUMNS, rows, every=len(rows) // 6)


def table() -> None:
    """Add up the pieces by method, over all consortia and by the number of participants."""
    rows = []
    for path in sorted(RESULTS.glob("incentives_n*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows += list(csv.DictReader(file))
    sizes = sorted({int(row["n"]) for row in rows})
    result = []
    for among in ([*sizes], *([n] for n in sizes)):
        for method in METHODS:
            own = [row for row in rows if row["method"] == method and int(row["n"]) in among]
            people = sum(int(row["n"]) for row in own)
            every = [float(g) for row in own for g in row["relative gains"].split(";") if g]
            gains = [gain for gain in every if gain < math.inf]
            welfare = [float(row["welfare"]) for row in own]
            result.append(
                (
                    f"{among[0]} to {among[-1]}" if among[1:] else among[0],
                    method,
                    len(own),
                    people,
                    *(
                        f"{sum(int(row[lie]) for row in own) / people:.1%}"
                        for lie in ("misreport", "invent", "hide", "duplicate", "leave")
                    ),
                    f"{statistics.median(gains):+.0%}" if gains else "–",
                    f"{(len(every) - len(gains)) / people:.1%}",
                    f"{statistics.mean(welfare):.1%}",
                    f"{min(welfare):.0%}",
                )
            )
    report(
        "incentives",
        "Participants that gain by false reports",
        (
            "n",
            "method",
            "consortia",
            "participants",
            "misreport",
            "invent",
            "hide",
            "duplicate",
            "leave",
            "median gain by misreport",
            "misreport, from nothing",
            "welfare",
            "worst",
        ),
        result,
    )
    by_density(rows)
    by_inspection(rows)


INSPECTED = (0.0, 0.05, 0.1, 0.2, 0.5, 0.75, 0.9)
"""The probabilities of an inspection that are shown."""


def by_inspection(rows: list[dict[str, str]]) -> None:
    """Show who still gains by a misreport where lies that are found lead to exclusion."""
    result = []
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        people = sum(int(row["n"]) for row in own)
        gains = [float(gain) for row in own for gain in row["relative gains"].split(";") if gain]
        # Of one that receives nothing, exclusion takes nothing: only an inspection of all helps.
        needed = [1.0 if gain == math.inf else inspection_probability(1.0, gain) for gain in gains]
        result.append(
            (method, *(f"{sum(one > p for one in needed) / people:.1%}" for p in INSPECTED))
        )
    report(
        "incentives_by_inspection",
        "Misreports that pay at a probability of inspection, without a deposit",
        ("method", *(f"{p:.0%}" for p in INSPECTED)),
        result,
    )


def by_density(rows: list[dict[str, str]]) -> None:
    """Show the welfare of truthful and cliques where benefits are rare and where they are not."""
    result = []
    for density, competition in itertools.product(DENSITIES, COMPETITIONS):
        own = [
            row
            for row in rows
            if float(row["density"]) == density and float(row["competition"]) == competition
        ]
        kept = {
            method: [float(row["welfare"]) for row in own if row["method"] == method]
            for method in METHODS
        }
        best = [row for row in own if row["method"] == "best"]
        people = sum(int(row["n"]) for row in best)
        result.append(
            (
                density,
                competition,
                *(f"{statistics.mean(kept[m]):.0%}" for m in ("stable", "published", "truthful")),
                f"{statistics.mean(float(row['cliques']) for row in best):.0%}",
                f"{sum(int(row['misreport']) for row in best) / people:.0%}",
                f"{sum(int(row['invent priced']) for row in best)} of {people}",
                f"{statistics.mean(float(row['prices'] or 0) for row in best):.0%}",
            )
        )
    report(
        "incentives_by_density",
        "Welfare relative to best",
        (
            "density",
            "competition",
            "stable",
            "published",
            "truthful",
            "cliques",
            "misreport under best",
            "invent under best, priced",
            "prices",
        ),
        result,
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    wanted = [argument.split(":") for argument in arguments if ":" in argument]
    for n, density in wanted or ([] if arguments else itertools.product(SEEDS, DENSITIES)):
        piece(int(n), float(density))
    if not arguments or "table" in arguments:
        table()
