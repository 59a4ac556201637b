"""What wrong estimates cost, when their errors are ignored and when they are used.

    python -m benchmarks.bench_doubt            # the table, and the time of a decision
    python -m benchmarks.bench_doubt --choose   # how the default confidence was chosen

Twenty participants; a benefit exists with probability 0.3, a pair competes with probability 0.1.
The decision sees a disturbed version of the truth:

- weights: every weight is off by a normal error of 30 %;
- missed: 5 % of the benefits are missing;
- false edges: 5 % of the pairs without benefit have one, as large as real ones are;
- unnamed, false competitors: 5 % of competing pairs are not named, or of the others are;
- estimator: all of the first three at once, as an estimator makes them: every pair is measured with
  an error of 30 % (of a weight drawn like real ones, where there is none) and listed if it is above
  zero with confidence 0.95.

Ignoring errors, `form` takes the weights alone. Using them, it also gets for each pair the standard
error that an estimator would report: what is 30 % off in truth has z-values around 1 / 0.3, and a
false edge has the z-value of a pair without benefit that is listed by chance. Nobody tells which
edges are false. A coalition that breaks a principle in truth is dissolved, so it counts nothing.
Choices were made on repetitions 10 to 14; the table is of repetitions 0 to 9.
"""

import argparse
import math
import time
from collections.abc import Iterable
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from benchmarks.measure import random_consortium, report
from fedegoists import BenefitGraph, CompetitionGraph, Formation, UncertainBenefits, form

N, DENSITY, COMPETITION, SHARE = 20, 0.3, 0.1, 0.05
PER_REPETITION = 6
LISTED = NormalDist().inv_cdf(0.95)

Matrix = npt.NDArray[np.float64]
ROWS = ("weights", "missed", "false edges", "unnamed", "false competitors", "estimator")
LARGE_ERROR, ERRORS = 0.3, (0.3, 0.2, 0.1)


def tail(random: np.random.Generator, shape: tuple[int, ...]) -> Matrix:
    """Return z-values of pairs without benefit that are listed by chance."""
    normal = NormalDist()
    levels = 1 - SHARE * random.random(shape)
    return np.vectorize(normal.inv_cdf, otypes=[float])(levels)


def listed_z(random: np.random.Generator, error: float, shape: tuple[int, ...]) -> Matrix:
    """Return z-values of real benefits that are listed."""
    z = 1 / error + random.standard_normal(shape)
    while (low := z <= LISTED).any():
        z[low] = 1 / error + random.standard_normal(int(low.sum()))
    return z


def disturbed(
    row: str, truth: BenefitGraph, rivals: CompetitionGraph, error: float, seed: int
) -> tuple[UncertainBenefits, CompetitionGraph]:
    """Return what the decision sees."""
    random = np.random.default_rng([seed, ROWS.index(row), round(1000 * error)])
    weights, off = truth.weights, ~np.eye(N, dtype=bool)
    real, size = weights > 0, random.random((N, N))
    z = listed_z(random, error, (N, N))
    seen, errors = weights.copy(), np.where(real, weights / z, 0.0)
    pairs = rivals.matrix.copy()
    draws = np.triu(random.random((N, N)) < SHARE, 1)
    draws = draws | draws.T
    if row == "weights":
        errors = error * weights
        seen = errors * z
    elif row == "missed":
        gone = random.random((N, N)) < SHARE
        seen, errors = np.where(gone, 0.0, seen), np.where(gone, 0.0, errors)
    elif row == "false edges":
        false = ~real & off & (random.random((N, N)) < SHARE)
        seen = np.where(false, size, seen)
        errors = np.where(false, size / tail(random, (N, N)), errors)
    elif row == "unnamed":
        pairs &= ~draws
    elif row == "false competitors":
        pairs |= draws
    else:
        errors = np.where(off, error * np.where(real, weights, size), 0.0)
        seen = np.maximum(weights + errors * random.standard_normal((N, N)), 0.0) * off
    return UncertainBenefits(seen, errors), CompetitionGraph.from_numpy(pairs)


def breaks(group: Iterable[int], weights: Matrix, rivals: npt.NDArray[np.bool_]) -> bool:
    """Whether a coalition breaks a principle in truth."""
    members = list(group)
    inside = weights[np.ix_(members, members)]
    gives_and_takes = (inside.sum(axis=0) > 0) & (inside.sum(axis=1) > 0)
    return not gives_and_takes.all() or bool(rivals[np.ix_(members, members)].any())


