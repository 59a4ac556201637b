"""Learning rates chosen on validation data, by one rule for all methods alike.

For each data set and way to divide it every method is trained at several multiples of the
budget's learning rate, and the one with the best mean validation metric is used everywhere. These
are half, once and twice; where the smallest or the largest of them is best, half or twice of it is
tried as well, and so on. On synthetic data, where training is cheap, they are a quarter to sixteen
times. On images, which are costly, the first trial decides, at competition 0.2 and β = 0.5;
elsewhere validation data is small, and all trials decide together.

Validation sets of hospitals are so small that the best of all rounds by one's own is the luckiest
one, most of all at rates at which it jumps. There the number of rounds is chosen like the rate and
together with it, one for all participants and trials.

A rate at which training diverges in the trials that decide, in more than one in a hundred of all
participants' rounds, is not chosen; it may still diverge in others. Test data plays no part. What
is fine-tuned follows its method. The published budget has published rates, and most of what goes
beyond the paper has the budget's.

The same data tell in which company a method does best: along learned benefits, or in all there is.
Benefits were learned from these very data, though. With many samples that matters little; with few
patients it flatters learned benefits, so on hospitals those of another trial stand for them, which
divides the same patients in another way.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from statistics import fmean
from typing import Any, TypeVar

from reproduction.cells import Cell, Plan, Result, Store, cells_of
from reproduction.scenarios import Table
from reproduction.variants import crossed_name, wide_name

__all__ = [
    "ALL_FACTORS",
    "FACTORS",
    "Company",
    "at_chosen_rates",
    "chooses",
    "chosen_rates",
    "chosen_rounds",
    "preferred_company",
    "trial_cells",
    "validation_means",
]

Kind = TypeVar("Kind")

FACTORS = (1.0, 0.5, 2.0)
"""What is tried first, for every method."""
LEAST, MOST = 1 / 16, 16.0
"""Beyond which nothing is tried."""
COMPETITION, BETA = "0.2", 0.5
"""Where images decide."""
TOLERATED = 0.01
"""A rate at which a larger share of all participants' rounds fails is not chosen."""
ALL_FACTORS = (1.0, 0.5, 2.0, 0.25, 4.0, 8.0, 16.0)
"""What is tried on synthetic data."""

Deciding = tuple[Cell, ...]
Choice = tuple[float, int | None]
"""A factor, and a round where all decide together about it."""


def chooses(table: Table, plan: Plan) -> bool:
    """Return whether learning rates are chosen in a table."""
    return plan.choose and table.chosen and (table.budget or plan.budget) != "published"


def at_chosen_rates(
    table: Table, plan: Plan, store: Store
) -> list[tuple[Mapping[str, Any], Cell, Cell | None]]:
    """Return a table's cells, each with the one at the chosen rate; none while it is not decided.

    The values of the key columns come first.
    """
    if not chooses(table, plan):
        return [(key, cell, cell) for key, cell in cells_of(table, plan)]
    known: dict[Deciding, Choice | None] = {}
    trials = plan.trials_of(table)
    found: list[tuple[Mapping[str, Any], Cell, Cell | None]] = []
    for key, cell in cells_of(table, plan):
        deciding = _deciding(cell, trials)
        if deciding not in known:
            known[deciding] = _tried(deciding, store)[1]
        chosen = known[deciding]
        rated = None if chosen is None else replace(cell, factor=chosen[0], until=chosen[1])
        found.append((key, cell, rated))
    return found


def chosen_rates(table: Table, plan: Plan, store: Store) -> dict[str, dict[str, float | None]]:
    """Return by how much learning rates are multiplied, by data set and way to divide it, and row.

    None where it is not decided yet; nothing at all where none are chosen.
    """
    found: dict[str, dict[str, float | None]] = {}
    plan = replace(plan, budget="converged")
    if chooses(table, plan):
        for _, cell, rated in at_chosen_rates(table, plan, store):
            factor = None if rated is None else rated.factor
            found.setdefault(_where(cell), {})[cell.variant.name] = factor
    return found


