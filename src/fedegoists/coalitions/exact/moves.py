"""The moves of the simulated annealing: members move, form pairs and push competitors out.

The search keeps, for every coalition and every participant, the value of the two to each other and
the number of givers, takers and competitors that the participant would find there. A proposed move
is valued from these tables at once, in a few nanoseconds; only a move that may be accepted changes
them, at the cost of one pass over all participants.

Principle 2 always holds. Principle 1 may be broken on the way, at a price for each free rider, so
that circles of benefit can be built one member after the other; the price rises, and only
partitions without free riders are kept. Where at least k members are demanded, each member that a
coalition lacks is priced like a free rider, for the same reason.

Where benefits are rare, a circle is unlikely to be built member by member. There whole *ears* are
proposed as well (as in the ear decomposition of a graph): paths of benefit that begin and end in a
coalition, so that every participant along the path has a giver and a taker.
"""

import numpy as np

from fedegoists.coalitions.array_types import Floats, Ints, Words
from fedegoists.coalitions.exact.compiled import compiled, inlined
from fedegoists.coalitions.exact.search_arrays import AnnealingState

WELFARE, RIDERS, BEST, CHANGES, LEAST = 0, 1, 2, 3, 4
"""Entries of `totals`: the current welfare, bonuses included; the number of free riders; the best
welfare without free riders; the changes of tables, which count as work; and the fewest members of a
coalition, at least two."""

GIVER, TAKER, FOE = 1, 1 << 10, 1 << 20
"""Givers, takers and competitors are counted in one number, ten bits each, competitors highest: a
single comparison with FOE tells whether there is any competitor."""

COUNT = (1 << 10) - 1
"""The largest number that ten bits hold."""

ALONE = -1
"""The label of a participant without a coalition."""

MOST_PUSHED = 3
"""How many competitors a newcomer may push out of a coalition."""

LEAVE = 0.02
"""The fraction of proposals in which a participant leaves its coalition to be alone."""

LONGEST_EAR = 4
"""The most participants on an ear."""

TRIES = 3
"""How many takers of the last participant are tried as the next one of an ear."""


