"""Utilities and welfare: the one place where benefits are added up.

The definitions are those of the paper's problem description. The utility of i in a coalition S is
the sum of the benefits it receives there, u_i(S) = Σ_{j ∈ S} W[j, i]; the utility u(S) of S is the
sum over its members; the welfare of a partition is the sum over its coalitions.

All sums are rounded once (`math.fsum`), so that the order of the summands does not matter.
"""

import math
import operator
from collections.abc import Sequence
from itertools import chain

import numpy as np

from fedegoists.coalitions.array_types import Floats, Partition


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


def welfare(weights: Floats, partition: Partition) -> float:
    """Return the sum of the benefits inside the coalitions, Σ_S u(S).

    Examples
    --------
    >>> welfare(np.array([[0, 2, 0], [1, 0, 5], [4, 0, 0]]), [[0, 1], [2]])
    3.0
    """
    return math.fsum(chain.from_iterable(_inside(weights, group) for group in partition))


def welfare_change(weights: Floats, before: Partition, after: Partition) -> float:
    """Return by how much the utilities of some coalitions exceed those of others, rounded once.

    Subtracting two welfares would lose a small change beside a large welfare.
    """
    gained = chain.from_iterable(_inside(weights, group) for group in after)
    lost = chain.from_iterable(_inside(weights, group) for group in before)
    return math.fsum(chain(gained, map(operator.neg, lost)))


def _inside(weights: Floats, group: Sequence[int]) -> list[float]:
    """Return the benefits inside a coalition."""
    if len(group) < 2:
        return []
    benefits: list[float] = weights[np.ix_(group, group)].ravel().tolist()
    return benefits
