"""pFedHN: a hypernetwork at the server generates each participant's model from an embedding.

Shamsian, Navon, Fetaya and Chechik, "Personalized Federated Learning using Hypernetworks",
ICML 2021, Algorithm 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.batches import stream_seed
from fedegoists.federation.participant import Participant
from fedegoists.federation.seam import Federation
from fedegoists.learning.hypernetwork import Hypernetworks
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
class PFedHN(MethodSettings):
    """Silos train the model generated for them; before − after goes back through the hypernetwork.

    Each coalition has its own hypernetwork, with embeddings of 1 + n/4 entries for n members. The
    paper draws one participant a step; here every member trains in every round and their gradients
    are added, which is as many steps for each participant. Hypernetworks start so that they
    generate the initial model, the same for all methods, rather than random parameters.
    """

    hidden: int = setting(100, "width of the hypernetwork's hidden layers", 1, 10_000)
    layers: int = setting(3, "its hidden layers", 1, 10)
    outer_rate: float = setting(0.01, "learning rate of hypernetwork and embeddings", 0, 1e6)
    outer_momentum: float = setting(0.9, "momentum of the hypernetwork", 0, 0.999)
    clip: float = setting(50.0, "largest norm of a hypernetwork's gradient", 0, math.inf)

    key: ClassVar[str] = "pfedhn"

    def start(
        self, federation: Federation, coalitions: Coalitions, initial: Tensor, seed: int
    ) -> State:
        """Draw a hypernetwork for each coalition and an embedding for each member."""
        in_company(coalitions, federation.participants)
        position = {name: k for k, name in enumerate(federation.participants)}
        groups = _companies(coalitions)
        if not groups:
            return State(0, {"parameters": initial})
        entries = [_entries(group) for group in groups]
        networks = Hypernetworks.drawn(
            entries,
            torch.stack([initial[position[group[0]]] for group in groups]),
            [
                stream_seed(seed, "hypernetwork", *map(federation.stream_name, group))
                for group in groups
            ],
            hidden=self.hidden,
            layers=self.layers,
        )
        embeddings = torch.zeros(len(groups), max(map(len, groups)), max(entries))
        for k, (group, size) in enumerate(zip(groups, entries, strict=True)):
            for member, name in enumerate(group):
                own = stream_seed(seed, "embedding", federation.stream_name(name))
                generator = torch.Generator().manual_seed(own)
                embeddings[k, member, :size] = torch.randn(size, generator=generator)
        tensors = {f"network.{name}": value for name, value in networks.tensors.items()}
        momenta = {f"momentum.{name}": value for name, value in networks.at_rest().items()}
        embeddings = embeddings.to(initial.device)
        return State(
            0,
            {
                "parameters": initial,
                "embeddings": embeddings,
                "embedding_momentum": torch.zeros_like(embeddings),
                **tensors,
                **momenta,
            },
        )

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train the generated models; hypernetworks and embeddings follow Jᵀ(before − after)."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        trained = train_silos(self, federation, state, seed)
        report = trained.report.with_traffic(accompanied, self.shared_size(federation))
        groups = _companies(coalitions)
        if not groups:
            return state.after(parameters=trained.rows), report
        position = {name: k for k, name in enumerate(participants)}
        embeddings = state.tensors["embeddings"].clone()
        change = state.parameters.new_zeros(*embeddings.shape[:2], state.parameters.shape[1])
        for k, group in enumerate(groups):
            rows = [position[name] for name in group]
            change[k, : len(group)] = state.parameters[rows] - trained.rows[rows]
        networks = Hypernetworks(state.part("network.")).copy()
        momenta = {name: value.clone() for name, value in state.part("momentum.").items()}
        back = networks.descend(
            embeddings,
            change,
            momenta,
            rate=self.outer_rate,
            momentum=self.outer_momentum,
            clip=self.clip,
        )
        # Entries that a small coalition's embeddings do not have stay zero.
        used = torch.zeros_like(embeddings)
        for k, group in enumerate(groups):
            used[k, : len(group), : _entries(group)] = 1
        speed = self.outer_momentum * state.tensors["embedding_momentum"] + back * used
        embeddings = embeddings - self.outer_rate * speed
        generated = networks.generate(embeddings)
        parameters = trained.rows.clone()
        for k, group in enumerate(groups):
            parameters[[position[name] for name in group]] = generated[k, : len(group)]
        return (
            state.after(
                parameters=parameters,
                embeddings=embeddings,
                embedding_momentum=speed,
                **{f"network.{name}": value for name, value in networks.tensors.items()},
                **{f"momentum.{name}": value for name, value in momenta.items()},
            ),
            report,
        )


def _companies(coalitions: Coalitions) -> list[Sequence[Participant]]:
    return [group for group in coalitions if len(group) > 1]


def _entries(group: Sequence[Participant]) -> int:
    return 1 + len(group) // 4
