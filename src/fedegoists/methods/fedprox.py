"""FedProx: FedAvg with silos that are held near the shared model while they train.

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous Networks",
MLSys 2020, Algorithm 2.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedegoists.federation.requests import LocalTerms
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
class FedProx(MethodSettings):
    """Local loss ℓ(w) + μ/2 ‖w − w_shared‖²; the shared model stays the anchor for the round.

    All local steps are taken; the paper's varying number of steps per silo (its γ) is not.
    """

    mu: float = setting(0.01, "μ, how strongly silos are held near the shared model", 0, 1e6)

    key: ClassVar[str] = "fedprox"

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train with the proximal term, then average as FedAvg does."""
        accompanied = in_company(coalitions, federation.participants)
        terms = {
            name: LocalTerms(anchor=row, pull=self.mu if name in accompanied else 0.0)
            for name, row in zip(federation.participants, state.parameters, strict=True)
        }
        sums = coalition_sums(federation, coalitions)
        mixed = mix_silos(self, federation, state, seed, sums, terms=terms)
        report = mixed.report.with_traffic(accompanied, self.shared_size(federation))
        return state.after(parameters=mixed.rows), report
