"""EgoMix: own mixtures of one's contributors' models, tuned, and kept only where they beat alone.

Not from the paper: how members train together under both of its principles so that a coalition pays
off for each of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.federation import Failure, Federation
from fedegoists.federation.operations import TINY, TrainSettings
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    setting,
    train_silos,
)

__all__ = ["EgoMix"]

Edge = tuple[str, str, float]
Phase = Literal["alone", "mixing", "tuning"]


@dataclass(frozen=True)
class EgoMix(MethodSettings):
    """Three phases: alone, mixing along benefit edges, tuning; validation chooses among all rounds.

    Of the settings' total steps a share is trained alone, exactly as Local would with so many. Then
    everybody starts anew, and after every round i's model becomes Σ_j x_ij w_j over itself and its
    contributors j, the benefit edges into i inside its coalition, with x_ij ∝ n_j · a_ij. At last
    everybody tunes its mixture on its own data, at half the rate. The run keeps the step that i's
    validation data prefers, so a mixture that does not help i is not used by i. In each phase the
    learning rate falls along a cosine of its own. Without total steps there is only mixing.

    Whoever neither has nor is a contributor trains alone and rests afterwards. A model travels from
    a contributor to whom it benefits, so influence travels along paths of benefit edges.

    Attributes
    ----------
    benefit : tuple of (contributor, beneficiary, weight), optional
        Who benefits whom; without it, everybody in a coalition benefits everybody else alike.
    """

    benefit: tuple[Edge, ...] | None = None
    alone: float = setting(0.5, "share of all steps in which everybody trains alone first", 0, 1)
    tune: float = setting(0.05, "share of all steps in which mixtures are tuned at the end", 0, 1)
    weighting: str = setting(
        "labels",
        "what a_ij is: cosine of label counts, 1, benefit weight, cosine of the round's updates",
        choices=("labels", "samples", "benefit", "updates"),
    )
    sharpness: float = setting(1.0, "exponent of a_ij", 0, 100)

    key: ClassVar[str] = "egomix"
    summary: ClassVar[str] = "own mixture of contributors' models, tuned; or alone, by validation"

    def affinities(
        self, coalitions: Coalitions, participants: Sequence[str], labels: Mapping[str, Tensor]
    ) -> Tensor:
        """Return a_ij in row i, zero wherever j does not contribute to i, and one for oneself."""
        in_company(coalitions, participants)
        position = {name: k for k, name in enumerate(participants)}
        unknown = {name for edge in self.benefit or () for name in edge[:2]} - set(participants)
        if unknown:
            raise SettingsError(f"the benefit graph names {min(unknown)!r}, who does not take part")
        given = None if self.benefit is None else {(j, i): weight for j, i, weight in self.benefit}
        matrix = torch.zeros(len(participants), len(participants), dtype=torch.float64)
        for group in coalitions:
            for i in group:
                row = matrix[position[i]]
                for j in group:
                    if j != i and (given is None or given.get((j, i), 0.0) > 0):
                        row[position[j]] = self._affinity(i, j, given, labels)
                if self.weighting == "benefit" and row.max() > 0:
                    row /= row.max()  # so that one counts oneself like one's best contributor
                row[position[i]] = 1.0
        return matrix**self.sharpness * (matrix > 0)

    def _affinity(
        self,
        i: str,
        j: str,
        given: Mapping[tuple[str, str], float] | None,
        labels: Mapping[str, Tensor],
    ) -> float:
        if self.weighting == "benefit" and given is not None:
            return given[j, i]
        if self.weighting == "labels" and i in labels and j in labels:
            one, other = labels[i].double(), labels[j].double()
            return float(one @ other / (one.norm() * other.norm()).clamp_min(TINY))
        return 1.0

    def start(
        self,
        federation: Federation,
        coalitions: Coalitions,
        initial: Tensor,
        seed: int,  # noqa: ARG002
    ) -> State:
        """Ask who is in company for numbers of samples and label counts."""
        names = in_company(coalitions, federation.participants)
        replies = federation.call("describe", {name: {} for name in names})
        answers = {name: replies.get(name, Failure(name, "timeout")) for name in names}
        failures = tuple(reply for reply in answers.values() if isinstance(reply, Failure))
        labels = {
            name: torch.tensor(reply["labels"])
            for name, reply in answers.items()
            if not isinstance(reply, Failure) and "labels" in reply
        }
        affinities = self.affinities(coalitions, federation.participants, labels)
        tensors = {
            "parameters": initial,
            "initial": initial,
            "affinities": affinities.to(initial),
        }
        return State(0, tensors, failures)

    def phase(self, number: int) -> tuple[Phase, int, int | None]:
        """Return the phase of a round, how many rounds of it are over, and its rounds in all."""
        if self.settings.total_steps is None:
            return "mixing", number, None
        rounds = max(1, self.settings.total_steps // self.settings.steps)
        alone = int(self.alone * rounds)
        tuning = min(math.ceil(self.tune * rounds), max(rounds - alone - 1, 0))
        if number < alone:
            return "alone", number, alone
        if number < rounds - tuning:
            return "mixing", number - alone, rounds - tuning - alone
        return "tuning", number - (rounds - tuning), tuning

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Carry out a round of the phase that the number of rounds done stands for."""
        participants = federation.participants
        in_company(coalitions, participants)
        phase, done, of = self.phase(state.round)
        settings = self._settings(phase, of)
        affinities = state.tensors["affinities"]
        joined = (affinities > 0).sum(1) + (affinities > 0).sum(0) > 2
        # Who trained alone already, and has nobody to train with, is done.
        resting = phase != "alone" and self.phase(0)[0] == "alone"
        names = [
            name
            for name, with_others in zip(participants, joined.tolist(), strict=True)
            if with_others or not resting
        ]
        rows, begun = state.parameters, RoundReport()
        if phase == "mixing" and done == 0 and resting:
            rows = torch.where(joined[:, None], state.tensors["initial"], rows)
            begun = self._forget(federation, names)
        trained = train_silos(
            self,
            federation,
            state,
            seed,
            names=names,
            rows=rows,
            settings=settings,
            first_step=done * settings.steps,
        )
        if phase != "mixing":
            return state.after(parameters=trained.rows), trained.report
        accompanied = [name for name, one in zip(participants, joined.tolist(), strict=True) if one]
        sizes = torch.tensor([trained.samples.get(name, 0.0) for name in participants])
        mixing = self._mixing(affinities, trained.rows - rows, sizes.to(affinities))
        mixed = torch.where(joined[:, None], mixing @ trained.rows, trained.rows)
        report = trained.report.with_traffic(accompanied, self.shared_size(federation))
        return state.after(parameters=mixed), begun | report

    def _forget(self, federation: Federation, names: Sequence[str]) -> RoundReport:
        """Have silos start anew with their personal parameters, too."""
        if not self.personal:
            return RoundReport()
        replies = federation.call("keep", {n: {"slot": self.name, "source": None} for n in names})
        answers = (replies.get(name, Failure(name, "timeout")) for name in names)
        return RoundReport(failures=tuple(one for one in answers if isinstance(one, Failure)))

    def _settings(self, phase: Phase, rounds: int | None) -> TrainSettings:
        if rounds is None:
            return self.settings
        rate = self.settings.learning_rate / (2 if phase == "tuning" else 1)
        total = max(1, rounds) * self.settings.steps
        return replace(self.settings, total_steps=total, learning_rate=rate)

    def _mixing(self, affinities: Tensor, updates: Tensor, sizes: Tensor) -> Tensor:
        """Return x: rows that sum to one; who did not answer has a share in nobody's mixture."""
        weights = affinities
        if self.weighting == "updates":
            directions = updates / updates.norm(dim=1, keepdim=True).clamp_min(TINY)
            alike = (directions @ directions.T).clamp(0, 1)
            alike.fill_diagonal_(1.0)
            weights = weights * alike**self.sharpness
        weights = weights.double() * sizes.double()
        totals = weights.sum(1, keepdim=True)
        # Where nobody answered, one keeps what one has.
        own = torch.eye(len(sizes), device=weights.device, dtype=weights.dtype)
        return torch.where(totals > 0, weights / totals.clamp_min(TINY), own).to(affinities)
