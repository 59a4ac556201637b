"""Clique covers: line 3 of Algorithm 1.

The paper covers the participants by maximal cliques of the inverse competition graph, sets of
pairwise independent participants. Maximal cliques overlap, so the paper leaves open which ones. The
rule here: repeatedly take a largest clique among the participants not yet covered; of several
largest ones the lexicographically smallest.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.contraction import (
    Budget,
    BudgetSpentError,
    bits,
    rows_as_bitsets,
)

CLIQUE_WORK = 6_000_000
"""Budget of the search for all cliques of a cover, in branches times nodes; n = 100 needs up to
25,000 branches."""


def clique_cover(
    adjacency: npt.NDArray[np.bool_],
    steps: int | None = None,
    deadline: float = math.inf,
) -> tuple[list[list[int]], bool]:
    """Cover all nodes of a graph by disjoint cliques, a largest one first.

    Parameters
    ----------
    adjacency : symmetric boolean array of shape (n, n)
        Which nodes are adjacent; the diagonal is false.
    steps : int, optional
        The budget of all searches together. When it ends, greedy cliques are taken.
    deadline : float
        When to abandon the computation with `OutOfTimeError`, by `time.perf_counter`.

    Returns
    -------
    cliques : list of list of int
        Disjoint cliques that together hold every node, members ascending.
    proven : bool
        Whether every clique is proven to be the one of the rule.

    Examples
    --------
    A path 0 - 1 - 2: the largest cliques are {0, 1} and {1, 2}, and {0, 1} comes first.

    >>> path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> clique_cover(path)
    ([[0, 1], [2]], True)
    """
    order = _hardest_last(adjacency)
    neighbours = rows_as_bitsets(adjacency[np.ix_(order, order)])
    place = [0] * len(order)  # the bit of each node
    for bit, k in enumerate(order):
        place[k] = bit
    left = (1 << len(order)) - 1
    cliques: list[list[int]] = []
    proven = True
    budget = Budget(CLIQUE_WORK // max(len(order), 1) if steps is None else steps, deadline)
    while left:
        budget.check_time()
        clique, sure = _largest_clique(neighbours, place, left, budget)
        proven &= sure
        cliques.append(sorted(order[bit] for bit in bits(clique)))
        left &= ~clique
    return cliques, proven


def _hardest_last(adjacency: npt.NDArray[np.bool_]) -> list[int]:
    """Order the nodes so that branch and bound starts with those of fewest neighbours.

    Branching starts at the highest bit. Repeatedly taking out the node with fewest neighbours among
    those left, and putting it last, keeps the sets to search small: a hundred times fewer steps at
    n = 100.
    """
    degree = adjacency.sum(axis=1)
    taken = np.zeros(len(degree), dtype=bool)
    order: list[int] = []
    for _ in degree:
        k = int(np.where(taken, len(degree), degree).argmin())
        taken[k] = True
        degree = degree - adjacency[k]
        order.append(k)
    return order[::-1]


def _largest_clique(
    neighbours: Sequence[int], place: Sequence[int], nodes: int, budget: Budget
) -> tuple[int, bool]:
    """Return the lexicographically first of the largest cliques, and whether that is proven.

    `place` is the bit of each node.
    """
    best = _greedy_clique(neighbours, nodes)
    try:
        while larger := _clique_of_size(neighbours, nodes, best.bit_count() + 1, budget):
            best = larger
        # Fix the members from the smallest on: a node belongs to the answer if a clique of this
        # size exists with it, the members fixed so far, and otherwise only larger nodes.
        missing = best.bit_count()
        fixed = 0
        for bit in place:
            low = 1 << bit
            if missing == 0:
                break
            if not nodes & low:
                continue
            nodes ^= low
            if not best & low:
                others = _clique_of_size(neighbours, nodes & neighbours[bit], missing - 1, budget)
                if others is None:
                    continue
                best = fixed | low | others
            fixed |= low
            missing -= 1
            nodes &= neighbours[bit]
    except BudgetSpentError:
        return best, False
    return best, True


def _greedy_clique(neighbours: Sequence[int], nodes: int) -> int:
    """Return a clique: repeatedly the node with most neighbours left."""
    clique = 0
    while nodes:
        k = max(bits(nodes), key=lambda k: (nodes & neighbours[k]).bit_count())
        clique |= 1 << k
        nodes &= neighbours[k]
    return clique


def _clique_of_size(neighbours: Sequence[int], nodes: int, size: int, budget: Budget) -> int | None:
    """Return a clique of the given size, or None if there is none (branch and bound).

    Nodes are coloured so that adjacent ones differ. A clique has at most one node of a colour, so
    one of m members needs a node beyond the first m − 1 colours: only these are branched on (Tomita
    and Seki, 2003).
    """
    branches = [(0, nodes, size)]
    while branches:
        clique, nodes, missing = branches.pop()
        if missing == 0:
            return clique
        if nodes.bit_count() < missing:
            continue
        budget.spend()
        colour = 0
        uncoloured = nodes
        beyond: list[int] = []
        while uncoloured:
            colour += 1
            available = uncoloured
            while available:
                low = available & -available
                k = low.bit_length() - 1
                available &= ~(low | neighbours[k])
                uncoloured ^= low
                if colour >= missing:
                    beyond.append(k)
        # The last coloured node is tried first; later branches exclude it, and so on.
        allowed = nodes
        tries = []
        for k in reversed(beyond):
            tries.append((clique | 1 << k, allowed & neighbours[k], missing - 1))
            allowed &= ~(1 << k)
        branches.extend(reversed(tries))
    return None
