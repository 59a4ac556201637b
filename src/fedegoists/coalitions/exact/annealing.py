"""Simulated annealing over partitions, in rounds that heat up and cool down; see `moves`."""

from collections.abc import Sequence

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.moves import FOE, GIVER, TAKER, anneal, repair, shift
from fedegoists.coalitions.exact.search_arrays import Tables

__all__ = ["Annealing"]


MOST_COALITIONS = 400
"""How many coalitions of two or more the tables have room for."""

FEW_TAKERS, EARS = 10.0, 0.3
"""With fewer takers each than the first number, the second is the part of proposals that are paths.

Where everybody has many to choose from, single moves reach as much and are cheaper.
"""

HOT, COLD = 0.3, 0.1
"""First and last temperature, in units of what a participant is worth to its coalition."""

HOT_WITH_EARS, COLD_WITH_EARS = 0.6, 0.15
"""The same where paths are proposed: a path changes more at once than a move."""

CHEAP, DEAR = 2.0, 60.0
"""First and last price of a free rider, in units of the mean worth of a pair."""

CHUNK = 5_000
"""Proposals between two looks at the clock."""

SECONDS_PER_PROPOSAL, SECONDS_PER_PATH, SECONDS_PER_ENTRY = 1e-7, 1e-6, 2e-9
"""What a move, a path, and an entry of the tables that either changes count as work."""


class Annealing:
    """A search that can be continued; the same seed and calls give the same partitions.

    Parameters
    ----------
    partition : partition
        Where to start; it satisfies principles 1 and 2, and so does everything that is returned.
    bonus : float
        What not being alone counts for everybody.
    """

    def __init__(
        self,
        weights: Floats,
        edges: Bools,
        competition: Bools,
        partition: Sequence[Sequence[int]],
        seed: int,
        bonus: float = 0.0,
    ) -> None:
        n = len(weights)
        # What competitors would give each other counts for nothing, and would drown the rest.
        value = np.where(competition, 0.0, weights + weights.T)
        useful = value > 0
        n_near = useful.sum(axis=1)
        near = np.zeros((n, max(int(n_near.max(initial=0)), 1)), dtype=np.int64)
        for i in range(n):
            near[i, : n_near[i]] = np.flatnonzero(useful[i])
        benefits = edges & ~competition
        n_out = benefits.sum(axis=1)
        out = np.zeros((n, max(int(n_out.max(initial=0)), 1)), dtype=np.int64)
        for i in range(n):
            out[i, : n_out[i]] = np.flatnonzero(benefits[i])
        self._ears = EARS if n_out.mean() < FEW_TAKERS else 0.0
        link = GIVER * edges + TAKER * edges.T + FOE * competition
        slots = min(n // 2 + 1, MOST_COALITIONS)
        self._tables = Tables(
            value=np.ascontiguousarray(value),
            link=np.ascontiguousarray(link.astype(np.int32)),
            near=near,
            n_near=n_near.astype(np.int64),
            out=out,
            n_out=n_out.astype(np.int64),
            label=np.full(n, -1),
            place=np.zeros(n, dtype=np.int64),
            size=np.zeros(slots, dtype=np.int64),
            member=np.zeros((slots, n), dtype=np.int64),
            riders=np.zeros(slots, dtype=np.int64),
            worth=np.zeros((slots, n)),
            found=np.zeros((slots, n), dtype=np.int32),
            best=np.full(n, -1),
            totals=np.zeros(4),
            random=np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64),
        )
        self._typical = float(value[useful].mean()) if useful.any() else 1.0
        # More than this makes no difference to who is alone, but the search lose sight of welfare.
        self._bonus = min(bonus, 20 * self._typical)
        self._restart(partition)
        t = self._tables
        t.best[:] = t.label
        t.totals[2] = t.totals[0]
        self._own = max(2 * float(t.totals[0]) / max(n, 1), self._typical)

    def _restart(self, partition: Sequence[Sequence[int]]) -> None:
        """Fill the tables."""
        t = self._tables
        groups = sorted((g for g in partition if len(g) > 1), key=len, reverse=True)
        for c, group in enumerate(groups[: len(t.size)]):
            for i in group:
                t.totals[0] += t.worth[c, i] + self._bonus
                shift(t, i, c, 1)

    def run(self, proposals: int, effort: Effort) -> list[list[int]]:
        """Heat up, cool down while making proposals, and return where that led."""
        step = 1.0 / proposals
        hot, cold = (HOT_WITH_EARS, COLD_WITH_EARS) if self._ears else (HOT, COLD)
        cooling, dearer = (cold / hot) ** step, (DEAR / CHEAP) ** step
        temperature, price = hot * self._own, CHEAP * self._typical
        while proposals > 0 and not effort.over:
            chunk = min(proposals, CHUNK)
            anneal(
                self._tables, chunk, temperature, cooling, price, dearer, self._bonus, self._ears
            )
            effort.spend(
                chunk * (SECONDS_PER_PROPOSAL + self._ears * SECONDS_PER_PATH)
                + float(self._tables.totals[3]) * len(self._tables.label) * SECONDS_PER_ENTRY
            )
            self._tables.totals[3] = 0.0
            temperature *= cooling**chunk
            price *= dearer**chunk
            proposals -= chunk
        repair(self._tables, self._bonus)
        return _groups(self._tables.label)

    @property
    def sparse(self) -> bool:
        """Whether everybody has so few takers that whole paths are proposed."""
        return self._ears > 0

    @property
    def best(self) -> list[list[int]]:
        """The best partition without free riders so far."""
        return _groups(self._tables.best)


def _groups(label: Ints) -> list[list[int]]:
    groups = [np.flatnonzero(label == c).tolist() for c in np.unique(label) if c >= 0]
    return sorted(groups + [[int(i)] for i in np.flatnonzero(label < 0)])
