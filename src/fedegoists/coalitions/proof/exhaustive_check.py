"""Whether any partition is better by an objective, found out by trying all of them.

Like `principles`, this module judges the results of the searches, so it uses none of their code:
it works on sets and the two graphs, for a few participants at a time, and is meant to be read.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.proof.coalition_listing import TooLateError
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
    return min(_Received(benefit).in_each(coalitions), default=0.0)


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
    judgement, received = _JUDGEMENTS[objective], _Received(benefit)
    home = {name: group for group in coalitions for name in group}
    for part in _parts(benefit, competition, fewest_members):
        if len(part) > MOST_LISTED:
            return Exhausted(None, False)
        inside = set(part)
        mine = {tuple(other for other in home[name] if other in inside) for name in part}
        try:
            best = _best(received, competition, part, judgement, fewest_members, deadline)
        except TooLateError:
            return Exhausted(None, False)
        if judgement.better(judgement.total(received, best), judgement.total(received, mine)):
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
    judgement, received = _JUDGEMENTS[objective], _Received(benefit)
    return judgement.better(judgement.total(received, one), judgement.total(received, other))


class _Received:
    """The utilities of the members of coalitions, from the benefits that are not zero."""

    def __init__(self, benefit: BenefitGraph) -> None:
        self.givers: dict[str, dict[str, float]] = {name: {} for name in benefit.participants}
        for source, target, weight in benefit.edges():
            self.givers[target][source] = weight

    def in_one(self, group: Sequence[str]) -> list[float]:
        """Return the utilities of a coalition's members."""
        inside = set(group)
        return [
            math.fsum(weight for source, weight in self.givers[name].items() if source in inside)
            for name in group
        ]

    def in_each(self, coalitions: Iterable[Sequence[str]]) -> list[float]:
        """Return the utilities of the members of all coalitions."""
        return [value for group in coalitions for value in self.in_one(group)]


# How objectives compare partitions ---------------------------------------------------------------


@dataclass(frozen=True)
class _Judgement:
    """The score of a coalition from its members' utilities, their sum, and their comparison."""

    nothing: Score
    of: Callable[[Sequence[float]], Score]
    add: Callable[[Score, Score], Score]
    better: Callable[[Score, Score], bool]

    def total(self, received: _Received, coalitions: Iterable[Sequence[str]]) -> Score:
        """Return the score of a partition."""
        scores = [self.nothing, *(self.of(received.in_one(group)) for group in coalitions)]
        while len(scores) > 1:  # in pairs, as a score can be as long as the partition
            odd = scores[len(scores) // 2 * 2 :]
            pairs = zip(scores[::2], scores[1::2], strict=False)
            scores = [*(self.add(one, other) for one, other in pairs), *odd]
        return scores[0]


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
) -> Iterable[list[str]]:
    """Yield the sets of participants that have to be judged together, see `exhaust`."""
    names = benefit.participants
    position = {name: k for k, name in enumerate(names)}
    rivals = {name: set(competition.competitors(name)) for name in names}
    linked: dict[str, set[str]] = {name: set() for name in names}
    for source, target, _ in benefit.edges():
        linked[source].add(target)
        linked[target].add(source)
    left = set(names)
    for first in names:
        if first not in left:
            continue
        left.discard(first)
        found = [first]
        for name in found:  # grows while it is walked: breadth first
            near = (left if fewest_members > 2 else linked[name] & left) - rivals[name]
            left -= near
            found += near
        yield sorted(found, key=position.__getitem__)


def _best(
    received: _Received,
    competition: CompetitionGraph,
    part: Sequence[str],
    judgement: _Judgement,
    fewest_members: int,
    deadline: float,
) -> list[Coalition]:
    """Return a best partition, from best partitions of all smaller sets of participants."""
    givers = [{k for k, other in enumerate(part) if other in received.givers[n]} for n in part]
    takers = [{k for k in range(len(part)) if i in givers[k]} for i in range(len(part))]
    rivals = [{k for k, other in enumerate(part) if competition.competes(n, other)} for n in part]

    def valid(members: Sequence[int]) -> bool:
        """Both principles and the smallest number of members, for one coalition."""
        if 1 < len(members) < fewest_members:
            return False
        inside = set(members)
        return len(members) == 1 or all(
            givers[i] & inside and takers[i] & inside and not rivals[i] & inside for i in members
        )

    def watch_the_clock() -> None:
        if time.perf_counter() > deadline:
            raise TooLateError

    # All valid coalitions, as bitmasks with their scores, by their first member.
    by_first: list[list[tuple[int, Score]]] = [[] for _ in part]
    names = {}
    for mask in range(1, 1 << len(part)):
        watch_the_clock()
        inside = [k for k in range(len(part)) if mask >> k & 1]
        if valid(inside):
            names[mask] = tuple(part[k] for k in inside)
            score = judgement.of(received.in_one(names[mask]))
            by_first[inside[0]].append((mask, score))
    # The best score of every set: its first member is in one of these coalitions, and the rest of
    # the set is a smaller set.
    best: list[tuple[Score, int]] = [(judgement.nothing, 0)]
    for mask in range(1, 1 << len(part)):
        watch_the_clock()
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
