"""The personal parameters of a silo on its own disk, tied to the checkpoints of the run.

After an interruption a run rolls back to its last checkpoint, and the silos' personal parameters
must roll back with it. A silo may be away at the rollback, or when the checkpoint is made. So every
call that uses a method's slots carries the method's `Lineage`, and the silo first catches up.

The files are sealed with a key of the silo. A file that is damaged, cut off, another silo's, of
another method or checkpoint, or older than it must be is moved aside and never used.
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare.messages import Lineage, SiloRequest
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import owner_of
from fedegoists.federation.seam import MemoryKey
from fedegoists.federation.simulated_federation import SimulatedFederation
from fedegoists.learning.tensor_files import TEXT_KEY, tensors_and_text
from fedegoists.sealed_files import SealedFolder, SealError

CHECKPOINTS = 3
"""Checkpoints of a method to which a silo can roll back."""

MOST_OWNERS = 50
"""Methods with slots at a silo; the least recently used ones are given up."""

MOST_SLOTS = 8
"""Slots of one method in one repetition; no method of this package needs more than two."""


@dataclass(frozen=True)
class _Position:
    """The last checkpoint and the last rollback that a silo has followed."""

    checkpoint: int = 0
    at: int = 0


class SiloCheckpoints:
    """The slots of a silo as files that only their owner can read.

    Parameters
    ----------
    folder : Path
        The folder of the files.
    sealed : SealedFolder
        The same folder, with the silo's seal.
    log : logging.Logger
        The silo's own log.
    """

    def __init__(self, folder: Path, sealed: SealedFolder, log: logging.Logger) -> None:
        self._folder, self._sealed, self._log = folder, sealed, log
        self._positions: dict[str, _Position] = {}

    def load(self, federation: SimulatedFederation) -> None:
        """Restore the last content of all slots in a new federation."""
        self._positions.clear()
        for file in sorted(self._folder.glob("memory-*-now.safetensors")):
            owner = file.name.removeprefix("memory-").removesuffix("-now.safetensors")
            position = self._restore(federation, owner, file)
            if position is not None:
                self._positions[owner] = position

    def check(
        self, federation: SimulatedFederation, requests: Mapping[Participant, SiloRequest]
    ) -> None:
        """Refuse to keep more slots for a method than any method needs."""
        for name, request in requests.items():
            for slot in request.slots[:1]:
                known = {
                    key.slot for key in federation.memory(owner_of(slot)) if key.participant == name
                }
                if len(known | {slot}) > MOST_SLOTS:
                    raise SettingsError(f"more than {MOST_SLOTS} slots of {owner_of(slot)[:50]}")

    def follow(self, federation: SimulatedFederation, owner: str, lineage: Lineage) -> bool:
        """Catch up with the run; return whether everything needed for it was still here.

        Slots that cannot be restored are emptied: the silo's layers start from scratch.
        """
        before = now = self._positions.get(owner, _Position())
        times = [one.at for one in lineage.rollbacks]
        followed = before.at in times or not times
        missed = lineage.rollbacks[times.index(before.at) + 1 if before.at in times else 0 :]
        complete = True
        for one in missed:
            if one.to == 0:
                federation.restore(owner, {})
                complete = True
            elif self._go_back(federation, owner, one.to):
                complete = True
            elif not followed or now.checkpoint >= one.to:
                # Otherwise it has been away since before that checkpoint, and is unchanged.
                self._log.warning(
                    "%s: nothing was kept at that checkpoint; starts from scratch", owner
                )
                federation.restore(owner, {})
                complete = False
            now = _Position(one.to, one.at)
        if not followed and lineage.checkpoint != now.checkpoint:
            # Another run used these slots in between: the changes of this run since its last
            # rollback are at its last checkpoint, or lost.
            complete = self._go_back(federation, owner, lineage.checkpoint)
            told = "goes back to" if complete else "and nothing was kept at"
            self._log.warning("%s: not as this run left it; %s its last checkpoint", owner, told)
        now = _Position(lineage.checkpoint, now.at)
        self._positions[owner] = now
        # Only now: later the layers will have changed.
        copied = not lineage.checkpoint or self._file(owner, str(lineage.checkpoint)).exists()
        if complete and now != before and not copied:
            self._write(federation, owner, str(lineage.checkpoint))
            self._forget_oldest(owner, lineage)
        if now != before:
            self.save(federation, owner)
        return complete

    def _go_back(self, federation: SimulatedFederation, owner: str, checkpoint: int) -> bool:
        """Roll back to a checkpoint if it was kept here; return whether it was."""
        file = self._file(owner, str(checkpoint))
        if not file.exists() or self._restore(federation, owner, file) is None:
            return False
        os.utime(file)  # it was used just now, and is not the oldest any more
        return True

    def save(self, federation: SimulatedFederation, owner: str) -> None:
        """Write the present content of a method's slots."""
        new = not self._file(owner, "now").exists()
        self._write(federation, owner, "now")
        if new:
            self._forget_owners(federation)

    def _forget_oldest(self, owner: str, lineage: Lineage) -> None:
        """Remove all but the most recently used checkpoints of a method."""
        # Not by number: after a rollback, abandoned checkpoints have higher ones. A run may roll
        # back again to the same checkpoint, however many it has made since.
        needed = {self._file(owner, str(one.to)) for one in lineage.rollbacks[-1:]}
        for file in _oldest_first(self._folder, f"memory-{_plain(owner)}-[0-9]*")[:-CHECKPOINTS]:
            if file not in needed:
                file.unlink()

    def _forget_owners(self, federation: SimulatedFederation) -> None:
        """Give up the slots of the least recently used methods."""
        for file in _oldest_first(self._folder, "memory-*-now")[:-MOST_OWNERS]:
            owner = file.name.removeprefix("memory-").removesuffix("-now.safetensors")
            self._log.warning("%s: what was kept for it is given up", owner)
            self._positions.pop(owner, None)
            federation.restore(owner, {})
            for one in self._folder.glob(f"memory-{_plain(owner)}-*.safetensors"):
                one.unlink()

    def _file(self, owner: str, when: str) -> Path:
        return self._folder / f"memory-{_plain(owner)}-{when}.safetensors"

    def _write(self, federation: SimulatedFederation, owner: str, when: str) -> None:
        from safetensors.torch import save

        tensors = {
            f"{name}\n{slot}": value.detach().cpu().contiguous().clone()
            for (name, slot), value in federation.memory(owner).items()
        }
        position = self._positions.get(owner, _Position())
        about = json.dumps({"checkpoint": position.checkpoint, "at": position.at})
        content = save(tensors, {TEXT_KEY: about})
        self._sealed.write(self._file(owner, when).name, content)

    def _restore(self, federation: SimulatedFederation, owner: str, file: Path) -> _Position | None:
        """Restore slots from a file; a file that cannot be trusted is moved aside, and logged."""
        try:
            content, last = self._sealed.read(file.name)
            tensors, position = _parsed(content)
        except (SealError, ValueError) as error:
            self._log.warning("%s is damaged and moved aside: %s", file.name, error)
            file.replace(file.with_suffix(".damaged"))
            return None
        except FileError as error:
            self._log.warning("%s is not used: %s", file.name, error)
            return None
        if not last:
            self._log.warning(
                "%s is as it was before it was written last: the silo was stopped meanwhile, or "
                "the file was put back",
                file.name,
            )
        known, size = {str(one): one for one in federation.participants}, federation.schema.size
        fitting = {
            MemoryKey(known[name], slot): value
            for key, value in tensors.items()
            for name, _, slot in [key.partition("\n")]
            if name in known and value.numel() <= size
        }
        federation.restore(owner, fitting)
        return position


def _parsed(content: bytes) -> tuple[dict[str, Tensor], _Position]:
    """Return a file's tensors and position; `ValueError` if it is not such a file."""
    try:
        tensors, text = tensors_and_text(content)
        about = json.loads(text)
        return tensors, _Position(int(about["checkpoint"]), int(about["at"]))
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


def _oldest_first(folder: Path, pattern: str) -> list[Path]:
    files = folder.glob(f"{pattern}.safetensors")
    return sorted(files, key=lambda file: file.stat().st_mtime_ns)


def _plain(owner: str) -> str:
    """Return a method's name as part of a file's name."""
    if not owner or not all(c.isascii() and (c.isalnum() or c in "+_") for c in owner):
        raise SettingsError(f"no method is called {owner[:50]!r}")
    return owner
