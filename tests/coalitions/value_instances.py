"""Random coalition values, and the plain definitions that results are compared with."""

import itertools
import math
from statistics import NormalDist

import numpy as np

from fedegoists.graphs import CompetitionGraph, CurveValues


def random_values(n: int, seed: int, *, harm: float = 0.25, errors: float = 0.2) -> CurveValues:
    """Concave values with harms, worthless pairs, powers and errors."""
    random = np.random.default_rng(seed)
    rates = random.uniform(0, 1, (n, n))
    rates[random.random((n, n)) < harm] *= -0.7
    rates[random.random((n, n)) < 0.2] = 0.0
    rate_errors = random.uniform(0, errors, (n, n))
    np.fill_diagonal(rates, 0.0)
    np.fill_diagonal(rate_errors, 0.0)
    return CurveValues(
        random.integers(20, 400, n),
        random.uniform(0, 0.05, n),
        rates,
        slope_errors=random.uniform(0, 0.01, n),
        rate_errors=rate_errors,
        powers=random.choice([0.0, -0.5, 0.5, 1.0], n),
        unit="AUC",
    )


def random_competition(n: int, seed: int, density: float = 0.2) -> CompetitionGraph:
    random = np.random.default_rng(seed + 1_000_000)
    rivals = np.triu(random.random((n, n)) < density, 1)
    return CompetitionGraph.from_numpy(rivals | rivals.T)


# The definitions, in scalars -----------------------------------------------------------------


def plain_doublings(x: float, power: float) -> float:
    def inside(t: float) -> float:
        return math.log2(t) if power == 0 else (t**power - 1) / (power * math.log(2))

    if x >= -0.5:
        return inside(1 + x)
    return inside(0.5) + (x + 0.5) * 0.5 ** (power - 1) / math.log(2)


def plain_gain(values: CurveValues, i: int, group: tuple[int, ...]) -> float:
    x = sum(values.rates[j, i] * values.samples[j] / values.samples[i] for j in group if j != i)
    return float(values.slopes[i] * plain_doublings(x, values.powers[i]))


def plain_error(values: CurveValues, i: int, group: tuple[int, ...]) -> float:
    ratio = values.samples / values.samples[i]
    others = [j for j in group if j != i]
    x = sum(values.rates[j, i] * ratio[j] for j in others)
    step = 1e-6
    power = values.powers[i]
    rise = plain_doublings(x + step, power) - plain_doublings(x - step, power)
    steepness = values.slopes[i] * rise / (2 * step)
    variance = sum((ratio[j] * values.rate_errors[j, i]) ** 2 for j in others)
    by_slope = plain_doublings(x, power) * values.slope_errors[i]
    return math.sqrt(by_slope**2 + steepness**2 * variance)


def plain_total(values: CurveValues, group: tuple[int, ...]) -> float:
    return sum(plain_gain(values, i, group) for i in group)


def plainly_admissible(
    values: CurveValues,
    competition: CompetitionGraph,
    group: tuple[int, ...],
    confidence: float,
    fewest_members: int = 1,
) -> bool:
    if len(group) == 1:
        return True
    if len(group) < fewest_members:
        return False
    if any(competition.competes(a, b) for a, b in itertools.combinations(group, 2)):
        return False
    for i in group:
        others = tuple(j for j in group if j != i)
        gain = plain_gain(values, i, group)
        given = plain_total(values, group) - gain - plain_total(values, others)
        if gain < 1e-10 or given < 1e-10:
            return False
        if confidence > 0.5:
            error = plain_error(values, i, group)
            if error and NormalDist().cdf(gain / error) < confidence:
                return False
    return True


def partitions(items: list[int]) -> "list[list[tuple[int, ...]]]":
    """All partitions of a list."""
    if not items:
        return [[]]
    first, rest = items[0], items[1:]
    found = []
    for smaller in partitions(rest):
        found.append([(first,), *smaller])
        for k, group in enumerate(smaller):
            found.append([(first, *group), *smaller[:k], *smaller[k + 1 :]])
    return found


def best_total(
    values: CurveValues,
    competition: CompetitionGraph,
    confidence: float,
    fewest_members: int = 1,
) -> float:
    """The highest total gain of any admissible partition, by trying all of them."""
    n = len(values.participants)
    worth: dict[tuple[int, ...], float] = {}
    for size in range(1, n + 1):
        for group in itertools.combinations(range(n), size):
            fine = plainly_admissible(values, competition, group, confidence, fewest_members)
            worth[group] = plain_total(values, group) if fine else -math.inf
    return max(
        sum(worth[tuple(sorted(group))] for group in partition)
        for partition in partitions(list(range(n)))
    )
