"""Passes: cells that share data, method and budget, trained at once."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedegoists.federation import Federation, Participant, SimulatedFederation
from fedegoists.learning.data import SiloedData
from fedegoists.learning.models import build_model
from fedegoists.methods.method_run import (
    Callbacks,
    Observer,
    Outcome,
    RunSettings,
    StoppedError,
    fine_tune,
    keep_outcome,
    run,
)
from fedegoists.training.defaults import Defaults, model_options
from fedegoists.training.repetitions import Repetitions, Wanted, load_trainable, method_of
from fedegoists.training.summary import COSTS, chosen_test_values
from reproduction.benefit_graphs import Benefits, learned_by
from reproduction.budgets import budget
from reproduction.cells import Cell, Result, Store, cell_from
from reproduction.shared_coalitions import Shared, shared_by

__all__ = ["Pass", "Settings", "again", "forget", "passes", "train_pass"]

HEAVY = ("fedegoists",)
"""Methods with a network for each participant, a hundred times as large as its model."""


SAVE_EVERY = 60.0
"""Seconds between checkpoints of a pass: most passes are done before."""


@dataclass(frozen=True)
class Settings:
    """Where and how passes run; nothing of it changes what is computed, up to rounding.

    Attributes
    ----------
    stack : int
        Silos at once, at most; a fifth of them for methods that need much memory.
    stop : function to bool
        Asked between rounds whether to stop.
    """

    out: Path
    data_dir: Path | None = None
    device: str = "cpu"
    stack: int = 250
    bf16: bool = False
    stop: Callable[[], bool] = field(default=lambda: False)
    observers: tuple[Observer, ...] = ()


@dataclass(frozen=True)
class Pass:
    """Cells that are trained at once: the same but for trial, competition and fine-tuning.

    A coalition that several levels of competition lead to is trained once.
    """

    cells: tuple[Cell, ...]

    @property
    def bases(self) -> tuple[Cell, ...]:
        """The cells without fine-tuning, each trial and competition once."""
        return tuple(dict.fromkeys(cell.base for cell in self.cells))

    @property
    def tuned(self) -> bool:
        """Whether any cell is fine-tuned."""
        return any(cell.variant.tuned for cell in self.cells)

    @property
    def kind(self) -> str:
        """A name made of what all cells have in common."""
        return _alike(self.cells[0]).digest

    @property
    def digest(self) -> str:
        """A name made of all cells' settings."""
        text = " ".join(sorted(cell.digest for cell in self.cells))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def words(self) -> str:
        """Return what is trained in one line."""
        first = self.bases[0]
        scene = " ".join([first.scene.data, *(str(value) for _, value in first.scene.options)])
        trials = {cell.trial for cell in self.bases}
        rivals = {cell.scene.competition for cell in self.bases if cell.scene.competition}
        number = f"{len(trials)} trial{'s' if len(trials) > 1 else ''}"
        levels = f" × {len(rivals)} levels of competition" if len(rivals) > 1 else ""
        return f"{scene}, {first.variant.name}, {first.budget}: {number}{levels}"


