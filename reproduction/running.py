"""Training the cells of tables that are not finished yet, and retraining recorded ones."""

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fedegoists.errors import FileError, SettingsError
from fedegoists.learning.datasets.dataset_registry import DATASETS
from fedegoists.methods.method_registry import METHOD_ENTRIES
from fedegoists.methods.method_run import StoppedError
from fedegoists.version import __version__
from reproduction import COMMAND
from reproduction.batched_training import (
    CellGroup,
    GroupSettings,
    forget,
    group_of,
    grouped,
    train_group,
)
from reproduction.benefit_graphs import Benefits
from reproduction.cell_store import CellStore
from reproduction.cells import Cell, CellResult, Plan, cell_from
from reproduction.folder_locks import WAIT, at_work, claimed
from reproduction.rate_choice import at_chosen_rates, deciding_cells
from reproduction.reproduced_tables import ReproducedTable, sources

__all__ = ["GroupProgress", "Rerun", "left_of", "reproduce", "rerun"]

COMMIT_VARIABLE = "FEDEGOISTS_COMMIT"
"""Environment variable with the commit, for code that runs outside its repository."""


CORRECTED_METHODS = ("feddisco", "fedegoists", "fedora", "pfedgraph")
"""Methods of which cells of the first revision are not what they would be now."""
SIMPLIFIED_METHODS = ("egomix",)
"""The same, but only where samples have classes: means were weighted by label counts."""
LAST_COMMIT = "2f0b050f"
"""The last commit that trains rows with settings that methods have no longer."""


@dataclass(frozen=True)
class GroupProgress:
    """Functions called when a group begins and ends, and while waiting for other processes."""

    begins: Callable[[CellGroup, int, int], None] = lambda *_: None
    ends: Callable[[CellGroup, Mapping[Cell, CellResult]], None] = lambda *_: None
    waits: Callable[[], None] = lambda: None


def needed_by(tables: Sequence[ReproducedTable]) -> list[ReproducedTable]:
    """Return the tables whose cells are needed, each once.

    A part of Table 1 does not replace the whole one that a derived table needs.
    """
    found: list[ReproducedTable] = []
    for table in tables:
        found += [one for one in sources(table) if one not in found]
    return found


def wanted_cells(tables: Sequence[ReproducedTable], plan: Plan, store: CellStore) -> list[Cell]:
    """Return the cells of some tables at the learning rates chosen so far."""
    cells = (
        rated for table in needed_by(tables) for _, _, rated in at_chosen_rates(table, plan, store)
    )
    return list(dict.fromkeys(cell for cell in cells if cell is not None))


def done_of(table: ReproducedTable, plan: Plan, store: CellStore) -> tuple[int, int]:
    """Return the number of finished cells of a table, at their chosen rates, and of all."""
    cells: dict[Cell, bool] = {}
    for one in sources(table):
        for _, cell, rated in at_chosen_rates(one, plan, store):
            cells[cell] = rated is not None and store.get(rated) is not None
    return sum(cells.values()), len(cells)


def left_of(tables: Sequence[ReproducedTable], plan: Plan, store: CellStore) -> list[Cell]:
    """Return the cells to be trained for some tables, those that decide about rates first.

    Cells whose learning rate is not decided yet are not among them.
    """
    tried = deciding_cells(needed_by(tables), plan, store)
    return store.missing([*tried, *wanted_cells(tables, plan, store)])


def reproduce(
    tables: Sequence[ReproducedTable],
    plan: Plan,
    settings: GroupSettings,
    *,
    progress: GroupProgress | None = None,
) -> list[Cell]:
    """Train the missing cells of some tables until told to stop; return those that are left.

    Several processes may do so in the same folder. Each trains groups that no other process has
    claimed, of the first table that has any, and waits for the others when there are none left.
    """
    with at_work(settings.out):
        store = CellStore(settings.out)
        check_settings(left_of(tables, plan, store))
        benefits = Benefits(settings.out, settings.device, plan.steps, settings.stop)
        about = origin(settings.device)
        worker = _Worker(plan, settings, progress or GroupProgress(), store, benefits, about)
        with suppress(StoppedError):
            worker.train_all(needed_by(tables))
        return left_of(tables, plan, store)


def check_settings(cells: Sequence[Cell]) -> None:
    """Refuse to train rows with settings that their methods have no longer.

    Raises
    ------
    SettingsError
        With the commit that trains them.
    """
    for cell in cells:
        removed = METHOD_ENTRIES[cell.variant.method].load().removed
        gone = [name for name, _ in cell.variant.settings if name in removed]
        if gone:
            raise SettingsError(
                f"{cell.variant.name}: {cell.variant.method} has the setting {gone[0]!r} no longer;"
                f" commit {LAST_COMMIT} trains this row, or choose others with --methods"
            )


