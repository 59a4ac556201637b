"""The three requirements of a partition, checked plainly, with a witness for every failure.

This module judges the results of the rest of the package, so it uses none of it: it works on names,
sets and the two graphs, in the words of the paper, and is meant to be read.

1. No free riders (Principle 1, Equation 1): in a coalition of two or more, every member benefits
   another member and is benefited by another member.
2. No conflict of interest (Principle 2): the contribution of a participant reaches no competitor,
   directly or through others. Since data is used only inside coalitions, no coalition may hold two
   competitors.
3. Merge-stable (Equation 2): no set of two or more coalitions can be united into one that satisfies
   1 and 2 and has a higher utility than they have together.

A consortium may demand *at least k members*: a coalition is one participant alone or has at least k
members. Then coalitions merge only into one that satisfies this, too.

What these mean under coalition values is checked in `value_principles`.
"""

import math
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from fedegoists.errors import GraphError, PartitionError
from fedegoists.graphs import BenefitGraph, CoalitionValues, CompetitionGraph
from fedegoists.graphs.argument_kinds import check_graphs
from fedegoists.graphs.coalition_values import DEFAULT_CONFIDENCE

if TYPE_CHECKING:
    from fedegoists.coalitions.value_principles import UnlikelyGain

Coalition = tuple[str, ...]

MOST_WITNESSES = 20
"""Free riders and conflicts that are named; further ones are counted or left out."""

MOST_NAMES = 50
"""Members of a coalition that a text names; the others are counted."""

DEFAULT_BUDGET = 100_000
"""Sets of coalitions that the check for mergers looks at before it says "not proven"."""

CHECK_LIMIT = 60.0
"""Seconds for the whole check of a certificate, as in the stand-alone program."""


def named(coalition: Sequence[str]) -> str:
    """Return a coalition as a text, of bounded length.

    Examples
    --------
    >>> named(["a", "b"])
    '{a, b}'
    >>> named([str(number) for number in range(60)])[-20:]
    '8, 49 and 10 others}'
    """
    others = len(coalition) - MOST_NAMES
    more = f" and {others:,} others" if others > 0 else ""
    return f"{{{', '.join(coalition[:MOST_NAMES])}{more}}}"


@dataclass(frozen=True)
class FreeRider:
    """A member without outgoing, or without incoming, benefit in its coalition."""

    participant: str
    coalition: Coalition
    missing: Literal["outgoing", "incoming"]

    def __str__(self) -> str:
        what = "benefits nobody" if self.missing == "outgoing" else "is benefited by nobody"
        return f"{self.participant} {what} in its coalition {named(self.coalition)}"


@dataclass(frozen=True)
class Conflict:
    """Two competitors in one coalition; along `path` the source's data reaches the target.

    The path is empty where two competitors share a coalition without a path between them: nothing
    flows along benefit edges, but whatever the coalition shares as a whole would reach both.
    """

    source: str
    target: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        if self.path:
            path = self.path
            if len(path) > MOST_NAMES:
                left_out = f"{len(path) - MOST_NAMES:,} others"
                path = (*path[: MOST_NAMES - 1], left_out, path[-1])
            return f"{self.source} reaches its competitor {self.target}: {' → '.join(path)}"
        return f"{self.source} and its competitor {self.target} are in one coalition"


@dataclass(frozen=True)
class TooSmall:
    """A coalition of two or more with fewer members than the consortium demands."""

    coalition: Coalition
    fewest_members: int

    def __str__(self) -> str:
        return (
            f"{named(self.coalition)} has {len(self.coalition)} members; "
            f"a coalition of two or more needs at least {self.fewest_members} here"
        )


@dataclass(frozen=True)
class Merger:
    """Coalitions that could be united with gain without breaking a principle."""

    coalitions: tuple[Coalition, ...]
    gain: float

    def __str__(self) -> str:
        sets = [named(coalition) for coalition in self.coalitions[:MOST_WITNESSES]]
        if len(self.coalitions) > MOST_WITNESSES:
            sets.append(f"{len(self.coalitions) - MOST_WITNESSES:,} other coalitions")
        return f"{' and '.join(sets)} would gain {self.gain:.6g} by merging"


