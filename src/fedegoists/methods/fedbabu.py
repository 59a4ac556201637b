"""FedBABU: only the body is trained together, below a head that never moves.

Oh, Kim and Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR
2022, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import LocalTerms
from fedegoists.federation.seam import Federation
from fedegoists.methods.method import Coalitions, RoundReport, State
from fedegoists.methods.personal_head import PersonalHead


@dataclass(frozen=True)
class FedBABU(PersonalHead):
    """Train and average bodies below the initial head, which is the same for all.

    The paper's personal models are these after fine-tuning, head included: ``fedbabu+ft``.
    """

    key: ClassVar[str] = "fedbabu"

    def together(
        self,
        federation: Federation,
        coalitions: Coalitions,
        state: State,
        seed: int,
        names: list[Participant],
        rows: Tensor,
    ) -> tuple[Tensor, RoundReport]:
        """Train the bodies, then average those of each coalition."""
        terms = LocalTerms(frozen=self.personal)
        return self.averaged(federation, coalitions, state, seed, names, rows, terms)
