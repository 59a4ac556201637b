"""How a call reaches every silo: one seam, several engines."""

from fedegoists.federation.federation import Failure, Federation, Payload, Reply
from fedegoists.federation.operations import TrainSettings
from fedegoists.federation.simulated import SimulatedFederation

__all__ = ["Failure", "Federation", "Payload", "Reply", "SimulatedFederation", "TrainSettings"]