@dataclass(frozen=True)
class Verification:
    """The result of `verify`.

    Attributes
    ----------
    free_riders, conflicts : tuple
        Violations of principles 1 and 2, with witnesses, up to twenty of each kind.
    mergers : tuple of Merger
        A set of coalitions that should merge, if there is one.
    complete : bool
        False if the budget ended before the search for mergers did.
    fewest_members : int
        The fewest members of a coalition of two or more that were demanded; 1 if none were.
    too_small : tuple of TooSmall
        Every coalition that has fewer.
    confidence : float or None
        With coalition values: the least probability of gaining that was demanded of each member.
    unlikely : tuple of UnlikelyGain
        Every member with a lower one.
    further_free_riders, further_conflicts : int
        Free riders, and ordered pairs of competitors in one coalition, besides those listed.
    """

    free_riders: tuple[FreeRider, ...]
    conflicts: tuple[Conflict, ...]
    mergers: tuple[Merger, ...]
    complete: bool = True
    fewest_members: int = 1
    too_small: tuple[TooSmall, ...] = ()
    confidence: float | None = None
    unlikely: "tuple[UnlikelyGain, ...]" = ()
    further_free_riders: int = 0
    further_conflicts: int = 0

    @property
    def violations(self) -> "tuple[FreeRider | Conflict | TooSmall | UnlikelyGain, ...]":
        """All that makes a coalition invalid, in the order of the requirements."""
        return (*self.free_riders, *self.conflicts, *self.too_small, *self.unlikely)

    @property
    def stable(self) -> bool | None:
        """True if proven to be merge-stable, False if refuted, None if neither."""
        return False if self.mergers else (True if self.complete else None)

    @property
    def ok(self) -> bool:
        """Whether all requirements are proven."""
        return not self.violations and self.stable is True

    def __str__(self) -> str:
        problems = [str(p) for p in (*self.violations, *self.mergers)]
        if self.further_free_riders:
            problems.append(f"and {self.further_free_riders:,} more free riders")
        if self.further_conflicts:
            problems.append(f"and {self.further_conflicts:,} more conflicts")
        if self.stable is None:
            problems.append("merge-stability is not proven: the budget ended")
        enough = f", at least {self.fewest_members} members" if self.fewest_members > 1 else ""
        if self.confidence is not None:
            enough += f", everybody gains with probability {self.confidence:g} or more"
        fine = f"no free riders, no conflicts of interest{enough}, merge-stable"
        return "\n".join(problems) or fine


def verify(
    benefit: BenefitGraph | CoalitionValues,
    competition: CompetitionGraph,
    coalitions: Iterable[Iterable[str]],
    *,
    budget: int | None = DEFAULT_BUDGET,
    fewest_members: int = 1,
    confidence: float = DEFAULT_CONFIDENCE,
    deadline: float = math.inf,
) -> Verification:
    """Check a partition against the three requirements, and return witnesses of every failure.

    Parameters
    ----------
    benefit : BenefitGraph or CoalitionValues
        What the participants gain from one another.
    coalitions : iterable of iterables of names
        A partition of the participants.
    budget : int or None
        How many sets of coalitions to look at for mergers. None means as many as it takes: exact,
        but possibly long. When the budget ends, the result says so.
    fewest_members : int
        The fewest members of a coalition of two or more that are demanded.
    confidence : float
        With coalition values: the least probability of gaining of each member.
    deadline : float
        When to end the search for mergers, by `time.perf_counter`, like the budget.

    Raises
    ------
    PartitionError
        If a participant is missing, unknown, or in two coalitions.

    Examples
    --------
    b gives to a and c, but only a gives anything back:

    >>> edges = [("a", "b", 1), ("b", "a", 1), ("b", "c", 1)]
    >>> benefit = BenefitGraph.from_edges(edges, ["a", "b", "c"])
    >>> competition = CompetitionGraph([], ["a", "b", "c"])
    >>> print(verify(benefit, competition, [("a", "b", "c")]))
    c benefits nobody in its coalition {a, b, c}
    >>> verify(benefit, competition, [("a", "b"), ("c",)]).ok
    True
    """
    check_graphs(benefit, competition)
    if not isinstance(benefit, BenefitGraph):
        from fedegoists.coalitions.value_principles import verify_values

        return verify_values(
            benefit,
            competition,
            coalitions,
            confidence=confidence,
            budget=budget,
            fewest_members=fewest_members,
            deadline=deadline,
        )
    if benefit.participants != competition.participants:
        raise GraphError("the benefit and the competition graph are over different participants")
    partition = check_partition(coalitions, benefit.participants)
    gives = {source: set[str]() for source in benefit.participants}
    for source, target, _ in benefit.edges():
        gives[source].add(target)
    rivals = {name: set(competition.competitors(name)) for name in benefit.participants}
    riders = tuple(free_riders(gives, partition))
    together = tuple(islice(conflicts(gives, rivals, partition), MOST_WITNESSES))
    found, complete = merger(gives, rivals, partition, budget, fewest_members, deadline)
    return Verification(
        free_riders=riders[:MOST_WITNESSES],
        further_free_riders=len(riders[MOST_WITNESSES:]),
        conflicts=together,
        further_conflicts=further_conflicts(rivals, partition, together),
        mergers=() if found is None else (Merger(found, _gain(benefit, found)),),
        complete=complete,
        fewest_members=fewest_members,
        too_small=tuple(
            TooSmall(group, fewest_members)
            for group in partition
            if 1 < len(group) < fewest_members
        ),
    )


