"""Local search on components too large for the tables of the other searches.

Simulated annealing over moves of single participants, in memory linear in the benefit edges and the
competing pairs. A participant moves to the coalition of a random neighbour, or to an empty one. A
move that brings competitors together pushes them out: they are alone afterwards. Members that only
give or only receive are allowed on the way, at a price that rises; they are put on their own at the
end of each round.
"""

import math
from typing import NamedTuple

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints, Words
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.compiled import between_looks, compiled
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.moves import uniform
from fedegoists.coalitions.exact.reduction import SparseSubproblem

HOT, COLD, FROZEN = 3.0, 0.4, 0.04
"""Temperatures of a round, in units of the mean value of a pair: at its begin, when only the quench
is left, and at its end. The first two are measured: at 2,000 participants with ten edges each, they
gave the highest welfare of twenty settings."""

QUENCH = 0.05
"""The last part of a round, in which hardly a move is accepted that costs anything."""

CHEAP, DEAR = 1.0, 6.0
"""First and last price of a member that only gives or only receives, in the same units."""

ALONE = 0.02
"""The fraction of proposals to move to an empty coalition."""

CHUNK = 100_000
"""Proposals between two looks at the clock."""

SECONDS_PER_PROPOSAL = 2e-6
"""Work of a proposal."""

MOST_PROPOSALS = 20_000
"""Proposals of one round, per participant."""


class SparseState(NamedTuple):
    """The component as lists of neighbours, and the present partition."""

    start: Ints  # by participant: where its neighbours begin, and after the last where they end
    other: Ints  # the neighbours
    value: Floats  # what the two give each other
    gives: Bools  # whether the participant gives to the neighbour
    takes: Bools  # whether it receives from the neighbour
    rival_start: Ints
    rival: Ints
    label: Ints  # by participant: its coalition
    size: Ints  # by coalition
    empty: Ints  # a stack of empty coalitions; the last entry is their number
    givers: Ints  # by participant: how many members of its coalition give to it
    takers: Ints  # and how many receive from it
    random: Words


@compiled
def _one_sided(s: SparseState, i: int) -> int:
    """Whether a participant only gives or only receives in its coalition, as 1 or 0."""
    return 1 if (s.givers[i] > 0) != (s.takers[i] > 0) else 0


@compiled
def _relabel(s: SparseState, i: int, target: int) -> tuple[float, int]:
    """Move a participant; return the changes of the welfare and of the one-sided members."""
    source = s.label[i]
    gain = 0.0
    riders = -_one_sided(s, i)
    s.givers[i] = 0
    s.takers[i] = 0
    for a in range(s.start[i], s.start[i + 1]):
        k = s.other[a]
        step = 0
        if s.label[k] == source:
            step = -1
        elif s.label[k] == target:
            step = 1
        if step == 0:
            continue
        gain += step * s.value[a]
        riders -= _one_sided(s, k)
        if s.gives[a]:
            s.givers[k] += step
        if s.takes[a]:
            s.takers[k] += step
        riders += _one_sided(s, k)
        if step == 1:
            s.givers[i] += 1 if s.takes[a] else 0
            s.takers[i] += 1 if s.gives[a] else 0
    s.label[i] = target
    s.size[source] -= 1
    if s.size[target] == 0:
        s.empty[len(s.empty) - 1] -= 1  # the target was taken from the top of the stack
    s.size[target] += 1
    if s.size[source] == 0:
        s.empty[s.empty[len(s.empty) - 1]] = source
        s.empty[len(s.empty) - 1] += 1
    return gain, riders + _one_sided(s, i)


