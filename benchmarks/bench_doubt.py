"""What wrong estimates cost, when their errors are ignored and when they are used.

    python -m benchmarks.bench_doubt            # the table; --rows and --errors do a part of it
    python -m benchmarks.bench_doubt --choose   # how the default confidence was chosen
    python -m benchmarks.bench_doubt --times    # how long a decision takes

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
import csv
import math
import time
from collections.abc import Iterable
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from benchmarks.measure import RESULTS, random_consortium, report
from fedegoists import BenefitGraph, CompetitionGraph, Formation, UncertainBenefits, form

N, DENSITY, COMPETITION, SHARE = 20, 0.3, 0.1, 0.05
PER_REPETITION, PER_CHOICE = 4, 6
LISTED = NormalDist().inv_cdf(0.95)

Matrix = npt.NDArray[np.float64]
Record = tuple[str, ...]
ROWS = ("weights", "missed", "false edges", "unnamed", "false competitors", "estimator")
LARGE_ERROR, ERRORS = 0.3, (0.3, 0.2, 0.1)
CHOICES: tuple[float | None, ...] = (0.6, 0.8, 0.9, 0.95)


def tail(random: np.random.Generator, shape: tuple[int, ...]) -> Matrix:
    """Return z-values of pairs without benefit that are listed by chance."""
    normal = NormalDist()
    levels = 1 - SHARE * random.random(shape)
    found: Matrix = np.vectorize(normal.inv_cdf, otypes=[float])(levels)
    return found


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
    groups = [[place[name] for name in group] for group in found.coalitions]
    return judged_groups(groups, truth, rivals)


def judged_groups(
    partition: list[list[int]], truth: BenefitGraph, rivals: CompetitionGraph
) -> tuple[int, int, float]:
    """Return the same for a partition of positions."""
    groups = [group for group in partition if len(group) > 1]
    broken = [breaks(group, truth.weights, rivals.matrix) for group in groups]
    kept = (group for group, bad in zip(groups, broken, strict=True) if not bad)
    welfare = math.fsum(float(truth.weights[np.ix_(group, group)].sum()) for group in kept)
    return len(groups), sum(broken), welfare


def decided(row: str, error: float, seed: int, confidences: Iterable[float | None]) -> list[Record]:
    """Judge one instance: errors ignored, and used with each confidence."""
    truth, rivals = random_consortium(N, DENSITY, COMPETITION, seed)
    best = form(truth, rivals, time_limit=5)
    seen, named = disturbed(row, truth, rivals, error, seed)
    decisions = [("ignored", form(seen, named, risk="ignore", time_limit=5))]
    for one in confidences:
        name = "used" if one is None else f"used, confidence {one:g}"
        decisions.append((name, form(seen, named, confidence=one)))
    records: list[Record] = []
    for option, found in decisions:
        formed, broken, welfare = judged(found, truth, rivals)
        records.append(
            (
                row,
                f"{error:g}",
                option,
                str(seed),
                str(int(found.coalitions != best.coalitions)),
                f"{1 - welfare / best.welfare:.6f}",
                str(formed),
                str(broken),
                f"{found.welfare / best.welfare:.6f}",
            )
        )
    return records


def keep(records: list[Record]) -> list[Record]:
    """Put records into the file of all, in the place of earlier ones of the same instances."""
    path = RESULTS / "doubt_instances.csv"
    known: dict[Record, Record] = {}
    if path.exists():
        with path.open(newline="") as file:
            known = {tuple(line[:4]): tuple(line) for line in list(csv.reader(file))[1:]}
    known |= {record[:4]: record for record in records}
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(RECORD)
        writer.writerows(known.values())
    return list(known.values())


def table(records: list[Record], repetitions: range) -> list[Record]:
    """Return the means over the instances of some repetitions."""
    kept = [one for one in records if int(one[3]) // 1000 in repetitions]
    rows: list[Record] = []
    for key in dict.fromkeys(one[:3] for one in kept):
        numbers = np.array([[float(x) for x in one[4:]] for one in kept if one[:3] == key])
        changed, lost, formed, broken, promised = numbers.T
        spread = lost.std(ddof=1) / math.sqrt(len(lost))
        rows.append(
            (
                *key,
                str(len(lost)),
                f"{changed.mean():.0%}",
                f"{lost.mean():.1%} ± {spread:.1%}",
                f"{broken.sum():.0f} of {formed.sum():.0f}",
                f"{broken.sum() / max(formed.sum(), 1):.1%}",
                f"{promised.mean():.2f}",
            )
        )
    return sorted(rows, key=lambda one: (ROWS.index(one[0]), -float(one[1])))


RECORD = (
    "what is wrong",
    "error",
    "errors are",
    "seed",
    "changed",
    "lost",
    "formed",
    "broken",
    "promised",
)
COLUMNS = (
    *RECORD[:3],
    "instances",
    "partition changes",
    "true welfare lost",
    "broken",
    "share broken",
    "promised welfare",
)


def main() -> None:
    """Decide instances, and print and keep the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--errors", nargs="*", type=float, default=list(ERRORS))
    parser.add_argument("--times", action="store_true", help="only how long a decision takes")
    options = parser.parse_args()
    if options.times:
        times()
        return
    repetitions = range(10, 15) if options.choose else range(10)
    confidences = CHOICES if options.choose else (None,)
    records: list[Record] = []
    for row in options.rows:
        errors = options.errors if row in ("false edges", "estimator") else (LARGE_ERROR,)
        for error in errors:
            for repetition in repetitions:
                for k in range(PER_CHOICE if options.choose else PER_REPETITION):
                    records += decided(row, error, 1000 * repetition + k, confidences)
    rows = table(keep(records), repetitions)
    if options.choose:
        report("doubt_choice", "The confidence, on repetitions 10 to 14", COLUMNS, rows)
    else:
        report("doubt", "Wrong estimates: errors ignored, and used", COLUMNS, rows)


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
