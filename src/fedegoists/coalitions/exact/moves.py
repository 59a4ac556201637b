"""The moves of the annealing: members move, swap places and push competitors out.

Where benefits are rare, whole paths of benefit that begin and end in a coalition (ears, as in the
ear decomposition of a graph) are proposed too: all along such a path have a giver and a taker.

The search keeps, for every coalition and every participant, what the two are worth to one another
and how many givers, takers and competitors the participant would find there. A proposed move is
valued from these tables at once; only moves that may be accepted change them. Principle 2 always
holds. Principle 1 may be broken on the way, at a price for each free rider, so that circles of
benefit can be built one member after the other; only partitions without free riders are kept.
"""

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.array_types import Ints
from fedegoists.coalitions.exact.compiled import compiled
from fedegoists.coalitions.exact.search_arrays import Tables

__all__ = ["FOE", "GIVER", "TAKER", "anneal", "repair", "shift", "uniform"]


MOST_PUSHED = 3
"""How many competitors a newcomer may push out of a coalition."""

LEAVE = 0.02
"""Which part of the proposals is that somebody goes on its own."""

LONGEST_EAR = 4
"""How many a path may lead through that is added to a coalition as a whole."""

TRIES = 3
"""How many takers are looked at for one that closes the path."""

GIVER, TAKER, FOE = 1, 1 << 10, 1 << 20
"""Givers, takers and competitors are counted in one number, ten bits each, foes in the highest."""

COUNT = (1 << 10) - 1
"""What ten bits hold."""


