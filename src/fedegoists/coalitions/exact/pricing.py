"""The search for coalitions that are worth more than their members' prices.

Everybody has a price. A coalition's *profit* is its utility less the prices of its members. This is
a branch and bound over sets of independent participants. Sets are sorted by their first member in a
fixed order, its *root*: the highest profits of all roots, added to the prices, bound the welfare of
every partition, because a partition has at most one coalition for each root.

The bound of a branch: its candidates are grouped so that all in a group compete; a set holds at
most one of each group. A pair's worth is counted half for each of the two, and for each candidate
only the best partner of each group counts.
"""

from collections.abc import Sequence

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Words
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.compiled import compiled
from fedegoists.coalitions.exact.search_arrays import Search

__all__ = ["Pricing"]


ROOM = 1024
"""How many coalitions are kept until they are fetched."""

STEPS_PER_BRANCH = 1000
"""Steps are about a nanosecond: so many for each branch, and the square of its candidates."""

SECONDS_PER_STEP = 2e-9
"""What a step counts as work; slower than it is."""

SECONDS_PER_ROOT = 5e-5
"""What beginning with a root counts as work."""

CHUNK = 2_000_000
"""Steps between two looks at the clock."""


@compiled
def _has(words: Words, i: int) -> bool:
    return bool((words[i >> 6] >> np.uint64(i & 63)) & np.uint64(1))


@compiled
def _valid(s: Search, depth: int) -> bool:
    """Principle 1 for the members at this depth."""
    for a in range(depth + 1):
        i = s.chosen[a]
        gets = np.uint64(0)
        helps = np.uint64(0)
        for w in range(s.members.shape[1]):
            gets |= s.givers[i, w] & s.members[depth, w]
            helps |= s.takers[i, w] & s.members[depth, w]
        if gets == 0 or helps == 0:
            return False
    return True


@compiled
def _charge(s: Search, depth: int, below: int, j: int) -> None:
    """Update what joining costs for triples once j is a member."""
    for a in range(s.n_triples_of[j]):
        c = s.triples_of[j, a]
        present = 0
        for b in range(3):
            k = s.triple[c, b]
            if k != j and depth >= 0 and _has(s.members[depth], k):
                present += 1
        if present == 2:
            continue
        for b in range(3):
            k = s.triple[c, b]
            if k != j and not (depth >= 0 and _has(s.members[depth], k)):
                # The second member pays; with two members the third joins free.
                s.penalty[below, k] += s.triple_price[c] if present == 0 else -s.triple_price[c]


@compiled
def _supported(s: Search, i: int, depth: int) -> bool:
    """Whether i can have a giver and a taker in this branch."""
    gets = np.uint64(0)
    helps = np.uint64(0)
    for w in range(s.inside.shape[1]):
        gets |= s.givers[i, w] & s.inside[depth, w]
        helps |= s.takers[i, w] & s.inside[depth, w]
    return bool(gets != 0) and bool(helps != 0)


@compiled
def _open(s: Search, depth: int, count: int, threshold: float) -> None:
    """Bound the branch at `depth` with `count` candidates, and say which to branch on."""
    candidate = s.candidate[depth]
    margin = s.margin[depth]
    words = s.inside.shape[1]
    # Members and candidates without a giver or a taker left.
    changed = True
    while changed:
        changed = False
        for a in range(depth + 1):
            if not _supported(s, s.chosen[a], depth):
                s.position[depth] = -1
                s.first[depth] = 0
                return
        kept = 0
        for a in range(count):
            j = candidate[a]
            if _supported(s, j, depth):
                candidate[kept] = j
                kept += 1
            else:
                s.inside[depth, j >> 6] &= ~(np.uint64(1) << np.uint64(j & 63))
                changed = True
        count = kept
    # Groups of competitors.
    groups = 0
    for a in range(count):
        j = candidate[a]
        g = 0
        while g < groups:
            if (s.group_mask[g, j >> 6] >> np.uint64(j & 63)) & np.uint64(1):
                break
            g += 1
        if g == groups:
            groups += 1
            for w in range(words):
                s.group_mask[g, w] = s.rivals[j, w]
            s.group_top[g] = -np.inf
        else:
            for w in range(words):
                s.group_mask[g, w] &= s.rivals[j, w]
        s.group_of[a] = g
    # What each candidate can add at most.
    best = s.share[:groups]
    for a in range(count):
        j = candidate[a]
        best[:] = 0.0
        for b in range(count):
            k = candidate[b]
            v = s.value[j, k]
            if v > best[s.group_of[b]]:
                best[s.group_of[b]] = v
        total = 0.0
        for g in range(groups):
            total += best[g]
        # Where two of a triple would both join, its price is due once: half for each of them.
        u = margin[j] + 0.5 * (total - s.penalty[depth, j])
        if u > s.group_top[s.group_of[a]]:
            s.group_top[s.group_of[a]] = u
    # Groups that add little come first: while all together add too little, no branching on them.
    ranked = np.argsort(s.group_top[:groups])
    slot = 0
    bound = s.profit[depth]
    s.first[depth] = 0
    for q in range(groups):
        g = ranked[q]
        bound += max(s.group_top[g], 0.0)
        for a in range(count):
            if s.group_of[a] == g:
                s.order[slot] = candidate[a]
                s.prefix[depth, slot] = bound
                slot += 1
        if bound <= threshold:
            s.first[depth] = slot
    for a in range(count):
        candidate[a] = s.order[a]
    s.position[depth] = count - 1


