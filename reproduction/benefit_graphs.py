"""The benefit graph of each repetition, learned or measured once and kept; and the coalitions."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedegoists.benefit import LearnSettings, learn_repetitions
from fedegoists.coalitions import FormationMethod, form
from fedegoists.federation import SimulatedFederation
from fedegoists.files import json_value, read_text, write_all, write_bytes
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.learning.data import SiloedData
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.models import build_model
from fedegoists.methods.method_run import StoppedError
from fedegoists.training.defaults import defaults_for, learn_settings
from fedegoists.training.learning_in_cliques import (
    EdgeThreshold,
    LearnAmong,
    learn_in_cliques,
    learning_among,
)
from reproduction.cells import Cell
from reproduction.folder_locks import WAIT, alone, claimed, held
from reproduction.measured_pairs import MeasureSettings, measure_repetitions
from reproduction.packed_lines import ENDING, Record, packed, read_packed
from reproduction.scenarios import Scenario, competition_of
from reproduction.variants import Where

__all__ = ["Benefits", "coalitions_of", "learned_by", "pack_graphs"]

THRESHOLD, HOSPITAL_THRESHOLD = 0.095, 0.085
"""Preferences above this number are edges, as in the released code.

The released code has no number for synthetic data, which has that of images here."""
RELATIVE = 0.95
"""The threshold in multiples of an equal preference: that of images, at ten participants."""
DENSER = 0.05
"""The threshold of a denser graph: half of the preference of ten participants preferred alike."""
LEARNED_WITH = (
    *("estimator", "steps", "batch_size", "rate", "concentration", "scale", "hidden", "layers"),
    *("preference_steps", "preference_rate", "prior", "softness", "repeats", "bound", "noise"),
    *("clip", "start", "seed"),
)
TRAINED_WITH = (
    *("steps", "batch_size", "learning_rate", "momentum", "weight_decay", "total_steps"),
    "augment",
)
"""The settings of learning, and of training for it, on which the name of a graph depends. Recorded
graphs have names made with these, so further settings must not be added."""

GRAPHS = "graphs"
"""Name of the file of packed graphs."""
FORMATIONS: dict[Where, FormationMethod] = {
    "baseline": "cliques",
    "published": "published",
    "best": "best",
}


@dataclass
class Benefits:
    """The benefit graphs of all repetitions in a folder; missing ones are made.

    Attributes
    ----------
    steps : int, optional
        Steps of learning other than the defaults, to try things out.
    stop : function to bool
        Called while another process makes a graph; waiting ends when it returns true.
    """

    folder: Path
    device: str = "cpu"
    steps: int | None = None
    stop: Callable[[], bool] = lambda: False

    @cached_property
    def _packed(self) -> dict[str, Record]:
        return {record["graph"]: record for record in _packed_graphs(self.folder)}

    def of(self, cells: Sequence[Cell], data: Mapping[int, SiloedData]) -> dict[Cell, BenefitGraph]:
        """Return the benefit graph of every cell; missing graphs are learned at once."""
        first = next(iter(data.values()))
        sources = {cell: learned_by(cell) for cell in cells}
        self._share_in_cliques([cell for cell in sources.values() if _in_cliques(cell)], data)
        for kind in ("learned", "denser", "measured"):
            own = [
                cell
                for cell in sources.values()
                if cell.variant.benefit == kind and not _in_cliques(cell)
            ]
            if self._missing(own, first):
                # Another process may be making the same graphs; these are not made twice.
                with held(self.folder, self._lock(own[0]), self.stop) as mine:
                    if not mine:
                        raise StoppedError(f"stopped before {kind} benefits were there")
                    some = self._missing(own, first)
                    if some:
                        self._make(some, data, measured=kind == "measured")
        return {
            cell: self._read(source, data[source.repetition]) for cell, source in sources.items()
        }

    def _missing(self, cells: Sequence[Cell], data: SiloedData) -> list[Cell]:
        wanted: dict[str, Cell] = {}
        for cell in cells:
            if not self._has(cell, data):
                wanted.setdefault(self._key(cell, data), self._essential(cell))
        return list(wanted.values())

    def _share_in_cliques(self, cells: Sequence[Cell], data: Mapping[int, SiloedData]) -> None:
        """Learn missing graphs inside cliques; several processes take a repetition each."""
        first = next(iter(data.values()))
        while missing := self._missing(cells, first):
            busy = True
            for repetition in dict.fromkeys(cell.repetition for cell in missing):
                own = [cell for cell in missing if cell.repetition == repetition]
                with claimed(self.folder, self._lock(own[0])) as mine:
                    if mine:
                        busy = False
                        self._learn_in_cliques(self._missing(own, first), data)
            if busy:
                if self.stop():
                    raise StoppedError("stopped before learned benefits were there")
                time.sleep(WAIT)

    def _lock(self, cell: Cell) -> str:
        content: list[Any] = [_recorded(cell.scenario), cell.variant.benefit]
        content += [cell.repetition] if _in_cliques(cell) else []
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def known(self, cell: Cell, data: SiloedData) -> BenefitGraph | None:
        """Return the graph of a cell, if it is there already."""
        return self._read(cell, data) if self._has(cell, data) else None

    def _has(self, cell: Cell, data: SiloedData) -> bool:
        return self._key(cell, data) in self._packed or self._path(cell, data).exists()

    def _settings(self, data: SiloedData) -> LearnSettings:
        settings = learn_settings(data, "hypernetwork")
        if self.steps is not None:
            local = settings.local.changed(steps=self.steps, total_steps=self.steps)
            settings = settings.changed(local=local, steps=self.steps, preference_steps=self.steps)
        # With a threshold the spread over repeats does not matter.
        return settings.changed(repeats=1)

    def _measuring(self, data: SiloedData) -> MeasureSettings:
        settings = self._settings(data)
        train = settings.local
        return MeasureSettings(
            train=train, evaluations=min(8, train.steps), repeats=2, leave_one_out=False,
            split="validation",
        )  # fmt: skip

    def _essential(self, cell: Cell) -> Cell:
        """Return the cell without competition, on which benefit usually does not depend."""
        if _in_cliques(cell):
            return cell
        return replace(cell, scenario=replace(cell.scenario, competition=""))

    def _key(self, cell: Cell, data: SiloedData) -> str:
        settings = self._settings(data)
        learned = {name: getattr(settings, name) for name in LEARNED_WITH}
        local = {name: getattr(settings.local, name) for name in TRAINED_WITH}
        content = {
            "scene": _recorded(cell.scenario),
            "trial": cell.repetition,
            "kind": cell.variant.benefit,
            "learn": {**learned, "local": local},
            "threshold": _threshold(cell, data),
        }
        if _in_cliques(cell):
            content |= {"revision": cell.revision, "competition": cell.scenario.competition}
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _path(self, cell: Cell, data: SiloedData) -> Path:
        return self.folder / "graphs" / f"{self._key(cell, data)}.json"

    def _make(
        self, cells: Sequence[Cell], data: Mapping[int, SiloedData], *, measured: bool
    ) -> None:
        first = next(iter(data.values()))
        repetitions = {cell.label: data[cell.repetition] for cell in cells}
        federation = SimulatedFederation(
            repetitions,
            build_model(defaults_for(first).model, 0, **model_options(first)),
            device=self.device,
            drawn_as={cell.label: cell.repetition for cell in cells},
        )
        graphs: dict[str, BenefitGraph] = {}
        if measured:
            truths = measure_repetitions(federation, self._measuring(first))
            for label in repetitions:
                gains = np.where(truths[label].mean > 0, truths[label].mean, 0.0)
                np.fill_diagonal(gains, 0.0)
                graphs[label] = BenefitGraph(gains, repetitions[label].participants)
        else:
            estimates = learn_repetitions(federation, self._settings(first), secret="")
            graphs = {
                cell.label: estimates[cell.label].graph(_threshold(cell, first)) for cell in cells
            }
        for cell in cells:
            record: Record = {
                "graph": self._key(cell, first),
                "data": cell.scenario.data,
                "options": dict(cell.scenario.options),
                "repetition": cell.repetition,
                "kind": cell.variant.benefit,
                "threshold": None if measured else _threshold(cell, first),
                **graphs[cell.label].to_dict(),
            }
            write_bytes(self._path(cell, first), f"{json.dumps(record)}\n".encode())

    def _learn_in_cliques(self, cells: Sequence[Cell], data: Mapping[int, SiloedData]) -> None:
        """Learn graphs as the released code does, again inside each clique and its remainder."""
        known: dict[tuple[Any, ...], LearnAmong] = {}
        for cell in cells:
            own = data[cell.repetition]
            place = (cell.scenario.data, cell.scenario.options, cell.repetition)
            if place not in known:
                federation = SimulatedFederation(
                    own,
                    build_model(defaults_for(own).model, 0, **model_options(own)),
                    device=self.device,
                )
                known[place] = learning_among(federation, self._settings(own))
            relative = cell.variant.benefit == "relative"
            threshold = EdgeThreshold(_threshold(cell, own), relative=relative)
            rivals = competition_of(cell.scenario, cell.repetition, own)
            graph = learn_in_cliques(known[place], rivals, threshold)
            record: Record = {
                "graph": self._key(cell, own),
                "data": cell.scenario.data,
                "options": dict(cell.scenario.options),
                "competition": cell.scenario.competition,
                "repetition": cell.repetition,
                "kind": cell.variant.benefit,
                "threshold": threshold.epsilon,
                "revision": cell.revision,
                **graph.to_dict(),
            }
            write_bytes(self._path(cell, own), f"{json.dumps(record)}\n".encode())
            if self.stop():
                raise StoppedError("stopped before learned benefits were there")

    def _read(self, cell: Cell, data: SiloedData) -> BenefitGraph:
        names = data.participants
        if cell.variant.benefit == "everybody":
            return BenefitGraph(np.ones((len(names), len(names))) - np.eye(len(names)), names)
        path = self._path(cell, data)
        packed_ = None if path.exists() else self._packed.get(self._key(cell, data))
        record = packed_ or _object_in(path)
        return BenefitGraph.from_dict(
            {key: record[key] for key in ("participants", "edges") if key in record}, str(path)
        )


def _in_cliques(cell: Cell) -> bool:
    """Return whether the benefits of a cell are learned again inside cliques."""
    return cell.revision > 1 and cell.variant.benefit in ("learned", "relative")


def _object_in(path: Path) -> dict[str, Any]:
    found: Any = json_value(read_text(path), str(path))
    return dict(found)


def learned_by(cell: Cell) -> Cell:
    """Return the cell whose benefit graph a cell uses: itself, or one of the next repetition."""
    if cell.variant.benefit != "crossed":
        return cell
    return replace(cell, repetition=cell.repetition + 1, variant=cell.variant.chooser)


def _recorded(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario without competition under its recorded names, on which digests depend."""
    return {"data": scenario.data, "options": scenario.options, "competition": ""}


