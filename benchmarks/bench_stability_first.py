"""Priority for stability: the best of the core-stable partitions, beside the best of all.

    python -m benchmarks.bench_stability_first          # 522 consortia, half an hour on one core
    python -m benchmarks.bench_stability_first 6 7      # those of six and seven: a part of it
    python -m benchmarks.bench_stability_first table    # the table, from the parts so far

Of all valid partitions those count in which no group could form a valid coalition of its own and
each of its members would gain; the best of them is taken, and the best of all where there is none.
The consortia are those of `bench_incentives`, all partitions are tried. For each participant two
kinds of reports of received benefit are tried for every set of givers: a large benefit from each of
them, or the true one, and nothing from the others. Other reports may pay as well, so gains are at
least the ones found. Then each invented competitor is tried, and each hidden one from which the
participant stays apart.
"""

import csv
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.bench_incentives import COMPETITIONS, DENSITIES, SEEDS
from benchmarks.measure import RESULTS, random_consortium, report

LARGE, CLOSE, IMPOSSIBLE = 100.0, 1e-9, -1e12
Array = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


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


@dataclass(frozen=True)
class Listed:
    """Partitions: the sets that each consists of, one after the other, and where each begins."""

    sets: Places
    starts: Places

    def totals(self, values: Array) -> Array:
        """Return the sum over its sets for each partition."""
        found: Array = np.add.reduceat(values[self.sets], self.starts)
        return found

    def of(self, number: int) -> Places:
        """Return the sets of one partition."""
        end = self.starts[number + 1] if number + 1 < len(self.starts) else None
        return self.sets[self.starts[number] : end]

    def among(self, wanted: Marks) -> "Listed":
        """Return the partitions whose sets are all wanted."""
        sizes = np.diff(self.starts, append=len(self.sets))
        kept = np.logical_and.reduceat(wanted[self.sets], self.starts)
        sets = self.sets[np.repeat(kept, sizes)]
        return Listed(sets, np.concatenate([[0], np.cumsum(sizes[kept])[:-1]]))


