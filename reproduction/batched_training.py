"""Groups of cells that share data, method and budget, trained at once."""

import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedegoists.federation import Failure, Federation, Participant, SimulatedFederation
from fedegoists.learning.data import SiloedData
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.models import build_model
from fedegoists.methods.failed_rounds import FailedRunError
from fedegoists.methods.method_registry import TUNED
from fedegoists.methods.method_run import (
    Callbacks,
    Observer,
    RunSettings,
    StoppedError,
    fine_tune,
    keep_outcome,
    run,
)
from fedegoists.methods.outcome import Outcome
from fedegoists.training.defaults import Defaults
from fedegoists.training.repetitions import Repetitions, Wanted, load_trainable, method_of
from fedegoists.training.summary import COSTS, chosen_test_values
from reproduction.benefit_graphs import Benefits, learned_by
from reproduction.budgets import budget
from reproduction.cell_packing import group_name
from reproduction.cell_store import CellStore
from reproduction.cells import Cell, CellResult, cell_from, diverges
from reproduction.interpolation import interpolate
from reproduction.shared_coalitions import SharedCoalitions, shared_by
from reproduction.variants import INTERPOLATED_ENDING

__all__ = ["CellGroup", "GroupSettings", "forget", "group_of", "grouped", "train_group"]

HEAVY = ("fedegoists",)
"""Methods with a network for each participant that is a hundred times as large as its model."""


SAVE_EVERY = 60.0
"""Seconds between checkpoints of a group; most groups need less time."""


@dataclass(frozen=True)
class GroupSettings:
    """Where and how groups are trained; results depend on it by rounding only.

    Attributes
    ----------
    out : path
        The folder of cells, benefit graphs and checkpoints.
    stack : int
        Most silos trained at once; a fifth of them for methods that need much memory.
    stop : function to bool
        Called between rounds; training stops when it returns true.
    wait : bool
        Whether to wait while other processes train all that is left, for what depends on it.
    """

    out: Path
    data_dir: Path | None = None
    device: str = "cpu"
    stack: int = 250
    bf16: bool = False
    stop: Callable[[], bool] = field(default=lambda: False)
    observers: tuple[Observer, ...] = ()
    wait: bool = True


@dataclass(frozen=True)
class CellGroup:
    """Cells trained at once, which differ only in repetition, competition and fine-tuning.

    A coalition that several levels of competition lead to is trained once.
    """

    cells: tuple[Cell, ...]

    @property
    def bases(self) -> tuple[Cell, ...]:
        """The cells without fine-tuning, each repetition and competition once."""
        return tuple(dict.fromkeys(cell.base for cell in self.cells))

    @property
    def tuned(self) -> bool:
        """Whether any cell is fine-tuned."""
        return any(cell.variant.tuned for cell in self.cells)

    @property
    def kind(self) -> str:
        """A hash of the settings that all cells share."""
        return _alike(self.cells[0]).digest

    @property
    def digest(self) -> str:
        """A hash of all cells' settings."""
        return group_name(cell.digest for cell in self.cells)

    @property
    def decides(self) -> bool:
        """Whether its cells are trained only to choose rates and settings."""
        return all(cell.decides for cell in self.cells)

    def words(self) -> str:
        """Return a description in one line."""
        first = self.bases[0]
        scenario = " ".join(
            [first.scenario.data, *(str(value) for _, value in first.scenario.options)]
        )
        repetitions = {cell.repetition for cell in self.bases}
        rivals = {cell.scenario.competition for cell in self.bases if cell.scenario.competition}
        number = f"{len(repetitions)} repetition{'s' if len(repetitions) > 1 else ''}"
        levels = f" × {len(rivals)} levels of competition" if len(rivals) > 1 else ""
        return f"{scenario}, {first.variant.name}, {first.budget}: {number}{levels}"


