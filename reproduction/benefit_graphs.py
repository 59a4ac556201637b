"""Who benefits whom in each trial, learned or measured once and kept; and the coalitions."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from fedegoists.benefit import (
    LearnSettings,
    MeasureSettings,
    learn_repetitions,
    measure_repetitions,
)
from fedegoists.coalitions import form
from fedegoists.coalitions.formation import Method as FormationMethod
from fedegoists.federation import SimulatedFederation
from fedegoists.files import read_text, write_bytes
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.learning.data import SiloedData
from fedegoists.learning.models import build_model
from fedegoists.methods.method_run import StoppedError
from fedegoists.training.defaults import defaults_for, learn_settings, model_options
from reproduction.cell_locks import held
from reproduction.cells import Cell
from reproduction.variants import Where

__all__ = ["Benefits", "coalitions_of", "learned_by"]

THRESHOLD, OF_HOSPITALS = 0.095, 0.085
"""An edge is where the preference is above this number, as the released code has it.

It is not known for synthetic data, which has that of images here."""
DENSER = 0.05
"""The threshold of a denser graph: half of what each of ten has if all are preferred alike."""

FORMATIONS: dict[Where, FormationMethod] = {
    "baseline": "cliques",
    "published": "published",
    "best": "best",
}


@dataclass
class Benefits:
    """The benefit graphs of all trials, in a folder; made where they are missing.

    Attributes
    ----------
    steps : int, optional
        Of learning, other than the defaults, to try things out.
    stop : function to bool
        Asked whether to stop while another process is at a graph.
    """

    folder: Path
    device: str = "cpu"
    steps: int | None = None
    stop: Callable[[], bool] = lambda: False

    def of(self, cells: Sequence[Cell], data: Mapping[int, SiloedData]) -> dict[Cell, BenefitGraph]:
        """Return the graph of every cell; those that must be learned are learned at once."""
        first = next(iter(data.values()))
        sources = {cell: learned_by(cell) for cell in cells}
        for kind in ("learned", "denser", "measured"):
            own = [cell for cell in sources.values() if cell.variant.benefit == kind]
            if self._missing(own, first):
                # Another process may be at it; what it has made is not made again.
                with held(self.folder, self._lock(own[0]), self.stop) as mine:
                    if not mine:
                        raise StoppedError(f"stopped before {kind} benefits were there")
                    some = self._missing(own, first)
                    if some:
                        self._make(some, data, measured=kind == "measured")
        return {cell: self._read(source, data[source.trial]) for cell, source in sources.items()}

    def _missing(self, cells: Sequence[Cell], data: SiloedData) -> list[Cell]:
        wanted: dict[str, Cell] = {}
        for cell in cells:
            if not self._path(cell, data).exists():
                wanted.setdefault(self._key(cell, data), self._essential(cell))
        return list(wanted.values())

    def _lock(self, cell: Cell) -> str:
        content = [asdict(replace(cell.scene, competition="")), cell.variant.benefit]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def known(self, cell: Cell, data: SiloedData) -> BenefitGraph | None:
        """Return the graph of a cell if it is there already."""
        return self._read(cell, data) if self._path(cell, data).exists() else None

    def _settings(self, data: SiloedData) -> LearnSettings:
        settings = learn_settings(data, "hypernetwork")
        if self.steps is not None:
            local = settings.local.changed(steps=self.steps, total_steps=self.steps)
            settings = settings.changed(local=local, steps=self.steps, preference_steps=self.steps)
        # With a threshold the spread over repeats plays no part.
        return settings.changed(repeats=1)

    def _measuring(self, data: SiloedData) -> MeasureSettings:
        settings = self._settings(data)
        train = settings.local
        return MeasureSettings(
            train=train, evaluations=min(8, train.steps), repeats=2, leave_one_out=False,
            split="validation",
        )  # fmt: skip

    def _essential(self, cell: Cell) -> Cell:
        """Return the cell without rivals: it makes no difference who they are."""
        return replace(cell, scene=replace(cell.scene, competition=""))

    def _key(self, cell: Cell, data: SiloedData) -> str:
        settings = self._settings(data)
        content = {
            "scene": asdict(self._essential(cell).scene),
            "trial": cell.trial,
            "kind": cell.variant.benefit,
            "learn": settings.model_dump(),
            "threshold": _threshold(cell, data),
        }
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _path(self, cell: Cell, data: SiloedData) -> Path:
        return self.folder / "graphs" / f"{self._key(cell, data)}.json"

    def _make(
        self, cells: Sequence[Cell], data: Mapping[int, SiloedData], *, measured: bool
    ) -> None:
        first = next(iter(data.values()))
        trials = {cell.label: data[cell.trial] for cell in cells}
        federation = SimulatedFederation(
            trials,
            build_model(defaults_for(first).model, 0, **model_options(first)),
            device=self.device,
            drawn_as={cell.label: cell.trial for cell in cells},
        )
        graphs: dict[str, BenefitGraph] = {}
        if measured:
            truths = measure_repetitions(federation, self._measuring(first))
            for label in trials:
                gains = np.where(truths[label].mean > 0, truths[label].mean, 0.0)
                np.fill_diagonal(gains, 0.0)
                graphs[label] = BenefitGraph(gains, trials[label].participants)
        else:
            estimates = learn_repetitions(federation, self._settings(first), secret="")
            graphs = {
                cell.label: estimates[cell.label].graph(_threshold(cell, first)) for cell in cells
            }
        for cell in cells:
            text = graphs[cell.label].to_json()
            write_bytes(self._path(cell, first), f"{text}\n".encode())

    def _read(self, cell: Cell, data: SiloedData) -> BenefitGraph:
        names = data.participants
        if cell.variant.benefit == "everybody":
            return BenefitGraph(np.ones((len(names), len(names))) - np.eye(len(names)), names)
        path = self._path(cell, data)
        return BenefitGraph.from_json(read_text(path), str(path))


def learned_by(cell: Cell) -> Cell:
    """Return the cell whose benefit graph a cell has: itself, or one of the next trial."""
    if cell.variant.benefit != "crossed":
        return cell
    return replace(cell, trial=cell.trial + 1, variant=cell.variant.chooser)


def _threshold(cell: Cell, data: SiloedData) -> float:
    if cell.variant.benefit == "denser":
        return DENSER
    return OF_HOSPITALS if data.name == "eicu-demo" else THRESHOLD


def coalitions_of(
    where: Where, benefit: BenefitGraph, competition: CompetitionGraph
) -> tuple[tuple[str, ...], ...]:
    """Return who trains with whom."""
    if where == "alone":
        return tuple((name,) for name in benefit.participants)
    return form(benefit, competition, FORMATIONS[where]).coalitions
