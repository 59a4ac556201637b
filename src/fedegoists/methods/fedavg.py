"""FedAvg: local training from a shared model, averaged by the number of samples.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedegoists.federation.seam import Federation
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    mixing_matrix,
    train_silos,
)


@dataclass(frozen=True)
class FedAvg(MethodSettings):
    """Average the models of each coalition after every round, in proportion to training samples."""

    key: ClassVar[str] = "fedavg"

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train all participants, then w_i ← Σ_j (n_j / Σ n) w_j over i's coalition."""
        trained = train_silos(self, federation, state, seed)
        mixing = mixing_matrix(coalitions, federation.participants, trained.samples)
        report = trained.report.with_traffic(
            in_company(coalitions, federation.participants), self.shared_size(federation)
        )
        return state.after(parameters=mixing.to(trained.rows.device) @ trained.rows), report
