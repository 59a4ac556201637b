"""The moves of simulated annealing under learning curves, compiled; see `curve_annealing`.

For every participant the search keeps x, the worth of the other members' data to it, and the
variance of x. Both are sums over members, so a move updates them, and the scores, of two coalitions
only.

The score of a member is its expected gain; where the gain falls short of what the confidence
demands, the shortfall is subtracted at a price, and so is each free rider, so that coalitions can
be built one member after the other.
"""

import math
from typing import NamedTuple

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Words
from fedegoists.coalitions.exact.compiled import compiled, inlined
from fedegoists.coalitions.exact.moves import uniform

ALONE = -1

LEAVE = 0.03
"""The fraction of proposals in which a participant leaves its coalition to be alone."""

MOST_EJECTED = 2
"""How many competitors a newcomer may push out of a coalition."""

TOTAL, BEST, STEPS, RIDERS = 0, 1, 2, 3
"""Entries of `totals`: the current total score, the best one without free riders, the scores
computed, which count as work, and the number of free riders."""


class CurveState(NamedTuple):
    """The data of the problem, and a partition with the tables that moves update."""

    effects: Floats  # [j, i]: what j adds to x of i
    variances: Floats  # [j, i]: what j adds to the variance of x of i
    slopes: Floats
    slope_errors: Floats
    powers: Floats
    rivals: Bools
    label: Ints  # the coalition of each participant, or ALONE
    place: Ints  # its place in the coalition's list of members
    member: Ints  # [c, k]
    size: Ints
    x: Floats
    variance: Floats
    score: Floats
    steepness: Floats  # the derivative of the gain with respect to x, but for a constant
    riders: Ints  # by coalition: the members that give nothing
    best: Ints  # the labels with the best total so far
    totals: Floats
    moved: Ints  # of a proposal: participants, and the coalitions they came from
    random: Words


@inlined
def scored(t: CurveState, i: int, quantile: float, price: float) -> float:
    """Return the score of a member: its expected gain, less the priced shortfall."""
    t.totals[STEPS] += 1
    x = max(t.x[i], -0.5)
    log = math.log1p(x)
    power = t.powers[i]
    if power == 0.0:
        curve, steepness = log, 1.0 / (1.0 + x)
    else:
        curve, steepness = math.expm1(power * log) / power, math.exp((power - 1.0) * log)
    t.steepness[i] = t.slopes[i] * steepness
    doublings = (curve + (t.x[i] - x) * steepness) / math.log(2.0)
    gain = t.slopes[i] * doublings
    short = gain
    if quantile > 0.0:
        by_slope = doublings * t.slope_errors[i]
        by_rates = t.slopes[i] * steepness / math.log(2.0)
        error = math.sqrt(by_slope * by_slope + by_rates * by_rates * t.variance[i])
        short = gain - quantile * error
    return float(gain + price * min(short, 0.0))


@compiled
def take_out(t: CurveState, i: int, quantile: float, price: float) -> None:
    """Take i out of its coalition."""
    c = t.label[i]
    t.totals[TOTAL] -= t.score[i]
    t.size[c] -= 1
    last = t.member[c, t.size[c]]
    t.member[c, t.place[i]] = last
    t.place[last] = t.place[i]
    t.label[i] = ALONE
    t.x[i] = t.variance[i] = t.score[i] = 0.0
    for m in range(t.size[c]):
        k = t.member[c, m]
        t.x[k] -= t.effects[i, k]
        t.variance[k] = max(t.variance[k] - t.variances[i, k], 0.0)
        score = scored(t, k, quantile, price) if t.size[c] > 1 else 0.0
        t.totals[TOTAL] += score - t.score[k]
        t.score[k] = score


@compiled
def put_in(t: CurveState, i: int, c: int, quantile: float, price: float) -> None:
    """Put i, which is in no coalition, into one."""
    x = variance = 0.0
    for m in range(t.size[c]):
        k = t.member[c, m]
        x += t.effects[k, i]
        variance += t.variances[k, i]
        t.x[k] += t.effects[i, k]
        t.variance[k] += t.variances[i, k]
        score = scored(t, k, quantile, price)
        t.totals[TOTAL] += score - t.score[k]
        t.score[k] = score
    t.label[i] = c
    t.place[i] = t.size[c]
    t.member[c, t.size[c]] = i
    t.size[c] += 1
    t.x[i], t.variance[i] = x, variance
    t.score[i] = scored(t, i, quantile, price) if t.size[c] > 1 else 0.0
    t.totals[TOTAL] += t.score[i]


@compiled
def count_riders(t: CurveState, c: int) -> int:
    """Return how many members of a coalition seem to give nothing.

    Gains are concave, so what i gives is at least its effects times the others' steepness.
    """
    riders = 0
    for m in range(t.size[c]):
        i = t.member[c, m]
        given = 0.0
        for k in range(t.size[c]):
            given += t.effects[i, t.member[c, k]] * t.steepness[t.member[c, k]]
        riders += given <= 0.0
    return riders if t.size[c] > 1 else 0


@compiled
def empty_slot(t: CurveState) -> int:
    """Return a coalition without members."""
    for c in range(len(t.size)):
        if t.size[c] == 0:
            return c
    return ALONE


@compiled
def propose(
    t: CurveState, quantile: float, price: float, rider_price: float, temperature: float
) -> None:
    """Move a participant to another coalition or out of its own, or undo that."""
    n = len(t.label)
    i = int(uniform(t.random) * n)
    home = t.label[i]
    target = ALONE
    if home == ALONE or uniform(t.random) >= LEAVE:
        j = int(uniform(t.random) * n)
        target = t.label[j]
    if target == home:
        return
    moves = 0
    if target != ALONE:
        for m in range(t.size[target]):
            k = t.member[target, m]
            if t.rivals[i, k]:
                if moves == MOST_EJECTED:
                    return
                t.moved[2 * moves], t.moved[2 * moves + 1] = k, target
                moves += 1
    before = t.totals[TOTAL]
    for m in range(moves):
        take_out(t, t.moved[2 * m], quantile, price)
    take_out(t, i, quantile, price)
    if target == ALONE:
        target = empty_slot(t)
    put_in(t, i, target, quantile, price)
    at_home, at_target = count_riders(t, home), count_riders(t, target)
    riders = at_home + at_target - t.riders[home] - t.riders[target]
    change = t.totals[TOTAL] - before - rider_price * riders
    if change >= 0.0 or uniform(t.random) < math.exp(change / temperature):
        t.riders[home], t.riders[target] = at_home, at_target
        t.totals[RIDERS] += riders
        for m in range(moves):  # those pushed out are alone, each in a coalition of its own
            put_in(t, t.moved[2 * m], empty_slot(t), quantile, price)
        return
    take_out(t, i, quantile, price)
    put_in(t, i, home, quantile, price)
    for m in range(moves):
        put_in(t, t.moved[2 * m], t.moved[2 * m + 1], quantile, price)


@compiled
def anneal_curves(
    t: CurveState,
    proposals: int,
    quantile: float,
    price: float,
    rider_price: float,
    hot: float,
    cold: float,
) -> None:
    """Make proposals while the temperature falls; keep the best labels."""
    temperature = hot
    cooling = (cold / hot) ** (1.0 / proposals)
    for _ in range(proposals):
        propose(t, quantile, price, rider_price, temperature)
        temperature *= cooling
        if t.totals[TOTAL] > t.totals[BEST] * (1.0 + 1e-12) and t.totals[RIDERS] == 0:
            t.totals[BEST] = t.totals[TOTAL]
            t.best[:] = t.label
