"""With what a run was made: settings, versions and time."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.toml_text import config_toml
from fedegoists.version import __version__

__all__ = ["settings_text", "stage_times", "versions"]


def settings_text(settings: ConsortiumSettings, folder: Path) -> str:
    """Return settings as TOML; paths are relative to a folder, and so say nothing of a machine."""

    def near(path: str | None) -> str | None:
        if path is None or not Path(path).is_absolute():
            return path
        try:
            return Path(os.path.relpath(path, folder)).as_posix()
        except ValueError:  # on another drive
            return path

    updates: dict[str, dict[str, Any]] = {
        "data": {"source": near(settings.data.source), "folder": near(settings.data.folder)},
        "competition": {"file": near(settings.competition.file)},
        "benefit": {"file": near(settings.benefit.file)},
        "output": {"folder": near(settings.output.folder)},
        "deploy": {"schema_file": near(settings.deploy.schema_file)},
    }
    return config_toml(
        settings.model_copy(
            update={
                name: getattr(settings, name).model_copy(update=update)
                for name, update in updates.items()
            }
        )
    )


def versions() -> list[tuple[str, str]]:
    """Return the software whose version matters."""
    import torch

    return [
        ("fedegoists", __version__),
        ("Python", platform.python_version()),
        ("PyTorch", str(torch.__version__)),
    ]


def stage_times(seconds: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return how long the stages before the report took."""
    return [
        (stage, f"{spent:.1f} s" if spent < 90 else f"{spent / 60:.1f} min")
        for stage, spent in seconds.items()
        if stage != "report"
    ]
