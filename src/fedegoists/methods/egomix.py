"""EgoMix: for each participant a mixture of its contributors' models, with its own output bias.

Not from the paper: how members train together under both of its principles so that a coalition pays
off for each of them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, TypedDict

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.mixing import MixtureStep, Sum
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import AddPrior, Keep, TrainSettings
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.federation.silo_mixing import velocity_slot
from fedegoists.learning.model_registry import OUTPUT_BIAS, OUTPUT_LAYER
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    setting,
)
from fedegoists.methods.silo_training import (
    emptied,
    mix_silos,
    momentum_slot,
    personal_parts,
    replaced,
    train_silos,
)

Edge = tuple[Participant, Participant]
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

    Contributors are the benefit edges into i inside its coalition, with x_ij ∝ n_j. Labels are
    distributed unevenly, and two measures keep that from spoiling the common model:

    - each participant has its own bias in the output layer, so that models need not agree on how
      frequent a class is; at the start each silo adds the logarithm of its label shares to it;
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
    benefit : tuple of (contributor, beneficiary), optional
        The edges of the benefit graph; without it, all members of a coalition benefit each other.
    """

    benefit: tuple[Edge, ...] | None = None
    alone: float = setting(
        0.0, "fraction of all steps in which participants train alone first", 0, 1
    )
    tune: float = setting(0.0, "share of all steps in which mixtures are tuned at the end", 0, 1)
    own: str = setting(
        "bias", "what of the output layer is not mixed", choices=("nothing", "bias", "layer")
    )
    prior: bool = setting(True, "whether its bias starts at the logarithm of label shares")
    keep_momentum: bool = setting(True, "whether the momentum goes on over rounds")
    outer: float = setting(0.5, "momentum of one's mixture over rounds, after Nesterov", 0, 0.99)

    key: ClassVar[str] = "egomix"
    removed: ClassVar[Mapping[str, str]] = MappingProxyType(
        dict.fromkeys(
            ("weighting", "sharpness", "by_class"),
            "contributors count by their samples, which is better",
        )
    )

    @property
    def mixes_at_home(self) -> bool:
        """True: members whose sums are masked take the step from a mean to a model at home."""
        return True

    def contributors(
        self, coalitions: Coalitions, participants: Sequence[Participant]
    ) -> dict[Participant, tuple[Participant, ...]]:
        """Return each participant's contributors in its coalition, itself not among them."""
        in_company(coalitions, participants)
        edges = None if self.benefit is None else frozenset(self.benefit)
        unknown = {name for edge in edges or () for name in edge} - set(participants)
        if unknown:
            raise SettingsError(
                f"the benefit graph names {min(unknown)!r}, which does not take part"
            )
        return {
            i: tuple(j for j in group if j != i and (edges is None or (j, i) in edges))
            for group in coalitions
            for i in group
        }

    def start(
        self,
        federation: Federation,
        coalitions: Coalitions,
        initial: Tensor,
        seed: int,  # noqa: ARG002
    ) -> State:
        """Return the state before the first round, with priors unless all train alone first."""
        self.contributors(coalitions, federation.participants)  # refuses a graph of others
        rows, failures = initial, tuple[Failure, ...]()
        if self.phase(0)[0] == "mixing":
            names = in_company(coalitions, federation.participants)
            rows, failures = self._with_priors(federation, names, initial)
        tensors = {"parameters": rows, "initial": initial}
        if self.keep_momentum:
            tensors["momentum"] = torch.zeros_like(initial)
        if self.outer:
            tensors["velocity"] = torch.zeros_like(initial)
        return State(0, tensors, failures)

    def _with_priors(
        self, federation: Federation, names: Iterable[Participant], rows: Tensor
    ) -> tuple[Tensor, tuple[Failure, ...]]:
        """Have silos add the logarithms of their label shares to the biases of their models.

        Of models that stay in their silos, or whose biases do, nothing of it is seen here.
        """
        known = OUTPUT_BIAS in federation.schema.names
        if not (self.prior and known and federation.task.name == "classification"):
            return rows, ()
        personal = personal_parts(self, names)
        models = dict(zip(federation.participants, rows.unbind(), strict=True))
        replies, failures = sorted_out(
            federation.call(
                {
                    name: AddPrior(parameters=models[name], personal=own)
                    for name, own in personal.items()
                }
            )
        )
        answers = {name: reply.parameters for name, reply in replies.items()}
        return replaced(self, federation, rows, answers), failures

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
        contributors = self.contributors(coalitions, participants)
        joined = {name for i, own in contributors.items() if own for name in (i, *own)}
        phase, done, of = self.phase(state.round)
        settings = self._settings(phase, of)
        # A participant that has trained alone, and has no partner, is done.
        resting = phase != "alone" and self.phase(0)[0] == "alone"
        names = [name for name in participants if name in joined or not resting]
        rows, begun = state.parameters, RoundReport()
        momentum = state.tensors.get("momentum")
        if done == 0:
            # A phase starts without momentum and velocity, also where silos keep them.
            slots = (momentum_slot(self.name), velocity_slot(self.name))
            begun = emptied(self, federation, slots)
            momentum = None if momentum is None else torch.zeros_like(momentum)
        if phase == "mixing" and done == 0 and resting:
            where = torch.tensor([[name in joined] for name in participants], device=rows.device)
            rows = torch.where(where, state.tensors["initial"], rows)
            begun = begun | self._forget(federation, names)
            rows, failures = self._with_priors(federation, names, rows)
            begun = begun | RoundReport(failures=failures)
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
        sums = self._sums(federation, coalitions, contributors)
        mixed = mix_silos(self, federation, state, seed, sums, **training)
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
        accompanied = [name for name in participants if name in joined]
        vectors = 1 if momentum is None else 2
        report = mixed.report.with_traffic(accompanied, vectors * self.shared_size(federation))
        return state.after(**after), begun | report

    def _sums(
        self,
        federation: Federation,
        coalitions: Coalitions,
        contributors: Mapping[Participant, Sequence[Participant]],
    ) -> list[Sum]:
        """Return the mixture of each participant that has contributors, with weights n_j."""
        step = self._step()
        return [
            Sum(
                tuple(group),
                {j: float(federation.samples(j)) for j in group if j == i or j in contributors[i]},
                (i,),
                shown=False,
                step=step,
            )
            for group in coalitions
            for i in group
            if contributors[i]
        ]

    def _step(self) -> MixtureStep:
        """Return what a participant does with its mixture."""
        own = {"nothing": (), "bias": ("bias",), "layer": ("weight", "bias")}[self.own]
        return MixtureStep(own=tuple(f"{OUTPUT_LAYER}{name}" for name in own), outer=self.outer)

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
