"""Groups of pairwise independent participants: the largest one, and a cover by such groups.

The paper covers the participants by cliques of the inverse competition graph and leaves open which.
The rule here: repeatedly take a largest clique among the participants not yet covered; of several
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
"""Branches times nodes that the search for all cliques of a cover may take; n = 100 needs up to
25,000 branches of 100."""


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
        The budget of all searches together. When it ends, the largest cliques found without search
        are taken.
    deadline : float
        When to abandon everything with `OutOfTimeError`.

    Returns
    -------
    cliques : list of list of int
        Disjoint cliques that together hold every node, members ascending.
    proven : bool
        Whether every clique is shown to be the one the rule asks for.

    Examples
    --------
    A path 0 - 1 - 2: the largest cliques are {0, 1} and {1, 2}, and {0, 1} comes first.

    >>> path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> clique_cover(path)
    ([[0, 1], [2]], True)
    """
    order = _hardest_last(adjacency)
    neighbours = rows_as_bitsets(adjacency[np.ix_(order, order)])
    place = [0] * len(order)  # of node k among the bits
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
    """Order the nodes so that branch and bound meets those with fewest neighbours first.

    Branching starts at the highest bit. Taking out the node with fewest neighbours among those left
    and putting it last makes the sets to search small (a hundred times fewer steps at n = 100).
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
    """Return the first of the largest cliques among some nodes, and whether that is proven.

    First is meant lexicographically by node; `place` tells which bit stands for a node.
    """
    best = _greedy_clique(neighbours, nodes)
    try:
        while larger := _clique_of_size(neighbours, nodes, best.bit_count() + 1, budget):
            best = larger
        # Fix the members from the smallest on: a node belongs to the answer if a clique of the same
        # size exists that has it, the members fixed so far, and otherwise only larger nodes.
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
    """Take the node with most neighbours left, again and again."""
    clique = 0
    while nodes:
        k = max(bits(nodes), key=lambda k: (nodes & neighbours[k]).bit_count())
        clique |= 1 << k
        nodes &= neighbours[k]
    return clique


def _clique_of_size(neighbours: Sequence[int], nodes: int, size: int, budget: Budget) -> int | None:
    """Return a clique of the given size, or None if there is none (branch and bound).

    Nodes are coloured so that adjacent ones differ; a clique has at most one node of a colour, so
    only nodes beyond the colours that can be spared need to be branched on (Tomita and Seki, 2003).
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
        # The last coloured node is tried first; the next one may then do without it, and so on.
        allowed = nodes
        tries = []
        for k in reversed(beyond):
            tries.append((clique | 1 << k, allowed & neighbours[k], missing - 1))
            allowed &= ~(1 << k)
        branches.extend(reversed(tries))
    return None
