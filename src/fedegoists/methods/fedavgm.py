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

    With Nesterov's momentum w ← w + η (Δ + β v) instead. The momentum of silos starts at zero in
    every round, or at the average of the last one; for silos that are alone, or whose coalition
    does not answer, at zero in any case. A coalition of which no member answers stays where it is,
    with its velocity. With β = 0 and η = 1 this is FedAvg.
    """

    beta: float = setting(0.9, "β, momentum of the shared model over rounds", 0, 0.999)
    server_rate: float = setting(1.0, "η, how far the shared model moves", 0, 2)
    nesterov: bool = setting(False, "whether the momentum is Nesterov's")
    buffers: str = setting(
        "zero", "what the silos' momentum starts with", choices=("zero", "averaged")
    )

    key: ClassVar[str] = "fedavgm"

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return a velocity of zero, and the silos' momentum where it goes on."""
        zeros = torch.zeros_like(initial)
        return {"velocity": zeros} | ({} if self.buffers == "zero" else {"momentum": zeros})

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train all participants, average, and move each coalition's model with momentum."""
        sums = coalition_sums(federation, coalitions)
        speeds = state.tensors.get("momentum")
        # A participant that is alone receives no average: its momentum starts at zero, and the
        # silo must keep none, either.
        mixed = mix_silos(
            self, federation, state, seed, sums, momentum=speeds, keeps_momentum=False
        )
        before, change = state.tensors["velocity"], mixed.rows - state.parameters
        velocity = self.beta * before + change
        step = change + self.beta * velocity if self.nesterov else velocity
        after = {
            # Alone, and where nobody answered, there is no average to move to.
            "parameters": torch.where(
                mixed.received, state.parameters + self.server_rate * step, mixed.rows
            ),
            "velocity": torch.where(mixed.received, velocity, before),
        }
        if mixed.momentum is not None:
            after["momentum"] = torch.where(mixed.received, mixed.momentum, 0.0)
        vectors = 1 if speeds is None else 2
        report = mixed.report.with_traffic(
            in_company(coalitions, federation.participants), vectors * self.shared_size(federation)
        )
        return state.after(**after), report
