"""Algorithm 1 of the paper, with a rule for each choice that it leaves open.

Chen, Wu, Tang, He, Ong, Liu, Lao and Yu, "Free-Rider and Conflict Aware Collaboration Formation for
Cross-Silo Federated Learning", NeurIPS 2024.

Lines 1 to 6 cover the participants by cliques of the inverse competition graph and take the
strongly connected components of the benefit graph inside each; the paper's baselines train in
these coalitions. Lines 7 to 11 merge them: along cycles through a single (MergeCycle, Algorithm 2),
along paths between two big coalitions through singles (MergePath, Algorithm 4), and along edges
between two big ones (MergeNeighbors, Algorithm 5). The paper leaves open which cycle, path or edge
comes first; here it is the one of fewest coalitions and, of these, the lexicographically smallest.
It is found by a bounded search; cycles and paths are never listed.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.cliques import clique_cover
from fedegoists.coalitions.contraction import (
    Budget,
    BudgetSpentError,
    Contraction,
    bits,
    lowest,
)
from fedegoists.coalitions.merging import STEPS_PER_SINGLE, joinable_with, sustained

MERGE_WORK = 20_000_000
"""Budget of the searches for cycles and paths, in steps times nodes."""


def baseline_coalitions(
    z: Contraction,
    competition: npt.NDArray[np.bool_],
    cover: list[list[int]] | None,
    deadline: float = math.inf,
) -> tuple[list[list[int]], bool]:
    """Lines 1 to 6 of Algorithm 1: cliques, then strongly connected components inside each.

    Returns the coalitions as positions, and whether the cliques are proven to be the largest.
    """
    proven = True
    if cover is None:  # lines 2 and 3: cliques of the inverse competition graph
        independent = ~competition
        np.fill_diagonal(independent, False)
        cover, proven = clique_cover(independent, deadline=deadline)
    return [  # lines 4 to 6
        component
        for clique in cover
        for component in _strong_components(z, sum(1 << k for k in clique))
    ], proven


def _strong_components(z: Contraction, nodes: int) -> Iterable[list[int]]:
    """Yield the strongly connected components: the nodes reached both forwards and backwards."""
    while nodes:
        start = nodes & -nodes
        component = _reached(z.successors, start, nodes) & _reached(z.predecessors, start, nodes)
        yield list(bits(component))
        nodes &= ~component


def _reached(table: list[int], start: int, nodes: int) -> int:
    reached = frontier = start
    while frontier:
        k = lowest(frontier)
        frontier ^= 1 << k
        new = table[k] & nodes & ~reached
        reached |= new
        frontier |= new
    return reached


def merge_as_published(
    z: Contraction, deadline: float = math.inf
) -> tuple[list[tuple[str, list[int]]], bool]:
    """Lines 7 to 11 of Algorithm 1.

    Returns
    -------
    merges : list of (rule, member sets)
        The coalitions united, by the rule ``cycle``, ``path`` or ``neighbors``.
    proven : bool
        Whether every merge was the smallest one and none is left; False if the budget ended.
    """
    budget = Budget(MERGE_WORK // max(z.nodes.bit_length(), 1), deadline)
    merges: list[tuple[str, list[int]]] = []
    joinable = _joinable_singles(z, deadline)
    # Cycles before paths before neighbours, and from the start again after every merge: the nested
    # while-loops of Algorithms 2, 4 and 5 amount to this.
    rules: tuple[tuple[str, Callable[[Contraction, int, Budget], int | None]], ...] = (
        ("cycle", _smallest_cycle),  # line 9
        ("path", _smallest_path),  # line 10
        ("neighbors", _smallest_neighbors),  # line 11
    )
    try:
        found = True
        while found:
            found = False
            budget.check_time()
            for rule, smallest in rules:
                group = smallest(z, joinable & z.nodes & ~z.big, budget)
                if group is not None:
                    merges.append((rule, [z.members[k] for k in bits(group)]))
                    z.merge(group)
                    found = True
                    break
    except BudgetSpentError:
        return merges, False
    return merges, True


def _joinable_singles(z: Contraction, deadline: float) -> int:
    """Return the singles that some merge could use; no later merge can use the others."""
    alive = sustained(z, z.nodes)
    for single in bits(alive & ~z.big):
        if alive >> single & 1:
            try:
                if joinable_with(z, single, alive, Budget(STEPS_PER_SINGLE, deadline)) is None:
                    alive = sustained(z, alive & ~(1 << single), 1 << single)
            except BudgetSpentError:
                continue  # neither found nor excluded, so it stays
    return alive & ~z.big


def _smallest_neighbors(z: Contraction, _: int, __: Budget) -> int | None:
    """Return the first pair that satisfies the node condition: independent, big, with an edge."""
    for k in bits(z.big):
        partners = (z.successors[k] | z.predecessors[k]) & z.big & ~z.rivals[k]
        if partners:
            # k is the smallest that has a partner, so all its partners are larger.
            return 1 << k | 1 << lowest(partners)
    return None


def _smallest_cycle(z: Contraction, singles: int, budget: Budget) -> int | None:
    """Return the smallest set that satisfies the cycle condition: a cycle through a single."""
    usable = singles | z.big
    starts = [(k, usable & ~z.rivals[k] & ~(1 << k), 1 << k) for k in bits(singles)]
    return _smallest_chain(z, starts, z.nodes, 2, budget)


def _smallest_path(z: Contraction, singles: int, budget: Budget) -> int | None:
    """Return the smallest set that satisfies the path condition: big, through singles, to big."""
    starts = []
    for k in bits(z.big):
        free = ~z.rivals[k] & ~(1 << k)
        starts.append((k, (singles | z.big) & free, z.big & free))
    return _smallest_chain(z, starts, singles, 3, budget)


def _smallest_chain(
    z: Contraction, starts: list[tuple[int, int, int]], inner: int, size: int, budget: Budget
) -> int | None:
    """Return the smallest set of independent nodes on a chain start → inner … → goal.

    Each start comes with the nodes its chain may use and its goals: for a cycle the start itself,
    for a path the other big coalitions. The size of the chain starts at `size` nodes and is
    increased one by one, so that the first hit is smallest.
    """
    while starts:
        best: int | None = None
        unfinished = []
        for start, usable, goals in starts:
            group, deeper = _chain_of_size(z, start, usable, goals, inner, size, best, budget)
            best = group if group is not None else best
            if deeper:
                unfinished.append((start, usable, goals))
        if best is not None:
            return best
        starts = unfinished
        size += 1
    return None


def _chain_of_size(
    z: Contraction,
    start: int,
    usable: int,
    goals: int,
    inner: int,
    size: int,
    best: int | None,
    budget: Budget,
) -> tuple[int | None, bool]:
    """Return a chain of exactly `size` nodes that precedes `best`, and whether to look deeper.

    A depth-first search that knows the distance of each node from a goal. A smallest chain has no
    short cut: it uses only one successor of each node, the next one.
    """
    cyclic = bool(goals >> start & 1)
    # near[d]: nodes from which a goal is at most d edges away.
    near = [goals]
    grown = 0
    for k in bits(goals):
        grown |= z.predecessors[k]
    grown &= usable & inner
    while grown & ~near[-1]:
        near.append(near[-1] | grown)
        step = 0
        for k in bits(grown):
            step |= z.predecessors[k]
        grown |= step & usable & inner
    edges = size if cyclic else size - 1
    found: int | None = None
    deeper = False
    # (nodes so far, last node, nodes that may follow, edges left)
    chains = [(1 << start, start, usable, edges)]
    while chains:
        budget.spend()
        group, last, free, left = chains.pop()
        following = z.successors[last] & free
        if left == 1:
            ends = z.successors[last] & goals & (free | 1 << start if cyclic else free)
            if ends:
                complete = group if cyclic else group | 1 << lowest(ends)
                if best is None or _comes_before(complete, best):
                    best = found = complete
            deeper = deeper or bool(following & inner & near[-1])
            continue
        following &= inner
        reach = near[min(left - 1, len(near) - 1)]
        deeper = deeper or bool(following & near[-1] & ~reach)
        rest = free & ~following
        if not cyclic:
            rest |= free & goals
        chains.extend(
            (group | 1 << k, k, rest & ~z.rivals[k], left - 1) for k in bits(following & reach)
        )
    return found, deeper


def _comes_before(one: int, other: int) -> bool:
    """Return whether a set precedes another of equal size, both as ascending lists."""
    return bool(one != other and one >> lowest(one ^ other) & 1)
