"""The training methods, one file each, over any federation."""

from typing import Any

from fedegoists.methods.fedavg import FedAvg
from fedegoists.methods.local import Local
from fedegoists.methods.method import Method, RoundReport, State
from fedegoists.methods.run import Outcome, run

__all__ = ["METHODS", "FedAvg", "Local", "Method", "Outcome", "RoundReport", "State", "run"]

METHODS: dict[str, Any] = {"local": Local, "fedavg": FedAvg}
"""By the names of the published tables."""
