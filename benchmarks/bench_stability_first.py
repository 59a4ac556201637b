"""Priority for stability: the best of the core-stable partitions, beside the best of all.

    python -m benchmarks.bench_stability_first       # 162 consortia of six

Of all valid partitions those count in which no group could form a valid coalition of its own and
each of its members would gain; the best of them is taken, and the best of all where there is none.
The consortia are those of `bench_incentives`, all partitions are tried. For each participant two
kinds of reports of received benefit are tried for every set of givers: a large benefit from each of
them, or the true one, and nothing from the others. Other reports may pay as well, so gains are at
least the ones found.
"""

import statistics
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.bench_incentives import COMPETITIONS, DENSITIES, SEEDS
from benchmarks.measure import random_consortium, report

SIZES, LARGE, CLOSE = (6,), 100.0, 1e-9
Array = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]


def partitions(rest: int) -> Iterator[list[int]]:
    """Yield the partitions of a set of participants, as bit masks."""
    if not rest:
        yield []
        return
    first = rest & -rest
    inside = others = rest ^ first
    while True:
        for more in partitions(others ^ inside):
            yield [first | inside, *more]
        if not inside:
            return
        inside = (inside - 1) & others


class Deciding:
    """Both decisions among all partitions of n participants.

    Attributes
    ----------
    groups : array of bool
        The members of each set of participants.
    places : array
        For each partition and participant, the set that it is in.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.groups = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(bool)
        self.places = np.array(
            [
                [next(g for g in groups if g >> k & 1) for k in range(n)]
                for groups in partitions((1 << n) - 1)
            ]
        )

    def decided(self, weights: Array, rivals: Marks) -> tuple[int, int, bool]:
        """Return the best partition, the best core-stable one, and whether there are such."""
        groups, places = self.groups, self.places
        received = np.where(groups, groups @ weights, 0.0)
        gives = np.where(groups, groups @ weights.T, 0.0)
        big = groups.sum(1) > 1
        apart = ~(groups @ rivals & groups).any(1)
        fair = ((received > 0) & (gives > 0) | ~groups).all(1)
        valid = ~big | (apart & fair)
        allowed = valid[places].all(1)
        utilities = received[places, np.arange(self.n)]
        welfare = np.where(allowed, utilities.sum(1), -np.inf)
        stable = allowed.copy()
        for group in np.flatnonzero(valid & big):
            gains = received[group] > utilities + CLOSE
            stable &= ~(gains | ~groups[group]).all(1)
        best = int(welfare.argmax())
        if not stable.any():
            return best, best, False
        return best, int(np.where(stable, welfare, -np.inf).argmax()), True

    def reports(self, true: Array, i: int) -> Iterator[Array]:
        """Yield the columns that are tried."""
        for givers in self.groups[~self.groups[:, i]]:
            yield np.where(givers, LARGE, 0.0)
            yield np.where(givers, true, 0.0)

    def measured(
        self, density: float, competition: float, seed: int
    ) -> tuple[float, bool, int, int]:
        """Return relative welfare, whether any is stable, and how many gain by a misreport."""
        benefit, rivalry = random_consortium(self.n, density, competition, seed)
        weights, rivals = benefit.to_numpy(), rivalry.matrix
        *chosen, exists = self.decided(weights, rivals)

        def utility(partition: int, i: int) -> float:
            return float(weights[self.groups[self.places[partition, i]], i].sum())

        best, first = (sum(utility(one, i) for i in range(self.n)) for one in chosen)
        tempted = [0, 0]
        for i in range(self.n):
            found = [-1.0, -1.0]
            for column in self.reports(weights[:, i], i):
                lie = weights.copy()
                lie[:, i] = column
                for k, partition in enumerate(self.decided(lie, rivals)[:2]):
                    found[k] = max(found[k], utility(partition, i))
            for k, partition in enumerate(chosen):
                tempted[k] += found[k] > utility(partition, i) + CLOSE
        return first / best if best else 1.0, exists, tempted[0], tempted[1]


def main() -> None:
    """Measure all consortia, and print and keep the table."""
    rows: list[tuple[object, ...]] = []
    for n in SIZES:
        deciding, whole = Deciding(n), []
        for density in DENSITIES:
            for competition in COMPETITIONS:
                found = [deciding.measured(density, competition, seed) for seed in range(SEEDS[n])]
                rows.append(_row(n, f"{density:g}", f"{competition:g}", found))
                whole += found
        rows.append(_row(n, "all", "all", whole))
    columns = (
        *("n", "density", "competition", "consortia", "welfare, mean", "welfare, worst"),
        *("with a core-stable partition", "misreports pay, best", "misreports pay, stable first"),
    )
    report("stability_first", "The best core-stable partition", columns, rows)


def _row(
    n: int, density: str, competition: str, found: list[tuple[float, bool, int, int]]
) -> tuple[object, ...]:
    members = n * len(found)
    return (
        n,
        density,
        competition,
        len(found),
        f"{statistics.fmean(one[0] for one in found):.1%}",
        f"{min(one[0] for one in found):.0%}",
        sum(one[1] for one in found),
        f"{sum(one[2] for one in found) / members:.1%}",
        f"{sum(one[3] for one in found) / members:.1%}",
    )


if __name__ == "__main__":
    main()