def judged(
    found: Formation, truth: BenefitGraph, rivals: CompetitionGraph
) -> tuple[int, int, float]:
    """Return how many coalitions were formed, how many break, and the welfare of the others."""
    place = {name: k for k, name in enumerate(found.participants)}
    groups = [[place[name] for name in group] for group in found.coalitions if len(group) > 1]
    broken = [breaks(group, truth.weights, rivals.matrix) for group in groups]
    kept = (group for group, bad in zip(groups, broken, strict=True) if not bad)
    welfare = math.fsum(float(truth.weights[np.ix_(group, group)].sum()) for group in kept)
    return len(groups), sum(broken), welfare


class Tally:
    """Counts over instances."""

    def __init__(self) -> None:
        self.changed: list[bool] = []
        self.lost: list[float] = []
        self.promised: list[float] = []
        self.formed = self.broken = 0

    def add(self, found: Formation, best: Formation, rivals: CompetitionGraph) -> None:
        """Judge one decision by the truth."""
        formed, broken, welfare = judged(found, best.benefit, rivals)
        self.changed.append(found.coalitions != best.coalitions)
        self.lost.append(1 - welfare / best.welfare)
        self.promised.append(found.welfare / best.welfare)
        self.formed += formed
        self.broken += broken

    def cells(self) -> tuple[str, ...]:
        """Return the columns of the table."""
        error = np.std(self.lost, ddof=1) / math.sqrt(len(self.lost))
        return (
            f"{np.mean(self.changed):.0%}",
            f"{np.mean(self.lost):.1%} ± {error:.1%}",
            f"{self.broken} of {self.formed}",
            f"{self.broken / max(self.formed, 1):.1%}",
            f"{np.mean(self.promised):.2f}",
        )


def compare(
    row: str, error: float, repetitions: Iterable[int], confidences: Iterable[float | None]
) -> list[tuple[str, ...]]:
    """Return a row of the table for errors ignored, and one for each confidence."""
    options = ("ignored", *confidences)
    tallies = {option: Tally() for option in options}
    for repetition in repetitions:
        for k in range(PER_REPETITION):
            seed = 1000 * repetition + k
            truth, rivals = random_consortium(N, DENSITY, COMPETITION, seed)
            best = form(truth, rivals, time_limit=5)
            seen, named = disturbed(row, truth, rivals, error, seed)
            for option in options:
                if option == "ignored":
                    found = form(seen, named, risk="ignore", time_limit=5)
                else:
                    found = form(seen, named, confidence=option)
                tallies[option].add(found, best, rivals)
    return [
        (row, f"{error:g}", "default" if option is None else str(option), *tallies[option].cells())
        for option in options
    ]


COLUMNS = (
    "what is wrong",
    "error",
    "errors",
    "partition changes",
    "true welfare lost",
    "broken",
    "share",
    "promised",
)


def main() -> None:
    """Print and keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    if options.choose:
        rows = []
        for row in ("false edges", "estimator"):
            rows += compare(row, LARGE_ERROR, range(10, 15), (0.5, 0.7, 0.8, 0.9, 0.95))
        report("doubt_choice", "The confidence, on repetitions 10 to 14", COLUMNS, rows)
        return
    rows = []
    for row in options.rows:
        errors = ERRORS if row in ("false edges", "estimator") else (LARGE_ERROR,)
        for error in errors:
            rows += compare(row, error, range(options.repetitions), (None,))
            print(*rows[-2:], sep="\n", flush=True)
    report("doubt", "Wrong estimates: errors ignored, and used", COLUMNS, rows)
    times()


def times() -> None:
    """Measure a decision with 200 scenarios, its certificate and its check."""
    rows = []
    for n, competition in ((10, 0.1), (20, 0.3), (20, 0.1), (20, 0.0)):
        truth, rivals = random_consortium(n, DENSITY, competition, n)
        random = np.random.default_rng(n)
        errors = 0.3 * np.where(truth.weights > 0, truth.weights, random.random((n, n)))
        np.fill_diagonal(errors, 0.0)
        seen = np.maximum(truth.weights + errors * random.standard_normal((n, n)), 0.0)
        np.fill_diagonal(seen, 0.0)
        benefits = UncertainBenefits(seen, errors)
        taken = []
        for _ in range(2):  # the second time, everything is compiled
            start = time.perf_counter(), time.process_time()
            certificate = form(benefits, rivals).certificate
            taken = [time.perf_counter() - start[0], time.process_time() - start[1]]
        start_check = time.perf_counter()
        check = certificate.check()
        checked = time.perf_counter() - start_check
        rows.append(
            (
                n,
                competition,
                *(f"{t:.2f}" for t in taken),
                f"{checked:.2f}",
                "yes" if check.ok else "NO",
            )
        )
    columns = ("n", "competition", "decision s", "of which processor s", "verify s", "verified")
    report("doubt_times", "A decision with 200 scenarios and its certificate", columns, rows)


if __name__ == "__main__":
    main()
