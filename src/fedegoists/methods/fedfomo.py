"""FedFomo: each participant moves towards those models that are better on its own validation data.

Zhang, Sapra, Fidler, Yeung and Alvarez, "Personalized Federated Learning with First Order Model
Optimization", ICLR 2021, equations 3 and 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Evaluate
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    setting,
)
from fedegoists.methods.silo_training import LocalModels, personal_part, train_silos


@dataclass(frozen=True)
class FedFomo(MethodSettings):
    """w_i ← w_i + Σ_j x_j (w_j − w_i) over the members j of i's coalition, itself included.

    w_i is i's model before the round and w_j are models after it. x_j is in proportion to how much
    w_j is better than w_i on i's validation data, divided by ‖w_j − w_i‖, and zero where it is not
    better; the x_j are normalised. Where no model is better, i goes on with its own new one, as in
    public code. All members of a coalition are compared: the paper draws some of them where there
    are many.
    """

    server_rate: float = setting(1.0, "how far a model moves to the better ones", 0, 2)

    key: ClassVar[str] = "fedfomo"

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train all participants, then compare and mix the models of each coalition."""
        participants = federation.participants
        in_company(coalitions, participants)  # refuses what is no partition
        trained = train_silos(self, federation, state, seed)
        losses, failures = self._compared(federation, coalitions, state, trained)
        position = {name: k for k, name in enumerate(participants)}
        models = trained.rows.clone()
        size = self.shared_size(federation)
        report = trained.report
        for group in coalitions:
            others = [name for name in group if name in trained.samples]
            for name in group if len(group) > 1 else ():
                k = position[name]
                if name in losses:
                    before = state.parameters[k]
                    apart = trained.rows[[position[one] for one in others]] - before
                    weights = self.weights(losses[name], apart)
                    if weights.sum() > 0:
                        models[k] = before + self.server_rate * (weights @ apart)
                # Of its own two models it need not be sent any.
                report = report.with_traffic([name], size, received=len(set(others) - {name}))
        return state.after(parameters=models), report | RoundReport(failures=failures)

    def _compared(
        self, federation: Federation, coalitions: Coalitions, state: State, trained: LocalModels
    ) -> tuple[dict[Participant, Sequence[float]], tuple[Failure, ...]]:
        """Return each participant's validation losses: of its model, and of all new ones."""
        position = {name: k for k, name in enumerate(federation.participants)}
        requests = {}
        for group in coalitions:
            others = [position[name] for name in group if name in trained.samples]
            if len(group) > 1 and others:
                for name in group:
                    if name in trained.samples:
                        rows = torch.cat([state.parameters[[position[name]]], trained.rows[others]])
                        requests[name] = Evaluate(
                            parameters=rows, split="validation", personal=personal_part(self)
                        )
        replies, failures = sorted_out(federation.call(requests))
        return {name: reply.losses for name, reply in replies.items()}, failures

    def weights(self, losses: Sequence[float], apart: Tensor) -> Tensor:
        """Return the weights of models, given validation losses, one's own before the round first.

        Examples
        --------
        >>> FedFomo().weights([1.0, 0.5, 2.0, 0.8], torch.tensor([[1.0], [9.0], [0.4]]))
        tensor([0.5000, 0.0000, 0.5000])
        """
        before, *after = losses
        better = torch.tensor([before - loss for loss in after], device=apart.device)
        found: Tensor = (better / apart.norm(dim=1).clamp_min(1e-12)).clamp_min(0).to(apart)
        return found / found.sum() if found.sum() > 0 else found