@compiled
def _search(s: Search, threshold: float, raises: bool, steps: int) -> float:
    """Go on with the search; return the threshold, which rises with what is found if asked to."""
    depth = s.state[0]
    words = s.inside.shape[1]
    room = len(s.found)
    last = s.state[2] + steps
    while depth >= 0 and s.state[2] < last:
        p = s.position[depth]
        if p < s.first[depth] or s.prefix[depth, p] <= threshold:
            depth -= 1
            continue
        s.position[depth] = p - 1
        s.state[2] += STEPS_PER_BRANCH + p * p
        j = s.candidate[depth, p]
        below = depth + 1
        s.chosen[below] = j
        s.profit[below] = s.profit[depth] + s.margin[depth, j] - s.penalty[depth, j]
        for w in range(words):
            s.members[below, w] = s.members[depth, w]
        s.members[below, j >> 6] |= np.uint64(1) << np.uint64(j & 63)
        for w in range(words):
            s.inside[below, w] = s.members[below, w]
        count = 0
        for a in range(p):
            k = s.candidate[depth, a]
            if not s.rival[j, k]:
                s.candidate[below, count] = k
                count += 1
                s.margin[below, k] = s.margin[depth, k] + s.value[j, k]
                s.penalty[below, k] = s.penalty[depth, k]
                s.inside[below, k >> 6] |= np.uint64(1) << np.uint64(k & 63)
        _charge(s, depth, below, j)
        if s.profit[below] > threshold and _valid(s, below):
            if s.state[1] == room:
                # No room: come back to this candidate when there is.
                s.position[depth] = p
                break
            row = s.state[1]
            s.found[row, :] = False
            for a in range(below + 1):
                s.found[row, s.chosen[a]] = True
            s.state[1] += 1
            if raises:
                threshold = s.profit[below]
        if count:
            _open(s, below, count, threshold)
            depth = below
    s.state[0] = depth
    return threshold


@compiled
def _start(s: Search, ranked: Ints, root: int, threshold: float) -> None:
    """Set the search to the sets whose first member is the root."""
    i = ranked[root]
    s.chosen[0] = i
    s.profit[0] = -s.price[i]
    s.members[0, :] = 0
    s.members[0, i >> 6] |= np.uint64(1) << np.uint64(i & 63)
    s.inside[0, :] = s.members[0, :]
    count = 0
    for a in range(root + 1, len(ranked)):
        k = ranked[a]
        if not s.rival[i, k]:
            s.candidate[0, count] = k
            count += 1
            s.margin[0, k] = s.value[i, k] - s.price[k]
            s.penalty[0, k] = 0.0
            s.inside[0, k >> 6] |= np.uint64(1) << np.uint64(k & 63)
    _charge(s, -1, 0, i)
    s.state[0] = 0
    _open(s, 0, count, threshold)