def further_conflicts(
    rivals: Mapping[str, set[str]], partition: Sequence[Coalition], listed: Sequence[Conflict]
) -> int:
    """Return how many ordered pairs of competitors share a coalition besides those listed."""
    if len(listed) < MOST_WITNESSES:
        return 0
    pairs = sum(len(rivals[name].intersection(group)) for group in partition for name in group)
    return pairs - sum(1 if conflict.path else 2 for conflict in listed)


def check_partition(
    coalitions: Iterable[Iterable[str]], participants: Sequence[str]
) -> tuple[Coalition, ...]:
    """Return the coalitions in canonical order; an error tells why they are no partition.

    Members are in the order of the participants, coalitions in the order of their first members.
    """
    position = {name: k for k, name in enumerate(participants)}
    home: dict[str, int] = {}
    groups: list[Coalition] = []
    for number, coalition in enumerate(coalitions):
        if isinstance(coalition, str):
            raise PartitionError(f"coalition {number}: expected a list of names, not {coalition!r}")
        members = tuple(coalition)
        if not members:
            raise PartitionError(f"coalition {number} is empty; leave it out")
        for name in members:
            if name not in position:
                raise PartitionError(f"coalition {number}: {name!r} is not a participant")
            if name in home:
                raise PartitionError(
                    f"{name!r} is in coalition {home[name]} and again in coalition {number}"
                )
            home[name] = number
        groups.append(tuple(sorted(members, key=position.__getitem__)))
    missing = [name for name in participants if name not in home]
    if missing:
        raise PartitionError(
            f"{missing[0]!r} is in no coalition"
            + (f", nor are {len(missing) - 1} others" if len(missing) > 1 else "")
            + "; a participant that trains alone is a coalition of one"
        )
    return tuple(sorted(groups, key=lambda group: position[group[0]]))


def free_riders(
    gives: Mapping[str, set[str]], partition: Sequence[Coalition]
) -> Iterable[FreeRider]:
    """Principle 1: yield every member for which a sum of Equation 1 is zero."""
    for coalition in partition:
        if len(coalition) < 2:
            continue
        together = set(coalition)
        receiving = set[str]().union(*(gives[member] for member in coalition))
        for member in coalition:
            if gives[member].isdisjoint(together):
                yield FreeRider(member, coalition, "outgoing")
            if member not in receiving:
                yield FreeRider(member, coalition, "incoming")


def conflicts(
    gives: Mapping[str, set[str]], rivals: Mapping[str, set[str]], partition: Sequence[Coalition]
) -> Iterable[Conflict]:
    """Principle 2: yield all competitors in one coalition, with a shortest path between them."""
    for coalition in partition:
        together = set(coalition)
        for source in coalition:
            if rivals[source].isdisjoint(together):
                continue
            parent = {source: source}
            frontier = [source]
            for middle in frontier:  # grows while it is walked: breadth first
                for target in sorted(gives[middle] & together):
                    if target not in parent:
                        parent[target] = middle
                        frontier.append(target)
            for target in coalition:
                if target in rivals[source]:
                    if target in parent:
                        yield Conflict(source, target, _path(parent, target))
                    elif coalition.index(source) < coalition.index(target):
                        yield Conflict(source, target, ())


def _path(parent: Mapping[str, str], target: str) -> tuple[str, ...]:
    """Return the path to a target, from the node that is its own parent."""
    path = [target]
    while parent[path[-1]] != path[-1]:
        path.append(parent[path[-1]])
    return tuple(reversed(path))


