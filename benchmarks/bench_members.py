"""What the demand for at least k members of a coalition costs in welfare.

    python -m benchmarks.bench_members

Five random consortia of 20 participants for each density and level of competition, all solved to
proven optimality: the fraction of the welfare without a demand that is kept, and the participants
that are alone.
"""

import itertools
import statistics

from benchmarks.measure import random_consortium, report
from fedegoists import form
from fedegoists.coalitions.exact.best_partition import load_searches

DENSITIES = (0.1, 0.3, 1.0)
COMPETITIONS = (0.1, 0.4)
DEMANDS = (3, 4, 5)
SEEDS = range(5)
SECONDS = 20.0


def price_of_the_demand() -> None:
    rows = []
    for density, competition in itertools.product(DENSITIES, COMPETITIONS):
        instances = [random_consortium(20, density, competition, seed) for seed in SEEDS]
        free = [form(*instance, time_limit=SECONDS) for instance in instances]
        pairs = sum(len(group) == 2 for one in free for group in one.coalitions)
        for demand in DEMANDS:
            found = [form(*one, time_limit=SECONDS, fewest_members=demand) for one in instances]
            kept = [
                one.welfare / before.welfare
                for one, before in zip(found, free, strict=True)
                if before.welfare > 0
            ]
            rows.append(
                (
                    density,
                    competition,
                    demand,
                    f"{statistics.mean(kept):.0%}",
                    f"{min(kept):.0%}",
                    f"{pairs / len(free):.1f}",
                    f"{_alone(free):.1f}",
                    f"{_alone(found):.1f}",
                    f"{sum(one.optimal for one in (*free, *found))} of {2 * len(found)}",
                )
            )
    report(
        "fewest_members",
        "At least k members, n = 20",
        (
            "density",
            "competition",
            "k",
            "welfare kept",
            "worst",
            "pairs before",
            "alone before",
            "alone",
            "proven",
        ),
        rows,
    )


def _alone(formations) -> float:
    return statistics.mean(
        sum(len(group) == 1 for group in formation.coalitions) for formation in formations
    )


if __name__ == "__main__":
    load_searches()
    price_of_the_demand()
