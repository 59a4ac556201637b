"""Listing coalitions by their prices, and combining them, with steps counted.

`price_proof` explains why this proves a bound. Branches are compared in numbers rounded outwards,
and what is listed is valued exactly. The work is counted in steps, and a passed deadline ends it,
so that a hostile proof cannot keep the checker busy.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedegoists.coalitions.array_types import Bools, Ints

ENTRIES_PER_STEP = 128
"""So many pairs of participants that are looked at in a branch count as a step."""

OPTIONS_PER_STEP = 4
"""So many coalitions looked at, when they are put together, count as a step."""

MOST_PARTICIPANTS = 1_000
"""Listing needs a few matrices over the participants of a component."""

MOST_COALITIONS = 200_000
"""Longer lists of coalitions would fill the memory, and are not put together in time either."""

PARTICIPANTS_PER_ENTRY = 512
"""Sets of so many participants more count as another coalition, as they need as much memory."""

MOST_TRIPLES = 20_000
"""Prices of more different triples would fill the memory."""

TRIPLES_PER_STEP = 8
"""So many triples of which it is asked whether their price is due count as a step."""

MOST_WAITING = 8_000_000
"""Branches that wait to be taken up, times the participants; each of these takes 18 bytes."""

ROUNDED_BITS = 58
"""Profits are compared in integers of 64 bits: values are rounded up and prices down so that all of
them sum to fewer bits. The few coalitions that are listed then are valued exactly."""

BATCH_ENTRIES = 2_500_000
"""So many branches are judged at once, times the square of the participants."""

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


class Branches(NamedTuple):
    """Sets that are built up member by member, a row for each."""

    members: Bools
    candidates: Bools  # those that may still join
    profit: Ints
    margins: Ints  # what each adds by itself
    due: Ints  # what each would pay for triples of which it is the second member

    def rows(self, chosen: Ints | slice) -> "Branches":
        """Return some of the branches."""
        return Branches(
            self.members[chosen],
            self.candidates[chosen],
            self.profit[chosen],
            self.margins[chosen],
            self.due[chosen],
        )


class Listing:
    """All valid coalitions of two or more whose slack is below a gap.

    Sets are built up member by member. A *branch* holds the members so far and the candidates that
    may still join; it is given up when no set of the branch can have a slack below the gap. A set
    holds at most one candidate of each group of competitors. Half of the value of a pair is counted
    for each of the two, and each has at most one partner of each group, so a group adds at most its
    *top*.
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
        if len(prices) > MOST_PARTICIPANTS:
            raise ProofError(f"prices are confirmed for at most {MOST_PARTICIPANTS:,} participants")
        self._links, self._allowance = links, allowance
        priced: Counter[Set] = Counter()
        for triple, price in triples:
            priced[triple] += price
        if len(priced) > MOST_TRIPLES:
            raise ProofError(f"it has prices for more than {MOST_TRIPLES:,} triples")
        triples = list(priced.items())
        self._exact = values, prices, triples, gap
        n = len(prices)
        total = sum(prices) + sum(price for _, price in triples)
        total += sum(abs(value) for own in values for value in own.values())
        self._shift = shift = max(total.bit_length() - ROUNDED_BITS, 0)
        self._least = gap + (1 << shift) - 1 >> shift
        # Participants are ordered by group, so that a group is a range of columns.
        self._order = sorted(range(n), key=lambda i: (group[i], i))
        self._group = np.array([group[i] for i in self._order])
        self._starts = np.flatnonzero(np.diff(self._group, prepend=-1))
        self._prices = np.array([prices[i] >> shift for i in self._order], dtype=np.int64)
        self._values = np.zeros((n, n), dtype=np.int64)
        place = {i: k for k, i in enumerate(self._order)}
        for i, own in enumerate(values):
            for j, value in own.items():
                self._values[place[i], place[j]] = -(-value >> shift)
        self._place_triples(triples, place)
        # Halves of odd numbers: the first of a pair has the larger one.
        upper = np.triu(np.ones((n, n), dtype=np.int64), 1)
        self._halves = np.maximum((self._values + upper) >> 1, 0)
        self._rivals = self._matrix(links.rivals)
        # By column: givers and takers. Counting them as floats is exact.
        self._givers = self._matrix(links.givers).T.astype(np.float32)
        self._takers = self._matrix(links.takers).T.astype(np.float32)

    def _place_triples(self, triples: Sequence[tuple[Set, int]], place: Mapping[int, int]) -> None:
        """Spread the prices of triples over pairs, as far as that never pays too much.

        Of each pair in a triple a third of its price is paid, and the *rest* by the second member.
        The third member pays two thirds for its two pairs, and is paid the rest back.
        """
        n = len(place)
        self._rest = np.zeros((n, n), dtype=np.int64)
        back: dict[int, list[tuple[int, int, int]]] = {}
        for triple, exact in triples:
            price = exact >> self._shift
            rest = price - price // 3
            for j, k, m in itertools.permutations(place[i] for i in participants_of(triple)):
                if k < m:
                    for a, b in ((j, k), (j, m)):
                        self._values[a, b] -= price // 3
                        self._rest[a, b] += rest
                back.setdefault(j, []).append((m, k, rest))
        # By newcomer: thirds, other members and rests, the rests of a third next to one another.
        self._back = {j: np.array(sorted(own), dtype=np.int64).T for j, own in back.items()}

    def _paid_back(self, members: Bools, j: int) -> Ints:
        """Return by branch and participant the rests that it is paid back once j has joined."""
        thirds, others, rests = self._back[j]
        starts = np.flatnonzero(np.diff(thirds, prepend=-1))
        back = np.zeros(members.shape, dtype=np.int64)
        back[:, thirds[starts]] = np.add.reduceat(members[:, others] * rests, starts, axis=1)
        return back

    def _matrix(self, sets: Sequence[Set]) -> Bools:
        n = len(sets)
        rows = [[sets[i] >> j & 1 for j in self._order] for i in self._order]
        return np.array(rows, dtype=np.bool_).reshape(n, n)

    def coalitions(self) -> list[tuple[Set, int]]:
        """Return the coalitions with their slacks."""
        n = len(self._order)
        widest = max((own.shape[1] for own in self._back.values()), default=0)
        batch = max(BATCH_ENTRIES // max(n * n, widest), 1)
        found: list[tuple[Set, int]] = []
        most = MOST_COALITIONS // (1 + n // PARTICIPANTS_PER_ENTRY)
        one = np.ones((1, n), dtype=np.bool_)
        nothing = np.zeros((1, n), dtype=np.int64)
        start = Branches(~one, one, nothing[:, 0], -self._prices[None], nothing)
        waiting = [start]
        self._allowance.spend(n)
        while waiting:
            some = waiting.pop()
            if len(some.profit) > batch:
                waiting.append(some.rows(slice(batch, None)))
                some = some.rows(slice(batch))
            grown = list(self._extended(self._supported(some)))
            if grown:
                branches = Branches(*map(np.concatenate, zip(*grown, strict=True)))
                good = (branches.profit > -self._least) & (branches.members.sum(axis=1) > 1)
                self._allowance.spend(len(good))
                found += self._judged(branches.members[good])
                if len(found) > most:
                    raise ProofError(f"its prices leave more than {most:,} coalitions")
                more = branches.rows(np.flatnonzero(branches.candidates.any(axis=1)))
                # Counted when they begin to take memory.
                self._allowance.spend(len(more.profit) * (1 + n * n // ENTRIES_PER_STEP))
                waiting.append(more)
                if sum(len(one.profit) for one in waiting) * n > MOST_WAITING:
                    raise ProofError(
                        "confirming its prices takes more memory than a proof may have"
                    )
        return found

    def _judged(self, found: Bools) -> list[tuple[Set, int]]:
        """Return those that are valid with an exact slack below the gap, and their slacks."""
        values, prices, triples, gap = self._exact
        judged = []
        for row in found:
            members = [self._order[k] for k in np.flatnonzero(row).tolist()]
            self._allowance.spend(len(members) + len(triples) // TRIPLES_PER_STEP)
            whole = as_set(members)
            if not self._links.is_valid(whole):
                continue
            paid = sum(prices[i] for i in members)
            paid += sum(price for triple, price in triples if (triple & whole).bit_count() > 1)
            slack = paid - sum(values[i].get(j, 0) for i, j in itertools.combinations(members, 2))
            if slack < gap:
                judged.append((whole, slack))
        return judged

    def _supported(self, some: Branches) -> Branches:
        """Drop candidates without a giver or a taker, and branches in which a member has none."""
        while True:
            inside = some.members | some.candidates
            counts = inside.astype(np.float32)
            served = (counts @ self._givers > 0) & (counts @ self._takers > 0)
            kept = some.candidates & served
            if (kept == some.candidates).all():
                return some
            fine = np.flatnonzero((served | ~some.members).all(axis=1))
            some = some._replace(candidates=kept).rows(fine)

    def _extended(self, some: Branches) -> Iterator[Branches]:
        """Yield the branches with one candidate more, by candidate."""
        best = np.zeros_like(some.margins)
        most = some.margins.copy()
        used = set(np.flatnonzero(some.candidates.any(axis=0)).tolist())
        for start, end in itertools.pairwise([*self._starts.tolist(), len(self._order)]):
            best[:] = 0
            for k in used.intersection(range(start, end)):
                np.maximum(best, some.candidates[:, k, None] * self._halves[:, k], out=best)
            most += best
        most = np.where(some.candidates, np.maximum(most, 0), 0)
        tops = np.maximum.reduceat(most, self._starts, axis=1)
        # As long as the tops of the first groups sum to too little, no set of candidates of these
        # groups alone has to be looked at.
        ranked = np.argsort(tops, axis=1, kind="stable")
        bounds = np.cumsum(np.take_along_axis(tops, ranked, axis=1), axis=1)
        bounds += some.profit[:, None]
        rank = np.argsort(ranked, axis=1)
        worthy = np.take_along_axis(bounds, rank, axis=1) > -self._least
        rank = rank[:, self._group]
        chosen = some.candidates & worthy[:, self._group]
        for j in np.flatnonzero(chosen.any(axis=0)).tolist():
            rows = np.flatnonzero(chosen[:, j])
            yield self._joined(some.rows(rows), j, rank[rows])

    def _joined(self, some: Branches, j: int, rank: Ints) -> Branches:
        """Return branches that j has joined; candidates of groups that rank lower may follow."""
        members = some.members.copy()
        members[:, j] = True
        candidates = some.candidates & (rank < rank[:, j, None]) & ~self._rivals[j]
        profit = some.profit + some.margins[:, j] - some.due[:, j]
        margins, due = some.margins + self._values[j], some.due
        if j in self._back:
            back = self._paid_back(some.members, j)
            margins, due = margins + back, due + self._rest[j] - 2 * back
        return Branches(members, candidates, profit, margins, due)


Options = dict[int, list[tuple[int, Set]]]
"""By participant: the slacks of coalitions that it may be in, and these."""


def combined(
    listed: Sequence[tuple[Set, int]], prices: Sequence[int], gap: int, allowance: Allowance
) -> Iterable[tuple[Set, ...]]:
    """Yield the partitions into listed coalitions and participants alone with slacks below the gap.

    The participant with fewest coalitions left to be in is placed first.
    """
    options: Options = {i: [(price, 1 << i)] for i, price in enumerate(prices)}
    for members, slack in listed:
        for i in participants_of(members):
            options[i].append((slack, members))
    everybody = (1 << len(prices)) - 1
    branches: list[tuple[Set, int, tuple[Set, ...], Options]] = [(everybody, gap, (), options)]
    while branches:
        allowance.spend()
        left, room, chosen, before = branches.pop()
        if not left:
            yield chosen
            continue
        fitting: Options = {}
        shared = 0  # everybody pays at least its part of the lowest slack
        for i in participants_of(left):
            allowance.spend(len(before[i]) // OPTIONS_PER_STEP)
            fitting[i] = [one for one in before[i] if one[0] < room and not one[1] & ~left]
            if not fitting[i]:
                break
            shared += min(slack // members.bit_count() for slack, members in fitting[i])
        else:
            if shared < room:
                fewest = min(fitting.values(), key=len)
                for slack, members in fewest:
                    branches.append((left & ~members, room - slack, (*chosen, members), fitting))
