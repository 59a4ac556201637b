"""Learning rates chosen on validation data, by one rule for all methods alike.

For each method, data set, way to divide it and budget, the first trial is trained with learning
rates of half, once and twice the budget's, at the competition nearest to 0.2 that the tables have;
where the smallest or the largest is best, half or twice of it is tried as well, and so on. The one
with the best mean validation metric is used in all trials and at all competition. Test data plays
no part. Fine-tuning follows its method.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedegoists.experiments.reproduction.cells import Cell, Store

__all__ = ["FACTORS", "chosen_factors", "trial_cells"]

FACTORS = (0.5, 1.0, 2.0)
"""What is tried for every method."""
LEAST, MOST = 1 / 16, 16.0
"""Beyond which nothing is tried."""
MIDDLE = 0.2


def _kind(cell: Cell) -> Cell:
    """Return what shares a learning rate with a cell."""
    return replace(cell.base, trial=0, scene=replace(cell.scene, competition=""), factor=1.0)


def _deciding(cells: Sequence[Cell]) -> dict[Cell, Cell]:
    """Return, for each kind, the cell on which its learning rate is decided."""
    found: dict[Cell, Cell] = {}
    for cell in cells:
        candidate = replace(cell.base, trial=0, factor=1.0)
        kind = _kind(cell)
        if kind not in found or _distance(candidate) < _distance(found[kind]):
            found[kind] = candidate
    return found


def _distance(cell: Cell) -> float:
    try:
        return abs(float(cell.scene.competition) - MIDDLE)
    except ValueError:
        return 0.0


def trial_cells(cells: Iterable[Cell], store: Store) -> list[Cell]:
    """Return the cells that must be trained to choose, as far as what is done tells."""
    return [
        replace(cell, factor=factor)
        for cell in _deciding(list(cells)).values()
        for factor in _tried(cell, store)[0]
    ]


def chosen_factors(cells: Iterable[Cell], store: Store) -> dict[Cell, float]:
    """Return the factor of the learning rate for each cell; one where nothing is chosen yet."""
    cells = list(cells)
    best = {kind: _tried(cell, store)[1] for kind, cell in _deciding(cells).items()}
    return {cell: best[_kind(cell)] or 1.0 for cell in cells}


def _tried(cell: Cell, store: Store) -> tuple[list[float], float | None]:
    """Return the factors to try, and the best of them once all are done."""
    scores: dict[float, float] = {}
    factors = list(FACTORS)
    while True:
        for factor in factors[len(scores) :]:
            result = store.get(replace(cell, factor=factor))
            if result is None:
                return factors, None
            value = (-1.0 if result.metric == "mse" else 1.0) * result.mean_validation
            scores[factor] = value if math.isfinite(value) else -math.inf
        best = max(factors, key=lambda factor: (scores[factor], -abs(math.log2(factor))))
        if best not in (min(factors), max(factors)):
            return factors, best
        further = best / 2 if best == min(factors) else 2 * best
        if not LEAST <= further <= MOST:
            return factors, best
        factors.append(further)