class Pricing:
    """Searches for coalitions of high profit, root by root.

    Attributes
    ----------
    ranked : array of int
        The participants in the order of roots.
    """

    def __init__(self, weights: Floats, edges: Bools, competition: Bools, effort: Effort) -> None:
        n = len(weights)
        words = (n + 63) // 64
        value = np.where(competition, 0.0, weights + weights.T)
        # Who competes with most comes first: a root then has few others to combine with.
        self.ranked = np.argsort(-competition.sum(axis=1), kind="stable").astype(np.int64)
        self._effort = effort
        self._search = Search(
            value=np.ascontiguousarray(value),
            price=np.zeros(n),
            rival=np.array(competition, order="C"),
            rivals=_words(competition),
            givers=_words(edges.T),
            takers=_words(edges),
            chosen=np.zeros(n + 1, dtype=np.int64),
            candidate=np.zeros((n + 1, n), dtype=np.int64),
            position=np.zeros(n + 1, dtype=np.int64),
            first=np.zeros(n + 1, dtype=np.int64),
            margin=np.zeros((n + 1, n)),
            prefix=np.zeros((n + 1, n)),
            profit=np.zeros(n + 1),
            inside=np.zeros((n + 1, words), dtype=np.uint64),
            members=np.zeros((n + 1, words), dtype=np.uint64),
            triple=np.zeros((0, 3), dtype=np.int64),
            triple_price=np.zeros(0),
            triples_of=np.zeros((n, 1), dtype=np.int64),
            n_triples_of=np.zeros(n, dtype=np.int64),
            penalty=np.zeros((n + 1, n)),
            group_of=np.zeros(n, dtype=np.int64),
            group_mask=np.zeros((n, words), dtype=np.uint64),
            group_top=np.zeros(n),
            share=np.zeros(n),
            order=np.zeros(n, dtype=np.int64),
            found=np.zeros((ROOM, n), dtype=np.bool_),
            state=np.zeros(3, dtype=np.int64),
        )

    def set_prices(
        self, prices: Floats, triples: Sequence[tuple[int, int, int]], triple_prices: Floats
    ) -> None:
        """Set what everybody costs, and what a coalition costs that holds most of a triple."""
        of: list[list[int]] = [[] for _ in prices]
        for c, triple in enumerate(triples):
            for i in triple:
                of[i].append(c)
        count = np.array([len(entries) for entries in of], dtype=np.int64)
        padded = np.zeros((len(of), max(int(count.max(initial=0)), 1)), dtype=np.int64)
        for i, entries in enumerate(of):
            padded[i, : len(entries)] = entries
        self._search.price[:] = prices
        self._search = self._search._replace(
            triple=np.array(triples, dtype=np.int64).reshape(-1, 3),
            triple_price=np.array(triple_prices, dtype=np.float64),
            triples_of=padded,
            n_triples_of=count,
        )

    def best(self, root: int, steps: int) -> tuple[float, bool, Bools]:
        """Look for the coalition of highest profit with this first member.

        Returns
        -------
        bound : float
            No valid coalition with this first member has a higher profit; at least 0.
        finished : bool
            Whether the search came to its end within the steps.
        found : boolean matrix
            Valid coalitions of positive profit, the best last.
        """
        s = self._search
        s.state[1:] = 0
        threshold = 0.0
        _start(s, self.ranked, root, threshold)
        while s.state[0] >= 0 and s.state[2] < steps and s.state[1] < ROOM:
            threshold = _search(s, threshold, True, min(steps, CHUNK))
            if self._effort.over:
                break
        self._effort.spend(SECONDS_PER_ROOT + int(s.state[2]) * SECONDS_PER_STEP)
        bound = threshold
        for depth in range(int(s.state[0]) + 1):
            p = int(s.position[depth])
            if p >= s.first[depth]:
                bound = max(bound, float(s.prefix[depth, p]))
        return bound, bool(s.state[0] < 0), s.found[: s.state[1]].copy()

    def all_above(self, root: int, threshold: float, most: int, steps: int) -> Bools | None:
        """Return all valid coalitions with this first member and a higher profit than this.

        None if there are more than `most`, or the steps do not suffice.
        """
        s = self._search
        s.state[1:] = 0
        _start(s, self.ranked, root, threshold)
        blocks: list[Bools] = []
        count = 0
        while s.state[0] >= 0:
            before = int(s.state[2])
            _search(s, threshold, False, CHUNK)
            self._effort.spend((int(s.state[2]) - before) * SECONDS_PER_STEP)
            blocks.append(s.found[: s.state[1]].copy())
            count += int(s.state[1])
            s.state[1] = 0
            if count > most or (s.state[0] >= 0 and (s.state[2] > steps or self._effort.over)):
                return None
        return np.concatenate([s.found[:0], *blocks])


def _words(matrix: Bools) -> Words:
    """Return the rows of a boolean matrix as bitsets of 64-bit words."""
    n = len(matrix)
    padded = np.zeros((n, (n + 63) // 64 * 64), dtype=np.bool_)
    padded[:, :n] = matrix
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64).reshape(n, -1)
