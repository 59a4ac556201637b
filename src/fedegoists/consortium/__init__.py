"""A consortium described in one file: data, benefit graph, coalitions, training and report."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_run import ConsortiumRun
    from fedegoists.consortium.consortium_settings import ConsortiumSettings, read_settings
    from fedegoists.consortium.pipeline import Consortium

__all__ = ["Consortium", "ConsortiumRun", "ConsortiumSettings", "read_settings"]

_MODULES = {
    "Consortium": "pipeline",
    "ConsortiumRun": "consortium_run",
    "ConsortiumSettings": "consortium_settings",
    "read_settings": "consortium_settings",
}


def __getattr__(name: str) -> object:
    """Import on first use, so that settings and examples can be used without PyTorch."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
