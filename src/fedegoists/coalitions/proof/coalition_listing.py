"""Listing coalitions by their prices, and combining them, with steps counted.

`price_proof` explains why this proves a bound. The work is counted in steps, and a passed deadline
ends it, so that a hostile proof cannot keep the checker busy.
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

TRIPLES_PER_STEP = 8
"""So many triples of which it is asked whether their price is due count as a step."""

MOST_COALITIONS = 200_000
"""Longer lists of coalitions would fill the memory, and are not put together in time either."""

PARTICIPANTS_PER_ENTRY = 512
"""Sets of so many participants more count as another coalition, as they need as much memory."""

OPTIONS_PER_STEP = 16
"""So many coalitions looked at, when they are put together, count as a step."""

Set = int
"""A set of participants as an integer: bit k stands for participant k of a component."""


class ProofError(Exception):
    """The prices do not prove the bound; the message says why."""


class TooLateError(Exception):
    """The deadline of a check has passed."""


class Allowance:
    """The steps that are left, and the deadline by `time.perf_counter`."""

    def __init__(self, steps: float = math.inf, deadline: float = math.inf) -> None:
        self._left = steps
        self._deadline = deadline

    def spend(self, steps: int = 1) -> None:
        """Count some steps; an exception says that none is left."""
        self._left -= steps
        if self._left < 0:
            raise ProofError("confirming its prices takes more steps than a proof may have")
        if time.perf_counter() > self._deadline:
            raise TooLateError


def as_set(participants: Iterable[int]) -> Set:
    """Return a set of participants as an integer."""
    members = 0
    for i in participants:
        members |= 1 << i
    return members


def participants_of(members: Set) -> Iterable[int]:
    """Yield the participants of a set, lowest first."""
    while members:
        low = members & -members
        yield low.bit_length() - 1
        members ^= low


def competing_groups(rivals: Sequence[set[int]]) -> list[int]:
    """Return a group number for each participant, so that all in a group compete.

    A valid coalition has at most one member of each group. Participants with most competitors come
    first, and each goes to the first group that it fits.

    Examples
    --------
    >>> competing_groups([{1, 2}, {0, 2}, {0, 1, 3}, {2}])
    [0, 0, 0, 1]
    """
    group = [-1] * len(rivals)
    sizes: list[int] = []
    for i in sorted(range(len(rivals)), key=lambda i: (-len(rivals[i]), i)):
        met = Counter(group[j] for j in rivals[i] if group[j] >= 0)
        group[i] = min((g for g, count in met.items() if count == sizes[g]), default=len(sizes))
        if group[i] == len(sizes):
            sizes.append(0)
        sizes[group[i]] += 1
    return group


@dataclass(frozen=True)
class ComponentLinks:
    """By participant of a component: its competitors, its givers and its takers, as sets."""

    rivals: Sequence[Set]
    givers: Sequence[Set]
    takers: Sequence[Set]
    fewest_members: int

    def is_valid(self, members: Set) -> bool:
        """Whether a set of two or more pairwise independent participants is a valid coalition."""
        return members.bit_count() >= self.fewest_members and all(
            self.givers[i] & members and self.takers[i] & members for i in participants_of(members)
        )


class Listing:
    """All valid coalitions of two or more whose slack is below a gap.

    Sets are built up member by member. A *branch* holds the members so far and the candidates that
    may still join; it is given up when no set of the branch can have a slack below the gap.
    """

    def __init__(
        self,
        links: ComponentLinks,
        group: Sequence[int],
        values: Sequence[Mapping[int, int]],
        prices: Sequence[int],
        triples: Sequence[tuple[Set, int]],
        gap: int,
        allowance: Allowance,
    ) -> None:
        self._links = links
        self._group = group
        self._prices = prices
        self._gap = gap
        self._allowance = allowance
        n = len(prices)
        self._triples: list[list[tuple[Set, int]]] = [[] for _ in range(n)]
        for triple, price in triples:
            for i in participants_of(triple):
                self._triples[i].append((triple, price))
        self._values = values
        # By participant: half of the positive values, largest first within each group.
        self._halves = [self._by_group(own) for own in values]

    def _by_group(self, values: Mapping[int, int]) -> list[tuple[int, list[tuple[int, Set]]]]:
        groups: dict[int, list[tuple[int, Set]]] = {}
        for j, value in values.items():
            if value > 0:  # rounded up: what is left of a value may be odd
                groups.setdefault(self._group[j], []).append((value + 1 >> 1, 1 << j))
        return [(group, sorted(halves, reverse=True)) for group, halves in groups.items()]

    def coalitions(self) -> list[tuple[Set, int]]:
        """Return the coalitions with their slacks."""
        found: list[tuple[Set, int]] = []
        everybody = (1 << len(self._prices)) - 1
        most = MOST_COALITIONS // (1 + len(self._prices) // PARTICIPANTS_PER_ENTRY)
        nothing: Mapping[int, int] = {}
        alone = {i: -price for i, price in enumerate(self._prices)}
        # What candidates add is derived when a branch is taken up: thousands may wait.
        branches = [(0, 0, everybody, alone, nothing)]
        while branches:
            members, profit, fitting, margins_before, values = branches.pop()
            candidates = [k for k in margins_before if fitting >> k & 1]
            margins = {k: margins_before[k] + values.get(k, 0) for k in candidates}
            self._allowance.spend(1 + len(candidates))
            node = _Node(self, profit, self._supported(members, candidates), margins)
            for j, before in node.to_branch_on():
                joined = members | 1 << j
                gained = profit + margins[j] - self._due(members, j)
                if gained > -self._gap and members and self._links.is_valid(joined):
                    found.append((joined, -gained))
                    if len(found) > most:
                        raise ProofError(f"its prices leave more than {most:,} coalitions")
                fitting = before & ~self._links.rivals[j]
                if fitting and node.most_with(j, fitting) + gained > -self._gap:
                    branches.append((joined, gained, fitting, margins, self._values[j]))
        return found

    def _due(self, members: Set, j: int) -> int:
        """Return the prices of the triples of which a newcomer is the second member."""
        self._allowance.spend(len(self._triples[j]) // TRIPLES_PER_STEP)
        return sum(
            price for triple, price in self._triples[j] if (triple & members).bit_count() == 1
        )

    def _supported(self, members: Set, candidates: list[int]) -> list[int]:
        """Drop candidates without a giver or a taker in the branch; all, if a member has none."""
        givers, takers = self._links.givers, self._links.takers
        while True:
            inside = members | as_set(candidates)
            kept = [j for j in candidates if givers[j] & inside and takers[j] & inside]
            if len(kept) == len(candidates):
                break
            candidates = kept
        lost = any(
            not (givers[i] & inside and takers[i] & inside) for i in participants_of(members)
        )
        return [] if lost else candidates


class _Node:
    """The candidates of a branch, and how much each can add at most.

    A set of the branch has at most one candidate of each group of competitors. Half of the value of
    a pair is counted for each of the two, and each has at most one partner of each group, so a
    group adds at most its *top*.
    """

    def __init__(
        self, listing: Listing, profit: int, candidates: list[int], margins: Mapping[int, int]
    ) -> None:
        self.candidates = candidates
        self._listing = listing
        self._profit = profit
        self._most: dict[int, int] = {}
        self._best: dict[int, dict[int, int]] = {}  # by candidate and group: the best half
        inside = as_set(candidates)
        for j in candidates:
            best: dict[int, int] = {}
            for group, halves in listing._halves[j]:
                for half, other in halves:
                    if other & inside:
                        best[group] = half
                        break
            self._best[j] = best
            self._most[j] = margins[j] + sum(best.values())

    def to_branch_on(self) -> list[tuple[int, Set]]:
        """Return the candidates to branch on, each with those that may join after it.

        As long as the tops of the first groups sum to too little, no set of candidates of these
        groups alone has to be looked at.
        """
        groups: dict[int, list[int]] = {}
        tops: dict[int, int] = {}
        for j, most in self._most.items():
            group = self._listing._group[j]
            groups.setdefault(group, []).append(j)
            tops[group] = max(tops.get(group, 0), most)
        chosen: list[tuple[int, Set]] = []
        before = 0
        bound = self._profit
        for group in sorted(groups, key=lambda group: (tops[group], group)):
            bound += tops[group]
            if bound > -self._listing._gap:
                chosen += [(j, before) for j in groups[group]]
            before |= as_set(groups[group])
        return chosen

    def most_with(self, j: int, fitting: Set) -> int:
        """Return how much candidates can add at most once j has joined.

        The value of a pair with j then counts in full, instead of the half of the best of j's group
        of which all others compete with j.
        """
        group, values = self._listing._group, self._listing._values[j]
        tops: dict[int, int] = {}
        for k in participants_of(fitting):
            most = self._most[k] - self._best[k].get(group[j], 0) + values.get(k, 0)
            if most > tops.get(group[k], 0):
                tops[group[k]] = most
        return sum(tops.values())


def combined(
    listed: Sequence[tuple[Set, int]], prices: Sequence[int], gap: int, allowance: Allowance
) -> Iterable[tuple[Set, ...]]:
    """Yield the partitions into listed coalitions and participants alone with slacks below the gap.

    The participant with fewest coalitions left to be in is placed first.
    """
    options: list[list[tuple[int, Set]]] = [[(price, 1 << i)] for i, price in enumerate(prices)]
    for members, slack in listed:
        for i in participants_of(members):
            options[i].append((slack, members))
    branches: list[tuple[Set, int, tuple[Set, ...]]] = [((1 << len(prices)) - 1, 0, ())]
    while branches:
        allowance.spend()
        left, used, chosen = branches.pop()
        if not left:
            yield chosen
            continue
        fewest = None
        for i in participants_of(left):
            allowance.spend(len(options[i]) // OPTIONS_PER_STEP)
            fitting = [one for one in options[i] if used + one[0] < gap and not one[1] & ~left]
            if fewest is None or len(fitting) < len(fewest):
                fewest = fitting
        for slack, members in fewest or ():
            branches.append((left & ~members, used + slack, (*chosen, members)))