@compiled
def uniform(state: Words) -> float:
    """Return a number in [0, 1) from a xorshift generator (Marsaglia 2003)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return float(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


# The tables ------------------------------------------------------------------------------------


@compiled
def shift(t: AnnealingState, i: int, c: int, sign: int) -> None:
    """Put i into coalition c (sign 1) or take it out (sign -1), and update the tables of c."""
    if sign > 0:
        t.label[i] = c
        t.member[c, t.size[c]] = i
        t.place[i] = t.size[c]
        t.size[c] += 1
    else:
        # The last member takes the free place, so that the list has no gaps.
        t.label[i] = ALONE
        t.size[c] -= 1
        last = t.member[c, t.size[c]]
        t.member[c, t.place[i]] = last
        t.place[last] = t.place[i]
    # Two loops over contiguous rows, which the compiler turns into vector instructions.
    worth, value = t.worth[c], t.value[i]
    found, link = t.found[c], t.link[i]
    for k in range(len(worth)):
        worth[k] += sign * value[k]
    for k in range(len(found)):
        found[k] += sign * link[k]


@compiled
def _rides(t: AnnealingState, c: int, k: int) -> bool:
    """Whether k would be a free rider in coalition c: no giver or no taker (Equation 1)."""
    found = t.found[c, k]
    return bool((found & COUNT) == 0 or ((found // TAKER) & COUNT) == 0)


@compiled
def _compete(t: AnnealingState, i: int, k: int) -> bool:
    return bool(t.link[i, k] >= FOE)


@compiled
def _count_riders(t: AnnealingState, c: int) -> int:
    """Count the free riders of a coalition again; return by how much the number changed.

    A member that is missing counts like a free rider.
    """
    riders = 0
    if t.size[c] > 1:
        riders = max(int(t.totals[LEAST]) - int(t.size[c]), 0)
        for m in range(t.size[c]):
            if _rides(t, c, t.member[c, m]):
                riders += 1
    change = riders - int(t.riders[c])
    t.riders[c] = riders
    return change


@compiled
def _free_slot(t: AnnealingState) -> int:
    for c in range(len(t.size)):
        if t.size[c] == 0:
            return c
    return -1


@compiled
def _keep_if_best(totals: Floats, best: Ints, label: Ints) -> None:
    """Keep the current partition if it has no free riders and more welfare than the best.

    The tolerance keeps rounding errors of running sums from counting as improvements.
    """
    if totals[RIDERS] == 0 and totals[WELFARE] > totals[BEST] * (1 + 1e-12):
        totals[BEST] = totals[WELFARE]
        best[:] = label


@compiled
def _expel_riders(t: AnnealingState, c: int, steps: int, least: int) -> tuple[int, float]:
    """Take free riders out of a coalition until none is left; log it and return the gain.

    A departure may make free riders of the members it gave to or took from, so the search begins
    again from the first member. A coalition of fewer than `least` members dissolves.
    """
    gain = 0.0
    m = 0
    while m < t.size[c]:
        k = t.member[c, m]
        if t.size[c] < least or _rides(t, c, k):
            gain -= t.worth[c, k]
            shift(t, k, c, -1)
            t.log[steps] = (k, c, -1)
            steps += 1
            m = 0
        else:
            m += 1
    return steps, gain


@compiled
def _settle(
    t: AnnealingState,
    steps: int,
    n_touched: int,
    gain: float,
    bar: float,
    price: float,
    bonus: float,
) -> None:
    """Accept the steps that were made if they reach the bar, otherwise take them back."""
    for a in range(n_touched):
        c = t.touched[a]
        if t.size[c] == 1:  # a coalition of one dissolves: its member would be a free rider
            t.log[steps] = (t.member[c, 0], c, -1)
            shift(t, t.member[c, 0], c, -1)
            steps += 1
    riders = 0
    for a in range(n_touched):
        riders += _count_riders(t, t.touched[a])
    t.totals[CHANGES] += 2 * steps
    for s in range(steps):
        gain += bonus * t.log[s, 2]  # entering a coalition earns the bonus, leaving one loses it
    if gain - price * riders < bar:
        for s in range(steps - 1, -1, -1):
            shift(t, t.log[s, 0], t.log[s, 1], -t.log[s, 2])
        for a in range(n_touched):
            _count_riders(t, t.touched[a])
        return
    t.totals[WELFARE] += gain
    t.totals[RIDERS] += riders
    _keep_if_best(t.totals, t.best, t.label)


# Ears ------------------------------------------------------------------------------------------


@inlined
def _find_ear(t: AnnealingState, i: int, c: int) -> int:
    """Walk from i along benefits until a participant benefits coalition c, or i if c is -1.

    The participants of the walk, without i, are pairwise independent and compete neither with i
    nor with coalition c. Returns the length of the ear, 0 if none was found.
    """
    last = i
    for length in range(LONGEST_EAR):
        t.path[length] = -1
        for _ in range(TRIES):
            if t.n_out[last] == 0:
                return 0
            k = t.out[last, int(uniform(t.random) * t.n_out[last])]
            if (
                (k == i or _compete(t, k, i))
                if c < 0
                else (t.label[k] == c or t.found[c, k] >= FOE)
            ):
                continue
            fits = True
            for a in range(length):
                fits &= t.path[a] != k and not _compete(t, k, t.path[a])
            if fits:
                t.path[length] = k
                # Does k benefit i, or some member of c? Then the ear is closed.
                if ((t.link[k, i] & COUNT) if c < 0 else ((t.found[c, k] // TAKER) & COUNT)) > 0:
                    return length + 1
        last = t.path[length]
        if last < 0:
            return 0
    return 0


@inlined
def _gain_of_ear(t: AnnealingState, c: int, length: int) -> float:
    """Return the gain if all participants of an ear go to coalition c and no others move."""
    gain = 0.0
    for a in range(length):
        j = t.path[a]
        old = t.label[j]
        if t.size[c] > 0:
            gain += t.worth[c, j]
        if old >= 0:
            gain -= t.worth[old, j]
        for b in range(a):
            gain += t.value[j, t.path[b]]
            # Two that leave the same coalition: their value to each other was subtracted twice.
            if old >= 0 and t.label[t.path[b]] == old:
                gain += t.value[j, t.path[b]]
    return gain


@inlined
def _add_ear(t: AnnealingState, i: int, least: float) -> tuple[int, int, float]:
    """Add an ear from i back to its coalition, or back to i in a new coalition.

    Returns the number of steps made, the number of coalitions touched, and the gain; no steps if
    no ear was found, or none with a gain of at least `least`.
    """
    source = t.label[i]
    c = source if source >= 0 and uniform(t.random) < 0.5 else -1
    length = _find_ear(t, i, c)
    steps = 0
    n_touched = 0
    gain = 0.0
    if length == 0:
        return steps, n_touched, gain
    if c < 0:
        c = _free_slot(t)
        if c < 0:
            return steps, n_touched, gain
        t.path[length] = i  # i itself moves into the new coalition
        length += 1
    # Free riders that are expelled below lower the gain further, so this bound rejects safely.
    if _gain_of_ear(t, c, length) < least:
        return steps, n_touched, gain
    t.touched[0] = c
    n_touched = 1
    for a in range(length):
        j = t.path[a]
        old = t.label[j]
        if old >= 0:
            gain -= t.worth[old, j]
            shift(t, j, old, -1)
            t.log[steps] = (j, old, -1)
            steps += 1
            seen = False
            for b in range(n_touched):
                seen |= t.touched[b] == old
            if not seen:
                t.touched[n_touched] = old
                n_touched += 1
        gain += t.worth[c, j]
        shift(t, j, c, 1)
        t.log[steps] = (j, c, 1)
        steps += 1
    # The coalitions left behind may have free riders now. Expelling them at once makes the ear a
    # complete move, which is judged as a whole.
    for a in range(n_touched):
        steps, change = _expel_riders(t, t.touched[a], steps, 2)
        gain += change
    return steps, n_touched, gain


# Moves of one participant ----------------------------------------------------------------------


@compiled
def _best_home(t: AnnealingState, r: int, c: int, i: int, source: int) -> tuple[int, float]:
    """Return the coalition of most value for r, pushed out of c by i, and that value.

    Other coalitions have their value in the tables; `source`, which i has left, is corrected.
    """
    home = ALONE
    top = 0.0
    for d in range(len(t.size)):
        if d == c or t.size[d] == 0:
            continue
        worth = t.worth[d, r]
        found = t.found[d, r]
        if d == source:
            worth -= t.value[r, i]
            found -= t.link[i, r]
        if found < FOE and worth > top:
            top = worth
            home = d
    return home, top


@inlined
def _push_rivals(t: AnnealingState, i: int, source: int, c: int, gain: float) -> tuple[int, float]:
    """Choose a new home for each member of c that competes with i.

    Returns how many are pushed out, and the gain with their changes added.
    """
    n_pushed = 0
    for m in range(t.size[c]):
        r = t.member[c, m]
        if _compete(t, i, r):
            gain -= t.worth[c, r]
            # Two that are pushed out: their value to each other was subtracted twice.
            for b in range(n_pushed):
                gain += t.value[r, t.pushed[b]]
            t.home[n_pushed], top = _best_home(t, r, c, i, source)
            gain += top
            # Two that go to the same home have their value to each other there.
            for b in range(n_pushed):
                if t.home[b] >= 0 and t.home[b] == t.home[n_pushed]:
                    gain += t.value[r, t.pushed[b]]
            t.pushed[n_pushed] = r
            n_pushed += 1
    return n_pushed, gain


@compiled
def _plan_steps(
    log: Ints, pushed: Ints, home: Ints, i: int, partner: int, source: int, c: int, n_pushed: int
) -> int:
    """Write the steps of a move to the log; return their number.

    i leaves `source`, competitors leave c for their homes, and i enters c; a partner that was
    alone enters the new coalition c first.
    """
    steps = 0
    if partner >= 0:
        log[steps] = (partner, c, 1)
        steps += 1
    if source >= 0:
        log[steps] = (i, source, -1)
        steps += 1
    for a in range(n_pushed):
        log[steps] = (pushed[a], c, -1)
        steps += 1
    for a in range(n_pushed):
        if home[a] >= 0:
            log[steps] = (pushed[a], home[a], 1)
            steps += 1
    if c >= 0:
        log[steps] = (i, c, 1)
        steps += 1
    return steps


@compiled
def _list_touched(touched: Ints, home: Ints, source: int, c: int, n_pushed: int) -> int:
    """List the coalitions that a move changes; return their number."""
    n_touched = 0
    for d in (source, c):
        if d >= 0:
            touched[n_touched] = d
            n_touched += 1
    for a in range(n_pushed):
        if home[a] >= 0 and home[a] != source:
            touched[n_touched] = home[a]
            n_touched += 1
    return n_touched


@compiled
def anneal(
    t: AnnealingState,
    proposals: int,
    temperature: float,
    cooling: float,
    price: float,
    dearer: float,
    bonus: float,
    ears: float,
) -> None:
    """Make proposals; at each the temperature falls and the price of a free rider rises.

    A change of welfare, less the price of new free riders, is accepted with the probability of
    Metropolis: if it exceeds a random bar, temperature · ln(uniform), which is negative.

    Most proposals are hopeless. They are rejected from a few entries of the tables, in this
    function: passing all arrays of the state to another one would take longer than that.
    """
    n = len(t.label)
    for _ in range(proposals):
        temperature *= cooling
        price *= dearer
        i = int(uniform(t.random) * n)
        if ears > 0 and uniform(t.random) < ears:
            bar = temperature * np.log(max(uniform(t.random), 1e-300))
            # The most that the end of free riding and new bonuses could add to the gain.
            least = bar - price * t.totals[RIDERS] - bonus * (LONGEST_EAR + 1)
            steps, n_touched, gain = _add_ear(t, i, least)
            if steps:
                _settle(t, steps, n_touched, gain, bar, price, bonus)
            continue
        # A participant leaves its coalition, or joins one that it could gain with.
        source = t.label[i]
        partner = -1
        c = ALONE
        if uniform(t.random) < LEAVE or t.n_near[i] == 0:
            if source < 0:
                continue  # it is alone already
        else:
            partner = t.near[i, int(uniform(t.random) * t.n_near[i])]
            c = t.label[partner]
            if c >= 0 and (c == source or t.found[c, i] >= (MOST_PUSHED + 1) * FOE):
                continue  # they are together already, or it has too many competitors there
        bar = temperature * np.log(max(uniform(t.random), 1e-300))
        # The move may end free riding and earn two bonuses; both are known only once it is made. A
        # gain that misses the bar by more than that is hopeless.
        enough = bar - (price * t.totals[RIDERS] + 2 * bonus)
        gain = -t.worth[source, i] if source >= 0 else 0.0
        if c >= 0:
            gain += t.worth[c, i]
        elif partner >= 0:
            gain += t.value[i, partner]
        if gain < enough:
            continue
        n_pushed = 0
        if c >= 0:
            partner = -1  # it stays in c; only a partner that is alone has to move
            if t.found[c, i] >= FOE:
                n_pushed, gain = _push_rivals(t, i, source, c, gain)
        elif partner >= 0:
            c = _free_slot(t)
        if gain < enough or (c < 0 and partner >= 0):
            continue  # pushing competitors out costs too much, or there is no slot left
        # The gain is known, but not yet the free riders: make the move and count them.
        steps = _plan_steps(t.log, t.pushed, t.home, i, partner, source, c, n_pushed)
        for s in range(steps):
            shift(t, t.log[s, 0], t.log[s, 1], t.log[s, 2])
        n_touched = _list_touched(t.touched, t.home, source, c, n_pushed)
        _settle(t, steps, n_touched, gain, bar, price, bonus)


@compiled
def repair(t: AnnealingState, bonus: float) -> None:
    """Take free riders out of all coalitions, so that all are valid."""
    least = int(t.totals[LEAST])
    for c in range(len(t.size)):
        steps, gain = _expel_riders(t, c, 0, least)
        t.totals[WELFARE] += gain - bonus * steps
        t.riders[c] = 0
    t.totals[RIDERS] = 0
    _keep_if_best(t.totals, t.best, t.label)
