"""pFedGraph: each participant's model is a mixture of models with similar updates.

Ye, Ni, Wu, Chen and Wang, "Personalized Federated Learning with Inferred Collaboration Graphs",
ICML 2023, equations 3 to 6.
"""

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
    setting,
)
from fedegoists.methods.silo_training import train_silos


@dataclass(frozen=True)
class PFedGraph(MethodSettings):
    """Model i ← Σ_j x_j w_j, with x on the simplex minimising α ‖x − p‖² + dᵀx.

    p are the data shares and d_j = −cos of the updates of i and j from the initial model (below
    −0.9 it counts as −1). The local loss gets − lam · cos(w, aggregate): the paper pulls a silo
    towards its aggregate, public code has the sign that pushes it away. A round starts at the
    aggregate; the personal model, which is evaluated, is what local training makes of it.
    """

    alpha: float = setting(0.8, "α, how strongly weights are held near data shares", 1e-9, 1e12)
    lam: float = setting(0.01, "how strongly silos are drawn to their aggregate", 0, 1e6)

    key: ClassVar[str] = "pfedgraph"

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return the initial model, from which updates are counted, and the first aggregate."""
        return {"initial": initial, "aggregate": initial}

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train towards the aggregates, then mix each participant's model."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        # In the first round there is no aggregate yet.
        strength = self.lam if state.round else 0.0
        terms = {
            name: LocalTerms(towards=row, attraction=strength if name in accompanied else 0.0)
            for name, row in zip(participants, state.tensors["aggregate"], strict=True)
        }
        rows = state.tensors["aggregate"]
        trained = train_silos(self, federation, state, seed, rows=rows, terms=terms)
        answered = torch.tensor([[name in trained.samples] for name in participants])
        # Participants that did not answer keep their personal models.
        personal = torch.where(answered.to(rows.device), trained.rows, state.parameters)
        position = {name: k for k, name in enumerate(participants)}
        mixed = trained.rows.clone()
        for group in coalitions:
            present = [position[name] for name in group if name in trained.samples]
            if len(present) < 2:
                continue
            updates = trained.rows[present] - state.tensors["initial"][present]
            sizes = torch.tensor([trained.samples[participants[k]] for k in present])
            weights = self.weights(updates, sizes.to(updates.device))
            mixed[present] = weights @ trained.rows[present]
        report = trained.report.with_traffic(accompanied, self.shared_size(federation))
        return state.after(parameters=personal, aggregate=mixed), report

    def weights(self, updates: Tensor, sizes: Tensor) -> Tensor:
        """Return a coalition's mixing matrix from its members' updates and sample counts."""
        directions = updates / updates.norm(dim=1, keepdim=True).clamp_min(1e-12)
        distance = -(directions @ directions.T)
        distance = torch.where(distance < -0.9, -1.0, distance)
        shares = sizes / sizes.sum()
        # With 64 bits, or a small α would drown the shares.
        return onto_simplex(shares.double() - distance.double() / (2 * self.alpha)).to(updates)


def onto_simplex(rows: Tensor) -> Tensor:
    """Return the nearest point of the simplex for each row.

    Examples
    --------
    >>> onto_simplex(torch.tensor([[0.5, 0.5, 2.0], [0.25, 0.25, 0.5]])).tolist()
    [[0.0, 0.0, 1.0], [0.25, 0.25, 0.5]]
    """
    # Moving all entries of a row alike does not change its nearest point, but saves digits.
    rows = rows - rows.amax(1, keepdim=True)
    ordered = rows.sort(dim=1, descending=True).values
    counts = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    excess = (ordered.cumsum(1) - 1) / counts
    # The last place where an entry still exceeds what all larger ones have too much.
    last = (ordered > excess).sum(1, keepdim=True) - 1
    return (rows - excess.gather(1, last)).clamp_min(0)