class _Links:
    """What coalitions, by number, could give one another in a merger, and which of them compete.

    No merger holds two coalitions that compete, so a giver, a taker or a benefit edge inside a
    merger is never between such two. Leaving these edges out hides no merger, and links fewer.
    """

    def __init__(
        self,
        gives: Mapping[str, set[str]],
        rivals: Mapping[str, set[str]],
        partition: Sequence[Coalition],
    ) -> None:
        everybody = range(len(partition))
        home = {name: c for c in everybody for name in partition[c]}
        self.single = {c for c in everybody if len(partition[c]) == 1}
        self.competes = [
            {home[r] for name in partition[c] for r in rivals[name]} - {c} for c in everybody
        ]
        self.takers = [
            {home[t] for name in partition[c] for t in gives[name]} - self.competes[c] - {c}
            for c in everybody
        ]
        self.givers: list[set[int]] = [set() for _ in everybody]
        for c in everybody:
            for other in self.takers[c]:
                self.givers[other].add(c)
        self.near = [self.givers[c] | self.takers[c] for c in everybody]
        self._company: dict[int, set[int]] = {}  # a giver and a taker, as `_can_join` last found

    def supported(self, group: set[int]) -> set[int]:
        """Leave out the singles that can be in no merger inside a set of coalitions."""
        group = set(group)
        doubtful = list(group & self.single)
        while doubtful:
            c = doubtful.pop()
            if c in group and not self._can_join(c, group):
                group.discard(c)  # which may deprive others of their giver or taker
                doubtful += self.near[c] & group & self.single
        return group

    def _can_join(self, single: int, group: set[int]) -> bool:
        """Whether a single has a giver and a taker in a set that do not compete.

        In every merger it has, at whatever size is demanded, as no two of its members compete. One
        coalition may be both: it is not among its own competitors.
        """
        if single in self._company and self._company[single] <= group:
            return True
        givers = self.givers[single] & group
        for taker in self.takers[single] & group if givers else ():
            for giver in givers - self.competes[taker]:
                self._company[single] = {giver, taker}
                return True
        return False

    def parts(self, group: set[int]) -> Iterator[set[int]]:
        """Yield the parts of a set of coalitions that no benefit edge links."""
        left = set(group)
        while left:
            part, new = set[int](), {left.pop()}
            while new:
                part |= new
                new = {other for c in new for other in self.near[c]} & left
                left -= new
            yield part


def merger(
    gives: Mapping[str, set[str]],
    rivals: Mapping[str, set[str]],
    partition: Sequence[Coalition],
    budget: int | None,
    fewest_members: int = 1,
    deadline: float = math.inf,
) -> tuple[tuple[Coalition, ...] | None, bool]:
    """Return coalitions that should merge, if any, and whether the search came to its end.

    Uniting pairwise independent coalitions keeps Principle 2. It keeps Principle 1 if every single
    among them gets a giver and a taker. It raises utility if some benefit edge joins two of them.

    Start from the set of all coalitions. From any set, leave out singles without a giver and a
    taker in it that do not compete, until there are none (`_Links.supported`): no merger inside the
    set can use them. If the rest has no benefit edge between coalitions, it holds no merger. If it
    has no competitors, it is a merger. Otherwise take a coalition that has competitors in the set:
    a merger is either without it, or without all of those; look at both cases.

    A set that falls into parts without benefit edges between them is looked at part by part: the
    part of a merger that has one of its edges is a merger by itself.

    Where at least k members are demanded, a set that has fewer altogether holds no merger, and a
    big coalition can be part of a merger without any benefit edge, only to make it large enough.
    So with k above two, sets are not divided.
    """
    everybody = range(len(partition))  # coalitions by number from here on
    links = _Links(gives, rivals, partition)
    competes = links.competes

    def packed(group: set[int]) -> "bytes | array[int]":
        """Return a case as it waits, since thousands of sets would fill the memory.

        A byte for every coalition, or the numbers of a few.
        """
        if 4 * len(group) < len(partition):
            return array("I", group)
        return bytes(c in group for c in everybody)

    def unpacked(case: "bytes | array[int]") -> set[int]:
        if isinstance(case, bytes):
            return {c for c, inside in enumerate(case) if inside}
        return set(case)

    cases = [packed(set(everybody))]
    looked_at = 0
    while cases:
        looked_at += 1
        if (budget is not None and looked_at > budget) or time.perf_counter() > deadline:
            return None, False
        group = links.supported(unpacked(cases.pop()))
        # A coalition without an edge into the group adds nothing to any merger but members.
        linked = {c for c in group if not links.near[c].isdisjoint(group)}
        if fewest_members <= 2:
            group, *others = [*links.parts(linked)] or [linked]
            cases += map(packed, others)
            linked = group
        if not linked or sum(len(partition[c]) for c in group) < fewest_members:
            continue
        disputed = max(group, key=lambda c: (len(competes[c] & group), c))
        if not competes[disputed] & group:
            fillers = sorted(group - linked)
            while sum(len(partition[c]) for c in linked) < fewest_members:
                linked.add(fillers.pop(0))
            return tuple(partition[c] for c in sorted(linked)), True
        cases.append(packed(group - {disputed}))
        cases.append(packed(group - competes[disputed]))
    return None, True


def _gain(benefit: BenefitGraph, coalitions: Sequence[Coalition]) -> float:
    """Return the benefits between the coalitions: the utility that their union adds."""
    home = {name: coalition for coalition in coalitions for name in coalition}
    return math.fsum(
        weight
        for source, target, weight in benefit.edges()
        if source in home and target in home and home[source] != home[target]
    )
