"""Learning rates chosen on validation data, by one rule for all methods.

For each data set and partition every method is trained at several multiples (*factors*) of the
budget's learning rate. The factor with the best mean validation metric is used in all cells of the
method. Half, once and twice are tried first. While the smallest or the largest of them is best,
half or twice of it is tried as well. On synthetic data, where training is cheap, a quarter to
sixteen times are tried. On images, where training is costly, the first repetition decides, at
competition 0.2 and β = 0.5. Elsewhere validation sets are small, and all repetitions decide
together.

The validation sets of hospitals are so small that a participant's best round is mostly a lucky one,
most of all at rates at which the metric jumps. There the number of rounds is chosen together with
the rate, one number for all participants and repetitions.

In corrected tables (`revision` 2) three repetitions decide that no table shows, 10 to 12, for all
data. Then two other settings of the row are tried at the best rate, of one parameter or of two, or
two more rates for methods without a parameter: as many trials for all. At another β the choice
holds, too, unless training diverges there in the deciding repetitions. Then it is made again there.

On images, the score of a trial is the better of its validation metrics before and after
fine-tuning, where the method has both rows, which share the choice.

A rate is not chosen if training diverges in the deciding repetitions, in more than one in a hundred
of all participants' rounds, and is not trained any further there; it may still diverge in others.
Test data is not used. Other fine-tuned rows have the rate of their method. The published budget has
published rates, and most tables beyond the paper have the budget's.

The same data choose the coalitions of a method: along learned benefits, or the widest ones that
competition allows. Benefits were learned from these very data, though. With many samples that makes
little difference. With few patients it favours learned benefits, so hospitals use benefits that
were learned in another repetition, which divides the same patients differently.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from statistics import fmean
from typing import Any, TypeVar

from fedegoists.methods.method_registry import TUNED
from reproduction.cell_store import CellStore
from reproduction.cells import Cell, CellResult, Plan, cells_of, diverges
from reproduction.reproduced_tables import DECIDING, ReproducedTable
from reproduction.variants import NAMES_WITH_TUNED_ROW, crossed_name, settings_tried, wide_name

__all__ = [
    "ALL_FACTORS",
    "FACTORS",
    "Company",
    "at_chosen_rates",
    "chooses",
    "chosen_rates",
    "chosen_rounds",
    "chosen_settings",
    "deciding_cells",
    "preferred_company",
    "validation_means",
]

Kind = TypeVar("Kind")

FACTORS = (1.0, 0.5, 2.0)
"""The factors tried first, for every method."""
LEAST, MOST = 1 / 16, 16.0
"""The smallest and largest factors that are tried."""
ALL_FACTORS = (1.0, 0.5, 2.0, 0.25, 4.0, 8.0, 16.0)
"""The factors tried on synthetic data."""

CORRECTED_FACTORS = (1.0, 2.0, 4.0, 8.0)
"""The factors tried on synthetic data in corrected tables."""
BESIDE = 2**0.5
"""Methods without a parameter are tried at the best rate divided and multiplied by this."""

Deciding = tuple[Cell, ...]


@dataclass(frozen=True)
class Trial:
    """What is tried: a multiple of the learning rate, and a setting of the method if any."""

    factor: float
    setting: tuple[str, Any] | None = None

    def of(self, cell: Cell) -> Cell:
        """Return a cell trained in this way."""
        variant = cell.variant
        if self.setting is not None:
            variant = variant.set_to(dict([self.setting]))
        return replace(cell, factor=self.factor, variant=variant)


@dataclass(frozen=True)
class Choice:
    """What is chosen: a trial, and the round where one is chosen for all participants."""

    trial: Trial
    until: int | None

    def of(self, cell: Cell) -> Cell:
        """Return a cell trained as chosen."""
        return replace(self.trial.of(cell), until=self.until)


def chooses(table: ReproducedTable, plan: Plan) -> bool:
    """Return whether learning rates are chosen in a table."""
    return plan.choose and table.chosen and (table.budget or plan.budget) != "published"


def at_chosen_rates(
    table: ReproducedTable, plan: Plan, store: CellStore
) -> list[tuple[Mapping[str, Any], Cell, Cell | None]]:
    """Return a table's cells, each with the values of key columns and the cell at the chosen rate.

    The latter is None while the rate is not decided.
    """
    if not chooses(table, plan):
        return [(key, cell, cell) for key, cell in cells_of(table, plan)]
    known: dict[Deciding, Choice | None] = {}
    repetitions = plan.repetitions_of(table)
    found: list[tuple[Mapping[str, Any], Cell, Cell | None]] = []
    for key, cell in cells_of(table, plan):
        deciding = _deciding(cell, repetitions)
        if deciding not in known:
            known[deciding] = _carried_over(deciding, store)[1]
        chosen = known[deciding]
        rated = None if chosen is None else chosen.of(cell)
        found.append((key, cell, rated))
    return found


def chosen_rates(
    table: ReproducedTable, plan: Plan, store: CellStore
) -> dict[str, dict[str, float | None]]:
    """Return the chosen factors by data set with partition, and by row.

    None where a factor is not decided yet; an empty mapping where rates are not chosen.
    """
    found: dict[str, dict[str, float | None]] = {}
    plan = replace(plan, budget="converged")
    if chooses(table, plan):
        for _, cell, rated in at_chosen_rates(table, plan, store):
            factor = None if rated is None else rated.factor
            found.setdefault(_where(cell), {})[cell.variant.name] = factor
    return found


def chosen_rounds(
    table: ReproducedTable, plan: Plan, store: CellStore
) -> dict[str, dict[str, int]]:
    """Return the chosen numbers of rounds, like `chosen_rates`, where they are chosen."""
    found: dict[str, dict[str, int]] = {}
    plan = replace(plan, budget="converged")
    for _, cell, rated in at_chosen_rates(table, plan, store):
        if rated is not None and rated.until is not None:
            found.setdefault(_where(cell), {})[cell.variant.name] = rated.until
    return found


@dataclass(frozen=True)
class Company:
    """Which coalitions validation data prefers for a method: along learned benefits, or widest.

    On hospitals, learned benefits are those of another repetition.

    Attributes
    ----------
    preferred : str, optional
        The better row; None if training diverges in both.
    validation : mapping of str to float
        The mean validation metric of each row.
    """

    preferred: str | None
    validation: Mapping[str, float]


def chosen_settings(
    table: ReproducedTable, plan: Plan, store: CellStore
) -> dict[str, dict[str, str]]:
    """Return the chosen settings other than a row's own, like `chosen_rates`."""
    found: dict[str, dict[str, str]] = {}
    for _, cell, rated in at_chosen_rates(table, replace(plan, budget="converged"), store):
        if rated is not None and rated.variant != cell.variant:
            own = dict(cell.variant.settings)
            changed = (
                f"{name} {value:g}"
                for name, value in rated.variant.settings
                if own.get(name) != value
            )
            found.setdefault(_where(cell), {})[cell.variant.name] = ", ".join(changed)
    return found


