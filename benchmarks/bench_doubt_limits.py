"""What no rule can avoid under doubt, and what a few measurements bring.

    python -m benchmarks.bench_doubt_limits attainable      # the best decision on what is known
    python -m benchmarks.bench_doubt_limits measurements    # after the measurements that are named
    python -m benchmarks.bench_doubt_limits rules           # other rules, on other instances

The instances are those of `bench_doubt` with 5 % false edges, repetitions 0 to 9; for other rules
forty more of repetitions 10 to 14.

*Attainable.* Somebody knows the distributions that the instances are drawn from, which no rule does
in practice: how many benefits are real, how many false edges are listed, and the z-values of both.
So it knows the exact probability of each edge, and takes the partition with the highest benefit in
expectation, of coalitions with a free rider none. Only which edges are false it does not know. No
rule that sees the same loses less in expectation, but for one approximation: the probability that
nobody rides free is the lower bound that `form` uses.

*Measurements.* The pair that the report of a decision says to measure first is measured: it is
known then whether its benefit is real, and `form` decides again; and so on.
"""

import argparse
import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from benchmarks.bench_doubt import (
    COMPETITION,
    DENSITY,
    ERRORS,
    LISTED,
    PER_REPETITION,
    Matrix,
    disturbed,
    judged,
    judged_groups,
)
from benchmarks.bench_doubt import N as PARTICIPANTS
from benchmarks.measure import random_consortium, report
from fedegoists import BenefitGraph, CompetitionGraph, UncertainBenefits, form
from fedegoists.coalitions.array_types import Ints
from fedegoists.coalitions.doubt_report import best_measurement
from fedegoists.coalitions.exact.admissible import ValueProblem
from fedegoists.coalitions.exact.enumeration import as_columns
from fedegoists.coalitions.exact.subset_table import SubsetTable

BLOCK = 1 << 14
MOST = 4
"""Measurements, one after the other."""
SHOWN = (0, 1, 2, 4)

FRESH = range(6, 14)
"""The numbers in repetitions 10 to 14 of instances for other rules; `bench_doubt` has 0 to 5."""

Instance = tuple[BenefitGraph, CompetitionGraph, UncertainBenefits]


def instances(
    error: float, repetitions: range, numbers: range = range(PER_REPETITION)
) -> Iterator[Instance]:
    """Yield the truth, the competitors and what the decision sees."""
    for repetition in repetitions:
        for k in numbers:
            seed = 1000 * repetition + k
            truth, rivals = random_consortium(PARTICIPANTS, DENSITY, COMPETITION, seed)
            yield truth, rivals, disturbed("false edges", truth, rivals, error, seed)[0]


# What is attainable ------------------------------------------------------------------------------


def exact_probabilities(seen: UncertainBenefits, error: float) -> Matrix:
    """Return how probable each listed benefit is for somebody who knows all distributions."""
    z = np.divide(
        seen.weights, seen.errors, out=np.zeros(seen.weights.shape), where=seen.errors > 0
    )
    normal = NormalDist()
    listed = 1 - normal.cdf(LISTED - 1 / error)
    real = DENSITY * np.exp(-np.square(z - 1 / error) / 2) / listed
    false = (1 - DENSITY) * np.exp(-np.square(z) / 2)  # SHARE of them, as the tail is SHARE
    found: Matrix = np.where(seen.weights > 0, real / (real + false), 0.0)
    return found


def best_on_what_is_known(
    seen: UncertainBenefits, p: Matrix, rivals: npt.NDArray[np.bool_], least: float = 0.0
) -> list[list[int]]:
    """Return the partition with the highest expected benefit of coalitions without free riders.

    Parameters
    ----------
    p : Matrix
        The probability of each benefit.
    least : float
        The least safety of a coalition.
    """
    n = len(p)
    masks = sets_without(rivals)
    missing = np.log1p(-np.minimum(p, 1 - 2.0**-53))
    totals = np.full(1 << n, -np.inf)
    for start in range(0, len(masks), BLOCK):
        own = masks[start : start + BLOCK]
        members = as_columns(own, n)
        rows = members.astype(np.float64)
        receives = np.where(members, -np.expm1(rows @ missing), 1.0).prod(axis=1)
        safety = receives * np.where(members, -np.expm1(rows @ missing.T), 1.0).prod(axis=1)
        gains = ((rows @ (p * seen.weights)) * rows).sum(axis=1) * safety
        totals[own] = np.where((gains > 0) & (safety >= least), gains, -np.inf)
    return SubsetTable(ValueProblem(seen, rivals, 0.5), totals).partition()


