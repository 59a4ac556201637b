"""FedRep: heads first, on a body that stands still; then the body below heads that stand still.

Collins, Hassani, Mokhtari and Shakkottai, "Exploiting Shared Representations for Personalized
Federated Learning", ICML 2021, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedegoists.federation.batches import stream_seed
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import LocalTerms
from fedegoists.federation.seam import Federation
from fedegoists.methods.method import Coalitions, RoundReport, State, parts_of, setting
from fedegoists.methods.personal_head import PersonalHead
from fedegoists.methods.silo_training import train_silos


@dataclass(frozen=True)
class FedRep(PersonalHead):
    """A part of a round's steps is for the head alone, the rest for the body alone.

    Both parts have at least one step, so a round of one step has two.
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
        first = state.round * self.settings.steps
        of_head, of_body = parts_of(self.settings.steps, self.head)
        terms = LocalTerms(frozen=self.body(federation.schema))
        heads = train_silos(
            self,
            federation,
            state,
            stream_seed(seed, "head"),
            names=names,
            rows=rows,
            settings=self.settings.changed(steps=of_head),
            terms=dict.fromkeys(names, terms),
            first_step=first,
        )
        mixed, report = self.averaged(
            federation,
            coalitions,
            state,
            seed,
            names,
            heads.rows,
            frozen=True,
            steps=of_body,
            first_step=first + of_head,
        )
        return mixed, heads.report | report