def validation_means(
    table: ReproducedTable, plan: Plan, store: CellStore
) -> dict[str, dict[str, float]]:
    """Return the mean validation metric of every row, like `chosen_rates`.

    The mean is over the deciding repetitions, where all of them are finished at the chosen rate.
    """
    found: dict[str, dict[str, float]] = {}
    for (where, name), results in _decided(table, plan, store).items():
        if results:
            found.setdefault(where, {})[name] = _mean_validation(results)
    return found


def _decided(
    table: ReproducedTable, plan: Plan, store: CellStore
) -> dict[tuple[str, str], list[CellResult]]:
    """Return the results of every row at its chosen rate in the deciding repetitions."""
    plan = replace(plan, budget="converged")
    rows: dict[tuple[str, str], list[CellResult]] = {}
    if not chooses(table, plan):
        return rows
    for _, cell, rated in at_chosen_rates(table, plan, store):
        place = (_where(cell), cell.variant.name)
        if rated is not None and place not in rows:
            if rated.revision > 1:
                if rated.variant.tuned:
                    continue  # it has the coalitions of its method
                rated = replace(rated, until=None)  # what decided was trained to the end
            shown = {name: getattr(rated, name) for name in ("variant", "factor", "until")}
            decided = [
                store.get(replace(one, **shown))
                for one in _deciding(cell, plan.repetitions_of(table))
                if not one.variant.tuned
            ]
            done = [one for one in decided if one is not None]
            rows[place] = done if len(done) == len(decided) else []
    return rows


def preferred_company(
    table: ReproducedTable, plan: Plan, store: CellStore
) -> dict[str, dict[str, Company]]:
    """Return the coalitions that validation data prefers, by data set with partition and by method.

    Only for methods with both rows in the table and both rates chosen. Learned benefits win a tie.
    """
    rows = _decided(table, plan, store)
    small = any(scenario.small for _, scenario in table.scenarios)
    found: dict[str, dict[str, Company]] = {}
    for (where, name), own in rows.items():
        other = wide_name(name)
        learned = rows.get((where, crossed_name(name)), [] if small else own)
        both = {name: learned, other: rows.get((where, other), [])}
        if all(both.values()):
            scores = _scores(both)
            best, score = max(scores.items(), key=itemgetter(1))
            values = {row: _mean_validation(own) for row, own in both.items()}
            company = Company(best if score > -math.inf else None, values)
            found.setdefault(where, {})[name] = company
    return found


