"""The command that installs an extra, as it works for this installation."""

import json
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

NAME = "fedegoists"


def install_command(extras: str) -> str:
    """Return the command that adds extras to the package where and as it is installed.

    Parameters
    ----------
    extras : str
        Names of extras, with commas between them.
    """
    return f"{_installer()} install {_wanted(extras)}"


@cache
def _found() -> Distribution | None:
    try:
        return distribution(NAME)
    except PackageNotFoundError:
        return None


def _installer() -> str:
    found = _found()
    by = "" if found is None else (found.read_text("INSTALLER") or "").strip()
    return "uv pip" if by == "uv" else "pip"


def _wanted(extras: str) -> str:
    """Return what to install, by the origin that pip has noted (PEP 610)."""
    found = _found()
    text = None if found is None else found.read_text("direct_url.json")
    if text is not None:
        return _from_origin(json.loads(text), extras)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"-e '{checkout}[{extras}]'"
    return f"'{NAME}[{extras}]'"


def _from_origin(origin: dict[str, dict[str, object]], extras: str) -> str:
    """Return what to install again from a folder, a repository or a file.

    Examples
    --------
    >>> _from_origin({"url": "file:///src/it", "dir_info": {"editable": True}}, "train")
    "-e '/src/it[train]'"
    >>> _from_origin({"url": "file:///it.whl", "archive_info": {}}, "train")
    "'fedegoists[train] @ file:///it.whl'"
    >>> git = {"vcs": "git", "commit_id": "abc"}
    >>> _from_origin({"url": "https://host/it.git", "vcs_info": git}, "train")
    "'fedegoists[train] @ git+https://host/it.git@abc'"
    """
    url = str(origin["url"])
    if "dir_info" in origin:
        folder = unquote(urlparse(url).path)
        return f"{'-e ' if origin['dir_info'].get('editable') else ''}'{folder}[{extras}]'"
    if "vcs_info" in origin:
        made = origin["vcs_info"]
        url = f"{made['vcs']}+{url}@{made['commit_id']}"
    return f"'{NAME}[{extras}] @ {url}'"
