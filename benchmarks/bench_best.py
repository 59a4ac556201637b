"""How much welfare each method keeps, relative to the best partition found in the same run.

python -m benchmarks.bench_best
"""

import itertools
import statistics

from benchmarks.measure import random_consortium, report, seconds
from fedegoists import form


def main() -> None:
    rows = []
    for n in (10, 20, 40, 100):
        kept = {"stable": [], "published": [], "cliques": []}
        times, gaps, proven = [], [], 0
        for density, competition, seed in itertools.product((0.1, 0.5, 1.0), (0.1, 0.3), range(3)):
            instance = random_consortium(n, density, competition, seed)
            formations = []
            times.append(seconds(lambda: formations.append(form(*instance))))  # noqa: B023
            best = formations[0]
            proven += best.optimal
            gaps.append(best.gap)
            if best.welfare:
                for method, values in kept.items():
                    values.append(form(*instance, method).welfare / best.welfare)
        rows.append(
            (
                n,
                *(f"{statistics.mean(values):.2f} ({min(values):.2f})" for values in kept.values()),
                f"{proven} of {len(times)}",
                f"{statistics.mean(gaps):.2f}",
                f"{max(times):.2f}",
            )
        )
    columns = (
        "n",
        "stable / best",
        "published / best",
        "cliques / best",
        "optimum proven",
        "mean gap",
        "worst s",
    )
    report("formation_welfare", "Welfare kept: mean (worst)", columns, rows)


if __name__ == "__main__":
    main()