def _threshold(cell: Cell, data: SiloedData) -> float:
    if cell.variant.benefit == "denser":
        return DENSER
    if cell.variant.benefit == "relative":
        return RELATIVE
    return HOSPITAL_THRESHOLD if data.name == "eicu-demo" else THRESHOLD


def coalitions_of(
    where: Where, benefit: BenefitGraph, competition: CompetitionGraph
) -> tuple[tuple[str, ...], ...]:
    """Return the coalitions in which a method trains."""
    if where == "alone":
        return tuple((name,) for name in benefit.participants)
    return form(benefit, competition, FORMATIONS[where]).coalitions


def pack_graphs(folder: Path) -> list[Path]:
    """Move all benefit graphs of a folder into one packed file; return this file, if any."""
    with alone(folder):
        small = sorted((folder / "graphs").glob("*.json"))
        records = {record["graph"]: record for record in _packed_graphs(folder)}
        for path in small:
            records[path.stem] = {"graph": path.stem, **_object_in(path)}
        if not records:
            return []
        ordered = sorted(
            records.values(),
            key=lambda one: (
                *(str(one.get(column)) for column in ("data", "options", "kind")),
                one.get("repetition", 0),
                one["graph"],
            ),
        )
        target = folder / "graphs" / f"{GRAPHS}{ENDING}"
        write_all([(target, packed(ordered))])
        for path in small:
            path.unlink()
    return [target]


def _packed_graphs(folder: Path) -> list[Record]:
    path = folder / "graphs" / f"{GRAPHS}{ENDING}"
    return read_packed(path) if path.exists() else []
