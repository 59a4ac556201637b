"""Results of a run's stages, kept by a hash of everything they depend on."""

import hashlib
import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedegoists.errors import FileError
from fedegoists.files import read_text, write_bytes
from fedegoists.sealed_files import read_sealed_text, write_sealed_text
from fedegoists.version import __version__

Result = TypeVar("Result")

_LOG = logging.getLogger("fedegoists.checkpoints")


@dataclass(frozen=True)
class StageStore:
    """A folder in which all runs share the results of their stages.

    Examples
    --------
    >>> store = StageStore(Path("runs"))
    >>> store.key("benefit", {"steps": 3}) == store.key("benefit", {"steps": 3})
    True
    >>> store.key("benefit", {"steps": 3}) == store.key("benefit", {"steps": 4})
    False
    """

    folder: Path

    def key(self, stage: str, inputs: object) -> str:
        """Return a hash of a stage's inputs and of the version of this package."""
        text = json.dumps([stage, inputs, __version__], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def path(self, stage: str, key: str, name: str) -> Path:
        """Return the path of a file that a stage keeps."""
        return self.folder / ".stages" / stage / key / name

    def read(self, stage: str, key: str, parse: Callable[[str], Result]) -> Result | None:
        """Return the parsed result of a finished stage; None if it is missing.

        A damaged result, or one of another stage, is moved aside and counts as missing. That is
        logged: the stage is repeated, and asks the silos again.
        """
        path = self.path(stage, key, "result.json")
        if not path.exists():
            return None
        try:
            return parse(read_sealed_text(path))
        except (FileError, ValueError, KeyError, TypeError) as error:
            _LOG.warning("%s: damaged, and moved aside; the stage is repeated (%s)", path, error)
            path.replace(path.with_suffix(".damaged"))
            return None

    def write(self, stage: str, key: str, result: str) -> None:
        """Keep the result of a stage."""
        write_sealed_text(self.path(stage, key, "result.json"), result)

    def secret(self) -> str:
        """Return a random secret of the folder's owner: drawn once, then always the same."""
        path = self.folder / ".stages" / "secret"
        if not path.exists():
            write_bytes(path, secrets.token_hex().encode(), private=True)
        return read_text(path)
