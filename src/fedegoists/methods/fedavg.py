"""FedAvg: local training from a shared model, averaged by the number of samples.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedegoists.federation.seam import Federation
from fedegoists.methods.method import Coalitions, MethodSettings, RoundReport, State, in_company
from fedegoists.methods.silo_training import coalition_sums, mix_silos


@dataclass(frozen=True)
class FedAvg(MethodSettings):
    """Average the models of each coalition after every round, in proportion to training samples."""

    key: ClassVar[str] = "fedavg"

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train all participants, then w_i ← Σ_j (n_j / Σ n) w_j over i's coalition."""
        mixed = mix_silos(self, federation, state, seed, coalition_sums(federation, coalitions))
        report = mixed.report.with_traffic(
            in_company(coalitions, federation.participants), self.shared_size(federation)
        )
        return state.after(parameters=mixed.rows), report