def chosen_rounds(table: Table, plan: Plan, store: Store) -> dict[str, dict[str, int]]:
    """Return after how many rounds training ends, as `chosen_rates` does, where that is chosen."""
    found: dict[str, dict[str, int]] = {}
    plan = replace(plan, budget="converged")
    for _, cell, rated in at_chosen_rates(table, plan, store):
        if rated is not None and rated.until is not None:
            found.setdefault(_where(cell), {})[cell.variant.name] = rated.until
    return found


@dataclass(frozen=True)
class Company:
    """Whether a method does better along learned benefits or in all company, by validation data.

    On hospitals benefits of another trial stand for one's own.

    Attributes
    ----------
    preferred : str, optional
        The better row; none if training diverges in both.
    validation : mapping of str to float
        The mean validation metric of both rows.
    """

    preferred: str | None
    validation: Mapping[str, float]


def validation_means(table: Table, plan: Plan, store: Store) -> dict[str, dict[str, float]]:
    """Return the mean validation metric of every row, as `chosen_rates` does.

    Of the trials that decide about learning rates, where all of them are done at the chosen one.
    """
    found: dict[str, dict[str, float]] = {}
    for (where, name), results in _decided(table, plan, store).items():
        if results:
            mean = fmean(result.mean_validation for result in results)
            found.setdefault(where, {})[name] = mean
    return found


def _decided(table: Table, plan: Plan, store: Store) -> dict[tuple[str, str], list[Result]]:
    """Return the results of every row, at its chosen rate, in the trials that decide about it."""
    plan = replace(plan, budget="converged")
    rows: dict[tuple[str, str], list[Result]] = {}
    if not chooses(table, plan):
        return rows
    for _, cell, rated in at_chosen_rates(table, plan, store):
        place = (_where(cell), cell.variant.name)
        if rated is not None and place not in rows:
            decided = [
                store.get(replace(rated, scene=one.scene, trial=one.trial))
                for one in _deciding(cell, plan.trials_of(table))
            ]
            done = [one for one in decided if one is not None]
            rows[place] = done if len(done) == len(decided) else []
    return rows


def preferred_company(table: Table, plan: Plan, store: Store) -> dict[str, dict[str, Company]]:
    """Return in which company methods do better on the data that decide about learning rates.

    By data set and way to divide it, and by method, as far as a table has both of a method's rows
    and both their rates are chosen. Of equals it is learned benefits.
    """
    rows = _decided(table, plan, store)
    small = any(scene.small for _, scene in table.scenes)
    found: dict[str, dict[str, Company]] = {}
    for (where, name), own in rows.items():
        other = wide_name(name)
        learned = rows.get((where, crossed_name(name)), [] if small else own)
        both = {name: learned, other: rows.get((where, other), [])}
        if all(both.values()):
            scores = _scores(both)
            best, score = max(scores.items(), key=itemgetter(1))
            values = {row: fmean(one.mean_validation for one in own) for row, own in both.items()}
            company = Company(best if score > -math.inf else None, values)
            found.setdefault(where, {})[name] = company
    return found


def _where(cell: Cell) -> str:
    return f"{cell.scene.data} {cell.scene.partition}".strip()


def trial_cells(tables: Iterable[Table], plan: Plan, store: Store) -> list[Cell]:
    """Return the cells that must be trained to choose, as far as what is done tells."""
    all_deciding = dict.fromkeys(
        _deciding(cell, plan.trials_of(table))
        for table in tables
        if chooses(table, plan)
        for _, cell in cells_of(table, plan)
    )
    return [
        replace(cell, factor=factor)
        for deciding in all_deciding
        for factor in _tried(deciding, store)[0]
        for cell in deciding
    ]


