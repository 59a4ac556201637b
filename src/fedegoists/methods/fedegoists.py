"""FedEgoists: each participant's model is trained on the weighted losses of its contributors.

Chen, Wu, Tang, He, Ong, Liu, Lao and Yu, "Free-Rider and Conflict Aware Collaboration Formation for
Cross-Silo Federated Learning", NeurIPS 2024, Section 5.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.federation import Failure, Federation
from fedegoists.federation.operations import TINY, learning_rates
from fedegoists.learning.hypernetwork import Hypernetworks
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    Paper,
    RoundReport,
    State,
    in_company,
    personal_part,
    setting,
    train_silos,
)

__all__ = ["FedEgoists"]

LEAST = 0.001
"""No preference is smaller, so that none is lost for good."""


@dataclass(frozen=True)
class FedEgoists(MethodSettings):
    """Minimise Σ_j r_j ℓ_j(h_i) with h_i = HN_i(r), over participant i and its contributors j.

    After training alone for a while (a share of the settings' total steps; without a total there is
    no warm-up), each participant has a hypernetwork that starts at its local model. Then two steps
    alternate: one on the hypernetwork, along the gradients of i and its contributors on training
    batches, and one on the preferences r, with a batch of i's own validation data.

    How the validation loss depends on r can be found in two ways. As published, r is an input of
    the hypernetwork, and the gradient goes back to it. But that network has never seen other
    preferences, so its slope says little, and it may well prefer contributors that do harm. By
    alignment, r_j grows where a step along j's gradient also lowers i's validation loss: the cosine
    of the two gradients, which is the derivative through one training step.

    A contributor sees the model that it is asked to help, and nothing else; it is in the same
    coalition, so no competitor ever does. Learning rates are divided by the hypernetwork's gain, so
    that a step moves h_i as far as a step of plain descent would. The released code trains over all
    members of a coalition (`whole_coalition`) and takes its joint steps on top of as many local
    ones as Local has; here both phases together have as many steps as Local.

    Attributes
    ----------
    benefit : tuple of pairs of str, optional
        Who benefits whom, as (contributor, beneficiary); without it, everybody in a coalition
        benefits everybody else.
    """

    benefit: tuple[tuple[str, str], ...] | None = None
    own_weight: float = setting(0.8, "a participant's first preference for itself", 0.01, 1)
    warm_up: float = setting(0.5, "share of all steps in which everybody trains alone first", 0, 1)
    preferences: str = setting(
        "alignment", "how preferences are learned", choices=("alignment", "hypernetwork")
    )
    preference_rate: float = setting(0.01, "learning rate of the preferences", 0, 1e6)
    hidden: int = setting(100, "width of the hypernetworks' hidden layers", 1, math.inf)
    layers: int = setting(2, "their hidden layers", 1, 10)
    whole_coalition: bool = setting(False, "whether all members contribute, benefit or not")

    key: ClassVar[str] = "fedegoists"
    summary: ClassVar[str] = "own model over the weighted losses of one's contributors"
    paper: ClassVar[Paper] = Paper(
        "Free-Rider and Conflict Aware Collaboration Formation for Cross-Silo Federated Learning",
        "Chen, Wu, Tang, He, Ong, Liu, Lao, Yu",
        "NeurIPS 2024",
    )

    def contributors(
        self, coalitions: Coalitions, participants: Sequence[str]
    ) -> dict[str, list[str]]:
        """Return, for everybody who has any, the contributors: benefit edges in the coalition."""
        in_company(coalitions, participants)
        unknown = {name for edge in self.benefit or () for name in edge} - set(participants)
        if unknown:
            raise SettingsError(f"the benefit graph names {min(unknown)!r}, who does not take part")
        edges = None if self.benefit is None or self.whole_coalition else set(self.benefit)
        found = {
            name: [
                other
                for other in group
                if other != name and (edges is None or (other, name) in edges)
            ]
            for group in coalitions
            for name in group
        }
        # With all weight on oneself nobody else is asked.
        return {name: found[name] for name in participants if found[name] and self.own_weight < 1}

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train alone during the warm-up; afterwards take a round of joint steps."""
        contributors = self.contributors(coalitions, federation.participants)
        first_joint = self.warm_up * (self.settings.total_steps or 0) / self.settings.steps
        if state.round < first_joint or not contributors:
            trained = train_silos(self, federation, state, seed)
            return state.after(parameters=trained.rows), trained.report
        alone = [name for name in federation.participants if name not in contributors]
        trained = train_silos(self, federation, state, seed, names=alone)
        joint = _Joint(self, federation, contributors, state, seed)
        for step, rate in enumerate(
            learning_rates(self.settings, state.round * self.settings.steps)
        ):
            joint.step(state.round * self.settings.steps + step, rate)
        parameters = trained.rows.clone()
        parameters[joint.rows] = joint.models()
        return (
            state.after(
                parameters=parameters,
                preferences=joint.preferences,
                **{f"network.{name}": value for name, value in joint.networks.tensors.items()},
            ),
            trained.report | joint.report,
        )


