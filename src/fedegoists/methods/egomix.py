"""EgoMix: for each participant a mixture of its contributors' models, with its own output bias.

Not from the paper: how members train together under both of its principles so that a coalition pays
off for each of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypedDict

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.mixing import (
    MixtureStep,
    Sum,
    VectorName,
    means_of,
    output_classes,
    receivers,
)
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Describe, Keep, TrainSettings
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.federation.silo_mixing import velocity_slot
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
)
from fedegoists.methods.method_registry import Sees
from fedegoists.methods.silo_training import MixedModels, mix_silos, momentum_slot, train_silos

Edge = tuple[Participant, Participant, float]
Phase = Literal["alone", "mixing", "tuning"]


class _Training(TypedDict):
    """The arguments of a round's training."""

    names: Sequence[Participant]
    rows: Tensor
    settings: TrainSettings
    momentum: Tensor | None
    first_step: int


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

    @property
    def server_sees(self) -> Sees:
        """Sums; with weights that depend on single updates, these."""
        return "single updates" if self.weighting == "updates" else super().server_sees

    @property
    def mixes_at_home(self) -> bool:
        """Whether members whose sums are masked take the step from a mean to a model at home."""
        return self.weighting != "updates"

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
        if done == 0:
            begun = self._still(federation)
            momentum = None if momentum is None else torch.zeros_like(momentum)
        if phase == "mixing" and done == 0 and resting:
            rows = torch.where(joined[:, None], state.tensors["initial"], rows)
            begun = begun | self._forget(federation, names)
        training: _Training = {
            "names": names,
            "rows": rows,
            "settings": settings,
            "momentum": momentum,
            "first_step": done * settings.steps,
        }
        if phase != "mixing":
            trained = train_silos(self, federation, state, seed, **training)
            kept = {} if trained.momentum is None else {"momentum": trained.momentum}
            return state.after(parameters=trained.rows, **kept), begun | trained.report
        mixed = self._mixed(federation, coalitions, state, seed, training)
        step = self._step()
        after = {}
        if mixed.momentum is not None and mixed.trained_momentum is not None:
            after["momentum"] = step.with_own(
                federation.schema, mixed.trained_momentum, mixed.momentum
            )
        velocity = state.tensors.get("velocity")
        moved, faster = step.taken(federation.schema, rows, mixed.trained, mixed.rows, velocity)
        # Without contributors, or without any answer, there is no mixture to move.
        after["parameters"] = torch.where(mixed.received, moved, mixed.rows)
        if velocity is not None and faster is not None:
            after["velocity"] = torch.where(mixed.received, faster, velocity)
        accompanied = [name for name, one in zip(participants, joined.tolist(), strict=True) if one]
        vectors = 1 if momentum is None else 2
        report = mixed.report.with_traffic(accompanied, vectors * self.shared_size(federation))
        return state.after(**after), begun | report

    def _mixed(
        self,
        federation: Federation,
        coalitions: Coalitions,
        state: State,
        seed: int,
        training: "_Training",
    ) -> MixedModels:
        """Train, and return each participant's mixture."""
        if self.weighting != "updates":
            sums = self._sums(federation, coalitions, state, state.tensors["affinities"])
            return mix_silos(self, federation, state, seed, sums, **training)
        # Weights that depend on the updates can only be known by the side that sees these.
        trained = train_silos(self, federation, state, seed, **training)
        affinities = self._alike(state.tensors["affinities"], trained.rows - training["rows"])
        sums = self._sums(federation, coalitions, state, affinities)
        vectors: dict[VectorName, Tensor] = {"parameters": trained.rows}
        if trained.momentum is not None:
            vectors["momentum"] = trained.momentum
        names = federation.participants
        means = means_of(federation.schema, names, trained.samples, sums, vectors)
        received = receivers(sums, trained.samples)
        return MixedModels(
            means["parameters"],
            trained.rows,
            torch.tensor([[name in received] for name in names], device=trained.rows.device),
            trained.samples,
            trained.report,
            {},
            means.get("momentum"),
            trained.momentum,
        )

    def _sums(
        self, federation: Federation, coalitions: Coalitions, state: State, affinities: Tensor
    ) -> list[Sum]:
        """Return the mixture of each participant that has contributors, with weights n_j · a_ij."""
        participants = federation.participants
        by_class = self._fractions(federation, state)
        step = self._step()
        group_of = {name: tuple(group) for group in coalitions for name in group}
        weights: dict[Participant, dict[Participant, float]] = {name: {} for name in participants}
        matrix = affinities.double().cpu().numpy()
        for row, column in zip(*state.tensors["affinities"].cpu().numpy().nonzero(), strict=True):
            j = participants[column]
            weights[participants[row]][j] = float(matrix[row, column]) * federation.samples(j)
        return [
            Sum(group_of[i], own, (i,), shown=False, by_class=by_class, step=step)
            for i, own in weights.items()
            if len(own) > 1
        ]

    def _fractions(
        self, federation: Federation, state: State
    ) -> dict[Participant, list[float]] | None:
        """Return each participant's fractions of classes, or nothing if classes do not matter.

        Participants without label counts are taken to have as many of each class.
        """
        labels = state.tensors.get("labels")
        if labels is None:
            # Silos that keep their models use their own counts, which the server need not know.
            known = federation.task.name == "classification" and output_classes(federation.schema)
            return {} if self.by_class and self.at_home and known else None
        counts = labels.double()
        totals = counts.sum(1, keepdim=True)
        shares = (counts / totals.clamp_min(1)).tolist()
        return {
            name: own
            for name, own, total in zip(
                federation.participants, shares, totals.tolist(), strict=True
            )
            if total[0] > 0
        }

    def _step(self) -> MixtureStep:
        """Return what a participant does with its mixture."""
        own = {"nothing": (), "bias": ("bias",), "layer": ("weight", "bias")}[self.own]
        return MixtureStep(own=tuple(f"{OUTPUT_LAYER}{name}" for name in own), outer=self.outer)

    def _still(self, federation: Federation) -> RoundReport:
        """Have silos that keep their models start a phase without momentum and velocity."""
        failures: tuple[Failure, ...] = ()
        slots = (momentum_slot(self.name), velocity_slot(self.name)) if self.at_home else ()
        for slot in slots:
            emptied = federation.call(dict.fromkeys(self.at_home, Keep(slot=slot)))
            failures += sorted_out(emptied)[1]
        return RoundReport(failures=failures)

    def _forget(self, federation: Federation, names: Sequence[Participant]) -> RoundReport:
        """Have silos reset their personal parameters."""
        keeping = [name for name in names if self.personal or name in self.at_home]
        if not keeping:
            return RoundReport()
        _, failures = sorted_out(federation.call(dict.fromkeys(keeping, Keep(slot=self.name))))
        return RoundReport(failures=failures)

    def _settings(self, phase: Phase, rounds: int | None) -> TrainSettings:
        if rounds is None:
            return self.settings
        rate = self.settings.learning_rate / (2 if phase == "tuning" else 1)
        total = max(1, rounds) * self.settings.steps
        return self.settings.changed(total_steps=total, learning_rate=rate)

    def _alike(self, affinities: Tensor, updates: Tensor) -> Tensor:
        """Return affinities times the cosines of updates."""
        directions = updates / updates.norm(dim=1, keepdim=True).clamp_min(TINY)
        alike = (directions @ directions.T).clamp(0, 1)
        alike.fill_diagonal_(1.0)
        weighted: Tensor = affinities * alike**self.sharpness
        return weighted


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
