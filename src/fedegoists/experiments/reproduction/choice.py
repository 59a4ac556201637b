"""Learning rates chosen on validation data, by one rule for all methods alike.

Every method is trained with half, once and twice the learning rate of the converged budget; where
the smallest or the largest has the best mean validation metric, half or twice of it is tried as
well, and so on. Images are many, and costly to train on: for each data set and way to divide it the
first trial decides, at competition 0.2 and β = 0.5, and the best rate is used everywhere. Elsewhere
silos differ in size by up to twenty times, and training is cheap: all trials are trained at all
rates that were tried, and every participant keeps the one of its models that its own validation
data prefers, as it keeps the step. Test data plays no part.

What is fine-tuned, or takes twice the steps, is tried where its method is. The published budget has
published rates, and what goes beyond the paper has the budget's.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedegoists.experiments.reproduction.cells import Cell, Plan, Result, Store, cells_of
from fedegoists.experiments.reproduction.scenes import Table
from fedegoists.experiments.reproduction.variants import PAPER

__all__ = ["FACTORS", "at_chosen_rates", "best_of", "chooses", "chosen_rates", "trial_cells"]

FACTORS = (0.5, 1.0, 2.0)
"""What is tried for every method."""
LEAST, MOST = 1 / 16, 16.0
"""Beyond which nothing is tried."""
COMPETITION, BETA = "0.2", 0.5
"""Where images decide."""

Rated = tuple[Mapping[str, Any], Cell, tuple[Cell, ...]]


def chooses(table: Table, plan: Plan) -> bool:
    """Return whether learning rates are chosen in a table."""
    return plan.choose and table.chosen and plan.budget == "converged"


def at_chosen_rates(table: Table, plan: Plan, store: Store) -> list[Rated]:
    """Return a table's cells, each with those at the rates chosen so far that stand for it.

    Of several, everybody keeps the best, see `best_of`. The values of the key columns come first.
    """
    known: dict[tuple[Cell, ...], tuple[float, ...]] = {}
    found = []
    for key, cell in cells_of(table, plan):
        factors: tuple[float, ...] = (1.0,)
        if chooses(table, plan):
            deciding = _deciding(cell, plan)
            if deciding not in known:
                known[deciding] = _rates(deciding, store)
            factors = known[deciding]
        found.append((key, cell, tuple(replace(cell, factor=factor) for factor in factors)))
    return found


def _rates(deciding: tuple[Cell, ...], store: Store) -> tuple[float, ...]:
    """Return the factors at which cells are trained that these decide for."""
    factors, best = _tried(deciding, store)
    return (best or 1.0,) if _is_image(deciding[0]) else tuple(sorted(factors, key=_distance))


def best_of(results: Sequence[Result]) -> Result:
    """Return what everybody keeps of what came of a cell at several rates."""
    if len(results) == 1:
        return results[0]
    kept = {name: results[k] for name, k in _kept(results).items()}
    spent = {
        kind: math.fsum(one.spent[kind] for one in results) / len(results)
        for kind in results[0].spent
    }
    return Result(
        results[0].metric,
        {name: one.test[name] for name, one in kept.items()},
        {name: one.validation[name] for name, one in kept.items()},
        {name: one.rounds[name] for name, one in kept.items()},
        spent,
        results[0].about,
    )


def _kept(results: Sequence[Result]) -> dict[str, int]:
    """Return which of some results is best on each participant's own validation data.

    The first of equals, so that the budget's own rate comes first.
    """
    return {
        name: max(range(len(results)), key=lambda k: (_value(results[k], name), -k))
        for name in results[0].test
    }


def _value(result: Result, name: str) -> float:
    value = result.validation.get(name, math.nan) * _sign(result)
    return value if math.isfinite(value) else -math.inf


def _sign(result: Result) -> float:
    return -1.0 if result.metric == "mse" else 1.0


def chosen_rates(table: Table, plan: Plan, store: Store) -> dict[str, dict[str, str]]:
    """Return by how much learning rates are multiplied, by data set and way to divide it, and row.

    Nothing at all where none are chosen.
    """
    plan = replace(plan, budget="converged")
    rows: dict[tuple[str, str], list[Cell]] = {}
    for _, cell in cells_of(table, plan) if chooses(table, plan) else ():
        where = f"{cell.scene.data} {cell.scene.partition}".strip()
        rows.setdefault((where, cell.variant.name), []).append(cell)
    found: dict[str, dict[str, str]] = {}
    for (where, name), cells in rows.items():
        found.setdefault(where, {})[name] = _words(cells, plan, store)
    return found


def _words(cells: Sequence[Cell], plan: Plan, store: Store) -> str:
    """Say which rate was chosen, or how many participants of all trials keep which."""
    deciding = _deciding(cells[0], plan)
    factors, best = _tried(deciding, store)
    factors.sort(key=_distance)
    if best is None:
        return "not chosen yet"
    if _is_image(cells[0]):
        return f"{best:g}"
    counts: Counter[float] = Counter()
    for cell in cells:
        results = [store.get(replace(cell, factor=factor)) for factor in factors]
        done = [one for one in results if one is not None]
        if len(done) == len(factors):
            counts.update(factors[k] for k in _kept(done).values())
    return ", ".join(f"{factor:g}: {counts[factor]}" for factor in sorted(factors))


def trial_cells(tables: Iterable[Table], plan: Plan, store: Store) -> list[Cell]:
    """Return the cells that must be trained to choose, as far as what is done tells.

    Where all of them are kept, those that follow are among them: they are trained with it.
    """
    followers: dict[tuple[Cell, ...], dict[Cell, None]] = {}
    for table in tables:
        for _, cell in cells_of(table, plan) if chooses(table, plan) else ():
            deciding = _deciding(cell, plan)
            own = followers.setdefault(deciding, dict.fromkeys(deciding))
            if not _is_image(cell):
                own[cell] = None
    return [
        replace(cell, factor=factor)
        for deciding, cells in followers.items()
        for factor in _tried(deciding, store)[0]
        for cell in cells
    ]


def _deciding(cell: Cell, plan: Plan) -> tuple[Cell, ...]:
    """Return the cells on which the learning rate of a cell is decided."""
    scene, trials = cell.scene, range(plan.trials)
    if _is_image(cell):
        options = tuple((name, BETA if name == "beta" else value) for name, value in scene.options)
        rivals = COMPETITION if scene.competition else ""
        scene, trials = replace(scene, options=options, competition=rivals), range(1)
    alike = replace(cell.variant, name="", passes=1)
    variant = next((v for v in PAPER if replace(v, name="") == alike), cell.variant.base)
    return tuple(
        replace(cell, scene=scene, trial=trial, variant=variant, factor=1.0) for trial in trials
    )


def _distance(factor: float) -> float:
    """Return how far a rate is from the budget's."""
    return abs(math.log2(factor))


def _is_image(cell: Cell) -> bool:
    return bool(cell.scene.partition)


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
        best = max(factors, key=lambda factor: (scores[factor], -_distance(factor)))
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
        values.append(_sign(result) * result.mean_validation)
    mean = math.fsum(values) / len(values)
    return mean if math.isfinite(mean) else -math.inf
