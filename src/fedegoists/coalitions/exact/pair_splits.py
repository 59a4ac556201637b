"""Splits of pairs' values, and the bound that they give on what candidates add to a coalition.

The candidates are in groups of competitors, of which a coalition holds at most one. The value d_jk
of two candidates is split into a share for each, a_jk + a_kj = d_jk. If j joins, it brings at most
its margin and the highest share a_jk of each other group, and a group brings at most what the best
of its candidates does. The sum over the groups is a bound for any splits.

Halves are simple. Better splits come from *sweeps* over the pairs of groups, each of which lowers
the bound as far as the shares between two groups can, and leaves what is over to both alike. This
is block-coordinate descent on the dual of a linear program with a variable for each candidate and
pair, as in message passing for graphical models (Globerson and Jaakkola 2007). With few competitors
it closes nearly all of the difference, where halves leave most of it.
"""

from fedegoists.coalitions.array_types import Floats, Ints
from fedegoists.coalitions.exact.compiled import compiled


@compiled
def bound_groups(
    share: Floats,
    margin: Floats,
    candidates: Ints,
    start: Ints,
    groups: int,
    top: Floats,
) -> None:
    """Set for each group the most that one of its candidates can add to the profit.

    The candidates of group g are those from `start[g]` to `start[g + 1]`; margins are by place.
    """
    for g in range(groups):
        top[g] = 0.0
        for x in range(start[g], start[g + 1]):
            j = candidates[x]
            most = margin[x]
            for h in range(groups):
                highest = 0.0
                for y in range(start[h], start[h + 1]):
                    highest = max(highest, share[j, candidates[y]])
                most += highest
            top[g] = max(top[g], most)


@compiled
def sweep(
    value: Floats,
    share: Floats,
    margin: Floats,
    candidates: Ints,
    start: Ints,
    groups: int,
    message: Floats,
    most: Floats,
) -> None:
    """Improve the shares once for every two groups.

    `message[x, h]` is the highest share of the candidate at place x in group h, and `most[x]` its
    margin with all of these; both are scratch space.
    """
    for g in range(groups):
        for x in range(start[g], start[g + 1]):
            most[x] = margin[x]
            for h in range(groups):
                highest = 0.0
                for y in range(start[h], start[h + 1]):
                    highest = max(highest, share[candidates[x], candidates[y]])
                message[x, h] = highest
                most[x] += highest
    for g in range(groups):
        for h in range(g + 1, groups):
            _balance(value, share, candidates, start, g, h, message, most)


@compiled
def _balance(
    value: Floats,
    share: Floats,
    candidates: Ints,
    start: Ints,
    g: int,
    h: int,
    message: Floats,
    most: Floats,
) -> None:
    """Choose the shares between two groups so that what both add at most is lowest."""
    # What each adds at most without the other group, and both together.
    own_g = own_h = 0.0
    for x in range(start[g], start[g + 1]):
        most[x] -= message[x, h]
        own_g = max(own_g, most[x])
        message[x, h] = 0.0
    for y in range(start[h], start[h + 1]):
        most[y] -= message[y, g]
        own_h = max(own_h, most[y])
        message[y, g] = 0.0
    both = own_g + own_h
    for x in range(start[g], start[g + 1]):
        for y in range(start[h], start[h + 1]):
            v = value[candidates[x], candidates[y]]
            if v > 0:
                both = max(both, most[x] + most[y] + v)
    top_g = 0.5 * (both + own_g - own_h)
    top_h = 0.5 * (both + own_h - own_g)
    # Any share that keeps both below their tops will do: the middle of what is possible.
    for x in range(start[g], start[g + 1]):
        j = candidates[x]
        for y in range(start[h], start[h + 1]):
            k = candidates[y]
            v = value[j, k]
            if v > 0:
                least = max(0.0, v - (top_h - most[y]))
                own = 0.5 * (least + min(v, top_g - most[x]))
                share[j, k] = own
                share[k, j] = v - own
                message[x, h] = max(message[x, h], own)
                message[y, g] = max(message[y, g], v - own)
    for x in range(start[g], start[g + 1]):
        most[x] += message[x, h]
    for y in range(start[h], start[h + 1]):
        most[y] += message[y, g]
