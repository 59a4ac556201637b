"""FedPer: a shared body, and an output layer of one's own.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers", 2019,
Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.seam import Federation
from fedegoists.methods.method import Coalitions, RoundReport, State
from fedegoists.methods.personal_head import PersonalHead


@dataclass(frozen=True)
class FedPer(PersonalHead):
    """Train head and body together; average the bodies, and leave the heads in the silos."""

    key: ClassVar[str] = "fedper"

    def together(
        self,
        federation: Federation,
        coalitions: Coalitions,
        state: State,
        seed: int,
        names: list[Participant],
        rows: Tensor,
    ) -> tuple[Tensor, RoundReport]:
        """Train heads and bodies, then average the bodies of each coalition."""
        return self.averaged(federation, coalitions, state, seed, names, rows)
