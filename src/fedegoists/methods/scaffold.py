"""SCAFFOLD: control variates cancel the drift of silos with different data.

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning", ICML 2020, Algorithm 1 with option II for the control variates.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.requests import LocalTerms, TrainSettings
from fedegoists.federation.seam import Federation
from fedegoists.federation.silo_operations import learning_rates
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    mixing_matrix,
    setting,
)
from fedegoists.methods.silo_training import train_silos


@dataclass(frozen=True)
class Scaffold(MethodSettings):
    """Local steps along g − c_i + c; then c_i ← c_i − c + (w − w_i) / Σ rates.

    The paper divides by K·rate. With momentum or a falling rate that overestimates the gradient;
    here the divisor is the exact weight that the K gradients have in w − w_i, so c_i becomes their
    weighted mean. Models and control variates are averaged by sample count, where the paper takes
    plain means: so the corrections of a coalition cancel in its average, and with control variates
    of zero this is FedAvg. A silo that fails in a round keeps its c_i, which still counts in c.
    """

    server_rate: float = setting(1.0, "η_g, how far the shared model moves to the average", 0, 2)

    key: ClassVar[str] = "scaffold"

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return control variates of zero, and sample counts of zero: none is known yet."""
        zeros = torch.zeros_like(initial)
        return {"control": zeros, "shared_control": zeros, "samples": zeros[:, 0]}

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train with corrected gradients, then average models and control variates."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        control, shared_control = state.tensors["control"], state.tensors["shared_control"]
        correction = shared_control - control
        terms = {name: LocalTerms(correction=correction[k]) for k, name in enumerate(participants)}
        trained = train_silos(self, federation, state, seed, terms=terms)
        weight = gradient_weight(self.settings, state.round * self.settings.steps)
        # Steps of length zero, at the end of a falling rate, say nothing about gradients.
        told = trained.samples.keys() & set(accompanied) if weight > 0 else set()
        changed = torch.tensor([name in told for name in participants], device=control.device)
        following = control - shared_control + (state.parameters - trained.rows) / weight
        following = torch.where(changed[:, None], following, control)
        # Silos that fail now also have a share in c, by their samples at the last answer.
        known = dict(zip(participants, state.tensors["samples"].tolist(), strict=True))
        known |= trained.samples
        mixing = mixing_matrix(coalitions, participants, trained.samples).to(control.device)
        average = mixing @ trained.rows
        overall = mixing_matrix(coalitions, participants, known)
        together = torch.tensor([name in accompanied for name in participants])[:, None]
        moved = state.parameters + self.server_rate * (average - state.parameters)
        report = trained.report.with_traffic(
            accompanied, self.shared_size(federation), sent=2, received=2
        )
        return (
            state.after(
                parameters=torch.where(together.to(moved.device), moved, trained.rows),
                control=following,
                shared_control=overall.to(control.device) @ following,
                samples=torch.tensor([known[name] for name in participants], device=moved.device),
            ),
            report,
        )


def gradient_weight(settings: TrainSettings, first_step: int) -> float:
    """Return how much the gradients of a round weigh together in the change of the parameters.

    A gradient g_s moves them by Σ_{t ≥ s} rate_t · momentum^(t−s) times itself.

    Examples
    --------
    >>> gradient_weight(TrainSettings(steps=5, learning_rate=0.1, momentum=0.0), 0)
    0.5
    >>> gradient_weight(TrainSettings(steps=2, learning_rate=0.1, momentum=0.5), 0)
    0.25
    """
    weight = carried = 0.0
    for rate in learning_rates(settings, first_step):
        carried = settings.momentum * carried + 1.0
        weight += rate * carried
    return weight