def has_changed(cell: Cell) -> bool:
    """Return whether the method of a recorded cell is another one now."""
    if cell.revision > 1:
        return False
    classless = DATASETS[cell.scenario.data].task == "regression"
    simplified = cell.variant.method in SIMPLIFIED_METHODS and not classless
    return simplified or cell.variant.method in CORRECTED_METHODS


@dataclass(frozen=True)
class _Worker:
    """A process that trains groups of cells beside others in the same folder."""

    plan: Plan
    settings: GroupSettings
    progress: GroupProgress
    store: CellStore
    benefits: Benefits
    about: Mapping[str, Any]

    def train_all(self, tables: Sequence[ReproducedTable]) -> None:
        """Train the missing cells of tables, the first table's first.

        Raises
        ------
        StoppedError
            If it is told to stop before the end.
        """
        while left_of(tables, self.plan, self.store):
            # A later table is for processes that find nothing to do in the earlier ones, where
            # others choose the rates of what is left.
            if not any(self.train_some(table) for table in tables):
                if not self.settings.wait:
                    return
                self._go_on()
                self.progress.waits()
                time.sleep(WAIT)

    def _go_on(self) -> None:
        """Stop if told to."""
        if self.settings.stop():
            raise StoppedError("stopped between groups of cells")

    def train_some(self, table: ReproducedTable) -> bool:
        """Train the groups of a table that nobody has claimed; return whether there were any."""
        # Finished cells decide about learning rates, and these about which cells are wanted.
        left = left_of([table], self.plan, self.store)
        work, found = grouped(left, self.settings.stack), False
        for number, one in enumerate(work):
            self._go_on()
            with claimed(self.settings.out, one.kind) as mine:
                missing = self.store.missing(one.cells) if mine else []
                found = found or mine
                if missing:
                    self._train(CellGroup(tuple(missing)), number, len(work))
        return found

    def _train(self, group: CellGroup, number: int, total: int) -> None:
        """Train a group and keep its cells."""
        self.progress.begins(group, number, total)
        results = train_group(group, self.settings, self.benefits, self.about)
        for cell, result in results.items():
            self.store.put(cell, with_command(cell, result, self.settings))
        forget(group, self.settings.out)
        self.progress.ends(group, results)


def with_command(cell: Cell, result: CellResult, settings: GroupSettings) -> CellResult:
    """Add the command that trains the cell again."""
    command = f"{COMMAND} --cell {cell.digest} --out DIR --device {settings.device}"
    if settings.bf16:
        command += " --bf16"
    return replace(result, about={**result.about, "command": command})


@dataclass(frozen=True)
class Rerun:
    """A cell's recorded and new test metrics."""

    cell: Cell
    recorded: Mapping[str, float]
    again: Mapping[str, float]

    @property
    def largest_difference(self) -> float:
        """The largest difference between the two numbers of a participant."""
        return max(
            0.0
            if self.recorded[name] == value or value != value
            else abs(self.recorded[name] - value)
            for name, value in self.again.items()
        )


def rerun(digest: str, settings: GroupSettings) -> Rerun:
    """Train the group of a recorded cell again, with the recorded benefit graph, and compare."""
    store = CellStore(settings.out)
    if not re.fullmatch("[0-9a-f]{16}", digest) or digest not in store:
        raise FileError(f"{settings.out} has no such cell: {digest}")
    cell = cell_from(store.load(digest)["settings"])
    if has_changed(cell):
        found = store.load(digest)["about"].get("commit")
        raise FileError(
            f"{cell.variant.method} has changed since this cell was trained; commit {found} "
            "trains it again"
        )
    recorded = store.get(cell)
    assert recorded is not None
    benefits = Benefits(settings.out, settings.device, cell.steps)
    with TemporaryDirectory() as folder:
        elsewhere = replace(settings, out=Path(folder))
        results = train_group(group_of(cell, store), elsewhere, benefits, {})
    return Rerun(cell, recorded.test, results[cell].test)


def origin(device: str) -> dict[str, Any]:
    """Return the origin of results: commit, device, versions."""
    if device.startswith("cuda") and torch.cuda.is_available():
        name = torch.cuda.get_device_name(torch.device(device))
    else:
        name = f"CPU ({platform.machine()})"
    return {
        "fedegoists": __version__,
        "commit": commit(),
        "device": name,
        "torch": torch.__version__,
        "finished": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def commit() -> str | None:
    """Return the commit of this code; None if it is not known."""
    given = os.environ.get(COMMIT_VARIABLE)
    if given:
        return given
    here = Path(__file__).parent
    try:
        found = subprocess.run(  # noqa: S603 - nothing of it comes from outside
            ["git", "-C", str(here), "rev-parse", "--short", "HEAD"],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
