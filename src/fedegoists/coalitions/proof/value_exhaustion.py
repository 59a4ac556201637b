"""The best partition under coalition values, found out by trying all of them.

Like `value_principles`, this module judges the results of the searches and uses none of their code.
"""

from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.value_principles import Judge

MOST_TRIED = 12
"""All partitions are tried for up to this many participants."""


def best_by_trying_all(judge: Judge) -> tuple[float, tuple[Coalition, ...]]:
    """Return the highest total gain of any valid partition, and such a partition.

    The best partition of a set is a coalition with its first member, and the best partition of the
    rest, which is a smaller set.
    """
    names = judge.values.participants
    rivals = judge.competition
    worth: dict[int, float] = {}
    for mask in range(1, 1 << len(names)):
        group = tuple(name for k, name in enumerate(names) if mask >> k & 1)
        if any(rivals.competes(a, b) for a in group for b in group if a < b):
            continue
        if judge.admits(group):
            worth[mask] = judge.total(group)
    by_first: list[list[int]] = [[] for _ in names]
    for mask in worth:
        by_first[(mask & -mask).bit_length() - 1].append(mask)
    best: list[tuple[float, int]] = [(0.0, 0)]
    for mask in range(1, 1 << len(names)):
        first = (mask & -mask).bit_length() - 1
        fitting = (part for part in by_first[first] if not part & ~mask)
        best.append(max((worth[part] + best[mask ^ part][0], part) for part in fitting))
    coalitions = []
    left = (1 << len(names)) - 1
    while left:
        chosen = best[left][1]
        coalitions.append(tuple(name for k, name in enumerate(names) if chosen >> k & 1))
        left ^= chosen
    return best[-1][0], tuple(coalitions)
