"""How far the upper bounds of method best are from its welfare, and what certificates prove.

    python -m benchmarks.bench_bounds N [--limit SECONDS] [--seeds COUNT] [--competitions C ...]

Random consortia of N participants over density and competition. The limit is processor time, so
that a busy machine measures the same as an idle one. The gap of the certificate is that of the
bound which its proof confirms without any search; it is made within a limit of its own.
"""

import argparse
import csv
import itertools
import time
from collections.abc import Sequence

from benchmarks.bench_best import processor_time
from benchmarks.measure import RESULTS, random_consortium, report
from fedegoists import form
from fedegoists.coalitions.exact.best_partition import load_searches
from fedegoists.coalitions.proof import check as stand_alone

DENSITIES, COMPETITIONS = (0.1, 0.3, 1.0), (0.05, 0.1, 0.2, 0.4)


def solved(n: int, density: float, competition: float, seed: int, limit: float) -> list[str]:
    """Return a row: the welfare, both bounds with their gaps, and the processor seconds."""
    instance = random_consortium(n, density, competition, seed)
    start = time.process_time()
    formation = form(*instance, time_limit=limit)
    forming = time.process_time()
    text = formation.certificate.to_json()
    certifying = time.process_time()
    fine, _, lines = stand_alone.check(text)
    checking = time.process_time()
    assert fine, lines
    claims = {claim.claim: claim.value for claim in formation.certificate.claims}
    proven = claims["upper bound"]
    return [
        str(density),
        str(competition),
        str(seed),
        f"{formation.welfare:.3f}",
        f"{formation.upper_bound:.3f}",
        f"{formation.gap:.1%}",
        f"{max(1 - formation.welfare / proven, 0.0):.1%}",
        f"{forming - start:.1f}",
        f"{certifying - forming:.1f}",
        f"{checking - certifying:.2f}",
    ]


def kept(n: int, competitions: Sequence[float]) -> list[list[str]]:
    """Return the rows of other levels of competition that an earlier run has left."""
    file = RESULTS / f"bounds_n{n}.csv"
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))[1:]
    return [row[:-1] for row in rows if float(row[1]) not in competitions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--competitions", type=float, nargs="*", default=COMPETITIONS)
    chosen = parser.parse_args()
    load_searches()
    rows = kept(chosen.n, chosen.competitions)
    grid = itertools.product(chosen.competitions, DENSITIES, range(chosen.seeds))
    with processor_time():
        for competition, density, seed in grid:
            rows.append(solved(chosen.n, density, competition, seed, chosen.limit))
            print(*rows[-1], flush=True)
    rows.sort(key=lambda row: (float(row[1]), float(row[0]), int(row[2])))
    head = ("density", "competition", "seed", "welfare", "upper bound", "gap")
    more = ("gap of certificate", "forming s", "certifying s", "check.py s")
    title = f"n = {chosen.n}, at most {chosen.limit:g} s of processor time"
    report(f"bounds_n{chosen.n}", title, (*head, *more), rows)


if __name__ == "__main__":
    main()
