"""What a stage of a run made, kept by the hash of what it depends on."""

import hashlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedegoists.files import read_text, write_bytes
from fedegoists.version import __version__

__all__ = ["StageStore"]


@dataclass(frozen=True)
class StageStore:
    """A folder in which runs of all names share the results of their stages.

    Examples
    --------
    >>> store = StageStore(Path("runs"))
    >>> store.key("benefit", {"steps": 3}) == store.key("benefit", {"steps": 3})
    True
    >>> store.key("benefit", {"steps": 3}) == store.key("benefit", {"steps": 4})
    False
    """

    folder: Path

    def key(self, stage: str, inputs: Any) -> str:
        """Return a hash of everything a stage depends on, the version of this package included."""
        text = json.dumps([stage, inputs, __version__], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def path(self, stage: str, key: str, name: str) -> Path:
        """Return where a stage keeps a file."""
        return self.folder / ".stages" / stage / key / name

    def read(self, stage: str, key: str) -> Any | None:
        """Return what a finished stage left, or nothing; a damaged file counts as nothing."""
        path = self.path(stage, key, "result.json")
        if not path.exists():
            return None
        try:
            return json.loads(read_text(path))
        except ValueError:
            return None

    def write(self, stage: str, key: str, result: Any) -> None:
        """Keep what a stage made."""
        content = json.dumps(result).encode()
        write_bytes(self.path(stage, key, "result.json"), content, private=True)

    def secret(self) -> str:
        """Return what nobody knows but who owns the folder: drawn once, then always the same."""
        path = self.folder / ".stages" / "secret"
        if not path.exists():
            write_bytes(path, secrets.token_hex().encode(), private=True)
        return read_text(path)
