"""FedAvg: local training from a shared model, averaged by the number of samples.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedegoists.federation.federation import Federation
from fedegoists.federation.operations import TrainSettings
from fedegoists.methods.method import (
    Coalitions,
    RoundReport,
    State,
    mixing_matrix,
    train_everybody,
    with_traffic,
)

__all__ = ["FedAvg"]


@dataclass(frozen=True)
class FedAvg:
    """Average the models of each coalition after every round, in proportion to training samples.

    Attributes
    ----------
    personal : tuple of str
        Parameters whose names start so are never averaged: each participant keeps its own.
    """

    settings: TrainSettings = field(default_factory=TrainSettings)
    personal: tuple[str, ...] = ()
    name: str = "fedavg"

    def start(self, initial: Tensor) -> State:
        """Return the state before the first round."""
        return State(0, {"parameters": initial})

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train everybody, then w_i ← Σ_j (n_j / Σ n) w_j over i's coalition."""
        rows, report, samples = train_everybody(federation, state, self.settings, seed)
        mixing = mixing_matrix(coalitions, federation.participants, samples).to(rows.device)
        mixed = mixing @ rows
        if self.personal:
            own = federation.schema.mask(self.personal).to(rows.device)
            mixed = torch.where(own, rows, mixed)
        shared = federation.schema.size
        if self.personal:
            shared -= int(federation.schema.mask(self.personal).sum())
        report = with_traffic(report, federation.participants, shared)
        return State(state.round + 1, {"parameters": mixed}), report