def _where(cell: Cell) -> str:
    """Return for what a choice is: the data set, the partition, and another β than the usual."""
    scenario = cell.scenario
    beta = ""
    if cell.revision > 1 and scenario.beta != scenario.deciding.beta:
        beta = f"β = {scenario.beta:g}"
    return " ".join(part for part in (scenario.data, scenario.partition, beta) if part)


def deciding_cells(tables: Iterable[ReproducedTable], plan: Plan, store: CellStore) -> list[Cell]:
    """Return the cells that must be trained to choose rates, as far as known from finished ones."""
    all_deciding = dict.fromkeys(
        one
        for table in tables
        if chooses(table, plan)
        for _, cell in cells_of(table, plan)
        for deciding in [_deciding(cell, plan.repetitions_of(table))]
        for one in (_usual(deciding), deciding)
    )
    return [
        trial.of(cell)
        for deciding in all_deciding
        for trial in _carried_over(deciding, store)[0]
        for cell in deciding
    ]


def _deciding(cell: Cell, number: int) -> Deciding:
    """Return the cells that decide about the learning rate of a cell with `number` repetitions."""
    scenario, repetitions = cell.scenario, range(number)
    if cell.revision > 1:
        repetitions = range(DECIDING[0], DECIDING[-1] + 1)
    if _is_image(cell):
        scenario = scenario.deciding
        if cell.revision == 1:
            repetitions = range(1)
        else:
            scenario = replace(scenario, options=cell.scenario.options)
    variant = cell.variant.base if cell.revision > 1 else cell.variant.chooser
    variants = [variant]
    if _is_image(cell) and cell.revision > 1 and variant.name in NAMES_WITH_TUNED_ROW:
        variants.append(variant.followed(TUNED))
    chooser = replace(cell, scenario=scenario, factor=1.0)
    return tuple(
        replace(chooser, variant=variant, repetition=repetition)
        for variant in variants
        for repetition in repetitions
    )


def _usual(deciding: Deciding) -> Deciding:
    """Return the cells that decide for all β."""
    return tuple(replace(cell, scenario=cell.scenario.deciding) for cell in deciding)


def _carried_over(deciding: Deciding, store: CellStore) -> tuple[list[Trial], Choice | None]:
    """Return what is tried, and what is chosen: as for the usual β, unless it diverges here."""
    usual = _usual(deciding)
    if not _is_image(deciding[0]) or deciding == usual:
        return _tried(deciding, store)
    _, choice = _tried(usual, store)
    if choice is None:
        return [], None
    results: dict[Trial, list[CellResult]] = {}
    if not _filled(deciding, store, [choice.trial], results):
        return [choice.trial], None
    # Fine-tuned models begin with untuned ones, whose failures are among theirs.
    if not any(
        _diverges(result)
        for cell, result in zip(deciding, results[choice.trial], strict=True)
        if not cell.variant.tuned
    ):
        return [choice.trial], choice
    trials, choice_here = _tried(deciding, store)
    return list(dict.fromkeys([choice.trial, *trials])), choice_here


def _is_image(cell: Cell) -> bool:
    return bool(cell.scenario.partition)


def _tried(deciding: Deciding, store: CellStore) -> tuple[list[Trial], Choice | None]:
    """Return what is tried, and the best of it once all is finished."""
    results: dict[Trial, list[CellResult]] = {}
    trials, rate = _rates_tried(deciding, store, results)
    if rate is None:
        return trials, None
    best = rate
    if deciding[0].revision > 1:
        trials += _further(deciding[0], rate)
        if not _filled(deciding, store, trials, results):
            return trials, None
        scores = _judged(deciding, results)
        best = max(trials, key=lambda one: (scores[one], one == rate))
        if scores[best] == -math.inf:
            best = rate
    return trials, Choice(best, _best_round(results[best]))