class Deciding:
    """Both decisions among all partitions of n participants.

    Attributes
    ----------
    groups : array of bool
        The members of each set of participants.
    big : array of bool
        Which sets have two members or more.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.groups = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(bool)
        self.big = self.groups.sum(1) > 1
        every = list(partitions((1 << n) - 1))
        sizes = np.array([len(one) for one in every])
        sets = np.array([group for one in every for group in one])
        self.partitions = Listed(sets, np.concatenate([[0], np.cumsum(sizes)[:-1]]))

    def without(self, rivals: Marks) -> tuple[Marks, Listed]:
        """Return which sets have no competitors, and the partitions that consist of these."""
        apart = ~(self.groups @ rivals & self.groups).any(1)
        return apart, self.partitions.among(apart)

    def decided(self, weights: Array, apart: Marks, listed: Listed) -> tuple[Places, Places, bool]:
        """Return the best partition, the best core-stable one, and whether there are such."""
        groups = self.groups
        received = np.where(groups, groups @ weights, 0.0)
        gives = np.where(groups, groups @ weights.T, 0.0)
        fair = ((received > 0) & (gives > 0) | ~groups).all(1)
        valid = apart & (fair | ~self.big)
        values = np.where(valid, np.where(self.big, received.sum(1), 0.0), IMPOSSIBLE)
        welfare = listed.totals(values)
        rows = np.flatnonzero(valid & self.big)
        inside, own = ~groups[rows], received[rows]
        best = listed.of(int(welfare.argmax()))
        # The best of them is found soon: most partitions of high welfare are core-stable.
        while (top := int(welfare.argmax())) >= 0 and welfare[top] >= 0:
            sets = listed.of(top)
            utilities = received[sets].max(0)  # every participant is in one of them
            if not ((own > utilities + CLOSE) | inside).all(1).any():
                return best, sets, True
            welfare[top] = IMPOSSIBLE
        return best, best, False

    def reports(self, true: Array, i: int, rivals: Marks) -> Iterator[Array]:
        """Yield the columns that are tried; those from competitors change nothing."""
        for givers in self.groups[~(self.groups & (rivals[i] | (np.arange(self.n) == i))).any(1)]:
            yield np.where(givers, LARGE, 0.0)
            yield np.where(givers, true, 0.0)

    def measured(self, density: float, competition: float, seed: int) -> "Measured":
        """Return relative welfare, whether any is stable, and how many gain by which lie."""
        benefit, rivalry = random_consortium(self.n, density, competition, seed)
        weights, rivals = benefit.to_numpy(), rivalry.matrix
        apart, listed = self.without(rivals)
        *chosen, exists = self.decided(weights, apart, listed)

        def home(sets: Places, i: int) -> Marks:
            found: Marks = self.groups[sets[self.groups[sets, i]][0]]
            return found

        def utility(sets: Places, i: int) -> float:
            return float(weights[home(sets, i), i].sum())

        best, first = (sum(utility(one, i) for i in range(self.n)) for one in chosen)
        tempted: Counter[str] = Counter()
        for i in range(self.n):
            found: dict[str, float] = {}

            def tried(lie: str, sets: Places, i: int = i, found: dict[str, float] = found) -> None:
                found[lie] = max(found.get(lie, -1.0), utility(sets, i))

            for column in self.reports(weights[:, i], i, rivals):
                lie = weights.copy()
                lie[:, i] = column
                ordinary, stable, _ = self.decided(lie, apart, listed)
                tried("misreport, best", ordinary)
                tried("misreport", stable)
            for j in range(self.n):
                if j == i:
                    continue
                changed = rivals.copy()
                changed[i, j] = changed[j, i] = not rivals[i, j]
                _, stable, _ = self.decided(weights, *self.without(changed))
                # A liar that hides a competitor must not end up with it.
                if not (home(stable, i) & rivals[i]).any():
                    tried("hide" if rivals[i, j] else "invent", stable)
            for lie_name, reached in found.items():
                now = utility(chosen[0] if lie_name == "misreport, best" else chosen[1], i)
                tempted[lie_name] += reached > now + CLOSE
        return Measured(
            self.n, density, competition, seed, first / best if best else 1.0, exists,
            *(tempted[lie] for lie in LIES),
        )  # fmt: skip


LIES = ("misreport, best", "misreport", "invent", "hide")


class Measured(NamedTuple):
    """One consortium: welfare relative to the best, and how many participants gain by a lie."""

    n: int
    density: float
    competition: float
    seed: int
    welfare: float
    exists: bool
    misreport_best: int
    misreport: int
    invent: int
    hide: int


def main() -> None:
    """Measure the consortia of some sizes, and print and keep the table of all."""
    wanted = [int(one) for one in sys.argv[1:] if one.isdigit()]
    for n in wanted or ([] if sys.argv[1:] else list(SEEDS)):
        deciding = Deciding(n)
        found = [
            deciding.measured(density, competition, seed)
            for density in DENSITIES
            for competition in COMPETITIONS
            for seed in range(SEEDS[n])
        ]
        title = f"The best core-stable partition, n = {n}"
        report(f"stability_first_n{n}", title, Measured._fields, found, every=len(found) // 6)
    table()


def table() -> None:
    """Add up the consortia, over all of them, by size, and by density and competition."""
    rows: list[Measured] = []
    for path in sorted(RESULTS.glob("stability_first_n*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows += [
                Measured(
                    int(one["n"]), float(one["density"]), float(one["competition"]),
                    int(one["seed"]), float(one["welfare"]), one["exists"] == "True",
                    int(one["misreport_best"]), int(one["misreport"]), int(one["invent"]),
                    int(one["hide"]),
                )
                for one in csv.DictReader(file)
            ]  # fmt: skip
    sizes = sorted({one.n for one in rows})
    span = f"{sizes[0]} to {sizes[-1]}" if sizes[1:] else str(sizes[0])
    result = [_row(span, "all", "all", rows)]
    result += [_row(str(n), "all", "all", [one for one in rows if one.n == n]) for n in sizes]
    result += [
        _row(span, f"{density:g}", f"{competition:g}",
             [one for one in rows if (one.density, one.competition) == (density, competition)])
        for density in DENSITIES
        for competition in COMPETITIONS
    ]  # fmt: skip
    columns = (
        *("n", "density", "competition", "consortia", "participants"),
        *("welfare, mean", "welfare, worst", "with a core-stable partition"),
        *("misreports pay, best", "misreports pay", "inventions pay", "hiding pays"),
    )
    report("stability_first", "The best core-stable partition", columns, result)


def _row(n: str, density: str, competition: str, found: Sequence[Measured]) -> tuple[object, ...]:
    members = sum(one.n for one in found)
    counts = (
        sum(getattr(one, name) for one in found)
        for name in ("misreport_best", "misreport", "invent", "hide")
    )
    return (
        n,
        density,
        competition,
        len(found),
        members,
        f"{statistics.fmean(one.welfare for one in found):.1%}",
        f"{min(one.welfare for one in found):.0%}",
        sum(one.exists for one in found),
        *(f"{count / members:.1%}" for count in counts),
    )


if __name__ == "__main__":
    main()
