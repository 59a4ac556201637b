"""Shapley values: each member's part of what a coalition reaches, exact or by permutations.

The part of j is the mean, over all orders in which the members could join, of what its joining adds
to those before it. Values here are vectors, one number for each receiver, so one pass gives the
parts for all receivers. Beyond `MOST_EXACT` members the mean is over drawn orders, each taken
forwards and backwards.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Subset = frozenset[int]
Values = Callable[[Sequence[Subset]], Matrix]
"""A function from subsets of members, none empty, to their values: one row for each subset."""

MOST_EXACT = 6
"""The largest number of members whose subsets are all evaluated."""


def shapley_values(
    members: int, values: Values, *, seed: int = 0, permutations: int = 20, tolerance: float = 0.01
) -> Matrix:
    """Return the Shapley values of all members: one row for each member, one column a receiver.

    The columns sum to the value of all members together, also where orders are drawn. The empty
    set has a value of zero.

    Parameters
    ----------
    permutations : int
        Orders that are drawn where there are more than `MOST_EXACT` members.
    tolerance : float
        An order is cut off when all receivers' values are within this fraction of the largest
        value of all members together; the next member is given the rest.

    Examples
    --------
    Apart, two members reach 2 and 1; together, they reach 5:

    >>> reached = {frozenset({0}): 2.0, frozenset({1}): 1.0, frozenset({0, 1}): 5.0}
    >>> shapley_values(2, lambda subsets: np.array([[reached[one]] for one in subsets])).tolist()
    [[3.0], [2.0]]
    """
    if members <= MOST_EXACT:
        return _exact(members, values)
    return _sampled(members, values, np.random.default_rng(seed), permutations, tolerance)


def _exact(members: int, values: Values) -> Matrix:
    subsets = [
        frozenset(chosen)
        for size in range(1, members + 1)
        for chosen in itertools.combinations(range(members), size)
    ]
    rows = values(subsets)
    known = dict(zip(subsets, rows, strict=True))
    known[frozenset()] = np.zeros(rows.shape[1])
    found = np.zeros((members, rows.shape[1]))
    for before in known:
        # Of all orders, this fraction has exactly these members before a given other one.
        fraction = (
            1 / (members * math.comb(members - 1, len(before))) if len(before) < members else 0
        )
        for j in set(range(members)) - before:
            found[j] += fraction * (known[before | {j}] - known[before])
    return found


def _sampled(
    members: int, values: Values, rng: np.random.Generator, permutations: int, tolerance: float
) -> Matrix:
    orders = []
    for _ in range(-(-permutations // 2)):
        drawn = rng.permutation(members).tolist()
        orders += [drawn, drawn[::-1]]
    (whole,) = values([frozenset(range(members))])
    near = tolerance * np.abs(whole).max()
    found = np.zeros((members, len(whole)))
    reached = {k: np.zeros(len(whole)) for k in range(len(orders))}
    # All orders take their next member at once, so that their models are evaluated in one call.
    for size in range(1, members):
        prefixes = {k: frozenset(orders[k][:size]) for k in reached}
        wanted = sorted(set(prefixes.values()), key=sorted)
        known = dict(zip(wanted, values(wanted), strict=True)) if wanted else {}
        for k, prefix in prefixes.items():
            found[orders[k][size - 1]] += known[prefix] - reached[k]
            reached[k] = known[prefix]
            if np.abs(whole - reached[k]).max() <= near:
                found[orders[k][size]] += whole - reached.pop(k)
    for k, last in reached.items():
        found[orders[k][-1]] += whole - last
    return found / len(orders)
