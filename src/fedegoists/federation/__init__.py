"""How a call reaches every silo: one seam, several engines."""

from fedegoists.federation.federation import Failure, Federation, Payload, Reply, WithTimeout
from fedegoists.federation.operations import LocalTerms, TrainSettings
from fedegoists.federation.simulated import SimulatedFederation

__all__ = [
    "Failure",
    "Federation",
    "LocalTerms",
    "Payload",
    "Reply",
    "SimulatedFederation",
    "TrainSettings",
    "WithTimeout",
]
