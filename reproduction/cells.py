"""Cells: the smallest parts of the tables, each one small JSON file named by its settings."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedegoists.errors import FileError
from fedegoists.files import read_text, write_bytes
from fedegoists.graphs.interchange import json_value
from reproduction.budgets import BudgetName
from reproduction.scenarios import Scene, Table
from reproduction.variants import Variant

__all__ = ["Cell", "Plan", "Result", "Store", "cells_of"]

FORMAT = 2
"""Raised whenever the same settings would give other numbers."""


@dataclass(frozen=True)
class Plan:
    """What a user can choose for a whole table.

    Attributes
    ----------
    trials : int, optional
        Seeds 0 and up; without it, as many as the table has.
    budget : str
        ``published`` or ``converged``; a table may have one of its own instead.
    steps : int, optional
        Other than the budget's, to try things out; never in a published table.
    choose : bool
        Whether learning rates are chosen on validation data, where a table has that.
    """

    trials: int | None = None
    budget: BudgetName = "converged"
    steps: int | None = None
    choose: bool = True

    def trials_of(self, table: Table) -> int:
        """Return how many trials of a table there are."""
        return self.trials or table.trials[table.budget or self.budget]


@dataclass(frozen=True)
class Cell:
    """One method in one trial of one scene, under one budget.

    Attributes
    ----------
    until : int, optional
        The round whose models are everybody's; without it, everybody's own validation data chooses.
    """

    scene: Scene
    trial: int
    variant: Variant
    budget: BudgetName
    steps: int | None = None
    factor: float = 1.0
    until: int | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that it is defined by; no round where none is given."""
        given = asdict(self)
        if self.until is None:
            del given["until"]
        return given

    @property
    def decides_rounds(self) -> bool:
        """Whether it is trained for all to decide about the round together."""
        chosen = self.scene.small and self.budget != "published" and self.until is None
        return chosen and not self.variant.tuned

    @cached_property
    def digest(self) -> str:
        """A name made of the settings."""
        text = json.dumps({"format": FORMAT, **self.settings}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """The trial's name in a federation: the same data with other rivals is another trial."""
        return (
            f"{self.trial}@{self.scene.competition}" if self.scene.competition else f"{self.trial}"
        )

    @property
    def base(self) -> "Cell":
        """The same without fine-tuning, which the fine-tuned one starts from."""
        return replace(self, variant=self.variant.base)

    def words(self) -> str:
        """Return the settings in one line."""
        options = " ".join(f"{key}={value}" for key, value in self.scene.options)
        rivals = f"competition {self.scene.competition}" if self.scene.competition else ""
        parts = (self.scene.data, options, rivals, f"trial {self.trial}", self.variant.name)
        return ", ".join(part for part in (*parts, self.budget) if part)


def cells_of(table: Table, plan: Plan) -> list[tuple[Mapping[str, Any], Cell]]:
    """Return a table's cells with the values of its key columns.

    What does not depend on who competes is the same cell for all competition. Rows along another
    trial's benefits are there to choose by, so there are none where nothing is chosen.
    """
    found = []
    budget = table.budget or plan.budget
    for key, scene in table.scenes:
        for variant in table.variants:
            if variant.benefit == "crossed" and budget == "published":
                continue
            alike = variant.depends_on_coalitions and variant.rivals
            own = scene if alike else replace(scene, competition="")
            found += [
                (
                    key,
                    Cell(own, trial, variant, budget, plan.steps),
                )
                for trial in range(plan.trials_of(table))
            ]
    return found


@dataclass(frozen=True)
class Result:
    """What came of a cell.

    Attributes
    ----------
    metric : str
        What `test` and `validation` are.
    test : mapping of str to float
        Every participant's test metric at the step that its validation data chose.
    validation : mapping of str to float
        The validation metric of that step.
    rounds : mapping of str to int
        Which round that was.
    spent : mapping of str to float
        Sample passes and bytes sent and received, in the mean of the participants.
    about : mapping
        Where it comes from: the cells stacked with it, command, commit, device, time, settings.
    curves : mapping of str to list of (round, value)
        Every participant's validation metric after all rounds evaluated, where all of them decide
        together about the round.
    """

    metric: str
    test: Mapping[str, float]
    validation: Mapping[str, float]
    rounds: Mapping[str, int]
    spent: Mapping[str, float]
    about: Mapping[str, Any]
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean of the participants' test metrics, as far as they are defined."""
        return _mean(self.test)

    @property
    def mean_validation(self) -> float:
        """The mean of the participants' validation metrics, as far as they are defined."""
        return _mean(self.validation)


def _mean(values: Mapping[str, float]) -> float:
    finite = [value for value in values.values() if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


class Store:
    """The cells that are done, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Result] = {}

    def path(self, cell: Cell | str) -> Path:
        """Return a cell's file."""
        digest = cell if isinstance(cell, str) else cell.digest
        return self.folder / "cells" / f"{digest}.json"

    def get(self, cell: Cell) -> Result | None:
        """Return what came of a cell, if it is done."""
        if cell.digest not in self._read:
            path = self.path(cell)
            if not path.exists():
                return None
            result = _result(self.load(cell.digest), path)
            if cell.decides_rounds and not result.curves:
                return None  # made when everybody's own validation data chose the round
            self._read[cell.digest] = result
        return self._read[cell.digest]

    def load(self, digest: str) -> dict[str, Any]:
        """Return the content of a cell's file."""
        path = self.path(digest)
        content = json_value(read_text(path), str(path))
        if not isinstance(content, dict):
            raise FileError(f"{path}: not a cell")
        return content

    def put(self, cell: Cell, result: Result) -> None:
        """Write a cell's file."""
        content = {"settings": cell.settings, **asdict(result)}
        if not result.curves:
            del content["curves"]
        text = json.dumps(content, sort_keys=True, allow_nan=True)
        write_bytes(self.path(cell), f"{text}\n".encode())
        self._read[cell.digest] = result

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that are not done, each once."""
        return [cell for cell in dict.fromkeys(cells) if self.get(cell) is None]


def cell_from(settings: Mapping[str, Any]) -> Cell:
    """Return the cell that a file's settings describe."""
    try:
        scene, variant = settings["scene"], settings["variant"]
        return Cell(
            Scene(scene["data"], _pairs(scene["options"]), scene["competition"]),
            settings["trial"],
            Variant(**{**variant, "settings": _pairs(variant["settings"])}),
            settings["budget"],
            settings["steps"],
            settings["factor"],
            settings.get("until"),
        )
    except (KeyError, TypeError) as error:
        raise FileError(f"not the settings of a cell ({error})") from None


def _pairs(given: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(tuple(pair) for pair in given)


def _result(content: Mapping[str, Any], path: Path) -> Result:
    try:
        names = [name for name in Result.__dataclass_fields__ if name != "curves"]
        return Result(**{name: content[name] for name in names}, curves=content.get("curves", {}))
    except KeyError as error:
        raise FileError(f"{path}: {error} is missing; remove it to run it again") from None
