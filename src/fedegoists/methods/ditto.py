"""Ditto: a shared model by FedAvg, and a personal one beside it that is held near it.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML
2021, Algorithm 1.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.batches import stream_seed
from fedegoists.federation.requests import Keep, LocalTerms
from fedegoists.federation.seam import Federation, sorted_out
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    parts_of,
    setting,
)
from fedegoists.methods.silo_training import coalition_sums, mix_silos, train_silos


@dataclass(frozen=True)
class Ditto(MethodSettings):
    """The shared model w follows FedAvg; the personal v_i minimises ℓ_i(v) + λ/2 ‖v − w‖².

    A part of a round's steps trains w, the rest v_i, so that the method takes as many as others;
    each has at least one. In a round v_i is held near the w that the round started with. The pull
    acts beside the momentum, which would multiply it. v_i never leaves a silo whose sums are
    masked. A participant that is alone has no w, and trains as Local does.

    Of personal layers each silo has one set in its w and another in v_i.
    """

    lam: float = setting(0.1, "λ, how strongly v is held near w", 0, 1e6)
    shared: float = setting(0.5, "fraction of a round's steps in which w is trained", 0, 1)

    key: ClassVar[str] = "ditto"

    @property
    def mixes_at_home(self) -> bool:
        """Personal models stay at home where sums are masked."""
        return True

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return w, which is the initial model, as v is."""
        return {"shared": initial}

    @property
    def _shared_slot(self) -> str:
        """Where silos keep the personal layers of their w."""
        return f"{self.name}/shared"

    def start(
        self, federation: Federation, coalitions: Coalitions, initial: Tensor, seed: int
    ) -> State:
        """Return the state before the first round, with no personal layers of w kept by silos."""
        state = super().start(federation, coalitions, initial, seed)
        names = in_company(coalitions, federation.participants) if self.personal else []
        emptied = federation.call(dict.fromkeys(names, Keep(slot=self._shared_slot)))
        return replace(state, failures=(*state.failures, *sorted_out(emptied)[1]))

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train w and average it, then train the personal models."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        alone = [name for name in participants if name not in accompanied]
        own = train_silos(self, federation, state, seed, names=alone)
        if not accompanied:
            return state.after(parameters=own.rows), own.report
        of_shared, of_own = parts_of(self.settings.steps, self.shared)
        first = state.round * self.settings.steps
        shared = state.tensors["shared"]
        mixed = mix_silos(
            replace(self, at_home=()),  # the shared model is not at home anywhere
            federation,
            state,
            seed,
            coalition_sums(federation, coalitions),
            names=accompanied,
            rows=shared,
            settings=self.settings.changed(steps=of_shared),
            first_step=first,
            slot=self._shared_slot,
        )
        position = {name: k for k, name in enumerate(participants)}
        terms = {
            name: LocalTerms(anchor=shared[position[name]], pull=self.lam, decoupled=True)
            for name in accompanied
        }
        personal = train_silos(
            self,
            federation,
            state,
            stream_seed(seed, "personal"),
            names=accompanied,
            rows=own.rows,
            settings=self.settings.changed(steps=of_own),
            terms=terms,
            first_step=first + of_shared,
        )
        report = mixed.report.with_traffic(accompanied, self.shared_size(federation))
        return (
            state.after(
                parameters=personal.rows,
                shared=torch.where(mixed.received, mixed.rows, shared),
            ),
            own.report | report | personal.report,
        )
