"""A consortium described in one file: from data to decision to models to a report."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_settings import ConsortiumSettings, read_settings
    from fedegoists.consortium.pipeline import Consortium, ConsortiumRun

__all__ = ["Consortium", "ConsortiumRun", "ConsortiumSettings", "read_settings"]

MODULES = {
    "Consortium": "pipeline",
    "ConsortiumRun": "pipeline",
    "ConsortiumSettings": "consortium_settings",
    "read_settings": "consortium_settings",
}


def __getattr__(name: str) -> object:
    """Load the pipeline, and with it PyTorch, only when it is used."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
