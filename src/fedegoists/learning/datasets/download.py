"""Downloads, accepted only with the right checksum."""

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from fedegoists.files import write_bytes
from fedegoists.learning.data import DataError

CHUNK = 1 << 20
TIMEOUT = 30.0
LARGEST = 1 << 30


def download(url: str, sha256: str, path: Path) -> None:
    """Download a file to `path`; nothing is written unless it has this SHA-256 sum."""
    try:
        content = _fetched(url, path.name)
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{url} cannot be downloaded ({reason}); without access to the internet, "
            f"download the file elsewhere and put it at {path}"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DataError(
            f"{url}: {len(content):,} bytes with the SHA-256 sum {found}, not {sha256}; nothing "
            "was written; try again, and if that does not help the file at this address has changed"
        )
    write_bytes(path, content)


def _fetched(url: str, name: str) -> bytes:
    columns = ("[progress.description]{task.description}", BarColumn(), DownloadColumn())
    progress = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
    # The addresses are constants of this package.
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response, progress:  # noqa: S310
        length = response.headers.get("Content-Length", "")
        shown = progress.add_task(name, total=int(length) if length.isdigit() else None)
        content = bytearray()
        while chunk := response.read(CHUNK):
            content += chunk
            progress.update(shown, completed=len(content))
            if len(content) > LARGEST:
                raise urllib.error.URLError(f"it is larger than {LARGEST:,} bytes")
    return bytes(content)
