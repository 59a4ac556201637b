"""FedORA: models propagated over a graph of similar participants, followed only where they help.

Wu, Bao, Ainsworth and He, "Personalized Federated Learning with Parameter Propagation", KDD 2023.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Describe, Evaluate, LocalTerms
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    setting,
)
from fedegoists.methods.silo_training import personal_part, train_silos


@dataclass(frozen=True)
class FedORA(MethodSettings):
    """Each participant trains its own model, pulled towards a propagated one if that is better.

    Once, every silo names the top left singular vector u of its samples [x; onehot(y)]. Similarity
    is exp(10 · abs(cos)); the most similar neighbours make a row-normalised S within the coalition,
    and P = (1−p)(I − pS)⁻¹ propagates the models. The strength of the pull is exp((ℓ_own −
    ℓ_propagated)/2) of the mean validation losses, zero unless the propagated model is better; it
    does not go through the momentum, and is limited so that one step never goes further than half
    the way.
    """

    propagation: float = setting(0.8, "p, how far models spread over the graph", 0, 0.999)
    neighbours: int = setting(2, "similar participants each one listens to", 1, math.inf)

    key: ClassVar[str] = "fedora"

    def start(
        self,
        federation: Federation,
        coalitions: Coalitions,
        initial: Tensor,
        seed: int,  # noqa: ARG002
    ) -> State:
        """Ask for directions and make the propagation matrix; silent participants stay apart."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        replies, failures = sorted_out(
            federation.call(dict.fromkeys(accompanied, Describe(direction=True)))
        )
        directions = {
            name: reply.direction for name, reply in replies.items() if reply.direction is not None
        }
        matrix = torch.eye(len(participants))
        position = {name: k for k, name in enumerate(participants)}
        for group in coalitions:
            members = [name for name in group if name in directions]
            # The server does not know how long directions are; most silos do.
            lengths = Counter(len(directions[name]) for name in members)
            usual = max(lengths, key=lengths.__getitem__, default=0)
            members = [name for name in members if len(directions[name]) == usual]
            if len(members) > 1:
                rows = torch.tensor([position[name] for name in members])
                vectors = torch.stack([directions[name].cpu() for name in members])
                matrix[rows[:, None], rows] = self.propagate(vectors)
        return State(
            0,
            {
                "parameters": initial,
                "propagated": initial,
                "propagation": matrix.to(initial.device),
            },
            failures,
        )

    def propagate(self, directions: Tensor) -> Tensor:
        """Return (1−p)(I − pS)⁻¹ for members with these directions."""
        units = directions / directions.norm(dim=1, keepdim=True).clamp_min(1e-12)
        similarity = torch.exp(10 * (units @ units.T).abs()).double()
        similarity.fill_diagonal_(0)
        count = min(self.neighbours, len(units) - 1)
        strongest = similarity.topk(count, dim=1)
        kept = torch.zeros_like(similarity).scatter(1, strongest.indices, strongest.values)
        kept = kept / kept.sum(1, keepdim=True)
        identity = torch.eye(len(units), dtype=torch.float64)
        spread: Tensor = torch.linalg.inv(identity - self.propagation * kept)
        return ((1 - self.propagation) * spread).float()

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Compare own and propagated models, train own ones, then propagate them."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        propagated = state.tensors["propagated"]
        pulls, failures = self._pulls(federation, state, accompanied)
        terms = {
            # Beside the momentum, which would make the pull up to ten times as strong.
            name: LocalTerms(anchor=propagated[k], pull=pulls.get(name, 0.0), decoupled=True)
            for k, name in enumerate(participants)
        }
        trained = train_silos(self, federation, state, seed, terms=terms)
        report = trained.report.with_traffic(accompanied, self.shared_size(federation))
        return (
            state.after(
                parameters=trained.rows, propagated=state.tensors["propagation"] @ trained.rows
            ),
            report | RoundReport(failures=failures),
        )

    def _pulls(
        self, federation: Federation, state: State, names: list[Participant]
    ) -> tuple[dict[Participant, float], tuple[Failure, ...]]:
        """Return how strongly each participant is pulled to its propagated model."""
        losses: list[dict[Participant, float]] = []
        failures: list[Failure] = []
        position = {name: k for k, name in enumerate(federation.participants)}
        personal = personal_part(self)
        for rows in (state.parameters, state.tensors["propagated"]):
            replies, failed = sorted_out(
                federation.call(
                    {
                        name: Evaluate(
                            parameters=rows[position[name]], split="validation", personal=personal
                        )
                        for name in names
                    }
                )
            )
            failures += failed
            losses.append({name: reply.losses[0] for name, reply in replies.items()})
        own, spread = losses
        most = 0.5 / max(self.settings.learning_rate, 1e-12)
        pulls = {}
        for name in own.keys() & spread.keys():
            gain = own[name] - spread[name]
            if gain > 0:
                pulls[name] = min(math.exp(min(gain / 2, 50.0)), most)
        return pulls, tuple(failures)