@compiled
def _score(s: SparseState, i: int, target: int) -> tuple[float, int]:
    """Return what `_relabel` would return, without any change."""
    source = s.label[i]
    gain = 0.0
    riders = -_one_sided(s, i)
    givers = takers = 0
    for a in range(s.start[i], s.start[i + 1]):
        k = s.other[a]
        step = 0
        if s.label[k] == source:
            step = -1
        elif s.label[k] == target:
            step = 1
        if step == 0:
            continue
        gain += step * s.value[a]
        gives, takes = s.givers[k], s.takers[k]
        if s.gives[a]:
            gives += step
            takers += step
        if s.takes[a]:
            takes += step
            givers += step
        riders += (1 if (gives > 0) != (takes > 0) else 0) - _one_sided(s, k)
    # Of the own givers and takers, those in the old coalition were counted as lost.
    return gain, riders + (1 if (s.givers[i] + givers > 0) != (s.takers[i] + takers > 0) else 0)


@compiled
def _top_empty(s: SparseState) -> int:
    return int(s.empty[s.empty[len(s.empty) - 1] - 1])


@compiled
def _propose(s: SparseState, temperature: float, price: float, pushed: Ints) -> float:
    """Propose one move, and make it unless it is rejected; return the change of the welfare."""
    n = len(s.label)
    i = int(uniform(s.random) * n)
    source = s.label[i]
    degree = s.start[i + 1] - s.start[i]
    if degree == 0 or uniform(s.random) < ALONE:
        if s.size[source] == 1:
            return 0.0
        target = _top_empty(s)
    else:
        target = s.label[s.other[s.start[i] + int(uniform(s.random) * degree)]]
        if target == source:
            return 0.0
    # Competitors in the target are pushed out first.
    count = 0
    for a in range(s.rival_start[i], s.rival_start[i + 1]):
        if s.label[s.rival[a]] == target:
            if count == len(pushed):
                return 0.0  # too many to be worth it
            pushed[count] = s.rival[a]
            count += 1
    if count == 0:
        gain, riders = _score(s, i, target)
        rise = gain - price * riders
        if rise < 0 and uniform(s.random) >= math.exp(rise / temperature):
            return 0.0
        _relabel(s, i, target)
        return gain
    gain = 0.0
    riders = 0
    for a in range(count):
        change, more = _relabel(s, pushed[a], _top_empty(s))
        gain += change
        riders += more
    if s.size[target] == 0:  # all were pushed out; it is on the stack, but not at its top
        target = _top_empty(s)
    home = target
    change, more = _relabel(s, i, target)
    gain += change
    riders += more
    rise = gain - price * riders
    if rise >= 0 or uniform(s.random) < math.exp(rise / temperature):
        return gain
    # Undo, in reverse order; the source may be empty now, and then is on the stack.
    _relabel(s, i, source if s.size[source] > 0 else _top_empty(s))
    for a in range(count):
        home = target if s.size[target] > 0 else _top_empty(s)
        _relabel(s, pushed[a], home)
        target = home
    return 0.0


@compiled
def _anneal(
    s: SparseState, proposals: int, hot: float, cold: float, cheap: float, dear: float
) -> float:
    """Make proposals while temperature and price go from the first to the second number."""
    pushed = np.zeros(3, dtype=np.int64)
    total = 0.0
    cooling, dearer = (cold / hot) ** (1 / proposals), (dear / cheap) ** (1 / proposals)
    temperature, price = hot, cheap
    for _ in range(proposals):
        total += _propose(s, temperature, price, pushed)
        temperature *= cooling
        price *= dearer
    return total


def _temperature(done: float) -> float:
    """Return the temperature when a part of the round is done."""
    if done < 1 - QUENCH:
        return float(HOT * (COLD / HOT) ** (done / (1 - QUENCH)))
    return float(COLD * (FROZEN / COLD) ** ((done - 1 + QUENCH) / QUENCH))


