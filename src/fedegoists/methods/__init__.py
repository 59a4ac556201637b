"""The training methods, one file each, over any federation."""

from typing import Any

from fedegoists.methods.egomix import EgoMix
from fedegoists.methods.fedavg import FedAvg
from fedegoists.methods.feddisco import FedDisco
from fedegoists.methods.fedegoists import FedEgoists
from fedegoists.methods.fedora import FedORA
from fedegoists.methods.fedprox import FedProx
from fedegoists.methods.local import Local
from fedegoists.methods.method import Method, MethodSettings, RoundReport, State
from fedegoists.methods.pfedgraph import PFedGraph
from fedegoists.methods.pfedhn import PFedHN
from fedegoists.methods.pfedme import PFedMe
from fedegoists.methods.run import Outcome, run
from fedegoists.methods.scaffold import Scaffold

__all__ = [
    "METHODS",
    "EgoMix",
    "FedAvg",
    "FedDisco",
    "FedEgoists",
    "FedORA",
    "FedProx",
    "Local",
    "Method",
    "MethodSettings",
    "Outcome",
    "PFedGraph",
    "PFedHN",
    "PFedMe",
    "RoundReport",
    "Scaffold",
    "State",
    "run",
]

METHODS: dict[str, Any] = {
    method.key: method
    for method in (
        Local,
        FedAvg,
        FedProx,
        Scaffold,
        PFedMe,
        PFedHN,
        FedDisco,
        PFedGraph,
        FedORA,
        FedEgoists,
        EgoMix,
    )
}
"""By the names of the published tables, in their order; then what is not in the paper."""