def _rates_tried(
    deciding: Deciding, store: CellStore, results: dict[Trial, list[CellResult]]
) -> tuple[list[Trial], Trial | None]:
    """Return the rates to try, and the best of them once all are finished."""
    extends = _is_image(deciding[0]) or deciding[0].scenario.small
    known = ALL_FACTORS if deciding[0].revision == 1 else CORRECTED_FACTORS
    trials = [Trial(factor) for factor in (FACTORS if extends else known)]
    while True:
        if not _filled(deciding, store, trials, results):
            return trials, None
        scores = _judged(deciding, results)
        factors = [one.factor for one in trials]
        best = max(trials, key=lambda one: (scores[one], -abs(math.log2(one.factor))))
        if scores[best] == -math.inf:
            best = min(trials, key=lambda one: one.factor)
        at_edge = extends and best.factor in (min(factors), max(factors))
        further = best.factor / 2 if best.factor == min(factors) else 2 * best.factor
        if not at_edge or not LEAST <= further <= MOST:
            return trials, best
        trials.append(Trial(further))


def _filled(
    deciding: Deciding,
    store: CellStore,
    trials: Sequence[Trial],
    results: dict[Trial, list[CellResult]],
) -> bool:
    """Read the results of what is tried; return whether all are there."""
    for trial in trials[len(results) :]:
        done = [store.get(trial.of(cell)) for cell in deciding]
        found = [one for one in done if one is not None]
        if len(found) < len(done):
            return False
        results[trial] = found
    return True


def _further(cell: Cell, rate: Trial) -> list[Trial]:
    """Return two more trials at the best rate: other settings, or rates beside it."""
    settings = settings_tried(cell.variant)
    if settings is None:
        return [Trial(rate.factor / BESIDE), Trial(rate.factor * BESIDE)]
    return [Trial(rate.factor, one) for one in settings]


def _best_round(results: Sequence[CellResult]) -> int | None:
    """Return the round with the best mean over all participants and repetitions.

    The first of equals; None where each participant chooses its own round.
    """
    if not any(result.curves for result in results):
        return None
    by_round: dict[int, list[float]] = {}
    for result in results:
        sign = -1.0 if result.metric == "mse" else 1.0
        for curve in result.curves.values():
            # A participant without any number, as with patients who are all alike, does not count.
            # One with numbers in some rounds rules out the others.
            if any(math.isfinite(value) for _, value in curve):
                for number, value in curve:
                    score = sign * value if math.isfinite(value) else -math.inf
                    by_round.setdefault(number, []).append(score)
    best = ((fmean(scores), -number) for number, scores in by_round.items())
    return -max(best, default=(0.0, -1))[1]


def _judged(deciding: Deciding, results: Mapping[Trial, list[CellResult]]) -> dict[Trial, float]:
    """Return the scores of what is tried: of the better row, where fine-tuning decides as well."""
    tuned = [cell.variant.tuned for cell in deciding]
    by_row = [
        _scores(
            {
                trial: [result for result, one in zip(own, tuned, strict=True) if one == kind]
                for trial, own in results.items()
            }
        )
        for kind in dict.fromkeys(tuned)
    ]
    return {trial: max(scores[trial] for scores in by_row) for trial in results}


def _scores(results: Mapping[Kind, list[CellResult]]) -> dict[Kind, float]:
    """Return the mean validation metric of every rate or row; higher is better.

    The worst score is for rates at which training diverges, and for rates at which a participant
    has no number although it has one at another rate.
    """
    values = {kind: _values(own) for kind, own in results.items()}
    finite = {
        place for own in values.values() for place, value in own.items() if math.isfinite(value)
    }
    return {
        # An exact sum, which does not depend on the order of its terms.
        kind: -math.inf
        if any(_diverges(result) for result in results[kind])
        else math.fsum(own[place] for place in finite) / max(len(finite), 1)
        for kind, own in values.items()
    }


def _diverges(result: CellResult) -> bool:
    return diverges(result.about["failures"], result.about["rounds"][0], len(result.validation))


def _values(results: Sequence[CellResult]) -> dict[tuple[int, str], float]:
    """Return the validation metric of each participant in each result; higher is better.

    Where one round is chosen for all participants, at that round.
    """
    until = _best_round(results)
    return {
        (number, name): value * (-1.0 if result.metric == "mse" else 1.0)
        if math.isfinite(value)
        else -math.inf
        for number, result in enumerate(results)
        for name, value in _validation(result, until).items()
    }


def _mean_validation(results: Sequence[CellResult]) -> float:
    """Return the mean validation metric, at the round that is best for all if one is chosen."""
    until = _best_round(results)
    each = (
        [value for value in _validation(result, until).values() if math.isfinite(value)]
        for result in results
    )
    return fmean(fmean(values) if values else math.nan for values in each)


def _validation(result: CellResult, until: int | None) -> Mapping[str, float]:
    if until is None:
        return result.validation
    return {name: dict(curve).get(until, math.nan) for name, curve in result.curves.items()}
