"""FedAvgM: FedAvg with momentum at the server.

Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019, Section 4.3.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.seam import Federation
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    setting,
)
from fedegoists.methods.silo_training import coalition_sums, mix_silos


@dataclass(frozen=True)
class FedAvgM(MethodSettings):
    """With Δ the change of a coalition's average in a round: v ← β v + Δ, and w ← w + η v.

    A coalition of which no member answers stays where it is, with its velocity. With β = 0 and
    η = 1 this is FedAvg.
    """

    beta: float = setting(0.9, "β, momentum of the shared model over rounds", 0, 0.999)
    server_rate: float = setting(1.0, "η, how far the shared model moves", 0, 2)

    key: ClassVar[str] = "fedavgm"

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return a velocity of zero."""
        return {"velocity": torch.zeros_like(initial)}

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train all participants, average, and move each coalition's model with momentum."""
        mixed = mix_silos(self, federation, state, seed, coalition_sums(federation, coalitions))
        before = state.tensors["velocity"]
        velocity = self.beta * before + (mixed.rows - state.parameters)
        moved = state.parameters + self.server_rate * velocity
        report = mixed.report.with_traffic(
            in_company(coalitions, federation.participants), self.shared_size(federation)
        )
        return (
            state.after(
                parameters=torch.where(mixed.received, moved, mixed.rows),
                velocity=torch.where(mixed.received, velocity, before),
            ),
            report,
        )
