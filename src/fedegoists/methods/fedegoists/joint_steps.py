"""FedEgoists' joint steps, for all participants at once: on hypernetworks and on preferences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedegoists.federation.batches import stream_seed
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Gradients
from fedegoists.federation.requests import Gradient
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.federation.silo_operations import TINY
from fedegoists.learning.hypernetwork import Hypernetworks
from fedegoists.methods.fedegoists.direct_models import DirectModels
from fedegoists.methods.method import RoundReport, State
from fedegoists.methods.silo_training import personal_part

if TYPE_CHECKING:
    from fedegoists.methods.fedegoists.fedegoists_method import FedEgoists

LEAST = 0.001
"""No preference is smaller, so that none is lost for good."""


class JointSteps:
    """The joint steps of one round, for all participants that have contributors at once."""

    def __init__(
        self,
        method: "FedEgoists",
        federation: Federation,
        contributors: Mapping[Participant, Sequence[Participant]],
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
        self.networks: Hypernetworks | DirectModels
        direct = method.generator == "direct"
        if "preferences" in state.tensors:
            self.preferences = state.tensors["preferences"]
            kind = DirectModels if direct else Hypernetworks
            self.networks = kind(state.part("network.")).copy()
        else:
            shared = (1 - method.own_weight) / (counts - 1)
            self.preferences = self.used * shared[:, None]
            self.preferences[:, 0] = method.own_weight
            starts = state.parameters[self.rows]
            self.networks = (
                DirectModels({"model": starts.clone()})
                if direct
                else Hypernetworks.drawn(
                    [len(group) for group in members],
                    starts,
                    [
                        stream_seed(seed, "hypernetwork", federation.stream_name(name))
                        for name in self.names
                    ],
                    hidden=method.hidden,
                    layers=method.layers,
                )
            )
        self.momenta = self.networks.at_rest()
        self.silent: set[Participant] = set()
        self._losses: dict[Participant, float] = {}
        self._failures: dict[Participant, Failure] = {}
        self._passes: Counter[Participant] = Counter()
        self._sent: Counter[Participant] = Counter()
        self._received: Counter[Participant] = Counter()
        # The beneficiaries of each silo, itself first: (row of beneficiary, place of silo in it).
        self.asked: dict[Participant, list[tuple[int, int]]] = {}
        for place in range(width):
            for row, group in enumerate(members):
                if place < len(group):
                    self.asked.setdefault(group[place], []).append((row, place))
        self.size = method.shared_size(federation)
        pairs = [pair for group in self.asked.values() for pair in group]
        self._where = torch.tensor(pairs, device=device).T
        self._counts = {name: len(group) for name, group in self.asked.items()}

    @property
    def report(self) -> RoundReport:
        """The losses, failures and costs of all steps so far."""
        failures = tuple(self._failures.values())
        return RoundReport(self._losses, failures, self._passes, self._sent, self._received)

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
        # The objective of participant i is Σ_j r_j ℓ_j(h_i), over itself and its contributors j;
        # this is its gradient at h_i = HN(φ_i, r_i), Equation 9.
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
        """Return ∇ℓ_j(h_i) for every i and its contributors j, and which of these answered."""
        settings = self.method.settings
        personal = stepping = personal_part(self.method)
        if personal is not None:
            # Its own part follows as it does in training; like there, a round starts at rest.
            stepping = personal.model_copy(
                update={
                    "rate": rate,
                    "momentum": settings.momentum if number % settings.steps else 0.0,
                    "decay": settings.weight_decay,
                }
            )
        parts = torch.split(models.index_select(0, self._where[0]), list(self._counts.values()))
        answers = self._call(
            {
                name: Gradient(
                    parameters=part,
                    batch_size=settings.batch_size,
                    step=number,
                    seed=f"{self.seed}/joint",
                    augment=settings.augment,
                    class_weights=settings.class_weights,
                    personal=stepping if pairs[0][1] == 0 else personal,
                )
                for (name, pairs), part in zip(self.asked.items(), parts, strict=True)
            }
        )
        each = models.new_zeros(*self.preferences.shape, models.shape[1])
        answered = torch.zeros_like(self.preferences)
        if answers:
            where = self._where
            if len(answers) < len(self.asked):
                some = [pair for name in answers for pair in self.asked[name]]
                where = torch.tensor(some, device=models.device).T
            each[where[0], where[1]] = torch.cat([one.gradient for one in answers.values()])
            answered[where[0], where[1]] = 1.0
        return each, answered

    def _prefer(self, each: Tensor, number: int) -> None:
        """Move each participant's preferences by what its own validation data says."""
        models = self.models()
        personal = personal_part(self.method)
        answers = self._call(
            {
                name: Gradient(
                    parameters=model,
                    split="validation",
                    batch_size=self.method.settings.batch_size,
                    step=number,
                    seed=f"{self.seed}/preference",
                    personal=personal,
                )
                for name, model in zip(self.names, torch.split(models, 1), strict=True)
            }
        )
        validation = torch.zeros_like(models)
        if answers:
            given = torch.cat([one.gradient for one in answers.values()])
            where = [k for k, name in enumerate(self.names) if name in answers]
            validation = (
                given
                if len(where) == len(self.names)
                else validation.index_copy(0, torch.tensor(where, device=given.device), given)
            )
        if self.method.preferences == "alignment":
            lengths = each.norm(dim=2) * validation.norm(dim=1, keepdim=True)
            slope = -torch.bmm(each, validation[:, :, None])[:, :, 0] / lengths.clamp_min(TINY)
        else:
            assert isinstance(self.networks, Hypernetworks)
            inputs = self.preferences[:, None]
            slope = self.networks.input_gradient(inputs, validation[:, None])[:, 0]
        moved = (self.preferences - self.method.preference_rate * slope).clamp(LEAST, 1) * self.used
        self.preferences = moved / moved.sum(1, keepdim=True)

    def _call(self, requests: Mapping[Participant, Gradient]) -> dict[Participant, Gradients]:
        """Ask for gradients; note failures and costs, and return usable replies.

        A silo that has kept the others waiting once is not called again in this round.
        """
        requests = {name: one for name, one in requests.items() if name not in self.silent}
        replies, failures = sorted_out(self.federation.call(requests))
        for failure in failures:
            self._failures.setdefault(failure.participant, failure)
            if failure.reason == "timeout":
                self.silent.add(failure.participant)
        for name, request in requests.items():
            vectors = request.parameters.shape[0]
            amount = 4 * self.size * vectors
            self._received[name] += amount
            if name in replies:
                self._sent[name] += amount
                self._passes[name] += vectors * replies[name].samples
                if request.split != "validation" and self.asked[name][0][1] == 0:
                    self._losses[name] = replies[name].losses[0]
        return replies
