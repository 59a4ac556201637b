"""pFedMe: personal models near a shared one, by Moreau envelopes.

T. Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020,
Algorithm 1.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.requests import LocalTerms
from fedegoists.federation.seam import Federation
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    mixing_matrix,
    setting,
)
from fedegoists.methods.silo_training import train_silos


@dataclass(frozen=True)
class PFedMe(MethodSettings):
    """On each batch, K steps towards θ = argmin ℓ(θ) + λ/2 ‖θ − w‖², then w ← w − ηλ (w − θ).

    θ starts at w in every round and goes on from batch to batch; it is the personal model, and what
    is evaluated (public code evaluates w, by an aliasing error). Every one of the K steps counts as
    a local step, so the method sees as many samples as the others; steps left over at the end of a
    round move θ only. Silos are averaged alike, as in
    the paper. There is no momentum.
    """

    lam: float = setting(15.0, "λ, how strongly θ is held near w", 0, 1e6)
    inner_steps: int = setting(5, "K, steps on one batch", 1, math.inf)
    outer_rate: float = setting(0.01, "η, the learning rate of w", 0, 1e6)
    beta: float = setting(1.0, "β, how far the server moves to the average", 0, 2)

    key: ClassVar[str] = "pfedme"

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return w, which is the initial model, as θ is."""
        return {"shared": initial}

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train θ and w at the silos, then w ← (1−β) w + β · mean of the w_i."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        alone = [name for name in participants if name not in accompanied]
        shared = state.tensors["shared"]
        terms = {
            name: LocalTerms(
                anchor=row,
                pull=self.lam,
                # With more steps on a batch than a round has, w would never move.
                inner_steps=min(self.inner_steps, self.settings.steps),
                anchor_rate=self.outer_rate,
            )
            for name, row in zip(participants, shared, strict=True)
        }
        near = train_silos(
            self,
            federation,
            state,
            seed,
            names=accompanied,
            rows=shared,
            settings=self.settings.changed(momentum=0.0),
            terms=terms,
        )
        own = train_silos(self, federation, state, seed, names=alone)
        together = torch.tensor([[name in accompanied] for name in participants]).to(shared.device)
        answered = dict.fromkeys(near.samples, 1.0)
        average = mixing_matrix(coalitions, participants, answered).to(shared.device) @ near.anchors
        trained = torch.tensor([[name in answered] for name in participants]).to(shared.device)
        # Participants that did not answer keep their personal models.
        personal = torch.where(trained, near.rows, state.parameters)
        report = near.report.with_traffic(accompanied, self.shared_size(federation)) | own.report
        return (
            state.after(
                parameters=torch.where(together, personal, own.rows),
                shared=torch.where(together, shared + self.beta * (average - shared), shared),
            ),
            report,
        )
