"""Whether any partition is better by an objective, found out by trying all of them.

Like `principles`, this module judges the results of the searches, so it uses none of their code:
it works on sets and the two graphs, for a few participants at a time, and is meant to be read.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.welfare import utilities
from fedegoists.graphs import BenefitGraph, CompetitionGraph

MOST_LISTED = 12
"""All partitions are tried for up to this many participants that belong together."""

SAME = 1e-9
"""Utilities that differ by no more than this fraction count as equal."""

Score = tuple[float, ...]
"""What an objective compares; a larger one is better."""


@dataclass(frozen=True)
class Exhausted:
    """The result of trying all partitions.

    Attributes
    ----------
    better : tuple of coalitions or None
        A partition that is better by the objective, if there is one.
    complete : bool
        False if too many participants belong together to try all, or the deadline has passed.
    """

    better: tuple[Coalition, ...] | None
    complete: bool


def objective_value(
    benefit: BenefitGraph, coalitions: Iterable[Sequence[str]], objective: str
) -> float:
    """Return the first criterion of an objective: the lowest utility, or the number alone.

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
    fewest_members: int = 1,
    deadline: float = math.inf,
) -> Exhausted:
    """Look for a partition that is better by ``fair`` or ``participation`` than this one.

    Two sets of participants without benefits between them can be judged apart: a coalition across
    both could be split between them, and no utility would fall. That does not hold where at least
    k members are demanded, as the parts may be too small; then only two sets can be judged apart of
    which each member of one competes with each member of the other.

    Examples
    --------
    a and b could be together, which is fairer than both alone:

    >>> benefit = BenefitGraph.from_edges([("a", "b", 2), ("b", "a", 3)], ["a", "b"])
    >>> exhaust(benefit, CompetitionGraph([], ["a", "b"]), [("a",), ("b",)], "fair").better
    (('a', 'b'),)
    """
    for part in _parts(benefit, competition, fewest_members):
        if len(part) > MOST_LISTED or time.perf_counter() > deadline:
            return Exhausted(None, False)
        inside = set(part)
        mine = [tuple(name for name in group if name in inside) for group in coalitions]
        best = _best(benefit, competition, part, _JUDGEMENTS[objective], fewest_members)
        if is_better(benefit, best, filter(None, mine), objective):
            others = [tuple(n for n in group if n not in inside) for group in coalitions]
            return Exhausted((*best, *filter(None, others)), True)
    return Exhausted(None, True)


def is_better(
    benefit: BenefitGraph,
    one: Iterable[Sequence[str]],
    other: Iterable[Sequence[str]],
    objective: str,
) -> bool:
    """Whether the first of two partitions is better by the objective, by more than rounding."""
    judgement = _JUDGEMENTS[objective]

    def total(coalitions: Iterable[Sequence[str]]) -> Score:
        score = judgement.nothing
        for group in coalitions:
            score = judgement.add(score, judgement.of(_received(benefit, group)))
        return score

    return judgement.better(total(one), total(other))


def _received(benefit: BenefitGraph, group: Sequence[str]) -> list[float]:
    """Return the utilities of a coalition's members."""
    rows = [benefit.participants.index(name) for name in group]
    received: list[float] = utilities(benefit.weights, [rows])[rows].tolist()
    return received


# How objectives compare partitions ---------------------------------------------------------------


@dataclass(frozen=True)
class _Judgement:
    """The score of a coalition from its members' utilities, their sum, and their comparison."""

    nothing: Score
    of: Callable[[Sequence[float]], Score]
    add: Callable[[Score, Score], Score]
    better: Callable[[Score, Score], bool]


def _more_participation(one: Score, other: Score) -> bool:
    return one[0] > other[0] or (one[0] == other[0] and one[1] > other[1] * (1 + SAME))


def _fairer(one: Score, other: Score) -> bool:
    """Whether the first utilities that differ by more than rounding are higher in the first."""
    for a, b in zip(one, other, strict=True):
        if abs(a - b) > 2 * SAME * max(a, b):
            return a > b
    return False


_JUDGEMENTS: Mapping[str, _Judgement] = {
    # The number of participants that are not alone, then the welfare.
    "participation": _Judgement(
        nothing=(0.0, 0.0),
        of=lambda received: (
            float(len(received) if len(received) > 1 else 0),
            math.fsum(received),
        ),
        add=lambda one, other: tuple(a + b for a, b in zip(one, other, strict=True)),
        better=_more_participation,
    ),
    # All utilities, lowest first, to ten digits: equal sums shall be equal.
    "fair": _Judgement(
        nothing=(),
        of=lambda received: tuple(sorted(float(f"{value:.9e}") for value in received)),
        add=lambda one, other: tuple(sorted(one + other)),
        better=_fairer,
    ),
}


# All partitions of a few -----------------------------------------------------------------------


def _parts(
    benefit: BenefitGraph, competition: CompetitionGraph, fewest_members: int
) -> list[list[str]]:
    """Return the sets of participants that have to be judged together, see `exhaust`."""
    names = benefit.participants
    weights, rivals = benefit.weights, competition.matrix
    left = set(range(len(names)))
    parts = []
    while left:
        queue = [min(left)]
        left.discard(queue[0])
        for i in queue:
            near = {
                j
                for j in left
                if not rivals[i, j]
                and (fewest_members > 2 or weights[i, j] > 0 or weights[j, i] > 0)
            }
            left -= near
            queue += sorted(near)
        parts.append([names[i] for i in sorted(queue)])
    return parts


def _best(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    part: Sequence[str],
    judgement: _Judgement,
    fewest_members: int,
) -> list[Coalition]:
    """Return a best partition, from best partitions of all smaller sets of participants."""
    rows = [benefit.participants.index(name) for name in part]
    weights, rivals = benefit.weights, competition.matrix

    def valid(members: Sequence[int]) -> bool:
        """Both principles and the smallest number of members, for one coalition."""
        if 1 < len(members) < fewest_members:
            return False
        return len(members) == 1 or all(
            any(weights[i, j] > 0 for j in members if j != i)
            and any(weights[j, i] > 0 for j in members if j != i)
            and not any(rivals[i, j] for j in members)
            for i in members
        )

    # All valid coalitions, as bitmasks with their scores, by their first member.
    by_first: list[list[tuple[int, Score]]] = [[] for _ in part]
    names = {}
    for mask in range(1, 1 << len(part)):
        inside = [k for k in range(len(part)) if mask >> k & 1]
        if valid([rows[k] for k in inside]):
            names[mask] = tuple(part[k] for k in inside)
            score = judgement.of(_received(benefit, names[mask]))
            by_first[inside[0]].append((mask, score))
    # The best score of every set: its first member is in one of these coalitions, and the rest of
    # the set is a smaller set.
    best: list[tuple[Score, int]] = [(judgement.nothing, 0)]
    for mask in range(1, 1 << len(part)):
        first = (mask & -mask).bit_length() - 1
        best.append(
            max(
                (judgement.add(own, best[mask ^ group][0]), group)
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
