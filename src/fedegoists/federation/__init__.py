"""How a call reaches every silo: one seam, several engines."""

from fedegoists.federation.seam import Failure, Federation, Payload, Reply, WithTimeout
from fedegoists.federation.silo_operations import LocalTerms, TrainSettings
from fedegoists.federation.simulated_federation import SimulatedFederation

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
