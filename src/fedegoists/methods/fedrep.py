"""FedRep: heads first, on a body that stands still; then the body below heads that stand still.

Collins, Hassani, Mokhtari and Shakkottai, "Exploiting Shared Representations for Personalized
Federated Learning", ICML 2021, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import LocalTerms
from fedegoists.federation.seam import Federation
from fedegoists.methods.method import Coalitions, RoundReport, State, parts_of, setting
from fedegoists.methods.personal_head import PersonalHead


@dataclass(frozen=True)
class FedRep(PersonalHead):
    """A part of a round's steps is for the head alone, the rest for the body alone.

    Both parts have at least one step, if there are two. The momentum of each part starts at zero.
    """

    head: float = setting(0.5, "fraction of a round's steps in which the head is trained", 0, 1)

    key: ClassVar[str] = "fedrep"

    def together(
        self,
        federation: Federation,
        coalitions: Coalitions,
        state: State,
        seed: int,
        names: list[Participant],
        rows: Tensor,
    ) -> tuple[Tensor, RoundReport]:
        """Train the heads, then the bodies, then average the bodies of each coalition."""
        terms = LocalTerms(
            frozen_first=self.body(federation.schema),
            first_steps=parts_of(self.settings.steps, self.head)[0],
            frozen=self.personal,
        )
        return self.averaged(federation, coalitions, state, seed, names, rows, terms)
