"""Settings, versions and times of a run."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from fedegoists.consortium.consortium_settings import ConsortiumSettings, with_paths
from fedegoists.consortium.toml_text import config_toml
from fedegoists.version import __version__


def settings_text(settings: ConsortiumSettings, folder: Path) -> str:
    """Return settings as TOML, with paths relative to a folder, which say nothing of a machine."""

    def near(path: str) -> str:
        if not Path(path).is_absolute():
            return path
        try:
            return Path(os.path.relpath(path, folder)).as_posix()
        except ValueError:  # on another drive
            return path

    return config_toml(with_paths(settings, near))


def versions() -> list[tuple[str, str]]:
    """Return the versions of the software that matters."""
    import torch

    return [
        ("fedegoists", __version__),
        ("Python", platform.python_version()),
        ("PyTorch", str(torch.__version__)),
    ]


def stage_times(seconds: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the time of each stage before the report."""
    return [
        (stage, f"{spent:.1f} s" if spent < 90 else f"{spent / 60:.1f} min")
        for stage, spent in seconds.items()
        if stage != "report"
    ]
