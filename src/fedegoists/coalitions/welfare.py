"""Utilities and welfare: the one place where benefits are added up.

The definitions are those of the paper's problem description. The utility of i in a coalition S is
the sum of the benefits it receives there, u_i(S) = Σ_{j ∈ S} W[j, i]; the utility u(S) of S is the
sum over its members; the welfare of a partition is the sum over its coalitions.

All sums are rounded once (`math.fsum`), so that the order of the summands does not matter.

With coalition values, the utility of i is its expected gain, and the welfare the total of these.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Partition
from fedegoists.graphs import BenefitGraph, CoalitionValues
from fedegoists.graphs.coalition_values import Benefits
from fedegoists.graphs.participant_graph import Entries


def utilities(weights: Floats, partition: Partition) -> Floats:
    """Return the utility u_i(S) of every participant in its coalition S.

    Examples
    --------
    >>> utilities(np.array([[0, 2, 0], [1, 0, 5], [4, 0, 0]]), [[0, 1], [2]]).tolist()
    [1.0, 2.0, 0.0]
    """
    received = np.zeros(len(weights))
    for group in partition:
        if len(group) > 1:
            inside = weights[np.ix_(group, group)].T.tolist()
            received[list(group)] = [math.fsum(column) for column in inside]
    return received


def welfare(weights: Floats | Entries[np.float64], partition: Partition) -> float:
    """Return the sum of the benefits inside the coalitions, Σ_S u(S).

    Examples
    --------
    >>> welfare(np.array([[0, 2, 0], [1, 0, 5], [4, 0, 0]]), [[0, 1], [2]])
    3.0
    """
    if isinstance(weights, Entries):
        return math.fsum(weights.values[_together(weights, partition)].tolist())
    return math.fsum(chain.from_iterable(_inside(weights, group) for group in partition))


def _inside(weights: Floats, group: Sequence[int]) -> list[float]:
    """Return the benefits inside a coalition."""
    if len(group) < 2:
        return []
    benefits: list[float] = weights[np.ix_(group, group)].ravel().tolist()
    return benefits


def _together(entries: Entries[np.float64], partition: Partition) -> Bools:
    """Return which entries of a matrix are between members of one coalition."""
    home = np.full(entries.n, -1)
    for number, group in enumerate(partition):
        home[list(group)] = number
    rows = home[entries.rows]
    return np.asarray((rows == home[entries.columns]) & (rows >= 0))


# Coalition values --------------------------------------------------------------------------------


def as_rows(partition: Partition, n: int) -> Bools:
    """Return coalitions as rows of a boolean matrix, with a column per participant."""
    rows = np.zeros((len(partition), n), dtype=np.bool_)
    for row, group in zip(rows, partition, strict=True):
        row[list(group)] = True
    return rows


def expected_gains(values: CoalitionValues, partition: Partition) -> Floats:
    """Return the expected gain of every participant in its coalition."""
    return np.asarray(values.gains(as_rows(partition, len(values.participants))).sum(axis=0))


def gain_errors(values: CoalitionValues, partition: Partition) -> Floats:
    """Return the standard error of the expected gain of every participant."""
    rows = as_rows(partition, len(values.participants))
    return np.asarray(values.standard_errors(rows).sum(axis=0))


def total_gain(values: CoalitionValues, partition: Partition) -> float:
    """Return the total expected gain of some coalitions, not necessarily of everybody."""
    return math.fsum(expected_gains(values, partition).tolist())


# Either ------------------------------------------------------------------------------------------


def utilities_by(benefits: Benefits, partition: Partition) -> Floats:
    """Return the utility of every participant, by a benefit graph or by coalition values."""
    if not isinstance(benefits, BenefitGraph):
        return expected_gains(benefits, partition)
    _, takers, weights, n = benefits.entries
    inside = _together(benefits.entries, partition)
    received = [list[float]() for _ in range(n)]
    for taker, weight in zip(takers[inside].tolist(), weights[inside].tolist(), strict=True):
        received[taker].append(weight)
    return np.array([math.fsum(own) for own in received])


def welfare_by(benefits: Benefits, partition: Partition) -> float:
    """Return the welfare of some coalitions, by a benefit graph or by coalition values."""
    if isinstance(benefits, BenefitGraph):
        return welfare(benefits.entries, partition)
    return total_gain(benefits, partition)


def welfare_change_by(benefits: Benefits, before: Partition, after: Partition) -> float:
    """Return by how much the utilities of some coalitions exceed those of others, rounded once."""
    if isinstance(benefits, BenefitGraph):
        # Subtracting two welfares would lose a small change beside a large welfare.
        gained, lost = _among(benefits, after), _among(benefits, before)
        return math.fsum(chain(gained, map(operator.neg, lost)))
    gained = expected_gains(benefits, after).tolist()
    lost = expected_gains(benefits, before).tolist()
    return math.fsum(chain(gained, map(operator.neg, lost)))


def _among(benefit: BenefitGraph, partition: Partition) -> Iterator[float]:
    """Iterate over the benefits inside some coalitions."""
    for group in partition:
        if len(group) > 1:
            yield from benefit.inside(group).tolist()
