"""SlowMo: a slow momentum over rounds that follows the learning rate.

Wang, Tantia, Ballas and Rabbat, "SlowMo: Improving Communication-Efficient Distributed SGD with
Slow Momentum", ICLR 2020, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.seam import Federation
from fedegoists.federation.silo_operations import learning_rates
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
class SlowMo(MethodSettings):
    """With γ the round's learning rate and w' the average: u ← β u + (w − w')/γ, w ← w − α γ u.

    γ is the rate of the round's first step. So, unlike with FedAvgM, what u remembers of earlier
    rounds shrinks with the learning rate. Where that is zero, the model stays where it is. The
    momentum of silos starts at zero in every round, or at the average of the last one; for silos
    that are alone, or whose coalition does not answer, at zero in any case.
    """

    beta: float = setting(0.7, "β, the slow momentum", 0, 0.999)
    slow_rate: float = setting(1.0, "α, how far the shared model moves", 0, 2)
    buffers: str = setting(
        "zero", "what the silos' momentum starts with", choices=("zero", "averaged")
    )

    key: ClassVar[str] = "slowmo"

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return a slow momentum of zero, and that of the silos where it goes on."""
        zeros = torch.zeros_like(initial)
        return {"slow": zeros} if self.buffers == "zero" else {"slow": zeros, "momentum": zeros}

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
        rate = learning_rates(self.settings, state.round * self.settings.steps)[0]
        before = state.tensors["slow"]
        slow = before
        if rate > 0:
            slow = self.beta * before + (state.parameters - mixed.rows) / rate
        moved = state.parameters - self.slow_rate * rate * slow
        after = {
            # Alone, and where nobody answered, there is no average to move to.
            "parameters": torch.where(mixed.received, moved, mixed.rows),
            "slow": torch.where(mixed.received, slow, before),
        }
        if mixed.momentum is not None:
            after["momentum"] = torch.where(mixed.received, mixed.momentum, 0.0)
        vectors = 1 if speeds is None else 2
        report = mixed.report.with_traffic(
            in_company(coalitions, federation.participants), vectors * self.shared_size(federation)
        )
        return state.after(**after), report
