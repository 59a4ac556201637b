"""FedALA: each participant learns, number by number, how much of the shared model it takes.

Zhang, Hua, Wang, Song, Xue, Ma and Guan, "FedALA: Adaptive Local Aggregation for Personalized
Federated Learning", AAAI 2023, Algorithm 1.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Gradient
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    mixing_matrix,
    setting,
)
from fedegoists.methods.silo_training import personal_part, train_silos


@dataclass(frozen=True)
class FedALA(MethodSettings):
    """A round starts at w_i + (W − w_i) ⊙ x_i in the top layers, and at the shared W below them.

    w_i is i's own model of the last round, and x_i weights between 0 and 1 that descend i's
    training loss, x ← x − rate · ∇ℓ_i ⊙ (W − w_i), in many steps before the second round and in a
    few before each later one. The model that is evaluated is w_i, after local training.
    """

    layers: int = setting(1, "top layers that are aggregated number by number", 1, math.inf)
    rate: float = setting(1.0, "learning rate of the weights", 0, 1e6)
    first_steps: int = setting(10, "steps of the weights before the second round", 0, math.inf)
    later_steps: int = setting(1, "steps of the weights before each later round", 0, math.inf)

    key: ClassVar[str] = "fedala"

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return the shared model, and weights of one: everything of it is taken."""
        return {"shared": initial, "weights": torch.ones_like(initial)}

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Learn the weights, train from the aggregates, and average the models."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        together = torch.tensor([[name in accompanied] for name in participants])
        together = together.to(state.parameters.device)
        weights, report = self._learned(federation, state, seed, accompanied)
        begun = self.aggregates(federation.schema, state, weights)
        begun = torch.where(together, begun, state.parameters)
        trained = train_silos(self, federation, state, seed, rows=begun)
        answered = torch.tensor([[name in trained.samples] for name in participants])
        # Participants that did not answer keep their own models.
        models = torch.where(answered.to(begun.device), trained.rows, state.parameters)
        mixing = mixing_matrix(coalitions, participants, trained.samples).to(begun.device)
        someone = torch.tensor(
            [
                [any(one in trained.samples for one in group)]
                for name in participants
                for group in coalitions
                if name in group
            ]
        )
        shared = torch.where(
            someone.to(begun.device), mixing @ trained.rows, state.tensors["shared"]
        )
        own = trained.report.with_traffic(accompanied, self.shared_size(federation))
        return state.after(parameters=models, shared=shared, weights=weights), report | own

    def aggregates(self, schema: ParameterSchema, state: State, weights: Tensor) -> Tensor:
        """Return the models with which a round starts."""
        own, shared = state.parameters, state.tensors["shared"]
        top = top_layers(schema, self.layers).to(own.device)
        return torch.where(top, own + (shared - own) * weights, shared)

    def _learned(
        self, federation: Federation, state: State, seed: int, names: list[Participant]
    ) -> tuple[Tensor, RoundReport]:
        """Return the weights after some steps along each participant's training loss."""
        weights = state.tensors["weights"]
        steps = 0 if state.round == 0 else self.later_steps
        steps = self.first_steps if state.round == 1 else steps
        position = {name: k for k, name in enumerate(federation.participants)}
        apart = state.tensors["shared"] - state.parameters
        passes: Counter[Participant] = Counter()
        failures: dict[Participant, Failure] = {}
        losses: dict[Participant, float] = {}
        asked = list(names)
        for step in range(steps):
            rows = self.aggregates(federation.schema, state, weights)
            replies, failed = sorted_out(
                federation.call(
                    {
                        name: Gradient(
                            parameters=rows[position[name]],
                            batch_size=self.settings.batch_size,
                            step=step,
                            seed=f"{seed}/weights/{state.round}",
                            personal=personal_part(self),
                        )
                        for name in asked
                    }
                )
            )
            failures |= {failure.participant: failure for failure in failed}
            # A silo that has kept the others waiting is not called again in this round.
            asked = [name for name in asked if name in replies]
            weights = weights.clone()
            for name, reply in replies.items():
                k = position[name]
                slope = reply.gradient.to(weights.device) * apart[k]
                weights[k] = (weights[k] - self.rate * slope).clamp(0, 1)
                passes[name] += reply.samples
                losses[name] = reply.losses[0]
        report = RoundReport(losses, tuple(failures.values()), passes)
        vectors = steps * self.shared_size(federation)
        return weights, report.with_traffic(names if steps else [], vectors)


def top_layers(schema: ParameterSchema, count: int) -> Tensor:
    """Return a mask of the numbers in the last layers of a model.

    Examples
    --------
    >>> schema = ParameterSchema(("a.weight", "b.weight", "b.bias"), ((2,), (1,), (1,)))
    >>> top_layers(schema, 1).tolist(), top_layers(schema, 9).tolist()
    ([False, False, True, True], [True, True, True, True])
    """
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in schema.names))[-count:]
    return torch.cat(
        [
            torch.full((math.prod(shape),), name.rpartition(".")[0] in layers)
            for name, shape in zip(schema.names, schema.shapes, strict=True)
        ]
    )