class _Joint:
    """The joint steps of one round, for all participants that have contributors at once."""

    def __init__(
        self,
        method: FedEgoists,
        federation: Federation,
        contributors: Mapping[str, Sequence[str]],
        state: State,
        seed: int,
    ) -> None:
        self.method, self.federation, self.seed = method, federation, seed
        self.names = list(contributors)
        position = {name: k for k, name in enumerate(federation.participants)}
        self.rows = torch.tensor([position[name] for name in self.names])
        device = state.parameters.device
        width = 1 + max(map(len, contributors.values()))
        members = [[name, *contributors[name]] for name in self.names]
        counts = torch.tensor([len(group) for group in members], device=device)
        self.used = torch.arange(width, device=device) < counts[:, None]
        if "preferences" in state.tensors:
            self.preferences = state.tensors["preferences"]
            self.networks = Hypernetworks(
                {
                    name.removeprefix("network."): value
                    for name, value in state.tensors.items()
                    if name.startswith("network.")
                }
            ).copy()
        else:
            shared = (1 - method.own_weight) / (counts - 1)
            self.preferences = self.used * shared[:, None]
            self.preferences[:, 0] = method.own_weight
            self.networks = Hypernetworks.drawn(
                [len(group) for group in members],
                state.parameters[self.rows],
                [stream_seed(seed, "hypernetwork", name) for name in self.names],
                hidden=method.hidden,
                layers=method.layers,
            )
        self.momenta = self.networks.at_rest()
        self.report = RoundReport()
        # Whom each silo helps, itself first: (row of the beneficiary, place of the silo in it).
        self.asked: dict[str, list[tuple[int, int]]] = {}
        for place in range(width):
            for row, group in enumerate(members):
                if place < len(group):
                    self.asked.setdefault(group[place], []).append((row, place))
        self.size = method.shared_size(federation)

    def models(self) -> Tensor:
        """Return every participant's model at its present preferences."""
        return self.networks.generate(self.preferences[:, None])[:, 0]

    def step(self, number: int, rate: float) -> None:
        """Take one step with the hypernetworks and one with the preferences."""
        settings = self.method.settings
        models = self.models()
        each, answered = self._gradients(models, number, rate)
        weights = self.preferences * answered
        weights = weights / weights.sum(1, keepdim=True).clamp_min(LEAST)
        gradients = torch.bmm(weights[:, None], each)[:, 0]
        if settings.weight_decay:
            gradients = gradients + settings.weight_decay * models
        inputs = self.preferences[:, None]
        self.networks.descend(
            inputs,
            gradients[:, None],
            self.momenta,
            rate=rate / self.networks.gain(inputs),
            momentum=settings.momentum,
        )
        if self.method.preference_rate:
            self._prefer(each, number)

    def _gradients(self, models: Tensor, number: int, rate: float) -> tuple[Tensor, Tensor]:
        """Return ∇ℓ_j(h_i) for every i and its contributors j, and who of these answered."""
        settings = self.method.settings
        payloads: dict[str, dict[str, Any]] = {}
        for name, pairs in self.asked.items():
            payloads[name] = {
                "parameters": models[[row for row, _ in pairs]],
                "batch_size": settings.batch_size,
                "step": number,
                "seed": f"{self.seed}/joint",
                "augment": settings.augment,
                **personal_part(self.method),
            }
            if self.method.personal and pairs[0][1] == 0:
                # Its own part follows as it does in training; like there, a round starts at rest.
                payloads[name] |= {
                    "personal_rate": rate,
                    "personal_momentum": settings.momentum if number % settings.steps else 0.0,
                    "personal_decay": settings.weight_decay,
                }
        answers = self._call(payloads)
        each = models.new_zeros(*self.preferences.shape, models.shape[1])
        answered = torch.zeros_like(self.preferences)
        rows, places, parts = [], [], []
        for name, reply in answers.items():
            rows += [row for row, _ in self.asked[name]]
            places += [place for _, place in self.asked[name]]
            parts.append(reply["gradient"])
        if parts:
            where = (
                torch.tensor(rows, device=models.device),
                torch.tensor(places).to(models.device),
            )
            each[where] = torch.cat(parts)
            answered[where] = 1.0
        return each, answered

    def _prefer(self, each: Tensor, number: int) -> None:
        """Move each participant's preferences by what its own validation data says."""
        models = self.models()
        answers = self._call(
            {
                name: {
                    "parameters": models[k : k + 1],
                    "split": "validation",
                    "batch_size": self.method.settings.batch_size,
                    "step": number,
                    "seed": f"{self.seed}/preference",
                    **personal_part(self.method),
                }
                for k, name in enumerate(self.names)
            }
        )
        validation = torch.zeros_like(models)
        for k, name in enumerate(self.names):
            if name in answers:
                validation[k] = answers[name]["gradient"][0]
        if self.method.preferences == "alignment":
            lengths = each.norm(dim=2) * validation.norm(dim=1, keepdim=True)
            slope = -torch.bmm(each, validation[:, :, None])[:, :, 0] / lengths.clamp_min(TINY)
        else:
            inputs = self.preferences[:, None]
            slope = self.networks.input_gradient(inputs, validation[:, None])[:, 0]
        moved = (self.preferences - self.method.preference_rate * slope).clamp(LEAST, 1) * self.used
        self.preferences = moved / moved.sum(1, keepdim=True)

    def _call(self, payloads: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Ask for gradients; note failures and what was spent, and return usable answers."""
        replies = self.federation.call("loss_and_gradient", payloads)
        answers, losses, passes, received, failures = {}, {}, {}, {}, []
        for name, payload in payloads.items():
            vectors = len(payload["parameters"])
            received[name] = 4 * self.size * vectors
            reply = replies.get(name, Failure(name, "timeout"))
            if isinstance(reply, Failure):
                failures.append(reply)
                continue
            answers[name] = reply
            passes[name] = vectors * reply["samples"]
            if payload.get("split") != "validation" and self.asked[name][0][1] == 0:
                losses[name] = reply["loss"][0]
        sent = {name: amount for name, amount in received.items() if name in answers}
        self.report = self.report | RoundReport(losses, tuple(failures), passes, sent, received)
        return answers