def _deciding(cell: Cell, number: int) -> Deciding:
    """Return the cells on which the learning rate of a cell of so many trials is decided."""
    scene, trials = cell.scene, range(number)
    if _is_image(cell):
        options = tuple((name, BETA if name == "beta" else value) for name, value in scene.options)
        rivals = COMPETITION if scene.competition else ""
        scene, trials = replace(scene, options=options, competition=rivals), range(1)
    chooser = replace(cell, variant=cell.variant.chooser, scene=scene, factor=1.0)
    return tuple(replace(chooser, trial=trial) for trial in trials)


def _is_image(cell: Cell) -> bool:
    return bool(cell.scene.partition)


def _tried(deciding: Deciding, store: Store) -> tuple[list[float], Choice | None]:
    """Return the factors to try, and the best of them once all are done."""
    results: dict[float, list[Result]] = {}
    extends = _is_image(deciding[0]) or deciding[0].scene.small
    factors = list(FACTORS if extends else ALL_FACTORS)
    while True:
        for factor in factors[len(results) :]:
            done = [store.get(replace(cell, factor=factor)) for cell in deciding]
            results[factor] = [one for one in done if one is not None]
            if len(results[factor]) < len(done):
                return factors, None
        scores = _scores(results)
        best = max(factors, key=lambda factor: (scores[factor], -abs(math.log2(factor))))
        if scores[best] == -math.inf:
            best = min(factors)
        at_edge = extends and best in (min(factors), max(factors))
        further = best / 2 if best == min(factors) else 2 * best
        if not at_edge or not LEAST <= further <= MOST:
            return factors, (best, _best_round(results[best]))
        factors.append(further)


def _best_round(results: Sequence[Result]) -> int | None:
    """Return the round with the best mean over everybody in all trials, if they decide together.

    Of equals it is the first.
    """
    if not any(result.curves for result in results):
        return None
    by_round: dict[int, list[float]] = {}
    for result in results:
        sign = -1.0 if result.metric == "mse" else 1.0
        for curve in result.curves.values():
            # Who never has a number, as with patients who are all alike, has no say; who has one at
            # times loses for the rounds without.
            if any(math.isfinite(value) for _, value in curve):
                for number, value in curve:
                    score = sign * value if math.isfinite(value) else -math.inf
                    by_round.setdefault(number, []).append(score)
    best = ((fmean(scores), -number) for number, scores in by_round.items())
    return -max(best, default=(0.0, -1))[1]


def _scores(results: Mapping[Kind, list[Result]]) -> dict[Kind, float]:
    """Return the mean validation metrics by rate or row, higher for better.

    One at which anybody has no number, who has one at another, is the worst of all, as is one at
    which training diverges.
    """
    values = {kind: _values(own) for kind, own in results.items()}
    finite = {
        place for own in values.values() for place, value in own.items() if math.isfinite(value)
    }
    return {
        # Exact, so that equals are equal in whatever order they are added.
        kind: -math.inf
        if any(_diverges(result) for result in results[kind])
        else math.fsum(own[place] for place in finite) / max(len(finite), 1)
        for kind, own in values.items()
    }


def _diverges(result: Result) -> bool:
    rounds = result.about["rounds"][0]
    return bool(result.about["failures"] > TOLERATED * rounds * len(result.validation))


def _values(results: Sequence[Result]) -> dict[tuple[int, str], float]:
    """Return the validation metric of everybody in each result, higher for better.

    At the round that is best for all of them together, where they decide so.
    """
    until = _best_round(results)
    return {
        (number, name): value * (-1.0 if result.metric == "mse" else 1.0)
        if math.isfinite(value)
        else -math.inf
        for number, result in enumerate(results)
        for name, value in _validation(result, until).items()
    }


def _validation(result: Result, until: int | None) -> Mapping[str, float]:
    if until is None:
        return result.validation
    return {name: dict(curve).get(until, math.nan) for name, curve in result.curves.items()}
