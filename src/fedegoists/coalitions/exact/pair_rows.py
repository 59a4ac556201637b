"""The inequalities over pairs that a relaxation uses at the moment, with their multipliers.

Vectors have an entry for each two independents; `docs/explanation-optimal` derives the
inequalities Σ a_ij x_ij ≤ b.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints
from fedegoists.coalitions.exact.compiled import compiled
from fedegoists.coalitions.exact.pair_separation import Violated

SLACK_KEPT = 0.05
"""Inequalities without a multiplier that are further from being tight are dropped."""


@dataclass
class _Row:
    pairs: Ints
    factors: Floats
    right: float


class PairRows:
    """Inequalities by their texts, as sparse rows, with a multiplier for each."""

    def __init__(self, edges: Bools, competition: Bools) -> None:
        n = len(edges)
        free = np.triu(~competition, 1)
        self.first, self.second = np.nonzero(free)
        self._place = np.full((n, n), -1)
        self._place[free] = np.arange(len(self.first))
        self._place = np.maximum(self._place, self._place.T)
        self._edges = edges & ~competition
        self._rows: dict[str, _Row] = {}
        self.multipliers = np.zeros(0)
        self._floor = np.zeros(len(self.first))  # the multipliers of x ≥ 0
        self._gather()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> list[str]:
        """The inequalities as text."""
        return list(self._rows)

    @property
    def entries(self) -> int:
        """The number of factors that are not zero."""
        return len(self._places)

    @property
    def rights(self) -> Floats:
        """The right sides."""
        return self._rights

    def take(self, found: Iterable[Violated], most: int) -> int:
        """Add the most violated inequalities that are new; return how many."""
        added = 0
        for _, name in sorted(found, key=lambda one: (-one[0], one[1])):
            if added >= most:
                break
            if name not in self._rows:
                self._rows[name] = self._row(name)
                added += 1
        self.multipliers = np.concatenate([self.multipliers, np.zeros(added)])
        self._gather()
        return added

    def drop(self, x: Floats) -> None:
        """Keep the inequalities that have a multiplier or are nearly tight at x."""
        slack = self._rights - self._sums(x)
        kept = (self.multipliers > 0) | (slack < SLACK_KEPT)
        self._rows = dict(itertools.compress(self._rows.items(), kept.tolist()))
        self.multipliers = self.multipliers[kept]
        self._gather()

    def project(self, point: Floats, sweeps: int) -> Floats:
        """Bring a point nearer to where all inequalities hold and x ≥ 0 (Hildreth's method).

        The multipliers go on from those of the last point, so a few sweeps are enough where points
        change little.
        """
        x = point + self._floor - self.combined(self.multipliers)
        norms = np.add.reduceat(self._factors**2, self._starts[:-1]) if len(self) else self._rights
        _project(
            x,
            self._floor,
            self._starts,
            self._places,
            self._factors,
            self._rights,
            norms,
            self.multipliers,
            sweeps,
        )
        return x

    def combined(self, prices: Floats) -> Floats:
        """Return Σ y a_ij for each pair, with prices y."""
        by_entry = self._factors * np.repeat(prices, np.diff(self._starts))
        return np.bincount(self._places, by_entry, len(self.first)).astype(np.float64)

    def cost(self, names: list[str], prices: Floats) -> list[float]:
        """Return the price times the right side, of inequalities that may have been dropped."""
        known = (self._rows.get(name) or self._row(name) for name in names)
        return [row.right * price for row, price in zip(known, prices.tolist(), strict=True)]

    def lowered(self, values: Floats, names: list[str], prices: Floats) -> Floats:
        """Return what prices of inequalities, dropped or not, leave of the value of each pair."""
        rest = values.copy()
        for name, price in zip(names, prices.tolist(), strict=True):
            row = self._rows.get(name) or self._row(name)
            rest[row.pairs] -= price * row.factors
        return rest

    def _sums(self, x: Floats) -> Floats:
        if not len(self):
            return self._rights
        sums: Floats = np.add.reduceat(self._factors * x[self._places], self._starts[:-1])
        return sums

    def _gather(self) -> None:
        """Write all rows one after the other."""
        rows = list(self._rows.values())
        lengths = [len(row.pairs) for row in rows]
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        self._places = np.concatenate([np.zeros(0, dtype=np.int64), *(row.pairs for row in rows)])
        self._factors = np.concatenate([np.zeros(0), *(row.factors for row in rows)])
        self._rights = np.array([row.right for row in rows], dtype=np.float64)

    def _row(self, name: str) -> _Row:
        kind, *numbers = name.split(" ")
        centre, *others = map(int, numbers)
        factors: dict[tuple[int, int], float] = {(centre, other): 1.0 for other in others}
        pairs: Iterable[tuple[int, int]]
        if kind == "wheel":
            pairs = zip(others, (*others[1:], others[0]), strict=True)
            right = len(others) // 2
        else:
            pairs = itertools.combinations(others, 2)
            right = 1 if kind == "star" else 0
        factors |= dict.fromkeys(pairs, -1.0)
        if kind in ("givers", "takers"):
            helps = self._edges[:, centre] if kind == "givers" else self._edges[centre]
            for other in np.flatnonzero(helps).tolist():
                factors[centre, other] = factors.get((centre, other), 0.0) - 1.0
        places = np.array([self._place[pair] for pair in factors], dtype=np.int64)
        own = np.array(list(factors.values()))
        kept = (places >= 0) & (own != 0)
        return _Row(places[kept], own[kept], float(right))


@compiled
def _project(
    x: Floats,
    floor: Floats,
    starts: Ints,
    places: Ints,
    factors: Floats,
    rights: Floats,
    norms: Floats,
    multipliers: Floats,
    sweeps: int,
) -> None:
    """Project on one inequality after the other, keeping each multiplier at or above zero."""
    for _ in range(sweeps):
        for row in range(len(rights)):
            if norms[row] == 0.0:
                continue
            excess = -rights[row]
            for k in range(starts[row], starts[row + 1]):
                excess += factors[k] * x[places[k]]
            step = max(excess / norms[row], -multipliers[row])
            if step != 0.0:
                multipliers[row] += step
                for k in range(starts[row], starts[row + 1]):
                    x[places[k]] -= step * factors[k]
        for pair in range(len(x)):
            step = max(-x[pair], -floor[pair])
            floor[pair] += step
            x[pair] += step