@compiled
def uniform(state: npt.NDArray[np.uint64]) -> float:
    """Return a number in [0, 1) from a xorshift generator (Marsaglia 2003)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return float(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def shift(t: Tables, i: int, c: int, sign: int) -> None:
    """Put i into coalition c (sign 1) or take it out (sign -1)."""
    if sign > 0:
        t.label[i] = c
        t.member[c, t.size[c]] = i
        t.place[i] = t.size[c]
        t.size[c] += 1
    else:
        t.label[i] = -1
        t.size[c] -= 1
        last = t.member[c, t.size[c]]
        t.member[c, t.place[i]] = last
        t.place[last] = t.place[i]
    worth, value = t.worth[c], t.value[i]
    found, link = t.found[c], t.link[i]
    for k in range(len(worth)):
        worth[k] += sign * value[k]
    for k in range(len(found)):
        found[k] += sign * link[k]


@compiled
def _rides(t: Tables, c: int, k: int) -> bool:
    """Whether k would be a free rider in coalition c."""
    found = t.found[c, k]
    return bool((found & COUNT) == 0 or ((found // TAKER) & COUNT) == 0)


@compiled
def _compete(t: Tables, i: int, k: int) -> bool:
    return bool(t.link[i, k] >= FOE)


@compiled
def _count_riders(t: Tables, c: int) -> int:
    """Count the free riders of a coalition anew; return by how much the number changed."""
    riders = 0
    if t.size[c] > 1:
        for m in range(t.size[c]):
            k = t.member[c, m]
            if _rides(t, c, k):
                riders += 1
    change = riders - int(t.riders[c])
    t.riders[c] = riders
    return change


@compiled
def _free_slot(t: Tables) -> int:
    for c in range(len(t.size)):
        if t.size[c] == 0:
            return c
    return -1


@compiled
def _best_home(t: Tables, r: int, c: int, i: int, source: int) -> tuple[int, float]:
    """Return where r, pushed out of c by i who came from `source`, is worth most."""
    home = -1
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


@compiled
def _cascade(t: Tables, c: int, log: Ints, steps: int) -> tuple[int, float]:
    """Take free riders out of a coalition until none is left; return the steps and the change."""
    change = 0.0
    m = 0
    while m < t.size[c]:
        k = t.member[c, m]
        if t.size[c] == 1 or _rides(t, c, k):
            change -= t.worth[c, k]
            shift(t, k, c, -1)
            log[steps] = (k, c, -1)
            steps += 1
            m = 0
        else:
            m += 1
    return steps, change


@compiled
def _find_ear(t: Tables, i: int, c: int, path: Ints) -> int:
    """Walk from i along benefits until somebody benefits coalition c, or i if c is -1.

    Returns the length of the path, 0 if it does not close.
    """
    last = i
    for length in range(LONGEST_EAR):
        path[length] = -1
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
                fits &= path[a] != k and not _compete(t, k, path[a])
            if fits:
                path[length] = k
                if ((t.link[k, i] & COUNT) if c < 0 else ((t.found[c, k] // TAKER) & COUNT)) > 0:
                    return length + 1
        last = path[length]
        if last < 0:
            return 0
    return 0


@compiled
def _promise(t: Tables, c: int, path: Ints, length: int) -> float:
    """Return the change of welfare if all on a path go to coalition c and nobody else moves."""
    gain = 0.0
    for a in range(length):
        j = path[a]
        old = t.label[j]
        if t.size[c] > 0:
            gain += t.worth[c, j]
        if old >= 0:
            gain -= t.worth[old, j]
        for b in range(a):
            gain += t.value[j, path[b]]
            if old >= 0 and t.label[path[b]] == old:
                gain += t.value[j, path[b]]
    return gain


@compiled
def _add_ear(
    t: Tables, i: int, path: Ints, log: Ints, touched: Ints, least: float
) -> tuple[int, int, float]:
    """Add a path of benefit that leads from i back to its coalition, or to i in a new one.

    Whoever is a free rider without those who went along the path, goes on its own. Returns the
    steps made, the number of coalitions touched, and the change of welfare; no steps if no path was
    found, or none that changes the welfare by at least as much as asked.
    """
    source = t.label[i]
    c = source if source >= 0 and uniform(t.random) < 0.5 else -1
    length = _find_ear(t, i, c, path)
    steps = 0
    n_touched = 0
    gain = 0.0
    if length == 0:
        return steps, n_touched, gain
    if c < 0:
        c = _free_slot(t)
        if c < 0:
            return steps, n_touched, gain
        path[length] = i
        length += 1
    if _promise(t, c, path, length) < least:  # those who go on their own lower it further
        return steps, n_touched, gain
    touched[0] = c
    n_touched = 1
    for a in range(length):
        j = path[a]
        old = t.label[j]
        if old >= 0:
            gain -= t.worth[old, j]
            shift(t, j, old, -1)
            log[steps] = (j, old, -1)
            steps += 1
            seen = False
            for b in range(n_touched):
                seen |= touched[b] == old
            if not seen:
                touched[n_touched] = old
                n_touched += 1
        gain += t.worth[c, j]
        shift(t, j, c, 1)
        log[steps] = (j, c, 1)
        steps += 1
    for a in range(n_touched):
        steps, change = _cascade(t, touched[a], log, steps)
        gain += change
    return steps, n_touched, gain


@compiled
def _settle(
    t: Tables,
    log: Ints,
    steps: int,
    touched: Ints,
    n_touched: int,
    gain: float,
    bar: float,
    price: float,
    bonus: float,
) -> None:
    """Keep the steps made if they reach the bar, otherwise take them back."""
    riders = 0
    for a in range(n_touched):
        riders += _count_riders(t, touched[a])
    t.totals[3] += 2 * steps
    for s in range(steps):
        gain += bonus * log[s, 2]
    if gain - price * riders < bar:
        for s in range(steps - 1, -1, -1):
            shift(t, log[s, 0], log[s, 1], -log[s, 2])
        for a in range(n_touched):
            _count_riders(t, touched[a])
        return
    t.totals[0] += gain
    t.totals[1] += riders
    if t.totals[1] == 0 and t.totals[0] > t.totals[2] * (1 + 1e-12):
        t.totals[2] = t.totals[0]
        t.best[:] = t.label


@compiled
def anneal(
    t: Tables,
    proposals: int,
    temperature: float,
    cooling: float,
    price: float,
    dearer: float,
    bonus: float,
    ears: float,
) -> None:
    """Make proposals; at each the temperature falls and the price of a free rider rises."""
    n = len(t.label)
    path = np.empty(LONGEST_EAR + 1, np.int64)
    pushed = np.empty(MOST_PUSHED, np.int64)
    home = np.empty(MOST_PUSHED, np.int64)
    log = np.empty((4 * MOST_PUSHED + 2 * LONGEST_EAR + n + 8, 3), np.int64)
    touched = np.empty(max(MOST_PUSHED, LONGEST_EAR) + 2, np.int64)
    for _ in range(proposals):
        temperature *= cooling
        price *= dearer
        i = int(uniform(t.random) * n)
        if ears > 0 and uniform(t.random) < ears:
            bar = temperature * np.log(max(uniform(t.random), 1e-300))
            least = bar - price * t.totals[1] - bonus * (LONGEST_EAR + 1)
            steps, n_touched, gain = _add_ear(t, i, path, log, touched, least)
            if steps:
                _settle(t, log, steps, touched, n_touched, gain, bar, price, bonus)
            continue
        source = t.label[i]
        partner = -1
        c = -1
        if uniform(t.random) < LEAVE or t.n_near[i] == 0:
            if source < 0:
                continue
        else:
            partner = t.near[i, int(uniform(t.random) * t.n_near[i])]
            c = t.label[partner]
            if c >= 0 and (c == source or t.found[c, i] >= (MOST_PUSHED + 1) * FOE):
                continue
        # What the change of welfare, less the price of new free riders, has to reach.
        bar = temperature * np.log(max(uniform(t.random), 1e-300))
        relief = price * t.totals[1] + 2 * bonus
        gain = -t.worth[source, i] if source >= 0 else 0.0
        n_pushed = 0
        if c >= 0:
            gain += t.worth[c, i]
            if gain < bar - relief:
                continue
            if t.found[c, i] >= FOE:
                for m in range(t.size[c]):
                    r = t.member[c, m]
                    if _compete(t, i, r):
                        gain -= t.worth[c, r]
                        for b in range(n_pushed):
                            gain += t.value[r, pushed[b]]
                        home[n_pushed], top = _best_home(t, r, c, i, source)
                        gain += top
                        for b in range(n_pushed):
                            if home[b] >= 0 and home[b] == home[n_pushed]:
                                gain += t.value[r, pushed[b]]
                        pushed[n_pushed] = r
                        n_pushed += 1
        elif partner >= 0:
            gain += t.value[i, partner]
        if gain < bar - relief:
            continue

        # Make the move, count the free riders, and take it back if there are too many.
        steps = 0
        if c < 0 and partner >= 0:
            c = _free_slot(t)
            if c < 0:
                continue
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
        for s in range(steps):
            shift(t, log[s, 0], log[s, 1], log[s, 2])
        n_touched = 0
        for d in (source, c):
            if d >= 0:
                touched[n_touched] = d
                n_touched += 1
        for a in range(n_pushed):
            if home[a] >= 0 and home[a] != source:
                touched[n_touched] = home[a]
                n_touched += 1
        for a in range(n_touched):
            if t.size[touched[a]] == 1:  # a coalition of one is none
                log[steps] = (t.member[touched[a], 0], touched[a], -1)
                shift(t, log[steps, 0], log[steps, 1], -1)
                steps += 1
        _settle(t, log, steps, touched, n_touched, gain, bar, price, bonus)


@compiled
def repair(t: Tables, bonus: float) -> None:
    """Take free riders out, which may make others free riders, until none is left."""
    log = np.empty((len(t.label), 3), np.int64)
    for c in range(len(t.size)):
        steps, change = _cascade(t, c, log, 0)
        t.totals[0] += change - bonus * steps
        t.riders[c] = 0
    t.totals[1] = 0
    if t.totals[0] > t.totals[2] * (1 + 1e-12):
        t.totals[2] = t.totals[0]
        t.best[:] = t.label
