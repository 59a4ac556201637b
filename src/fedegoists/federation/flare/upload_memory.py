"""A silo's memory of the sums that it has added to: from which model, and in which company.

Two sums from the same model, one with a member and one without, differ by this member's update, as
far as the others add the same to both. So a silo must know, also after a restart, when a training
comes again in another company.
"""

import hmac
import logging
import os
from pathlib import Path

from fedegoists.federation.flare.silo_secret import STATE_FOLDER, silo_key
from fedegoists.files import private_folder, write_bytes

UPLOADS_FILE = "uploads.log"

MOST_LINES = 20_000
"""Sums that are remembered at least; beyond twice as many, the oldest are forgotten."""


class UploadMemory:
    """Lines in a file of the silo, each with the silo's seal.

    Lines are only added, so that several jobs of a silo can do so at once.

    Parameters
    ----------
    kit : Path
        The silo's kit.
    """

    def __init__(self, kit: Path, log: logging.Logger) -> None:
        self._path, self._log = kit / STATE_FOLDER / UPLOADS_FILE, log
        private_folder(self._path.parent)
        self._key = silo_key(kit, "uploads")
        self._known: dict[str, list[str]] = {}
        self._lines: list[str] = []
        self._read, self._file = 0, -1

    def companies(self, start: str) -> tuple[str, ...]:
        """Return the companies in which the silo has added what it trained from a model.

        The first one is that in which it adds no noise.
        """
        self._catch_up()
        return tuple(self._known.get(start, ()))

    def note(self, start: str, company: str, *, first: bool = False) -> None:
        """Remember a sum, before anything of it leaves.

        Parameters
        ----------
        first : bool
            Whether this company takes the place of the first one.
        """
        known = self.companies(start)
        if company in known[: 1 if first else None]:
            return
        place = "first" if first else "later"
        # A process that was killed may have left half a line: this one begins anew.
        begin = "" if self._ends_whole() else "\n"
        content = f"{start} {company} {place}"
        line = f"{begin}{content} {self._seal(content)}\n".encode()
        number = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            os.write(number, line)
        finally:
            os.close(number)
        self._catch_up()
        if len(self._lines) > 2 * MOST_LINES:
            write_bytes(self._path, "".join(self._lines[-MOST_LINES:]).encode(), private=True)

    def _ends_whole(self) -> bool:
        """Return whether all that was read so far is all there is."""
        return not self._path.is_file() or self._path.stat().st_size == self._read

    def _seal(self, content: str) -> str:
        return hmac.digest(self._key, content.encode(), "sha256").hex()[:32]

    def _catch_up(self) -> None:
        """Read the lines that this or another process has added."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._file or found.st_size < self._read:  # another file
                self._known, self._lines, self._read, self._file = {}, [], 0, found.st_ino
            file.seek(self._read)
            content = file.read()
        whole, end, _ = content.rpartition(b"\n")
        self._read += len(whole) + len(end)
        for line in whole.decode(errors="replace").split("\n") if end else ():
            told, _, seal = line.rpartition(" ")
            if not hmac.compare_digest(seal.encode(), self._seal(told).encode()):
                self._log.warning("%s has a damaged line, which is left out", self._path.name)
                continue
            self._lines.append(line + "\n")
            start, company, place = told.split(" ")
            known = self._known.setdefault(start, [])
            if place == "first" and company in known:
                known.remove(company)
            if company not in known:
                known.insert(0 if place == "first" else len(known), company)
