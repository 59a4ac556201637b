"""The seam: typed requests to silos and their replies, over several engines."""

from fedegoists.federation.participant import Participant, Repetition
from fedegoists.federation.replies import (
    Described,
    Evaluated,
    Gradients,
    Kept,
    Reply,
    Trained,
)
from fedegoists.federation.requests import (
    Deliver,
    Describe,
    Evaluate,
    Gradient,
    Keep,
    LocalTerms,
    Personal,
    Request,
    Train,
    TrainSettings,
)
from fedegoists.federation.seam import (
    Failure,
    Federation,
    Memory,
    StatefulFederation,
    WithTimeout,
    sorted_out,
)
from fedegoists.federation.simulated_federation import SimulatedFederation

__all__ = [
    "Deliver",
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
    "Participant",
    "Personal",
    "Repetition",
    "Reply",
    "Request",
    "SimulatedFederation",
    "StatefulFederation",
    "Train",
    "TrainSettings",
    "Trained",
    "WithTimeout",
    "sorted_out",
]
