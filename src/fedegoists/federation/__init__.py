"""The seam: typed requests to silos and their replies, over several engines."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedegoists.federation.participant import Participant, Repetition
    from fedegoists.federation.replies import (
        Delivered,
        Described,
        Evaluated,
        Gradients,
        Kept,
        PriorAdded,
        Reply,
        Trained,
    )
    from fedegoists.federation.requests import (
        AddPrior,
        Candidate,
        Deliver,
        Describe,
        Evaluate,
        Gradient,
        Keep,
        LocalTerms,
        Personal,
        Representation,
        Request,
        Train,
        TrainSettings,
    )
    from fedegoists.federation.seam import (
        Failure,
        Federation,
        Memory,
        PartOfFederation,
        StatefulFederation,
        WithTimeout,
        sorted_out,
    )
    from fedegoists.federation.simulated_federation import SimulatedFederation

__all__ = [
    "AddPrior",
    "Candidate",
    "Deliver",
    "Delivered",
    "Describe",
    "Described",
    "Evaluate",
    "Evaluated",
    "Failure",
    "Federation",
    "Gradient",
    "Gradients",
    "Keep",
    "Kept",
    "LocalTerms",
    "Memory",
    "PartOfFederation",
    "Participant",
    "Personal",
    "PriorAdded",
    "Repetition",
    "Reply",
    "Representation",
    "Request",
    "SimulatedFederation",
    "StatefulFederation",
    "Train",
    "TrainSettings",
    "Trained",
    "WithTimeout",
    "sorted_out",
]

_PARTS = ("participant", "replies", "requests", "seam", "simulated_federation")
"""Modules that the names above are in."""


def __getattr__(name: str) -> Any:
    """Load PyTorch only for what needs it: FLARE's own processes import this package as well."""
    if name in __all__:
        for part in _PARTS:
            module = import_module(f"{__name__}.{part}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
