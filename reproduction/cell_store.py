"""Finished cells in a folder: small files for new ones, packed files for all others."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from fedegoists.errors import FileError
from fedegoists.files import json_value, read_text, write_all, write_bytes
from reproduction.cell_packing import (
    GROUPS,
    line_order,
    packed_cell,
    table_holding,
    unpacked_cell,
)
from reproduction.cells import Cell, CellResult, cell_from
from reproduction.folder_locks import alone
from reproduction.packed_lines import ENDING, Record, packed, read_packed

__all__ = ["CellStore", "pack_cells"]


class CellStore:
    """The finished cells in a folder, by digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, CellResult] = {}

    def path(self, cell: Cell | str) -> Path:
        """Return the file of a cell that is not packed yet."""
        digest = cell if isinstance(cell, str) else cell.digest
        return self.folder / "cells" / f"{digest}.json"

    @cached_property
    def _packed(self) -> dict[str, Record]:
        """The lines of all packed files; `alone` keeps others from packing while cells train."""
        paths = sorted((self.folder / "cells").glob(f"*{ENDING}"))
        lines = (
            line for path in paths if path.name != GROUPS + ENDING for line in read_packed(path)
        )
        return {line["cell"]: line for line in lines}

    @cached_property
    def _groups(self) -> dict[str, list[str]]:
        path = self.folder / "cells" / f"{GROUPS}{ENDING}"
        return {line["group"]: line["cells"] for line in read_packed(path)} if path.exists() else {}

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, str) and (digest in self._packed or self.path(digest).exists())

    def digests(self) -> set[str]:
        """Return the digests of all finished cells."""
        return self._packed.keys() | {path.stem for path in self.unpacked()}

    def unpacked(self) -> list[Path]:
        """Return the files of the cells that are not packed yet."""
        return sorted((self.folder / "cells").glob("*.json"))

    def get(self, cell: Cell) -> CellResult | None:
        """Return the result of a cell, if it is finished."""
        if cell.digest not in self._read:
            if cell.digest not in self:
                return None
            result = _result(self.load(cell.digest), self.path(cell))
            if cell.decides_rounds and not result.curves:
                return None  # from a time when each participant chose its own round
            self._read[cell.digest] = result
        return self._read[cell.digest]

    def load(self, digest: str) -> dict[str, Any]:
        """Return the recorded content of a cell. A small file is newer than a packed line."""
        path = self.path(digest)
        if not path.exists() and digest in self._packed:
            return unpacked_cell(self._packed[digest], self._groups)
        content = json_value(read_text(path), str(path))
        if not isinstance(content, dict):
            raise FileError(f"{path}: not a cell")
        return content

    def put(self, cell: Cell, result: CellResult) -> None:
        """Write a cell's file."""
        content = {"settings": cell.settings, **asdict(result)}
        if not result.curves:
            del content["curves"]
        text = json.dumps(content, sort_keys=True, allow_nan=True)
        write_bytes(self.path(cell), f"{text}\n".encode())
        self._read[cell.digest] = result

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that are not finished, each once."""
        return [cell for cell in dict.fromkeys(cells) if self.get(cell) is None]


def pack_cells(folder: Path) -> list[Path]:
    """Move all cells of a folder into one packed file for each table; return the files, if any.

    Raises
    ------
    fedegoists.errors.FileError
        If another process trains or packs in the folder.
    """
    with alone(folder):
        store = CellStore(folder)
        small, before = store.unpacked(), set((folder / "cells").glob(f"*{ENDING}"))
        by_table: dict[str, list[Record]] = {}
        groups: dict[str, list[str]] = {}
        for digest in store.digests():
            content = store.load(digest)
            line = packed_cell(digest, content)
            groups[line["group"]] = content["about"]["pass"]
            by_table.setdefault(table_holding(cell_from(content["settings"])), []).append(line)
        if not by_table:
            return []
        files = {name: sorted(lines, key=line_order) for name, lines in sorted(by_table.items())}
        files[GROUPS] = [{"group": name, "cells": groups[name]} for name in sorted(groups)]
        contents = [
            (folder / "cells" / f"{name}{ENDING}", packed(lines)) for name, lines in files.items()
        ]
        # A kill in between leaves cells in both places, with the same content.
        write_all(contents)
        for path in [*small, *(before - {path for path, _ in contents})]:
            path.unlink()
    return [path for path, _ in contents]


def _result(content: Mapping[str, Any], path: Path) -> CellResult:
    try:
        names = [name for name in CellResult.__dataclass_fields__ if name != "curves"]
        found = {name: content[name] for name in names}
        return CellResult(**found, curves=content.get("curves", {}))
    except KeyError as error:
        raise FileError(f"{path}: {error} is missing; remove it to run it again") from None
