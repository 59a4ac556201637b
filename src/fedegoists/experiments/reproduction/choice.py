"""Learning rates chosen on validation data, by one rule for all methods alike.

For each method, data set, way to divide it and budget, the first trial is trained with learning
rates of half, once and twice the budget's, at the competition nearest to 0.2 that the tables have.
The one with the best mean validation metric is used in all trials and at all competition. Test data
plays no part. Fine-tuning follows its method.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedegoists.experiments.reproduction.cells import Cell, Store

__all__ = ["FACTORS", "chosen_factors", "trial_cells"]

FACTORS = (0.5, 1.0, 2.0)
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


def trial_cells(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that must be trained to choose."""
    return [
        replace(cell, factor=factor)
        for cell in _deciding(list(cells)).values()
        for factor in FACTORS
    ]


def chosen_factors(cells: Iterable[Cell], store: Store) -> dict[Cell, float]:
    """Return the factor of the learning rate for each cell; one where nothing is chosen yet."""
    cells = list(cells)
    best: dict[Cell, float] = {}
    for kind, cell in _deciding(cells).items():
        results = [(factor, store.get(replace(cell, factor=factor))) for factor in FACTORS]
        if any(result is None for _, result in results):
            best[kind] = 1.0
            continue
        scored = []
        for factor, result in results:
            assert result is not None
            sign = -1.0 if result.metric == "mse" else 1.0
            value = sign * result.mean_validation
            scored.append((value if math.isfinite(value) else -math.inf, -abs(factor - 1), factor))
        best[kind] = max(scored)[2]
    return {cell: best[_kind(cell)] for cell in cells}