def grouped(cells: Sequence[Cell], stack: int, silos: int = 10) -> list[CellGroup]:
    """Divide cells into groups to be trained at once, in their order.

    Which coalitions cells share is not known before their benefit graphs are. So cells count as
    having none in common, and a group may have fewer silos than `stack`, but never more.
    """
    by_kind: dict[Cell, dict[Cell, list[Cell]]] = {}
    for cell in cells:
        by_kind.setdefault(_alike(cell), {}).setdefault(cell.base, []).append(cell)
    found = []
    for alike, by_base in by_kind.items():
        most = stack // 5 if alike.variant.method in HEAVY else stack
        each = max(1, most // silos)
        bases = sorted(by_base, key=lambda cell: (cell.repetition, cell.scenario.competition))
        for start in range(0, len(bases), each):
            some = bases[start : start + each]
            found.append(CellGroup(tuple(cell for base in some for cell in by_base[base])))
    return found


def _alike(cell: Cell) -> Cell:
    return replace(cell.base, repetition=0, scenario=replace(cell.scenario, competition=""))


def train_group(
    work: CellGroup, settings: GroupSettings, benefits: Benefits, about: Mapping[str, Any]
) -> dict[Cell, CellResult]:
    """Train a group, from its checkpoint if there is one, and return the cells' results.

    Raises
    ------
    fedegoists.methods.method_run.StoppedError
        If `settings.stop` returned true; a checkpoint holds the progress.
    """
    began = time.perf_counter()
    first, data = work.bases[0], _loaded(work, settings)
    defaults = budget(
        first.budget,
        data[first.repetition],
        first.scenario.partition,
        steps=first.steps,
        factor=first.factor,
        length=first.variant.length,
    )
    shared = shared_by(work.bases, data, benefits)
    repetitions = _repetitions(shared, data, defaults, settings)
    outcomes = _outcomes(work, repetitions, shared, settings)
    seconds = time.perf_counter() - began
    done = sum(sum(o.spent.get("sample_passes", {}).values()) for o in outcomes.values())
    common_about = {
        **about,
        "pass": [cell.digest for cell in work.cells],
        "pass_silos": len(repetitions.federation.participants),
        "pass_seconds": round(seconds, 1),
        "samples_per_second": round(done / seconds),
        "bf16": settings.bf16,
        "train": defaults.train.model_dump(),
        "tune": defaults.tune.model_dump() if work.tuned else None,
        "rounds": [
            first.until or defaults.rounds,
            defaults.tune_rounds if work.tuned else 0,
        ],
    }
    tested = {
        ending: chosen_test_values(one, repetitions.federation) for ending, one in outcomes.items()
    }
    return {
        cell: _result(
            _stages(cell.variant.ending, outcomes),
            tested[cell.variant.ending],
            shared.places[cell.base],
            repetitions.federation,
            {**common_about, "coalitions": shared.coalitions[cell.base]},
            with_curves=cell.decides_rounds,
        )
        for cell in work.cells
    }


def _loaded(work: CellGroup, settings: GroupSettings) -> dict[int, SiloedData]:
    """Return the data of all repetitions that a group trains on or learned its benefits from."""
    scenario = work.bases[0].scenario
    needed = {one.repetition for cell in work.bases for one in (cell, learned_by(cell))}
    return {
        repetition: load_trainable(
            scenario.data, data_dir=settings.data_dir, seed=repetition, **dict(scenario.options)
        )
        for repetition in sorted(needed)
    }


def _outcomes(
    work: CellGroup, repetitions: Repetitions, shared: SharedCoalitions, settings: GroupSettings
) -> dict[str, Outcome]:
    """Train a group, and fine-tune it if any cell is fine-tuned.

    Return outcomes by the ends of rows' names.
    """
    first, defaults, federation = work.bases[0], repetitions.defaults, repetitions.federation
    name = first.variant.method
    wanted = Wanted((name,), {name: dict(first.variant.settings)})
    method = method_of(name, wanted, repetitions, shared.decisions)
    folder = settings.out / "checkpoint" / work.digest
    running = RunSettings(
        rounds=first.until or defaults.rounds,
        seed=0,
        evaluate_every=first.until or defaults.evaluate_every,
    )
    looking = (_hopeless(federation.participants),) if work.decides else ()
    callbacks = Callbacks(
        folder / "trained.safetensors",
        SAVE_EVERY,
        (*settings.observers, *looking),
        settings.stop,
    )
    given = (method, federation, shared.decisions.final, repetitions.initial, running)
    names = federation.participants
    outcome = even_diverged(lambda: run(*given, callbacks), names, running.rounds)
    if not work.tuned:
        return {"": outcome}
    if work.decides and _given_up(outcome, running.rounds):
        # Nothing is gained by tuning the models of a trial that is not chosen.
        return dict.fromkeys(("", *(cell.variant.ending for cell in work.cells)), outcome)
    tuning = replace(
        callbacks, checkpoint=folder / "tuned.safetensors", observers=settings.observers
    )
    rounds = defaults.tune_rounds
    try:
        tuned = even_diverged(
            lambda: fine_tune(method, federation, outcome, defaults.tune, rounds, tuning),
            names,
            rounds,
        )
    except StoppedError:
        # Tuning can be resumed only from the very models that it began with.
        keep_outcome(folder / "trained.safetensors", outcome, *given)
        raise
    found = {"": outcome, TUNED: tuned}
    if any(cell.variant.ending == INTERPOLATED_ENDING for cell in work.cells):
        found[INTERPOLATED_ENDING] = interpolate(method, federation, outcome, tuned)
    return found


def _stages(ending: str, outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    """Return the stages of a row, its own last; its costs and failures are their sums."""
    if not ending or outcomes[ending] is outcomes[""]:
        return [outcomes[""]]
    # Interpolation copies the outcome of fine-tuning, with its costs and failures.
    return [outcomes[""], outcomes[ending]]


class HopelessTrialError(FailedRunError):
    """A trial of a rate or a setting that was given up, because it would not be chosen."""


def _hopeless(names: Sequence[Participant]) -> Observer:
    """Return an observer that ends a trial in which some repetition diverges for good.

    It would not be chosen, whatever came of its further rounds, and rounds that silos repeat at
    lower rates take many times as long as others.
    """
    silos = Counter(name.repetition for name in names)

    def look(method: str, done: int, rounds: int, outcome: Outcome) -> None:
        failures = Counter(one.participant.repetition for _, one in outcome.failures)
        for repetition, count in failures.items():
            if diverges(count, rounds, silos[repetition]):
                raise HopelessTrialError(f"{method}: {count} failures in {done} rounds")

    return look


def _given_up(outcome: Outcome, rounds: int) -> bool:
    """Whether a run ended before its last round."""
    return outcome.state.round < rounds


def even_diverged(
    train: Callable[[], Outcome], names: Iterable[Participant], rounds: int
) -> Outcome:
    """Return the outcome of a run, even if every silo failed or a trial was given up.

    Then all silos count as failing in all later rounds. So its cells are results like others, and
    a rate that diverges is not chosen, for any method.
    """
    try:
        return train()
    except FailedRunError as error:
        if error.outcome is None:
            raise
        error.outcome.failures += [
            (number, Failure(name, "not finite", str(error)))
            for number in range(error.outcome.state.round + 1, rounds + 1)
            for name in names
        ]
        return error.outcome


def forget(work: CellGroup, out: Path) -> None:
    """Remove the checkpoints of a group."""
    folder = out / "checkpoint" / work.digest
    if folder.is_dir():
        shutil.rmtree(folder)


def _repetitions(
    shared: SharedCoalitions,
    data: Mapping[int, SiloedData],
    defaults: Defaults,
    settings: GroupSettings,
) -> Repetitions:
    options = model_options(next(iter(data.values())), defaults.model)
    federation = SimulatedFederation(
        {
            label: data[repetition].restricted_to(names)
            for label, (repetition, names) in shared.silos.items()
        },
        build_model(defaults.model, 0, **options),
        device=settings.device,
        bf16=settings.bf16,
        drawn_as={label: repetition for label, (repetition, _) in shared.silos.items()},
    )
    rows: list[Tensor] = []
    for repetition, names in shared.silos.values():
        model = build_model(defaults.model, repetition, **options)
        row = federation.schema.flatten(dict(model.named_parameters()))
        rows += [row] * len(names)
    return Repetitions(federation, torch.stack(rows).to(federation.device), defaults, options)


def _result(
    outcomes: Sequence[Outcome],
    tested: Mapping[Participant, float],
    places: Mapping[str, Participant],
    federation: Federation,
    about: Mapping[str, Any],
    *,
    with_curves: bool,
) -> CellResult:
    """Return a cell's result from the places of its silos; the last outcome is tested."""
    last, row = outcomes[-1], {name: k for k, name in enumerate(federation.participants)}
    sign = 1.0 if federation.task.higher_is_better else -1.0
    scores = {name: last.best_score[row[place]][0] for name, place in places.items()}
    inside = set(places.values())
    failures = sum(f.participant in inside for outcome in outcomes for _, f in outcome.failures)
    return CellResult(
        federation.task.metric,
        {name: tested.get(place, math.nan) for name, place in places.items()},
        {name: sign * one if one > -math.inf else math.nan for name, one in scores.items()},
        {name: last.best_round[row[place]] for name, place in places.items()},
        {
            kind: sum(o.spent.get(kind, {}).get(place, 0) for o in outcomes for place in inside)
            / len(inside)
            for kind in COSTS
        },
        {**about, "failures": failures},
        _curves(last, places, federation.task.metric) if with_curves else {},
    )


def _curves(
    outcome: Outcome, places: Mapping[str, Participant], metric: str
) -> dict[str, list[tuple[int, float]]]:
    """Return the validation metric after every evaluated round, without that of the start."""
    name_at = {place: name for name, place in places.items()}
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in places}
    for row in outcome.rows:
        name = name_at.get(row.participant)
        if name is not None and row.round and (row.split, row.metric) == ("validation", metric):
            found[name].append((row.round, round(row.value, 4)))
    return found


def group_of(cell: Cell, store: CellStore) -> CellGroup:
    """Return the group in which a cell was trained."""
    members = store.load(cell.digest)["about"]["pass"]
    return CellGroup(tuple(cell_from(store.load(digest)["settings"]) for digest in members))
