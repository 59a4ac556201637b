"""The partition of highest total gain of up to 20 participants, with proof.

All admissible coalitions are listed, and the best partition follows by dynamic programming over all
subsets; see `enumeration` for the recursion. That is 2^20 coalitions and 3^19 / 2 steps at most.
"""

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Partition
from fedegoists.coalitions.exact.admissible import ValueProblem, admissible_values
from fedegoists.coalitions.exact.enumeration import as_columns, divided, is_small
from fedegoists.coalitions.exact.set_partitioning import choose, partition_of
from fedegoists.coalitions.exact.solvers import has_solver, missing_packages

MOST_EXACT = 20
"""Participants for which all partitions are compared; each further one triples the work."""

MOST_UNCOMPILED = 16
"""The same without Numba."""

TIED = 1e-11
"""Partitions whose total gain is lower by no more than this fraction are as good as the best."""

MOST_TIED = 2000
"""With more coalitions in best partitions, none that moves few is looked for."""


def most_exact() -> int:
    """Return the largest number of participants for which all partitions are compared."""
    return MOST_UNCOMPILED if "Numba" in missing_packages() else MOST_EXACT


def best_by_values(problem: ValueProblem, keep: Partition = ()) -> list[list[int]]:
    """Return a partition of the highest total gain.

    Parameters
    ----------
    keep : partition, optional
        Among equally good partitions prefer one that moves few participants away from this one.
    """
    n = problem.n
    if n < 2:
        return [[i] for i in range(n)]
    values = admissible_values(problem)
    masks = np.flatnonzero(values > -np.inf)
    # The last participant matters for the full set only, unless every best partition is wanted.
    best = best_of_all_subsets(values, masks, n if keep else n - 1)
    chosen = _chosen(values, masks, best, n)
    if keep:
        whole = (1 << n) - 1
        tied = masks[values[masks] + best[whole ^ masks] >= best[-1] * (1 - TIED)]
        if len(chosen) < len(tied) <= MOST_TIED and has_solver():
            columns = as_columns(tied, n)
            return _moving_few(columns, values[tied], float(best[-1]), keep)
    return partition_of(as_columns(chosen, n))


def _moving_few(columns: Bools, values: Floats, best: float, keep: Partition) -> list[list[int]]:
    choice = choose(
        columns,
        values,
        at_most=best * (1 + TIED),
        deadline=np.inf,
        work=10.0,
        seed=0,
        keep=keep,
    )
    return choice.partition


def best_of_all_subsets(values: Floats, masks: Ints, n: int) -> Floats:
    """Return the best total of every set of the first n participants."""
    if not is_small(n) and "Numba" not in missing_packages():
        from fedegoists.coalitions.exact.subset_kernel import best_of_subsets

        return best_of_subsets(values, masks, n)
    best = np.zeros(1)
    for i in range(n):
        joined = values[1 << i : 2 << i]  # the coalitions of i with participants below it
        best = np.concatenate([best, np.maximum(best, divided(joined, best))])
    return best


def _chosen(values: Floats, masks: Ints, best: Floats, n: int) -> Ints:
    """Return the coalitions of two or more of a best partition."""
    left = (1 << n) - 1
    chosen = []
    for i in reversed(range(n)):
        if not left >> i & 1:
            continue
        fits = masks[((masks >> i) == 1) & ((masks & ~left) == 0)]
        totals = values[fits] + best[left ^ fits]
        left ^= 1 << i
        if totals.max(initial=-np.inf) > best[left]:
            chosen.append(int(fits[totals.argmax()]))
            left &= ~chosen[-1]
    return np.array(sorted(chosen), dtype=np.int64)
