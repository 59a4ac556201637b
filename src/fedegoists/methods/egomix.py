"""EgoMix: for each participant a mixture of its contributors' models, with its own output bias.

Not from the paper: how members train together under both of its principles so that a coalition pays
off for each of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Describe, Keep, TrainSettings
from fedegoists.federation.seam import Federation, sorted_out
from fedegoists.federation.silo_operations import TINY
from fedegoists.learning.model_registry import OUTPUT_LAYER
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    setting,
    train_silos,
)

Edge = tuple[Participant, Participant, float]
Phase = Literal["alone", "mixing", "tuning"]


@dataclass(frozen=True)
class EgoMix(MethodSettings):
    """After every round i's model becomes Σ_j x_ij w_j over itself and its contributors j.

    Contributors are the benefit edges into i inside its coalition, with x_ij ∝ n_j · a_ij. Labels
    are distributed unevenly, and three measures keep that from spoiling the common model:

    - each participant has its own bias in the output layer, which starts at the logarithm of its
      label fractions, so that models need not agree on how frequent a class is;
    - the output weights of a class are mixed in proportion to the samples of that class, so that
      participants that have never seen it do not unlearn it for the others;
    - the momentum continues over rounds, mixed like the models, instead of starting at zero.

    A mixture moves less than one silo alone does, so it has a momentum over rounds, after Nesterov:
    with β = `outer` and δ the change of a round, v ← β v + δ, and the model, its own bias included,
    moves by β v further.

    Two further phases are optional: a fraction of the total steps alone before, exactly as Local
    with this number of steps, after which mixing starts from the initial model; and a fraction of
    tuning on own data at half the rate at the end. The run keeps the step that i's validation data
    prefers, so after them a mixture that does not help i is not used by i. In each phase the
    learning rate falls along a cosine of its own.

    A participant that neither has nor is a contributor trains alone. Models travel from
    contributors to beneficiaries, so influence travels along paths of benefit edges.

    Attributes
    ----------
    benefit : tuple of (contributor, beneficiary, weight), optional
        The edges of the benefit graph; without it, all members of a coalition benefit each other.
    """

    benefit: tuple[Edge, ...] | None = None
    alone: float = setting(
        0.0, "fraction of all steps in which participants train alone first", 0, 1
    )
    tune: float = setting(0.0, "share of all steps in which mixtures are tuned at the end", 0, 1)
    weighting: str = setting(
        "labels",
        "what a_ij is: cosine of label counts, 1, benefit weight, cosine of the round's updates",
        choices=("labels", "samples", "benefit", "updates"),
    )
    sharpness: float = setting(1.0, "exponent of a_ij", 0, 100)
    own: str = setting(
        "bias", "what of the output layer is not mixed", choices=("nothing", "bias", "layer")
    )
    prior: bool = setting(True, "whether its bias starts at the logarithm of label shares")
    by_class: bool = setting(True, "whether a class's outputs are mixed by samples of that class")
    keep_momentum: bool = setting(True, "whether the momentum goes on over rounds")
    outer: float = setting(0.5, "momentum of one's mixture over rounds, after Nesterov", 0, 0.99)

    key: ClassVar[str] = "egomix"

    def affinities(
        self,
        coalitions: Coalitions,
        participants: Sequence[Participant],
        labels: Mapping[Participant, Tensor],
    ) -> Tensor:
        """Return a_ij in row i, zero wherever j does not contribute to i, and one for oneself."""
        in_company(coalitions, participants)
        position = {name: k for k, name in enumerate(participants)}
        unknown = {name for j, i, _ in self.benefit or () for name in (j, i)} - set(participants)
        if unknown:
            raise SettingsError(
                f"the benefit graph names {min(unknown)!r}, which does not take part"
            )
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
        i: Participant,
        j: Participant,
        given: Mapping[tuple[Participant, Participant], float] | None,
        labels: Mapping[Participant, Tensor],
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
        """Ask participants in company for label counts, where anything depends on them."""
        names = in_company(coalitions, federation.participants)
        if not (self.weighting == "labels" or self.prior or self.by_class):
            names = []
        replies, failures = sorted_out(federation.call(dict.fromkeys(names, Describe())))
        labels = {
            name: torch.tensor(reply.labels)
            for name, reply in replies.items()
            if reply.labels is not None
        }
        affinities = self.affinities(coalitions, federation.participants, labels)
        counts = _label_counts(federation, labels)
        start = (
            initial
            if counts is None or not self.prior
            else _with_prior(federation, initial, counts)
        )
        tensors = {
            "parameters": initial if self.phase(0)[0] == "alone" else start,
            "initial": start,
            "affinities": affinities.to(initial),
        }
        if counts is not None and self.by_class:
            tensors["labels"] = counts.to(initial)
        if self.keep_momentum:
            tensors["momentum"] = torch.zeros_like(initial)
        if self.outer:
            tensors["velocity"] = torch.zeros_like(initial)
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
        """Carry out one round of the present phase."""
        participants = federation.participants
        in_company(coalitions, participants)
        phase, done, of = self.phase(state.round)
        settings = self._settings(phase, of)
        affinities = state.tensors["affinities"]
        joined = (affinities > 0).sum(1) + (affinities > 0).sum(0) > 2
        # A participant that has trained alone, and has no partner, is done.
        resting = phase != "alone" and self.phase(0)[0] == "alone"
        names = [
            name
            for name, with_others in zip(participants, joined.tolist(), strict=True)
            if with_others or not resting
        ]
        rows, begun = state.parameters, RoundReport()
        momentum = state.tensors.get("momentum")
        if done == 0 and momentum is not None:
            momentum = torch.zeros_like(momentum)
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
            momentum=momentum,
            first_step=done * settings.steps,
        )
        kept = {} if trained.momentum is None else {"momentum": trained.momentum}
        if phase != "mixing":
            return state.after(parameters=trained.rows, **kept), trained.report
        accompanied = [name for name, one in zip(participants, joined.tolist(), strict=True) if one]
        sizes = torch.tensor([trained.samples.get(name, 0.0) for name in participants])
        weights = self._weights(affinities, trained.rows - rows, sizes.to(affinities))
        mixture = _Mixture(federation, weights, self.own, state.tensors.get("labels"))
        mixed = {
            name: torch.where(joined[:, None], mixture.of(values), values)
            for name, values in (("parameters", trained.rows), *kept.items())
        }
        size = len(mixed) * self.shared_size(federation)
        report = trained.report.with_traffic(accompanied, size)
        if self.outer:
            # Without contributors, or without any answer, there is no mixture to move.
            moving = (((affinities > 0).sum(1) > 1) & (weights.sum(1) > 0))[:, None]
            moved = mixed["parameters"] - rows
            before = state.tensors["velocity"]
            velocity = torch.where(moving, self.outer * before + moved, before)
            mixed["parameters"] = mixed["parameters"] + moving * self.outer * velocity
            mixed["velocity"] = velocity
        return state.after(**mixed), begun | report

    def _forget(self, federation: Federation, names: Sequence[Participant]) -> RoundReport:
        """Have silos reset their personal parameters."""
        if not self.personal:
            return RoundReport()
        _, failures = sorted_out(federation.call(dict.fromkeys(names, Keep(slot=self.name))))
        return RoundReport(failures=failures)

    def _settings(self, phase: Phase, rounds: int | None) -> TrainSettings:
        if rounds is None:
            return self.settings
        rate = self.settings.learning_rate / (2 if phase == "tuning" else 1)
        total = max(1, rounds) * self.settings.steps
        return self.settings.changed(total_steps=total, learning_rate=rate)

    def _weights(self, affinities: Tensor, updates: Tensor, sizes: Tensor) -> Tensor:
        """Return n_j · a_ij; participants that did not answer have no share in any mixture."""
        weights = affinities
        if self.weighting == "updates":
            directions = updates / updates.norm(dim=1, keepdim=True).clamp_min(TINY)
            alike = (directions @ directions.T).clamp(0, 1)
            alike.fill_diagonal_(1.0)
            weights = weights * alike**self.sharpness
        return weights.double() * sizes.double()


class _Mixture:
    """The mixtures of all participants' parameters, or momenta, after a round.

    Parameters
    ----------
    weights : Tensor
        How much of j there is in i's mixture, in row i, before they are made to sum to one.
    own : str
        What of the output layer is not mixed.
    labels : Tensor, optional
        Each participant's samples of each class; if given, the outputs of a class are mixed by
        them.
    """

    def __init__(
        self, federation: Federation, weights: Tensor, own: str, labels: Tensor | None
    ) -> None:
        # Where no contributor answered, a participant keeps its own parameters.
        self._itself = torch.eye(len(weights), device=weights.device, dtype=weights.dtype)
        totals = weights.sum(1, keepdim=True)
        shares = torch.where(totals > 0, weights / totals.clamp_min(TINY), self._itself)
        self._shares = shares.float()
        self._by_class: Tensor | None = None
        if labels is not None:
            # Sizes are in the weights already, so these are fractions of own samples; participants
            # without label counts are taken to have as many of each class.
            counts = torch.where(labels.sum(1, keepdim=True) > 0, labels, 1.0).double()
            of_class = counts / counts.sum(1, keepdim=True)
            each = weights[:, :, None] * of_class
            totals = each.sum(1, keepdim=True)
            itself = self._itself[:, :, None]
            self._by_class = torch.where(totals > 0, each / totals.clamp_min(TINY), itself).float()
        self._schema, self._own = federation.schema, own

    def of(self, rows: Tensor) -> Tensor:
        """Return the mixtures of some rows."""
        mixed = self._shares @ rows
        if self._by_class is not None:
            classes = self._by_class.shape[2]
            for name in ("weight", "bias"):
                places = _output(self._schema, name, rows.device)
                values = rows[:, places].reshape(len(rows), classes, -1)
                together = torch.einsum("ijc,jcd->icd", self._by_class, values)
                mixed[:, places] = together.reshape(len(rows), -1)
        kept = {"nothing": (), "bias": ("bias",), "layer": ("weight", "bias")}[self._own]
        for name in kept:
            places = _output(self._schema, name, rows.device)
            mixed[:, places] = rows[:, places]
        return mixed


def _output(schema: ParameterSchema, name: str, device: torch.device) -> Tensor:
    """Return the places of the output layer's weight or bias; none if there is no such layer."""
    wanted = f"{OUTPUT_LAYER}{name}"
    if wanted not in schema.names:
        return torch.zeros(0, dtype=torch.int64, device=device)
    return schema.mask([wanted]).nonzero()[:, 0].to(device)


def _label_counts(federation: Federation, labels: Mapping[Participant, Tensor]) -> Tensor | None:
    """Return the samples of each class, one row per participant, if each class has an output."""
    classes = len(_output(federation.schema, "bias", torch.device("cpu")))
    if not labels or any(len(own) != classes for own in labels.values()):
        return None
    nothing = torch.zeros(classes, dtype=torch.int64)
    return torch.stack([labels.get(name, nothing) for name in federation.participants])


def _with_prior(federation: Federation, rows: Tensor, counts: Tensor) -> Tensor:
    """Add the logarithms of each participant's label fractions to the biases of its output layer.

    With one more sample of each class; nothing for participants without label counts.
    """
    shares = (counts.double() + 1) / (counts.sum(1, keepdim=True) + counts.shape[1])
    added = torch.where(counts.sum(1, keepdim=True) > 0, shares.log(), 0.0)
    rows = rows.clone()
    places = _output(federation.schema, "bias", rows.device)
    rows[:, places] += added.to(rows)
    return rows
