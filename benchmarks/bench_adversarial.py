"""Instances made to be hard: the search must stay inside its budget and answer honestly.

    python -m benchmarks.bench_adversarial

Every claim of stability is confirmed by the independent checker, or it is said that it is not
proven. The time is given as a ratio to a random instance of the same size in the same run.
"""

import itertools

import numpy as np

from benchmarks.measure import random_consortium, report, seconds
from fedegoists import BenefitGraph, CompetitionGraph, form, verify


def ladder(length: int, forbidden: float, seed: int) -> tuple[BenefitGraph, CompetitionGraph]:
    """Return a ring of stages with two choices each, of which random pairs exclude one another.

    Finding a way around is "path avoiding forbidden pairs", which is NP-complete.
    """
    rng = np.random.default_rng(seed)
    stages = [[0], *([1 + 2 * k, 2 + 2 * k] for k in range(length)), [0]]
    edges = [(a, b, 1.0) for s, t in itertools.pairwise(stages) for a in s for b in t]
    pairs = [
        (a, b)
        for s, t in itertools.combinations(stages[1:-1], 2)
        for a in s
        for b in t
        if rng.random() < forbidden
    ]
    names = [f"v{i}" for i in range(1 + 2 * length)]
    return BenefitGraph.from_edges(edges, names), CompetitionGraph(pairs, names)


def planted_ladder(length: int, seed: int) -> tuple[BenefitGraph, CompetitionGraph]:
    """Return a dense ladder that has exactly one way around, hidden among competing choices."""
    benefit, competition = ladder(length, 0.6, seed)
    rng = np.random.default_rng(seed)
    way = {0, *(1 + 2 * k + int(rng.integers(2)) for k in range(length))}
    names = benefit.participants
    keep = [p for p in competition.pairs if not way.issuperset(names.index(v) for v in p)]
    return benefit, CompetitionGraph(keep, names)


def main() -> None:
    cases = {
        "alternating, few forbidden pairs": lambda seed: ladder(50, 0.05, seed),
        "alternating, some forbidden pairs": lambda seed: ladder(50, 0.15, seed),
        "alternating, many forbidden pairs": lambda seed: ladder(50, 0.33, seed),
        "alternating, one hidden way": lambda seed: planted_ladder(50, seed),
        "dense competition, sparse benefit": lambda seed: random_consortium(101, 0.03, 0.8, seed),
        "half competition, sparse benefit": lambda seed: random_consortium(101, 0.02, 0.5, seed),
    }
    plain = max(
        seconds(lambda: form(*random_consortium(101, 0.3, 0.2, seed), "stable"))  # noqa: B023
        for seed in range(5)
    )
    rows = []
    for name, make in cases.items():
        for method in ("stable", "published"):
            times, proven, confirmed, refuted = [], 0, 0, 0
            for seed in range(5):
                instance = make(seed)
                formations = []
                times.append(
                    seconds(lambda: formations.append(form(*instance, method)))  # noqa: B023
                )
                checked = verify(*instance, formations[0].coalitions, budget=5_000)
                assert not checked.free_riders
                assert not checked.conflicts
                proven += formations[0].stable is True
                confirmed += formations[0].stable is True and checked.stable is True
                refuted += formations[0].stable is True and checked.stable is False
            rows.append(
                (
                    name,
                    method,
                    f"{max(times) * 1e3:.0f}",
                    f"{max(times) / plain:.0f}",
                    f"{proven} of 5",
                    f"{confirmed} of {proven}",
                    refuted,
                )
            )
    columns = (
        "n = 101",
        "method",
        "worst ms",
        "/ random",
        "proven stable",
        "confirmed",
        "refuted",
    )
    report("formation_adversarial", "Hard instances, five seeds each", columns, rows)


if __name__ == "__main__":
    main()