def sets_without(rivals: npt.NDArray[np.bool_]) -> Ints:
    """Return all sets of two or more participants of which no two compete."""
    n = len(rivals)
    masks: Ints = np.zeros(1, dtype=np.int64)
    for k in range(n):
        apart = int((rivals[k].astype(np.int64) << np.arange(n)).sum())
        masks = np.concatenate([masks, masks[(masks & apart) == 0] | 1 << k])
    return masks[(masks & (masks - 1)) != 0]


def attainable(repetitions: range) -> None:
    """Compare the default decision with the best one on what is known."""
    rows = []
    for error in ERRORS:
        found = []
        for truth, rivals, seen in instances(error, repetitions):
            best = form(truth, rivals, time_limit=5).welfare
            p = exact_probabilities(seen, error)
            ideal = judged_groups(best_on_what_is_known(seen, p, rivals.matrix), truth, rivals)
            used = judged(form(seen, rivals), truth, rivals)
            found.append(
                [(formed, broken, 1 - kept / best) for formed, broken, kept in (used, ideal)]
            )
        numbers = np.array(found)
        apart = numbers[:, 0, 2] - numbers[:, 1, 2]
        rows.append(
            (
                error,
                len(found),
                *(_lost(numbers[:, k, 2]) for k in range(2)),
                _lost(apart),
                *(
                    f"{numbers[:, k, 1].sum():.0f} of {numbers[:, k, 0].sum():.0f}"
                    for k in range(2)
                ),
            )
        )
    columns = ("error", "instances", "lost", "lost at least", "difference", "broken",
               "broken, of the ideal")  # fmt: skip
    report("doubt_attainable", "5 % false edges: the decision, and the ideal", columns, rows)


def rules(repetitions: range) -> None:
    """Compare other rules, which count a coalition by the chance that it stands."""
    del repetitions
    error, found = ERRORS[0], []
    for truth, rivals, seen in instances(error, range(10, 15), FRESH):
        best = form(truth, rivals, time_limit=5).welfare
        known = (
            (seen.probabilities, 0.0),
            (seen.probabilities, 0.6),
            (exact_probabilities(seen, error), 0.0),
        )
        others = (best_on_what_is_known(seen, p, rivals.matrix, least) for p, least in known)
        tried = [
            judged(form(seen, rivals), truth, rivals),
            *(judged_groups(partition, truth, rivals) for partition in others),
        ]
        found.append([(formed, broken, 1 - kept / best) for formed, broken, kept in tried])
    numbers = np.array(found)
    names = ("promised, safety 0.8", "standing", "standing, safety 0.6", "ideal")
    rows = [
        (
            name,
            len(found),
            _lost(numbers[:, k, 2]),
            _lost(numbers[:, k, 2] - numbers[:, 0, 2]),
            f"{numbers[:, k, 1].sum():.0f} of {numbers[:, k, 0].sum():.0f}",
        )
        for k, name in enumerate(names)
    ]
    columns = ("rule", "instances", "lost", "less the first", "broken")
    report("doubt_rules", "5 % false edges, error 0.3: other rules", columns, rows)


def _lost(values: Matrix) -> str:
    return f"{values.mean():.1%} ± {values.std(ddof=1) / math.sqrt(len(values)):.1%}"


# Measurements ------------------------------------------------------------------------------------


def measurements(repetitions: range) -> None:
    """Measure what the report names, decide again, and so on."""
    rows = []
    for error in ERRORS:
        found = []
        for truth, rivals, seen in instances(error, repetitions):
            best = form(truth, rivals, time_limit=5).welfare
            known, steps, done = seen, [], 0
            while len(steps) <= MOST:
                decision = form(known, rivals)
                formed, broken, kept = judged(decision, truth, rivals)
                steps.append((formed, broken, 1 - kept / best, done))
                wanted = best_measurement(decision)[0] if len(steps) <= MOST else None
                if wanted is None:
                    steps += [steps[-1]] * (MOST + 1 - len(steps))
                    break
                pair = (
                    truth.participants.index(wanted.source),
                    truth.participants.index(wanted.target),
                )
                known = known.measured(*pair, real=bool(truth.weights[pair] > 0))
                done += 1
            found.append(steps)
        numbers = np.array(found)
        rows += [
            (
                error,
                len(found),
                k,
                f"{numbers[:, k, 3].mean():.1f}",
                _lost(numbers[:, k, 2]),
                f"{numbers[:, k, 1].sum():.0f} of {numbers[:, k, 0].sum():.0f}",
            )
            for k in SHOWN
        ]
    columns = ("error", "instances", "measurements, at most", "made, mean", "lost", "broken")
    report("doubt_measurements", "5 % false edges, after measurements", columns, rows)


def main() -> None:
    """Make one of the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", choices=("attainable", "measurements", "rules"))
    tables = {"attainable": attainable, "measurements": measurements, "rules": rules}
    tables[parser.parse_args().table](range(10))


if __name__ == "__main__":
    main()
