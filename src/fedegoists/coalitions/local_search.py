"""Tabu search for a partition of high welfare: members move, or push a competitor out.

Every partition on the way satisfies principles 1 and 2. The state is a few matrices with a row for
each participant and a column for each coalition, so that all moves are valued at once.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["improve"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class _State:
    """Where everybody is, and what everybody would find in each coalition."""

    def __init__(self, weights: Floats, competition: Bools, labels: Ints) -> None:
        n = len(weights)
        # What competitors would give each other counts for nothing, and would drown the rest.
        self.value = np.where(competition, 0.0, weights + weights.T)
        # Counts are kept as floats: products of matrices are much faster then.
        self.edges = (weights > 0).astype(np.float64)
        self.rival = competition.astype(np.float64)
        self.labels = labels.copy()
        member = np.zeros((n, n + 1))
        member[np.arange(n), labels] = 1
        self.size = member.sum(axis=0)
        self.worth = self.value @ member  # what i and coalition c give each other
        self.givers = self.edges.T @ member  # how many of c benefit i
        self.takers = self.edges @ member  # how many of c are benefited by i
        self.rivals = self.rival @ member  # how many of c compete with i
        # The sum of the competitors' positions: where there is one competitor, it tells which.
        self.which = (self.rival * np.arange(n)) @ member

    def move(self, i: int, target: int) -> None:
        source = self.labels[i]
        for column, sign in ((source, -1), (target, 1)):
            self.size[column] += sign
            self.worth[:, column] += sign * self.value[i]
            self.givers[:, column] += sign * self.edges[i]
            self.takers[:, column] += sign * self.edges[:, i]
            self.rivals[:, column] += sign * self.rival[i]
            self.which[:, column] += sign * i * self.rival[i]
        self.labels[i] = target

    def needed(self) -> Bools:
        """Who cannot leave: somebody's only giver or only taker in a coalition of three or more."""
        n = len(self.labels)
        rows = np.arange(n)
        one_giver = self.givers[rows, self.labels] == 1
        one_taker = self.takers[rows, self.labels] == 1
        same = self.labels[:, None] == self.labels[None, :]
        gives = self.edges > 0
        depends = (gives & one_giver[None, :]) | (gives.T & one_taker[None, :])
        found: Bools = (same & depends).any(axis=1) & (self.size[self.labels] > 2)
        return found


def improve(
    weights: Floats,
    competition: Bools,
    partition: Sequence[Sequence[int]],
    *,
    moves: int,
    rng: np.random.Generator,
    out_of_time: Callable[[], bool],
) -> tuple[list[list[int]], bool]:
    """Return a better partition than the given one, and whether time ended the search.

    The given one must satisfy principles 1 and 2; so does the result.

    Parameters
    ----------
    moves : int
        How many moves to make; the same number and generator give the same result.
    out_of_time : callable
        Asked now and then; when it returns True the search ends with the best so far.
    """
    n = len(weights)
    labels = np.empty(n, dtype=np.int64)
    for number, group in enumerate(partition):
        labels[list(group)] = number
    state = _State(weights, competition, labels)
    rows = np.arange(n)
    welfare = best = 0.5 * float(state.worth[rows, labels].sum())
    best_labels = labels.copy()
    tabu = np.zeros((n, n + 1), dtype=np.int64)  # until which move i may not go back to c
    since_best = 0
    ended = False
    patience = 40 + 4 * n
    for step in range(moves):
        if step % 16 == 0 and out_of_time():
            ended = True
            break
        width = min(int(state.size.nonzero()[0].max()) + 2, n + 1)
        own = state.worth[rows, state.labels]
        gain = state.worth[:, :width] - own[:, None]
        stuck = state.needed()
        empty = int((state.size == 0).argmax())
        rivals = state.rivals[:, :width]
        givers, takers = state.givers[:, :width], state.takers[:, :width]
        allowed = (rivals == 0) & (givers > 0) & (takers > 0)
        if empty < width:
            allowed[:, empty] = state.size[state.labels] > 1

        # With exactly one competitor in the way, push it out into a coalition of its own.
        pushed = np.where(rivals == 1, state.which[:, :width], 0).astype(np.int64)
        pushing = (
            (rivals == 1)
            & (givers > state.edges[pushed, rows[:, None]])
            & (takers > state.edges[rows[:, None], pushed])
            & ~stuck[pushed]
            & (pushed != rows[:, None])
        )
        gain -= np.where(pushing, state.value[rows[:, None], pushed] + own[pushed], 0.0)
        allowed |= pushing
        allowed[stuck] = False
        allowed[rows, state.labels] = False
        allowed &= (tabu[:, :width] <= step) | (welfare + gain > best + 1e-12 * abs(best))
        gain = np.where(allowed, gain, -np.inf)

        i, target = divmod(int(gain.argmax()), width)
        if not allowed[i, target]:
            since_best = patience  # nothing can move: shake
        else:
            tenure = int(rng.integers(5, 12))
            welfare += float(gain[i, target])
            if pushing[i, target]:
                j = int(pushed[i, target])
                tabu[j, target] = step + tenure
                state.move(j, empty)
            tabu[i, state.labels[i]] = step + tenure
            state.move(i, target)
            if welfare > best + 1e-12 * abs(best):
                best = welfare
                best_labels = state.labels.copy()
                since_best = 0
            else:
                since_best += 1
        if since_best >= patience:
            state = _State(weights, competition, _shaken(best_labels, weights, rng))
            welfare = 0.5 * float(state.worth[rows, state.labels].sum())
            tabu[:] = 0
            since_best = 0
    groups = [np.flatnonzero(best_labels == c).tolist() for c in np.unique(best_labels)]
    return groups, ended


def _shaken(labels: Ints, weights: Floats, rng: np.random.Generator) -> Ints:
    """Dissolve a fifth of the participants into singles, and whoever then lacks support."""
    n = len(labels)
    labels = labels.copy()
    out = rng.random(n) < 0.2
    edges = weights > 0
    while True:
        inside = (labels[:, None] == labels[None, :]) & ~out[:, None] & ~out[None, :]
        np.fill_diagonal(inside, False)
        supported = (edges & inside).any(axis=1) & (edges & inside).any(axis=0)
        alone = ~inside.any(axis=1)
        more = ~supported & ~alone & ~out
        if not more.any():
            break
        out |= more
    labels[out] = n + np.arange(n)[out]
    compact: Ints = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return compact
