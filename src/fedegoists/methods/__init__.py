"""The training methods, one file each, over any federation.

`fedegoists.methods.method_registry` lists them without loading PyTorch; everything else is loaded
when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fedegoists.methods.method_registry import METHOD_ENTRIES, MethodEntry, Paper

if TYPE_CHECKING:
    from fedegoists.methods.apfl import APFL
    from fedegoists.methods.ditto import Ditto
    from fedegoists.methods.egomix import EgoMix
    from fedegoists.methods.fedala import FedALA
    from fedegoists.methods.fedavg import FedAvg
    from fedegoists.methods.fedavgm import FedAvgM
    from fedegoists.methods.fedbabu import FedBABU
    from fedegoists.methods.feddbe import FedDBE
    from fedegoists.methods.feddisco import FedDisco
    from fedegoists.methods.fedegoists import FedEgoists
    from fedegoists.methods.fedfomo import FedFomo
    from fedegoists.methods.fedora import FedORA
    from fedegoists.methods.fedpac import FedPAC
    from fedegoists.methods.fedper import FedPer
    from fedegoists.methods.fedprox import FedProx
    from fedegoists.methods.fedrep import FedRep
    from fedegoists.methods.local import Local
    from fedegoists.methods.method import Method, MethodSettings, RoundReport, State
    from fedegoists.methods.method_run import Callbacks, RunSettings, fine_tune, run
    from fedegoists.methods.outcome import Outcome
    from fedegoists.methods.pfedgraph import PFedGraph
    from fedegoists.methods.pfedhn import PFedHN
    from fedegoists.methods.pfedme import PFedMe
    from fedegoists.methods.scaffold import Scaffold
    from fedegoists.methods.slowmo import SlowMo

    METHODS: dict[str, type[MethodSettings]]

__all__ = [
    "APFL",
    "METHODS",
    "METHOD_ENTRIES",
    "Callbacks",
    "Ditto",
    "EgoMix",
    "FedALA",
    "FedAvg",
    "FedAvgM",
    "FedBABU",
    "FedDBE",
    "FedDisco",
    "FedEgoists",
    "FedFomo",
    "FedORA",
    "FedPAC",
    "FedPer",
    "FedProx",
    "FedRep",
    "Local",
    "Method",
    "MethodEntry",
    "MethodSettings",
    "Outcome",
    "PFedGraph",
    "PFedHN",
    "PFedMe",
    "Paper",
    "RoundReport",
    "RunSettings",
    "Scaffold",
    "SlowMo",
    "State",
    "fine_tune",
    "run",
]

_PLACES = {
    **{entry.place.split(":")[1]: entry.place.split(":")[0] for entry in METHOD_ENTRIES.values()},
    **dict.fromkeys(
        ("Method", "MethodSettings", "RoundReport", "State"), "fedegoists.methods.method"
    ),
    **dict.fromkeys(
        ("Callbacks", "RunSettings", "fine_tune", "run"), "fedegoists.methods.method_run"
    ),
    "Outcome": "fedegoists.methods.outcome",
}


def __getattr__(name: str) -> object:
    """Load what needs PyTorch only when it is used."""
    if name == "METHODS":
        return {key: entry.load() for key, entry in METHOD_ENTRIES.items()}
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
