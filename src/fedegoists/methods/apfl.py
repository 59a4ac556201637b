"""APFL: each participant's model is a mixture of the shared model and one of its own.

Deng, Kamani and Mahdavi, "Adaptive Personalized Federated Learning", 2020, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.batches import stream_seed
from fedegoists.federation.requests import LocalTerms, TrainSettings
from fedegoists.federation.seam import Federation
from fedegoists.federation.silo_operations import learning_rates
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    parts_of,
    setting,
)
from fedegoists.methods.scaffold import gradient_weight
from fedegoists.methods.silo_training import coalition_sums, mix_silos, train_silos


@dataclass(frozen=True)
class APFL(MethodSettings):
    """The model of i is z = a_i v_i + (1 − a_i) w: w by FedAvg, v_i by descent of ℓ_i(z).

    A step of v_i along ∇_v ℓ_i(z) = a ∇ℓ_i(z) moves z by a² times a step of its own, so silos train
    z at the rate a² η. The paper takes a step with w and one with v in turn, and mixes v with the
    silo's own w; here a round's steps are divided between the two, and w stands still below v for a
    round. After it, a_i ← a_i − η ⟨v_i − w, ∇ℓ_i(z)⟩, between 0 and 1, with the mean gradient of
    the round. A participant that is alone trains as Local does.
    """

    start_at: float = setting(0.5, "a at the start", 0, 1)
    adapt: bool = setting(True, "whether a is learned")
    shared: float = setting(0.5, "fraction of a round's steps in which w is trained", 0, 1)

    key: ClassVar[str] = "apfl"

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return w and v, which are the initial model, and a."""
        return {
            "shared": initial,
            "own": initial,
            "mixture": torch.full_like(initial[:, :1], self.start_at),
        }

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train w and average it; train each participant's mixture; learn its weight."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        alone = [name for name in participants if name not in accompanied]
        trained = train_silos(self, federation, state, seed, names=alone)
        if not accompanied:
            return state.after(parameters=trained.rows), trained.report
        of_shared, of_own = parts_of(self.settings.steps, self.shared)
        first = state.round * self.settings.steps
        shared, own, a = (state.tensors[name] for name in ("shared", "own", "mixture"))
        mixed = mix_silos(
            self,
            federation,
            state,
            seed,
            coalition_sums(federation, coalitions),
            names=accompanied,
            rows=shared,
            settings=self.settings.changed(steps=of_shared),
            first_step=first,
        )
        start = a * own + (1 - a) * shared
        settings = self.settings.changed(steps=of_own)
        paces = (a[:, 0] ** 2).tolist()
        nearer = train_silos(
            self,
            federation,
            state,
            stream_seed(seed, "personal"),
            names=accompanied,
            rows=start,
            settings=settings,
            terms={
                name: LocalTerms(pace=pace)
                for name, pace in zip(participants, paces, strict=True)
                if name in accompanied
            },
            first_step=first + of_shared,
        )
        moved = nearer.rows - start
        follows = a > 0  # at a = 0 nothing is seen of v
        after = torch.where(follows, own + moved / a.clamp_min(1e-12), own)
        if self.adapt:
            a = self._adapted(a, own - shared, moved, settings, first + of_shared)
        next_shared = torch.where(mixed.received, mixed.rows, shared)
        company = torch.tensor([[name in accompanied] for name in participants])
        models = torch.where(company.to(a.device), a * after + (1 - a) * next_shared, trained.rows)
        report = mixed.report.with_traffic(accompanied, self.shared_size(federation))
        return (
            state.after(parameters=models, shared=next_shared, own=after, mixture=a),
            trained.report | report | nearer.report,
        )

    def _adapted(
        self, a: Tensor, apart: Tensor, moved: Tensor, settings: TrainSettings, first_step: int
    ) -> Tensor:
        """Return the weights of own models after a step along their mean slope of the round."""
        weight = a**2 * gradient_weight(settings, first_step)
        gradient = torch.where(weight > 0, -moved / weight.clamp_min(1e-12), 0.0)
        rate = learning_rates(settings, first_step)[0]
        return (a - rate * (apart * gradient).sum(1, keepdim=True)).clamp(0, 1)
