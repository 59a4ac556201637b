"""Learning rates chosen on validation data, by one rule for all methods alike.

Every method is trained with half, once and twice the learning rate of the converged budget; where
the smallest or the largest is best, half or twice of it is tried as well, and so on. The best mean
validation metric decides, for each data set and way to divide it. Images are many, and costly to
train on: the first trial decides, at competition 0.2 and β = 0.5, for all of them. Elsewhere
validation data is small, and all trials decide together. Test data plays no part.

What is fine-tuned, or takes twice the steps, follows its method. The published budget has published
rates, and what goes beyond the paper has the budget's.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fedegoists.experiments.reproduction.cells import Cell, Plan, Store, cells_of
from fedegoists.experiments.reproduction.scenes import Table
from fedegoists.experiments.reproduction.variants import PAPER

__all__ = ["FACTORS", "at_chosen_rates", "chooses", "chosen_rates", "trial_cells"]

FACTORS = (0.5, 1.0, 2.0)
"""What is tried for every method."""
LEAST, MOST = 1 / 16, 16.0
"""Beyond which nothing is tried."""
COMPETITION, BETA = "0.2", 0.5
"""Where images decide."""


def chooses(table: Table, plan: Plan) -> bool:
    """Return whether learning rates are chosen in a table."""
    return plan.choose and table.chosen and plan.budget == "converged"


def at_chosen_rates(table: Table, plan: Plan, store: Store) -> list[tuple[Mapping[str, Any], Cell]]:
    """Return a table's cells at the rates chosen so far, with the values of its key columns."""
    cells = cells_of(table, plan)
    if not chooses(table, plan):
        return cells
    known: dict[tuple[Cell, ...], float] = {}
    found = []
    for key, cell in cells:
        deciding = _deciding(cell, plan)
        if deciding not in known:
            known[deciding] = _tried(deciding, store)[1] or 1.0
        found.append((key, replace(cell, factor=known[deciding])))
    return found


def chosen_rates(table: Table, plan: Plan, store: Store) -> dict[str, dict[str, float | None]]:
    """Return by how much learning rates are multiplied, by data set and way to divide it, and row.

    Nothing where it is not known yet; nothing at all where none are chosen.
    """
    plan = replace(plan, budget="converged")
    found: dict[str, dict[str, float | None]] = {}
    for _, cell in cells_of(table, plan) if chooses(table, plan) else ():
        where = f"{cell.scene.data} {cell.scene.partition}".strip()
        rows = found.setdefault(where, {})
        deciding = _deciding(cell, plan)
        if deciding[0].variant.name not in rows:
            rows[deciding[0].variant.name] = _tried(deciding, store)[1]
    return found


def trial_cells(tables: Iterable[Table], plan: Plan, store: Store) -> list[Cell]:
    """Return the cells that must be trained to choose, as far as what is done tells."""
    cells = [cell for table in tables if chooses(table, plan) for _, cell in cells_of(table, plan)]
    return [
        replace(cell, factor=factor)
        for deciding in dict.fromkeys(_deciding(cell, plan) for cell in cells)
        for factor in _tried(deciding, store)[0]
        for cell in deciding
    ]


def _deciding(cell: Cell, plan: Plan) -> tuple[Cell, ...]:
    """Return the cells on which the learning rate of a cell is decided."""
    scene, trials = cell.scene, range(plan.trials)
    if scene.partition:
        options = tuple((name, BETA if name == "beta" else value) for name, value in scene.options)
        rivals = COMPETITION if scene.competition else ""
        scene, trials = replace(scene, options=options, competition=rivals), range(1)
    alike = replace(cell.variant, name="", passes=1)
    variant = next((v for v in PAPER if replace(v, name="") == alike), cell.variant.base)
    return tuple(
        replace(cell, scene=scene, trial=trial, variant=variant, factor=1.0) for trial in trials
    )


def _tried(deciding: tuple[Cell, ...], store: Store) -> tuple[list[float], float | None]:
    """Return the factors to try, and the best of them once all are done."""
    scores: dict[float, float] = {}
    factors = list(FACTORS)
    while True:
        for factor in factors[len(scores) :]:
            score = _score([replace(cell, factor=factor) for cell in deciding], store)
            if score is None:
                return factors, None
            scores[factor] = score
        best = max(factors, key=lambda factor: (scores[factor], -abs(math.log2(factor))))
        if best not in (min(factors), max(factors)):
            return factors, best
        further = best / 2 if best == min(factors) else 2 * best
        if not LEAST <= further <= MOST:
            return factors, best
        factors.append(further)


def _score(cells: Iterable[Cell], store: Store) -> float | None:
    """Return the mean validation metric, higher for better; nothing while any cell is missing."""
    values = []
    for cell in cells:
        result = store.get(cell)
        if result is None:
            return None
        values.append((-1.0 if result.metric == "mse" else 1.0) * result.mean_validation)
    mean = math.fsum(values) / len(values)
    return mean if math.isfinite(mean) else -math.inf
