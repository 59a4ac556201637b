"""Pricing: the search for coalitions that are worth more than the prices of their members.

The restricted master sets a price p_i for every participant and p_t for every triple. The *profit*
of a coalition S is its reduced cost in the linear program,

    profit(S) = u(S) − Σ_{i ∈ S} p_i − Σ p_t over the triples t with two or three members in S.

A coalition of positive profit improves the linear program; where there is none, the prices sum to
an upper bound on the welfare. More generally, every coalition has a *root*, its first member in a
fixed order, and a partition has at most one coalition for each root. So the highest profit of each
root, added to the price of the root, gives an upper bound for any prices.

The search is a branch and bound over sets of independent participants, depth first: a branch holds
the members chosen so far, and the candidates that may still join. Its bound: candidates are grouped
so that all in a group compete, hence a set holds at most one of each group. The value of a pair is
split between the two (`pair_splits`), and for each candidate only the best partner of each group
counts.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Words
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.compiled import compiled
from fedegoists.coalitions.exact.pair_splits import bound_groups, sweep
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.exact.restricted_master import Triple
from fedegoists.coalitions.exact.search_arrays import PricingState, padded_lists

ROOM = 1024
"""Coalitions that the state holds until they are fetched."""

STEPS_PER_BRANCH = 1000
"""A step is about a nanosecond: a branch takes this many, and the square of its candidates."""

LEAST_TO_SPLIT, FIRST_SWEEPS = 6, 5
"""Values are split better in branches with so many candidates, with this many sweeps at a root and
one in other branches, which begin with the splits of their parent."""

STEPS_PER_SPLIT = 6
"""Steps of a sweep, per square of the candidates."""

MOST_ENTRIES = 200_000
"""Entries of the matrices of splits: longer branches than have room keep the splits of others."""

SECONDS_PER_STEP = 2e-9
"""Work of a step; more than it takes."""

SECONDS_PER_ROOT = 5e-5
"""Work of beginning with a root."""

CHUNK = 2_000_000
"""Steps between two looks at the clock."""

DEPTH, FOUND, STEPS, LEAST = 0, 1, 2, 3
"""Entries of `state`: the present depth, -1 when the search is done; the number of coalitions
found and not yet fetched; the steps made; the fewest members of a coalition."""


@compiled
def _has(words: Words, i: int) -> bool:
    return bool((words[i >> 6] >> np.uint64(i & 63)) & np.uint64(1))


@compiled
def _bit(i: int) -> np.uint64:
    """Return the bit of participant i in its word."""
    return np.uint64(1) << np.uint64(i & 63)


@compiled
def _supported(givers: Words, takers: Words, i: int, words: Words) -> bool:
    """Whether i has a giver and a taker in a set (Equation 1)."""
    gets = np.uint64(0)
    helps = np.uint64(0)
    for w in range(len(words)):
        gets |= givers[i, w] & words[w]
        helps |= takers[i, w] & words[w]
    return bool(gets != 0) and bool(helps != 0)


@compiled
def _valid(s: PricingState, depth: int) -> bool:
    """Principle 1 for the members at this depth, and whether they are enough."""
    members = s.members[depth]
    valid = bool(depth + 1 >= s.state[LEAST])
    for a in range(depth + 1):
        valid = valid and _supported(s.givers, s.takers, s.chosen[a], members)
    return valid


@compiled
def _charge(s: PricingState, depth: int, below: int, j: int) -> None:
    """Update the price of triples for further members once j is a member."""
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
def _drop_unsupported(
    givers: Words, takers: Words, members: Ints, candidates: Ints, inside: Words, count: int
) -> int:
    """Drop candidates that cannot have a giver and a taker in this branch; return how many stay.

    Each one dropped may be the last giver or taker of others. If a member has none left, no set of
    the branch is valid, and -1 is returned.
    """
    changed = True
    while changed:
        changed = False
        for i in members:
            if not _supported(givers, takers, i, inside):
                return -1
        kept = 0
        for a in range(count):
            j = candidates[a]
            if _supported(givers, takers, j, inside):
                candidates[kept] = j
                kept += 1
            else:
                inside[j >> 6] &= ~_bit(j)
                changed = True
        count = kept
    return count


@compiled
def _group_rivals(s: PricingState, candidates: Ints) -> int:
    """Order candidates by greedy groups of which all compete; return the number of groups.

    Those of group g are then from `group_start[g]` to `group_start[g + 1]`.
    """
    groups = 0
    for a in range(len(candidates)):
        j = candidates[a]
        # The mask of a group holds the participants that compete with all its members.
        g = 0
        while g < groups and not _has(s.group_mask[g], j):
            g += 1
        if g == groups:
            groups += 1
            s.group_start[groups] = 0
            for w in range(s.rivals.shape[1]):
                s.group_mask[g, w] = s.rivals[j, w]
        else:
            for w in range(s.rivals.shape[1]):
                s.group_mask[g, w] &= s.rivals[j, w]
        s.group_of[a] = g
        s.group_start[g + 1] += 1
    s.group_start[0] = 0
    for g in range(groups):
        s.group_start[g + 1] += s.group_start[g]
        s.group_end[g] = s.group_start[g]
    for a in range(len(candidates)):
        g = s.group_of[a]
        s.order[s.group_end[g]] = candidates[a]
        s.group_end[g] += 1
    for a in range(len(candidates)):
        candidates[a] = s.order[a]
    return groups


@compiled
def _take_slot(s: PricingState, depth: int, candidates: Ints) -> bool:
    """Copy the values and shares of candidates for changes at this depth; False without room."""
    if s.slot[depth] == depth + 1 or depth + 1 >= len(s.pair):
        return bool(s.slot[depth] == depth + 1)
    old = s.slot[depth]
    for j in candidates:
        for k in candidates:
            s.pair[depth + 1, j, k] = s.pair[old, j, k]
            s.share[depth + 1, j, k] = s.share[old, j, k]
    s.slot[depth] = depth + 1
    return True


@compiled
def _join_triples(s: PricingState, depth: int, candidates: Ints) -> None:
    """Update the values of pairs that are in a triple with the newest member.

    With no member of a triple, any two of it that join pay its price: each of its three pairs pays
    a third, which is never too much. With one member, each of the others would pay in full, so if
    both join, their value is higher by the price.
    """
    j = s.chosen[depth]
    for a in range(s.n_triples_of[j]):
        c = s.triples_of[j, a]
        first = second = -1
        for b in range(3):
            k = s.triple[c, b]
            if k != j and not _has(s.members[depth], k) and _has(s.inside[depth], k):
                first, second = second, k
        if first < 0 or s.rival[first, second]:
            continue
        if not _take_slot(s, depth, candidates):
            s.slot[depth] = -1
            return
        p = depth + 1
        added = s.triple_price[c] * (4.0 / 3.0)
        s.pair[p, first, second] += added
        s.pair[p, second, first] += added
        s.share[p, first, second] += 0.5 * added
        s.share[p, second, first] += 0.5 * added


@compiled
def _bound_candidates(
    s: PricingState, depth: int, candidates: Ints, groups: int, threshold: float
) -> None:
    """Set the most that each group can add, with better splits where that may end the branch."""
    slot = s.slot[depth]
    margin, top = s.alone[: len(candidates)], s.group_top[:groups]
    if slot < 0:
        # No room: the price of a triple with one member is due in halves, and values are halved.
        for a in range(len(candidates)):
            j = candidates[a]
            margin[a] = s.margin[depth, j] - 0.5 * s.penalty[depth, j]
        bound_groups(s.half, margin, candidates, s.group_start, groups, top)
        return
    for a in range(len(candidates)):
        margin[a] = s.margin[depth, candidates[a]] - s.penalty[depth, candidates[a]]
    bound_groups(s.share[slot], margin, candidates, s.group_start, groups, top)
    if len(candidates) < LEAST_TO_SPLIT or s.profit[depth] + top.sum() <= threshold:
        return
    if _take_slot(s, depth, candidates):
        slot = depth + 1
        for _ in range(FIRST_SWEEPS if depth == 0 else 1):
            s.state[STEPS] += STEPS_PER_SPLIT * len(candidates) ** 2
            sweep(
                s.pair[slot],
                s.share[slot],
                margin,
                candidates,
                s.group_start,
                groups,
                s.message,
                s.most,
            )
        bound_groups(s.share[slot], margin, candidates, s.group_start, groups, top)


@compiled
def _open(s: PricingState, depth: int, count: int, threshold: float) -> None:
    """Bound the branch at `depth` with `count` candidates, and order them for branching.

    Branching goes from the last candidate to the first; a set is found at its last candidate. So
    `prefix` of a candidate bounds all sets that use candidates up to it.
    """
    s.first[depth] = 0
    members, candidates = s.chosen[: depth + 1], s.candidate[depth]
    count = _drop_unsupported(s.givers, s.takers, members, candidates, s.inside[depth], count)
    if count < 0:
        s.position[depth] = -1
        return
    candidates = candidates[:count]
    groups = _group_rivals(s, candidates)
    if depth + 1 + groups < s.state[LEAST]:  # at most one of each group joins: too few members
        s.position[depth] = -1
        return
    _join_triples(s, depth, candidates)
    _bound_candidates(s, depth, candidates, groups, threshold)
    top = s.group_top[:groups]
    # Groups that add little come first: as long as all together stay below the threshold, none of
    # their candidates need be branched on.
    ranked = np.argsort(top)
    slot = 0
    bound = s.profit[depth]
    for q in range(groups):
        g = ranked[q]
        bound += top[g]
        for a in range(s.group_start[g], s.group_start[g + 1]):
            s.order[slot] = candidates[a]
            s.prefix[depth, slot] = bound
            slot += 1
        if bound <= threshold:
            s.first[depth] = slot
    for a in range(count):
        candidates[a] = s.order[a]
    s.position[depth] = count - 1


@compiled
def _search(s: PricingState, threshold: float, raises: bool, steps: int) -> float:
    """Continue the search; return the threshold, which rises with each find if asked to."""
    depth = s.state[DEPTH]
    last = s.state[STEPS] + steps
    while depth >= 0 and s.state[STEPS] < last:
        p = s.position[depth]
        if p < s.first[depth] or s.prefix[depth, p] <= threshold:
            depth -= 1  # no set of this branch exceeds the threshold
            continue
        s.position[depth] = p - 1
        s.state[STEPS] += STEPS_PER_BRANCH + p * p
        # The branch in which candidate p joins the members.
        j = s.candidate[depth, p]
        below = depth + 1
        s.chosen[below] = j
        s.profit[below] = s.profit[depth] + s.margin[depth, j] - s.penalty[depth, j]
        for w in range(s.members.shape[1]):
            s.members[below, w] = s.members[depth, w]
        s.members[below, j >> 6] |= _bit(j)
        for w in range(s.members.shape[1]):
            s.inside[below, w] = s.members[below, w]
        # Its candidates are those before p: sets with later ones were found at these.
        count = 0
        for a in range(p):
            k = s.candidate[depth, a]
            if not s.rival[j, k]:
                s.candidate[below, count] = k
                count += 1
                s.margin[below, k] = s.margin[depth, k] + s.value[j, k]
                s.penalty[below, k] = s.penalty[depth, k]
                s.inside[below, k >> 6] |= _bit(k)
        _charge(s, depth, below, j)
        if s.profit[below] > threshold and _valid(s, below):
            if s.state[FOUND] == len(s.found):
                s.position[depth] = p  # no room: come back to this candidate when there is
                break
            row = s.state[FOUND]
            s.found[row, :] = False
            for a in range(below + 1):
                s.found[row, s.chosen[a]] = True
            s.state[FOUND] += 1
            if raises:
                threshold = s.profit[below]
        if count:
            s.slot[below] = s.slot[depth]
            _open(s, below, count, threshold)
            depth = below
    s.state[DEPTH] = depth
    return threshold


@compiled
def _start(s: PricingState, ranked: Ints, root: int, threshold: float) -> None:
    """Set the search to the sets whose first member is the root."""
    i = ranked[root]
    s.chosen[0] = i
    s.profit[0] = -s.price[i]
    s.members[0, :] = 0
    s.members[0, i >> 6] |= _bit(i)
    s.inside[0, :] = s.members[0, :]
    count = 0
    for a in range(root + 1, len(ranked)):
        k = ranked[a]
        if not s.rival[i, k]:
            s.candidate[0, count] = k
            count += 1
            s.margin[0, k] = s.value[i, k] - s.price[k]
            s.penalty[0, k] = 0.0
            s.inside[0, k >> 6] |= _bit(k)
    _charge(s, -1, 0, i)
    s.state[DEPTH] = 0
    s.slot[0] = 0
    _open(s, 0, count, threshold)


class Pricing:
    """Searches for coalitions of high profit, root by root.

    Attributes
    ----------
    ranked : array of int
        The participants in the order of roots.
    """

    def __init__(self, problem: Subproblem, effort: Effort) -> None:
        n = problem.n
        words = (n + 63) // 64
        competition = problem.competition
        # Participants with most competitors come first: such a root has few others to combine with.
        self.ranked = np.argsort(-competition.sum(axis=1), kind="stable").astype(np.int64)
        self.effort = effort
        self._search = PricingState(
            value=problem.pair_values,
            half=0.5 * problem.pair_values,
            price=np.zeros(n),
            rival=np.array(competition, order="C"),
            rivals=_words(competition),
            givers=_words(problem.edges.T),
            takers=_words(problem.edges),
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
            pair=np.zeros((0, n, n)),
            share=np.zeros((0, n, n)),
            slot=np.zeros(n + 1, dtype=np.int64),
            group_of=np.zeros(n, dtype=np.int64),
            group_mask=np.zeros((n, words), dtype=np.uint64),
            group_start=np.zeros(n + 1, dtype=np.int64),
            group_end=np.zeros(n, dtype=np.int64),
            group_top=np.zeros(n),
            alone=np.zeros(n),
            message=np.zeros((n, n)),
            most=np.zeros(n),
            order=np.zeros(n, dtype=np.int64),
            found=np.zeros((ROOM, n), dtype=np.bool_),
            state=np.array([0, 0, 0, problem.fewest_members], dtype=np.int64),
        )

    def set_prices(self, prices: Floats, triples: Sequence[Triple], triple_prices: Floats) -> None:
        """Set the prices of participants and triples."""
        holds = np.zeros((len(prices), len(triples)), dtype=np.bool_)
        for t, triple in enumerate(triples):
            holds[list(triple), t] = True
        triples_of, n_triples_of = padded_lists(holds)
        n = len(prices)
        values = self._search.value.copy()
        for triple, price in zip(triples, triple_prices.tolist(), strict=True):
            for i, j in itertools.permutations(triple, 2):
                values[i, j] -= price / 3
        slots = min(max(MOST_ENTRIES // n**2, 2), n) + 1
        if len(self._search.pair) < slots:
            room = np.empty((slots, n, n)), np.empty((slots, n, n))
            self._search = self._search._replace(pair=room[0], share=room[1])
        self._search.pair[0], self._search.share[0] = values, 0.5 * values
        self._search.price[:] = prices
        self._search = self._search._replace(
            triple=np.array(triples, dtype=np.int64).reshape(-1, 3),
            triple_price=np.array(triple_prices, dtype=np.float64),
            triples_of=triples_of,
            n_triples_of=n_triples_of,
        )

    def release(self) -> None:
        """Give the memory back that is needed while prices are set: branches wait by the dozen."""
        none = np.zeros((0, *self._search.value.shape))
        self._search = self._search._replace(pair=none, share=none)

    def best(self, root: int, steps: int) -> tuple[float, bool, Bools]:
        """Look for the coalition of highest profit with this root.

        Returns
        -------
        bound : float
            No valid coalition with this root has a higher profit; at least 0.
        finished : bool
            Whether the search came to its end within the steps.
        found : boolean matrix
            Valid coalitions of positive profit, the best last.
        """
        s = self._search
        s.state[FOUND : STEPS + 1] = 0
        threshold = 0.0
        _start(s, self.ranked, root, threshold)
        while s.state[DEPTH] >= 0 and s.state[STEPS] < steps and s.state[FOUND] < ROOM:
            threshold = _search(s, threshold, True, min(steps, CHUNK))
            if self.effort.over:
                break
        self.effort.spend(SECONDS_PER_ROOT + int(s.state[STEPS]) * SECONDS_PER_STEP)
        # Of an unfinished search, the bound is that of the branches not yet looked at.
        bound = threshold
        for depth in range(int(s.state[DEPTH]) + 1):
            p = int(s.position[depth])
            if p >= s.first[depth]:
                bound = max(bound, float(s.prefix[depth, p]))
        return bound, bool(s.state[DEPTH] < 0), s.found[: s.state[FOUND]].copy()

    def all_above(self, root: int, threshold: float, most: int, steps: int) -> Bools | None:
        """Return all valid coalitions with this root and a profit above the threshold.

        None if there are more than `most`, or the steps do not suffice.
        """
        s = self._search
        s.state[FOUND : STEPS + 1] = 0
        _start(s, self.ranked, root, threshold)
        blocks: list[Bools] = []
        count = 0
        while s.state[DEPTH] >= 0:
            before = int(s.state[STEPS])
            _search(s, threshold, False, CHUNK)
            self.effort.spend((int(s.state[STEPS]) - before) * SECONDS_PER_STEP)
            blocks.append(s.found[: s.state[FOUND]].copy())
            count += int(s.state[FOUND])
            s.state[FOUND] = 0
            if count > most or (
                s.state[DEPTH] >= 0 and (s.state[STEPS] > steps or self.effort.over)
            ):
                return None
        return np.concatenate([s.found[:0], *blocks])


def _words(matrix: Bools) -> Words:
    """Return the rows of a boolean matrix as bitsets of 64-bit words."""
    n = len(matrix)
    padded = np.zeros((n, (n + 63) // 64 * 64), dtype=np.bool_)
    padded[:, :n] = matrix
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64).reshape(n, -1)
