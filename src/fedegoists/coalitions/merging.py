"""The search for a set of coalitions that should merge (the set Π of Equation 2).

A set of two or more coalitions can be united with gain if and only if its members are pairwise
independent, every single in it has a predecessor and a successor in it, and some benefit edge joins
two of them. Two facts make a short search sufficient:

- A single that is in no such set now is in none after any merge either: replace the merged
  coalition by its parts, and the set existed before. So every single is looked at once.
- When no single is left that could join anything, the only sets to merge are two big coalitions
  with an edge between them.

Where at least k members are demanded, every big coalition has them already, so the union of a set
is too small only if the set consists of fewer than k singles. Both facts stay true: replacing a
merged coalition by its parts does not change the number of members, and two big coalitions have
enough of them. But a set may then need a node without any edge into it, only for its size.
"""

from fedegoists.coalitions.contraction import (
    Budget,
    BudgetSpentError,
    Contraction,
    bits,
    lowest,
)

STEPS_PER_SINGLE = 20_000
"""Budget of the search for one single, in branches; then stability is "not proven"."""


def sustained(z: Contraction, available: int, removed: int | None = None) -> int:
    """Drop singles without a predecessor or without a successor, until none is left.

    The rest is the largest subset of `available` in which every single has both: no merge inside
    `available` can use any other node. Where `available` is a sustained set without the nodes
    `removed`, only the neighbours of these are looked at.
    """
    successors, predecessors = z.successors, z.predecessors
    pending = available & ~z.big
    if removed is not None:
        pending &= _neighbours(z, removed)
    while pending:
        low = pending & -pending
        pending ^= low
        k = low.bit_length() - 1
        if not (predecessors[k] & available and successors[k] & available):
            available ^= low
            # Only its neighbours can have lost their last support.
            pending |= (predecessors[k] | successors[k]) & available & ~z.big
    return available


def joinable_with(
    z: Contraction, single: int, available: int, budget: Budget, fewest_members: int = 1
) -> int | None:
    """Return a set of nodes that contains `single` and can merge with gain; None if there is none.

    Parameters
    ----------
    available
        The nodes the set may use: a sustained set of nodes.
    fewest_members
        The fewest participants that the set must have altogether.

    Raises
    ------
    BudgetSpentError
        If neither could be shown within the budget.
    """
    start = 1 << single
    if not available & start:
        return None
    rivals = available & z.rivals[single]
    available &= ~rivals & ~start

    # The most frequent answers first: a partner that gives and takes, then a cycle of three.
    mutual = z.successors[single] & z.predecessors[single] & available
    if mutual and (fewest_members <= 2 or mutual & z.big):
        return start | 1 << lowest(mutual & z.big or mutual)
    givers = z.predecessors[single] & available
    for k in bits(z.successors[single] & available):
        closing = z.successors[k] & givers & ~z.rivals[k]
        if fewest_members > 3 and not z.big >> k & 1:
            closing &= z.big
        if closing:
            return start | 1 << k | 1 << lowest(closing)

    available = sustained(z, available | start, rivals)
    branches = [(start, available)] if available & start else []
    while branches:
        budget.spend()
        chosen, available = branches.pop()
        candidates = _scarcest_need(z, chosen, available)
        if candidates is None:
            if chosen & z.big or chosen.bit_count() >= fewest_members:
                return chosen
            # All needs are met, but there are too few: any other node may be the next one. Nodes
            # that use data of the set, or are used by it, come first.
            candidates = _neighbours(z, chosen) & available or available & ~chosen
            if not candidates & z.big and available.bit_count() < fewest_members:
                continue
        candidate = 1 << lowest(candidates & z.big or candidates)
        # Either it is in the set, or it is not; the stack looks at sets with it first.
        without = sustained(z, available & ~candidate, candidate)
        if chosen & ~without == 0:
            branches.append((chosen, without))
        more = chosen | candidate
        rivals = available & z.rivals[candidate.bit_length() - 1]
        rest = sustained(z, available & ~rivals, rivals)
        if more & ~rest == 0:
            branches.append((more, rest))
    return None


def _scarcest_need(z: Contraction, chosen: int, available: int) -> int | None:
    """Return the candidates for the unmet need that has fewest; None if all needs are met."""
    best, fewest = None, 1 << 62
    for k in bits(chosen & ~z.big):
        for neighbours in (z.predecessors[k], z.successors[k]):
            if not neighbours & chosen:
                candidates = neighbours & available
                count = candidates.bit_count()
                if count < fewest:
                    best, fewest = candidates, count
    return best


def _neighbours(z: Contraction, chosen: int) -> int:
    """Return the other nodes that benefit a set of nodes or are benefited by it."""
    near = 0
    for k in bits(chosen):
        near |= z.predecessors[k] | z.successors[k]
    return near & ~chosen


def _with_followers(z: Contraction, group: int, available: int) -> int:
    """Add independent singles that give to and take from the group.

    One merge of many is much cheaper than many merges of two.
    """
    gives = takes = rivals = 0
    for k in bits(group):
        gives |= z.predecessors[k]
        takes |= z.successors[k]
        rivals |= z.rivals[k]
    available &= ~z.big & ~group
    while candidates := gives & takes & available & ~rivals:
        k = lowest(candidates)
        group |= 1 << k
        available &= ~(1 << k)
        gives |= z.predecessors[k]
        takes |= z.successors[k]
        rivals |= z.rivals[k]
    return group


def stabilise(
    z: Contraction, steps_per_single: int = STEPS_PER_SINGLE, fewest_members: int = 1
) -> tuple[list[list[int]], bool]:
    """Merge until no set of coalitions is left that should merge.

    Parameters
    ----------
    z : Contraction
        Its big coalitions have at least `fewest_members` members.

    Returns
    -------
    merges : list of list of int
        The member sets of the coalitions that were united, one list for each merge, in order.
    proven : bool
        Whether the result is proven to be merge-stable; False if a budget ended.
    """
    merges: list[list[int]] = []
    proven = True

    def merge(group: int) -> int:
        merges.append([z.members[k] for k in bits(group)])
        return z.merge(group)

    alive = sustained(z, z.nodes)
    for single in bits(z.nodes & ~z.big):
        low = 1 << single
        # It may have been merged meanwhile, with a smaller node or as the smallest of a group.
        if not alive & z.nodes & low or z.big & low:
            continue
        try:
            budget = Budget(steps_per_single)
            group = joinable_with(z, single, alive & z.nodes, budget, fewest_members)
        except BudgetSpentError:
            proven = False
            continue
        if group is None:
            alive = sustained(z, alive & z.nodes & ~low, low)
        else:
            merge(_with_followers(z, group, alive & z.nodes))

    # A big coalition without a partner now gets none by merges among the others.
    unsettled = z.big
    while unsettled:
        k = lowest(unsettled)
        partners = (z.successors[k] | z.predecessors[k]) & z.big & ~z.rivals[k]
        if partners:
            group = 1 << k | 1 << lowest(partners)
            unsettled = unsettled & ~group | 1 << merge(group)
        else:
            unsettled ^= 1 << k
    return merges, proven
