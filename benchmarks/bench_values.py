"""How long decisions on coalition values take, and how far from the upper bound they end.

    python -m benchmarks.bench_values

Random learning curves and exchange rates, a quarter of them harmful, for two probabilities that a
pair competes. Up to 20 participants the optimum is proven; at 10 and 12 it is compared with a plain
version that tries all partitions in Python, without bitmasks or compiled code.
"""

import numpy as np

from benchmarks.measure import report, seconds
from fedegoists import CompetitionGraph, CurveValues, form
from fedegoists.coalitions.exact.value_search import ValueProblem, prepare_search
from fedegoists.coalitions.proof.value_exhaustion import best_by_trying_all
from fedegoists.coalitions.value_principles import Judge

COMPETITIONS = (0.05, 0.5)
PLAIN = (10, 12)
EXACT = (10, 16, 20)
SEARCHED = (40, 100)
TIME_LIMITS = (1.0, 10.0)


def random_values(n: int, competition: float, seed: int) -> tuple[CurveValues, CompetitionGraph]:
    """Return values whose rates are drawn independently, and a random competition graph."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0, 1, (n, n))
    rates[rng.random((n, n)) < 0.25] *= -0.5
    np.fill_diagonal(rates, 0.0)
    rivals = np.triu(rng.random((n, n)) < competition, 1)
    values = CurveValues(
        rng.integers(50, 500, n),
        rng.uniform(0, 0.05, n),
        rates,
        slope_errors=0.002,
        rate_errors=0.1 * (1 - np.eye(n)),
        unit="AUC",
    )
    return values, CompetitionGraph.from_numpy(rivals | rivals.T)


def against_plain() -> None:
    """Compare with trying all partitions plainly."""
    rows = []
    for n in PLAIN:
        for competition in COMPETITIONS:
            values, rivals = random_values(n, competition, seed=n)
            judge = Judge(values, rivals, 0.5)
            plain = seconds(lambda judge=judge: best_by_trying_all(judge))
            ours = seconds(lambda values=values, rivals=rivals: form(values, rivals))
            rows.append((n, competition, f"{plain:.2f}", f"{ours:.3f}", f"{plain / ours:.0f}"))
    columns = ("n", "competition", "plain s", "form s", "ratio")
    report("values_plain", "Exact, against trying all partitions plainly", columns, rows)


def times_and_gaps() -> None:
    """Measure decisions of all sizes."""
    rows = []
    for n in (*EXACT, *SEARCHED):
        for competition in COMPETITIONS:
            values, rivals = random_values(n, competition, seed=n)
            for limit in TIME_LIMITS if n in SEARCHED else (TIME_LIMITS[0],):
                found = []
                taken = seconds(
                    lambda values=values, rivals=rivals, limit=limit, found=found: found.append(
                        form(values, rivals, time_limit=limit)
                    )
                )
                alone = sum(len(group) == 1 for group in found[0].coalitions)
                rows.append(
                    (
                        n,
                        competition,
                        limit if n in SEARCHED else "–",
                        f"{taken:.2f}",
                        f"{found[0].welfare:.4f}",
                        f"{found[0].gap:.1%}",
                        len(found[0].coalitions) - alone,
                        alone,
                    )
                )
    columns = ("n", "competition", "limit s", "s", "total gain", "gap", "coalitions", "alone")
    report("values", "Decisions on coalition values", columns, rows)


if __name__ == "__main__":
    warm, nobody = random_values(16, 0.0, 0)
    form(warm, nobody)
    prepare_search(ValueProblem(warm, nobody.matrix))
    against_plain()
    times_and_gaps()
