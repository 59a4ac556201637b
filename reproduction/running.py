"""Working through the cells of tables: what is done is kept, what is not is trained in passes."""

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fedegoists.errors import FileError
from fedegoists.methods.method_run import StoppedError
from fedegoists.version import __version__
from reproduction.batched_training import (
    Pass,
    Settings,
    again,
    forget,
    passes,
    train_pass,
)
from reproduction.benefit_graphs import Benefits
from reproduction.cell_locks import WAIT, claimed
from reproduction.cells import Cell, Plan, Result, Store, cell_from
from reproduction.rate_choice import at_chosen_rates, trial_cells
from reproduction.scenarios import TABLES, Table

__all__ = ["Progress", "Rerun", "left_of", "reproduce", "rerun"]

COMMIT_VARIABLE = "FEDEGOISTS_COMMIT"
"""Names the commit where the code runs outside its repository."""


@dataclass(frozen=True)
class Progress:
    """Called when a pass begins, when it has ended, and while others are at all that is left."""

    begins: Callable[[Pass, int, int], None] = lambda *_: None
    ends: Callable[[Pass, Mapping[Cell, Result]], None] = lambda *_: None
    waits: Callable[[], None] = lambda: None


def sources(tables: Sequence[Table]) -> list[Table]:
    """Return the tables whose cells are needed; a derived one needs those that it is made of."""
    found: dict[str, Table] = {}
    for table in tables:
        if table.derived:
            found |= {name: TABLES[name] for name in ("table1", "table2")}
        else:
            found[table.name] = table
    return list(found.values())


def wanted_cells(tables: Sequence[Table], plan: Plan, store: Store) -> list[Cell]:
    """Return the cells of some tables at the learning rates chosen so far."""
    cells = (
        rated for table in sources(tables) for _, _, rated in at_chosen_rates(table, plan, store)
    )
    return list(dict.fromkeys(cell for cell in cells if cell is not None))


def done_of(table: Table, plan: Plan, store: Store) -> tuple[int, int]:
    """Return how many cells of a table are done, at the rates chosen for them, and of how many."""
    cells: dict[Cell, bool] = {}
    for one in sources([table]):
        for _, cell, rated in at_chosen_rates(one, plan, store):
            cells[cell] = rated is not None and store.get(rated) is not None
    return sum(cells.values()), len(cells)


def left_of(tables: Sequence[Table], plan: Plan, store: Store) -> list[Cell]:
    """Return the cells to be trained for some tables, those to choose by first.

    Those whose learning rate is not decided yet are not among them.
    """
    tried = trial_cells(sources(tables), plan, store)
    return store.missing([*tried, *wanted_cells(tables, plan, store)])


def reproduce(
    tables: Sequence[Table], plan: Plan, settings: Settings, *, progress: Progress | None = None
) -> list[Cell]:
    """Train what is missing of some tables, as far as one may; return what is left.

    Several processes may do so in the same folder: each trains what no other one is at, and waits
    for the others where there is nothing else to do.
    """
    progress = progress or Progress()
    store = Store(settings.out)
    about = origin(settings.device)
    benefits = Benefits(settings.out, settings.device, plan.steps, settings.stop)
    # What was tried decides about what is wanted, and may call for further trials.
    while (left := left_of(tables, plan, store)) and not settings.stop():
        work, busy = passes(left, settings.stack), True
        for number, one in enumerate(work):
            if settings.stop():
                break
            with claimed(settings.out, one.kind) as mine:
                missing = store.missing(one.cells) if mine else []
                busy = busy and not mine
                if not missing:
                    continue
                own = Pass(tuple(missing))
                progress.begins(own, number, len(work))
                try:
                    results = train_pass(own, settings, benefits, about)
                except StoppedError:
                    return left_of(tables, plan, store)
                for cell, result in results.items():
                    store.put(cell, with_command(cell, result, settings))
                forget(own, settings.out)
                progress.ends(own, results)
        if busy and not settings.stop():
            progress.waits()
            time.sleep(WAIT)
    return left_of(tables, plan, store)


def with_command(cell: Cell, result: Result, settings: Settings) -> Result:
    """Add the command that trains the cell again."""
    command = f"fedegoists reproduce --cell {cell.digest} --out DIR --device {settings.device}"
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
        """Between any participant's two numbers; zero if they are the same."""
        return max(
            0.0
            if self.recorded[name] == value or value != value
            else abs(self.recorded[name] - value)
            for name, value in self.again.items()
        )


def rerun(digest: str, settings: Settings) -> Rerun:
    """Train the pass of a recorded cell once more, with the recorded benefit graph, and compare."""
    store = Store(settings.out)
    if not re.fullmatch("[0-9a-f]{16}", digest) or not store.path(digest).exists():
        raise FileError(f"{settings.out} has no such cell: {digest}")
    cell = cell_from(store.load(digest)["settings"])
    recorded = store.get(cell)
    assert recorded is not None
    benefits = Benefits(settings.out, settings.device, cell.steps)
    with TemporaryDirectory() as folder:
        elsewhere = replace(settings, out=Path(folder))
        results = train_pass(again(cell, store), elsewhere, benefits, {})
    return Rerun(cell, recorded.test, results[cell].test)


def origin(device: str) -> dict[str, Any]:
    """Return where results come from: commit, device, versions."""
    if device.startswith("cuda") and torch.cuda.is_available():
        name = torch.cuda.get_device_name(torch.device(device))
    else:
        name = f"CPU ({platform.machine()})"
    return {
        "fedegoists": __version__,
        "commit": _commit(),
        "device": name,
        "torch": torch.__version__,
        "finished": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _commit() -> str | None:
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
