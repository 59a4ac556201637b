"""Simulated annealing over partitions, in rounds that heat up and cool down; see `moves`."""

import numpy as np

from fedegoists.coalitions.array_types import Ints, Partition
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import moves
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.exact.search_arrays import AnnealingState, padded_lists

MOST_COALITIONS = 400
"""Slots for coalitions of two or more in the tables."""

FEW_TAKERS, EARS = 10.0, 0.3
"""With fewer takers per participant than the first number, the second is the fraction of proposals
that are ears. With many takers, moves of single participants reach as much and are cheaper."""

HOT, COLD = 0.3, 0.1
"""First and last temperature, in units of a participant's mean value to its coalition."""

HOT_WITH_EARS, COLD_WITH_EARS = 0.6, 0.15
"""The same where ears are proposed: an ear changes more at once than a move."""

CHEAP, DEAR = 2.0, 60.0
"""First and last price of a free rider, in units of the mean value of a pair."""

CHUNK = 5_000
"""Proposals between two looks at the clock."""

SECONDS_PER_PROPOSAL, SECONDS_PER_PATH, SECONDS_PER_ENTRY = 1e-7, 1e-6, 2e-9
"""Work of a move, of an ear, and of an entry of the tables that either changes."""


class Annealing:
    """A search that can be continued; the same seed and calls give the same partitions.

    Parameters
    ----------
    partition : partition
        The start; it satisfies both principles, and so does every partition that is returned.
    """

    def __init__(self, problem: Subproblem, partition: Partition) -> None:
        n = problem.n
        value = problem.pair_values
        useful = value > 0
        near, n_near = padded_lists(useful)
        out, n_out = padded_lists(problem.edges & ~problem.competition)
        self._ears = EARS if n_out.mean() < FEW_TAKERS else 0.0
        edges = problem.edges
        link = moves.GIVER * edges + moves.TAKER * edges.T + moves.FOE * problem.competition
        slots = min(n // 2 + 1, MOST_COALITIONS)
        self._state = AnnealingState(
            value=value,
            link=np.ascontiguousarray(link.astype(np.int32)),
            near=near,
            n_near=n_near,
            out=out,
            n_out=n_out,
            label=np.full(n, -1),
            place=np.zeros(n, dtype=np.int64),
            size=np.zeros(slots, dtype=np.int64),
            member=np.zeros((slots, n), dtype=np.int64),
            riders=np.zeros(slots, dtype=np.int64),
            worth=np.zeros((slots, n)),
            found=np.zeros((slots, n), dtype=np.int32),
            best=np.full(n, -1),
            totals=np.array([0.0, 0.0, 0.0, 0.0, max(problem.fewest_members, 2)]),
            random=np.random.default_rng(problem.seed).integers(1, 2**63, 1, dtype=np.uint64),
            path=np.zeros(moves.LONGEST_EAR + 1, dtype=np.int64),
            pushed=np.zeros(moves.MOST_PUSHED, dtype=np.int64),
            home=np.zeros(moves.MOST_PUSHED, dtype=np.int64),
            log=np.zeros(
                (4 * moves.MOST_PUSHED + 2 * moves.LONGEST_EAR + n + 8, 3), dtype=np.int64
            ),
            touched=np.zeros(max(moves.MOST_PUSHED, moves.LONGEST_EAR) + 2, dtype=np.int64),
        )
        self._mean_pair = float(value[useful].mean()) if useful.any() else 1.0
        # A larger bonus would not change who is alone, but hide differences of welfare.
        self._bonus = min(problem.bonus, 20 * self._mean_pair)
        t = self._state
        groups = sorted((g for g in partition if len(g) > 1), key=len, reverse=True)
        for c, group in enumerate(groups[:slots]):
            for i in group:
                t.totals[moves.WELFARE] += t.worth[c, i] + self._bonus
                moves.shift(t, i, c, 1)
        t.best[:] = t.label
        t.totals[moves.BEST] = t.totals[moves.WELFARE]
        self._mean_member = max(2 * float(t.totals[moves.WELFARE]) / max(n, 1), self._mean_pair)

    def run(self, proposals: int, effort: Effort) -> list[list[int]]:
        """Heat up, cool down while making proposals, and return the partition at the end."""
        t = self._state
        step = 1.0 / proposals
        hot, cold = (HOT_WITH_EARS, COLD_WITH_EARS) if self._ears else (HOT, COLD)
        cooling, dearer = (cold / hot) ** step, (DEAR / CHEAP) ** step
        temperature, price = hot * self._mean_member, CHEAP * self._mean_pair
        while proposals > 0 and not effort.over:
            chunk = min(proposals, CHUNK)
            moves.anneal(t, chunk, temperature, cooling, price, dearer, self._bonus, self._ears)
            effort.spend(
                chunk * (SECONDS_PER_PROPOSAL + self._ears * SECONDS_PER_PATH)
                + float(t.totals[moves.CHANGES]) * len(t.label) * SECONDS_PER_ENTRY
            )
            t.totals[moves.CHANGES] = 0.0
            temperature *= cooling**chunk
            price *= dearer**chunk
            proposals -= chunk
        moves.repair(t, self._bonus)
        return _groups(t.label)

    @property
    def sparse(self) -> bool:
        """Whether participants have so few takers that ears are proposed."""
        return self._ears > 0

    @property
    def best(self) -> list[list[int]]:
        """The best partition without free riders so far."""
        return _groups(self._state.best)


def _groups(label: Ints) -> list[list[int]]:
    groups = [np.flatnonzero(label == c).tolist() for c in np.unique(label) if c >= 0]
    return sorted(groups + [[int(i)] for i in np.flatnonzero(label < 0)])