class SparseSearch:
    """Improves the incumbent of a large component until the effort is spent."""

    def __init__(self, problem: SparseSubproblem, incumbent: Incumbent, effort: Effort) -> None:
        self._problem = problem
        self._incumbent = incumbent
        self._effort = effort
        givers, takers, weights, n = problem.weights
        self._n = n
        # Each pair that is linked in either direction, once from each end.
        keys = np.concatenate((givers * n + takers, takers * n + givers))
        keys, link = np.unique(keys, return_inverse=True)
        value = np.zeros(len(keys))
        np.add.at(value, link, np.concatenate((weights, weights)))
        gives = np.zeros(len(keys), dtype=np.bool_)
        takes = np.zeros(len(keys), dtype=np.bool_)
        gives[link[: len(givers)]] = True
        takes[link[len(givers) :]] = True
        self._mean = float(value.mean()) if len(value) else 1.0
        self._state = SparseState(
            start=np.searchsorted(keys, np.arange(n + 1) * n),
            other=keys % n,
            value=value,
            gives=gives,
            takes=takes,
            rival_start=problem.competition.starts,
            rival=problem.competition.columns,
            label=np.zeros(n, dtype=np.int64),
            size=np.zeros(n + 4, dtype=np.int64),
            empty=np.zeros(n + 5, dtype=np.int64),
            givers=np.zeros(n, dtype=np.int64),
            takers=np.zeros(n, dtype=np.int64),
            random=np.array([2 * problem.seed + 88172645463325252], dtype=np.uint64),
        )

    def run(self) -> None:
        """Anneal from the best partition: once, slowly, and again while there is effort left."""
        effort, n = self._effort, self._n
        while not effort.over and not self._incumbent.optimal:
            self._reset()
            left = int(effort.left / SECONDS_PER_PROPOSAL)
            self._round(max(min(left, MOST_PROPOSALS * n), 1))
            self._incumbent.offer(self._valid_partition())

    def _round(self, proposals: int) -> None:
        """Cool down once, faster if the clock would not leave enough time."""
        effort, unit = self._effort, self._mean
        available = effort.seconds_left
        made, done = 0, 0.0
        while done < 1:
            chunk = min(between_looks(CHUNK), proposals - made)
            end = min((made + chunk) / proposals, 1.0)
            hot, cold = (unit * _temperature(at) for at in (done, max(end, done)))
            cheap, dear = (unit * CHEAP * (DEAR / CHEAP) ** at for at in (done, max(end, done)))
            _anneal(self._state, chunk, hot, cold, cheap, dear)
            effort.spend(chunk * SECONDS_PER_PROPOSAL)
            made += chunk
            done = made / proposals
            # A little time is kept for the partition itself.
            used = 1 - effort.seconds_left / available if 0 < available < math.inf else 0.0
            if used > 0.9 or available <= 0:
                effort.clock_ended = True
                return
            if used / 0.9 > done:
                done = used / 0.9

    def _reset(self) -> None:
        """Set the state to the incumbent's partition."""
        s = self._state
        s.size[:] = 0
        for c, group in enumerate(self._incumbent.partition):
            s.label[group] = c
            s.size[c] = len(group)
        unused = np.flatnonzero(s.size == 0)
        s.empty[: len(unused)] = unused
        s.empty[-1] = len(unused)
        owner = np.repeat(np.arange(self._n), np.diff(s.start))
        together = s.label[owner] == s.label[s.other]
        s.givers[:] = np.bincount(owner[together & s.takes], minlength=self._n)
        s.takers[:] = np.bincount(owner[together & s.gives], minlength=self._n)

    def _valid_partition(self) -> list[list[int]]:
        """Return the present partition, with members on their own until it is valid."""
        s, n = self._state, self._n
        owner = np.repeat(np.arange(n), np.diff(s.start))
        label = s.label.copy()
        fresh = n + 4  # numbers of coalitions of one
        while True:
            together = label[owner] == label[s.other]
            givers = np.bincount(owner[together & s.takes], minlength=n)
            takers = np.bincount(owner[together & s.gives], minlength=n)
            sizes = np.bincount(label)[label]
            lost = (sizes > 1) & (
                (givers == 0) | (takers == 0) | (sizes < self._problem.fewest_members)
            )
            if not lost.any():
                break
            label[lost] = fresh + np.flatnonzero(lost)
        groups: dict[int, list[int]] = {}
        for i, own in enumerate(label.tolist()):
            groups.setdefault(own, []).append(i)
        return sorted(groups.values())