def passes(cells: Sequence[Cell], stack: int, silos: int = 10) -> list[Pass]:
    """Return the passes that train some cells, in their order.

    Cells are taken to have no coalition in common, which would need their benefit graphs: there may
    be fewer silos in a pass than `stack`, never more.
    """
    groups: dict[Cell, dict[Cell, list[Cell]]] = {}
    for cell in cells:
        groups.setdefault(_alike(cell), {}).setdefault(cell.base, []).append(cell)
    found = []
    for alike, by_base in groups.items():
        most = stack // 5 if alike.variant.method in HEAVY else stack
        each = max(1, most // silos)
        bases = sorted(by_base, key=lambda cell: (cell.trial, cell.scene.competition))
        for start in range(0, len(bases), each):
            some = bases[start : start + each]
            found.append(Pass(tuple(cell for base in some for cell in by_base[base])))
    return found


def _alike(cell: Cell) -> Cell:
    return replace(cell.base, trial=0, scene=replace(cell.scene, competition=""))


def train_pass(
    work: Pass, settings: Settings, benefits: Benefits, about: Mapping[str, Any]
) -> dict[Cell, Result]:
    """Train a pass, or go on with it where its checkpoint is, and return the cells' results.

    Raises
    ------
    fedegoists.methods.method_run.StoppedError
        If it was asked to stop; what is done is in the checkpoint.
    """
    began = time.perf_counter()
    data = {
        trial: load_trainable(
            work.bases[0].scene.data,
            data_dir=settings.data_dir,
            seed=trial,
            **dict(work.bases[0].scene.options),
        )
        for trial in sorted({one.trial for cell in work.bases for one in (cell, learned_by(cell))})
    }
    first, variant = work.bases[0], work.bases[0].variant
    defaults = budget(
        first.budget,
        data[first.trial],
        first.scene.partition,
        steps=first.steps,
        factor=first.factor,
        passes=variant.passes,
    )
    shared = shared_by(work.bases, data, benefits)
    trials, decisions = _trials(shared, data, defaults, settings), shared.decisions
    wanted = Wanted((variant.method,), {variant.method: dict(variant.settings)})
    method = method_of(variant.method, wanted, trials, decisions)
    folder = settings.out / "checkpoint" / work.digest
    running = RunSettings(
        rounds=first.until or defaults.rounds,
        seed=0,
        evaluate_every=first.until or defaults.evaluate_every,
    )
    callbacks = Callbacks(
        folder / "trained.safetensors", SAVE_EVERY, settings.observers, settings.stop
    )
    given = (method, trials.federation, decisions.final, trials.initial, running)
    outcome = run(*given, callbacks)
    outcomes = {False: outcome}
    if work.tuned:
        try:
            outcomes[True] = fine_tune(
                method,
                trials.federation,
                outcome,
                defaults.tune,
                defaults.tune_rounds,
                replace(callbacks, checkpoint=folder / "tuned.safetensors"),
            )
        except StoppedError:
            # Tuning goes on only from the very models that it began with.
            keep_outcome(folder / "trained.safetensors", outcome, *given)
            raise
    seconds = time.perf_counter() - began
    done = sum(sum(o.spent.get("sample_passes", {}).values()) for o in outcomes.values())
    common_about = {
        **about,
        "pass": [cell.digest for cell in work.cells],
        "pass_silos": len(trials.federation.participants),
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
    tested = {tuned: chosen_test_values(one, trials.federation) for tuned, one in outcomes.items()}
    return {
        cell: _result(
            [outcomes[tuned] for tuned in dict.fromkeys((False, cell.variant.tuned))],
            tested[cell.variant.tuned],
            shared.places[cell.base],
            trials.federation,
            {**common_about, "coalitions": shared.coalitions[cell.base]},
            with_curves=cell.decides_rounds,
        )
        for cell in work.cells
    }


def forget(work: Pass, out: Path) -> None:
    """Remove the checkpoints of a pass."""
    folder = out / "checkpoint" / work.digest
    for path in folder.glob("*.safetensors"):
        path.unlink()
    if folder.is_dir():
        folder.rmdir()


def _trials(
    shared: Shared, data: Mapping[int, SiloedData], defaults: Defaults, settings: Settings
) -> Repetitions:
    options = model_options(next(iter(data.values())))
    federation = SimulatedFederation(
        {label: data[trial].restricted_to(names) for label, (trial, names) in shared.silos.items()},
        build_model(defaults.model, 0, **options),
        device=settings.device,
        bf16=settings.bf16,
        drawn_as={label: trial for label, (trial, _) in shared.silos.items()},
    )
    rows: list[Tensor] = []
    for trial, names in shared.silos.values():
        model = build_model(defaults.model, trial, **options)
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
) -> Result:
    """Put a cell's result together from where its silos are; the last outcome is the one tested."""
    last, row = outcomes[-1], {name: k for k, name in enumerate(federation.participants)}
    sign = 1.0 if federation.task.higher_is_better else -1.0
    scores = {name: last.best_score[row[place]][0] for name, place in places.items()}
    inside = set(places.values())
    failures = sum(f.participant in inside for outcome in outcomes for _, f in outcome.failures)
    return Result(
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
    """Return the validation metric after every round evaluated, but for the start."""
    name_at = {place: name for name, place in places.items()}
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in places}
    for row in outcome.rows:
        name = name_at.get(row.participant)
        if name is not None and row.round and (row.split, row.metric) == ("validation", metric):
            found[name].append((row.round, round(row.value, 4)))
    return found


def again(cell: Cell, store: Store) -> Pass:
    """Return the pass in which a cell was trained, to train it once more."""
    members = store.load(cell.digest)["about"]["pass"]
    return Pass(tuple(cell_from(store.load(digest)["settings"]) for digest in members))
