"""Whether any partition is better by an objective, found out by trying all of them.

Like `principles`, this decides whether to believe the rest of the package, so it uses none of it:
it works on sets and the two graphs, for a few participants at a time, and is meant to be read.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedegoists.graphs import BenefitGraph, CompetitionGraph

__all__ = ["MOST_LISTED", "Exhausted", "exhaust", "is_better", "objective_value"]

MOST_LISTED = 12
"""So many participants that belong together can have all their partitions tried."""

SAME = 1e-9
"""Benefits that differ by no more than this part of them are taken as equal."""

Key = tuple[float, ...]


@dataclass(frozen=True)
class Exhausted:
    """What trying all partitions gave.

    Attributes
    ----------
    better : tuple of coalitions or None
        A partition that is better by the objective, if there is one.
    complete : bool
        False if too many belong together to try all.
    """

    better: tuple[tuple[str, ...], ...] | None
    complete: bool


def objective_value(
    benefit: BenefitGraph, coalitions: Iterable[Sequence[str]], objective: str
) -> float:
    """Return the number a partition is first judged by: the least received, or how many are alone.

    Examples
    --------
    >>> benefit = BenefitGraph.from_edges([("a", "b", 2), ("b", "a", 3)], ["a", "b", "c"])
    >>> objective_value(benefit, [("a", "b"), ("c",)], "participation")
    1.0
    >>> objective_value(benefit, [("a", "b"), ("c",)], "fair")
    0.0
    """
    if objective == "participation":
        return float(sum(len(group) == 1 for group in coalitions))
    received = [value for group in coalitions for value in _received(benefit, group)]
    return min(received, default=0.0)


def exhaust(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    coalitions: Sequence[Sequence[str]],
    objective: str,
) -> Exhausted:
    """Look for a partition that is better by ``fair`` or ``participation`` than this one.

    Whoever neither benefits nor is benefited across two sets of participants can be looked at apart
    from the other set: a coalition across both could be split between them, and nobody would lose.

    Examples
    --------
    a and b could be together, which is fairer than both alone:

    >>> benefit = BenefitGraph.from_edges([("a", "b", 2), ("b", "a", 3)], ["a", "b"])
    >>> exhaust(benefit, CompetitionGraph([], ["a", "b"]), [("a",), ("b",)], "fair").better
    (('a', 'b'),)
    """
    key, _ = _JUDGEMENTS[objective]
    for part in _parts(benefit, competition):
        if len(part) > MOST_LISTED:
            return Exhausted(None, False)
        inside = set(part)
        mine = [tuple(name for name in group if name in inside) for group in coalitions]
        mine = [group for group in mine if group]
        best = _best(benefit, competition, part, key)
        if is_better(benefit, best, mine, objective):
            others = [tuple(n for n in group if n not in inside) for group in coalitions]
            return Exhausted((*best, *(group for group in others if group)), True)
    return Exhausted(None, True)


def is_better(
    benefit: BenefitGraph,
    one: Iterable[Sequence[str]],
    other: Iterable[Sequence[str]],
    objective: str,
) -> bool:
    """Whether the first of two partitions is better by the objective, by more than rounding."""
    key, better = _JUDGEMENTS[objective]
    return better(_united(benefit, one, key), _united(benefit, other, key))


def _received(benefit: BenefitGraph, group: Sequence[str]) -> list[float]:
    """Return what each member of a coalition receives from the others."""
    place = benefit.participants.index
    rows = [place(name) for name in group]
    return [math.fsum(float(benefit.weights[j, i]) for j in rows if j != i) for i in rows]


# What a partition is judged by, larger is better -----------------------------------------------


def _participation_key(received: Sequence[float]) -> Key:
    """Return how many are together, and their benefits, for one coalition."""
    return (float(len(received) if len(received) > 1 else 0), math.fsum(received))


def _fair_key(received: Sequence[float]) -> Key:
    """Return what everybody receives, least first, to ten digits: equal sums shall be equal."""
    return tuple(sorted(float(f"{value:.9e}") for value in received))


def _add(one: Key, other: Key, key: Callable[[Sequence[float]], Key]) -> Key:
    if key is _participation_key:
        return tuple(a + b for a, b in zip(one, other, strict=True))
    return tuple(sorted(one + other))


def _united(
    benefit: BenefitGraph,
    coalitions: Iterable[Sequence[str]],
    key: Callable[[Sequence[float]], Key],
) -> Key:
    total: Key = (0.0, 0.0) if key is _participation_key else ()
    for group in coalitions:
        total = _add(total, key(_received(benefit, group)), key)
    return total


def _more_participation(one: Key, other: Key) -> bool:
    return one[0] > other[0] or (one[0] == other[0] and one[1] > other[1] * (1 + SAME))


def _fairer(one: Key, other: Key) -> bool:
    """Whether the first amounts that differ by more than rounding are in favour of the first."""
    for a, b in zip(one, other, strict=True):
        if abs(a - b) > 2 * SAME * max(a, b):
            return a > b
    return False


_JUDGEMENTS: Mapping[str, tuple[Callable[[Sequence[float]], Key], Callable[[Key, Key], bool]]] = {
    "participation": (_participation_key, _more_participation),
    "fair": (_fair_key, _fairer),
}


# All partitions of a few -----------------------------------------------------------------------


def _parts(benefit: BenefitGraph, competition: CompetitionGraph) -> list[list[str]]:
    """Return the sets of participants that are linked by benefits between independents."""
    names = benefit.participants
    weights, rivals = benefit.weights, competition.matrix
    left = set(range(len(names)))
    parts = []
    while left:
        queue = [min(left)]
        left.discard(queue[0])
        for i in queue:
            near = {
                j for j in left if not rivals[i, j] and (weights[i, j] > 0 or weights[j, i] > 0)
            }
            left -= near
            queue += sorted(near)
        parts.append([names[i] for i in sorted(queue)])
    return parts


def _best(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    part: Sequence[str],
    key: Callable[[Sequence[float]], Key],
) -> list[tuple[str, ...]]:
    """Return a best partition, from best partitions of all smaller sets of participants."""
    rows = [benefit.participants.index(name) for name in part]
    weights, rivals = benefit.weights, competition.matrix

    def valid(members: Sequence[int]) -> bool:
        return len(members) == 1 or all(
            any(weights[i, j] > 0 for j in members if j != i)
            and any(weights[j, i] > 0 for j in members if j != i)
            and not any(rivals[i, j] for j in members)
            for i in members
        )

    by_first: list[list[tuple[int, Key]]] = [[] for _ in part]
    names = {}
    for mask in range(1, 1 << len(part)):
        inside = [k for k in range(len(part)) if mask >> k & 1]
        if valid([rows[k] for k in inside]):
            names[mask] = tuple(part[k] for k in inside)
            by_first[inside[0]].append((mask, key(_received(benefit, names[mask]))))
    empty: Key = (0.0, 0.0) if key is _participation_key else ()
    best: list[tuple[Key, int]] = [(empty, 0)]
    for mask in range(1, 1 << len(part)):
        first = (mask & -mask).bit_length() - 1
        best.append(
            max(
                (_add(own, best[mask ^ group][0], key), group)
                for group, own in by_first[first]
                if not group & ~mask
            )
        )
    chosen = []
    left = (1 << len(part)) - 1
    while left:
        group = best[left][1]
        chosen.append(names[group])
        left ^= group
    return chosen
