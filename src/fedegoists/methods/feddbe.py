"""FedDBE: what is one's own of the representation goes into a memory, and means are held together.

Zhang, Hua, Cao, Wang, Song, Xue, Ma and Guan, "Eliminating Domain Bias for Federated Learning in
Representation Space", NeurIPS 2023, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Gradient, LocalTerms, Representation
from fedegoists.federation.seam import Federation, sorted_out
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    mixing_matrix,
    setting,
)
from fedegoists.methods.method_registry import WITH_CLASSES
from fedegoists.methods.representation_measures import (
    BIAS,
    WEIGHT,
    class_shares,
    mean_representation,
    parts_of_samples,
    probes_of,
    representation_size,
    unusable,
)
from fedegoists.methods.silo_training import LocalModels, personal_part, train_silos


@dataclass(frozen=True)
class FedDBE(MethodSettings):
    """The output layer of i gets z + s_i, with z the representation, and s_i a memory of i's own.

    Beside ℓ_i, each silo descends κ/2 · the mean over the entries of (z̄ − m)², with z̄ the mean of z
    over a batch, and m the mean over the samples of all members. Models are averaged by sample
    count. As in public code, m is measured once: in the first round, members train alone from the
    initial model, and m is taken from what they have then; the second round starts at the initial
    model again.

    W (z + s_i) + b = W z + (b + W s_i): the model of i is the shared one with this bias. A
    participant that is alone trains as Local does.
    """

    kappa: float = setting(50.0, "κ, how strongly mean representations are held together", 0, 1e6)

    key: ClassVar[str] = "feddbe"

    def check_model(self, federation: Federation) -> None:
        """Refuse a model without representations that can be measured."""
        representation_size(self.key, federation, self.personal)

    def start(
        self, federation: Federation, coalitions: Coalitions, initial: Tensor, seed: int
    ) -> State:
        """Return the state before the first round: with memories of zeros, and no mean yet."""
        width = representation_size(self.key, federation, self.personal)
        begun = super().start(federation, coalitions, initial, seed)
        zeros = initial.new_zeros(len(initial), width)
        own = {"shared": initial, "shift": zeros, "mean": zeros, "told": zeros[:, :1]}
        return State(0, {**begun.tensors, **own})

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Train the shared models and the memories, and average the models."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        alone = [name for name in participants if name not in accompanied]
        own = train_silos(self, federation, state, seed, names=alone)
        if not accompanied:
            return state.after(parameters=own.rows), own.report
        trained = self._trained(federation, state, seed, accompanied)
        width = state.tensors["shift"].shape[1]
        numbers = self.shared_size(federation) + width
        report = trained.report.with_traffic(accompanied, numbers)
        report = own.report | report.with_traffic(accompanied, width, sent=0)
        if state.round == 0:
            means, asked = self._means(federation, coalitions, state, seed, trained)
            rows = _chosen(trained.rows, own.rows, trained.samples, participants)
            # Of the losses, that of training counts.
            return state.after(parameters=rows, **means), asked | report
        mixing = mixing_matrix(coalitions, participants, trained.samples).to(own.rows.device)
        # Where nobody answered, mixing leaves everybody the shared model.
        shared = _chosen(mixing @ trained.rows, own.rows, set(accompanied), participants)
        shift = state.tensors["shift"].clone()
        for k, name in enumerate(participants):
            if name in trained.shifts:
                shift[k] = trained.shifts[name].to(shift)
        models = shifted_bias(federation.schema, shared, shift)
        return state.after(parameters=models, shared=shared, shift=shift), report

    def _trained(
        self, federation: Federation, state: State, seed: int, names: list[Participant]
    ) -> LocalModels:
        """Return the models of coalitions' members after a round from the shared model."""
        position = {name: k for k, name in enumerate(federation.participants)}
        shift, mean, told = (state.tensors[name] for name in ("shift", "mean", "told"))
        terms = {}
        for name in names:
            k = position[name]
            if state.round == 0:
                # Terms that say nothing: a silo whose limits refuse them takes no part.
                within = Representation(mean=torch.zeros_like(mean[k]))
            elif told[k]:
                within = Representation(shift=shift[k], mean=mean[k], strength=self.kappa)
            else:  # no member told its mean
                within = Representation(shift=shift[k])
            terms[name] = LocalTerms(representation=within)
        rows = state.tensors["shared"]
        return train_silos(self, federation, state, seed, names=names, rows=rows, terms=terms)

    def _means(
        self,
        federation: Federation,
        coalitions: Coalitions,
        state: State,
        seed: int,
        trained: LocalModels,
    ) -> tuple[dict[str, Tensor], RoundReport]:
        """Return each coalition's mean representation over its members' samples, if told."""
        participants = federation.participants
        position = {name: k for k, name in enumerate(participants)}
        probes = probes_of(federation.schema, trained.rows)
        replies, failures = sorted_out(
            federation.call(
                {
                    name: Gradient(
                        parameters=probes[position[name]],
                        seed=f"{seed}/mean",
                        passes=parts_of_samples(federation.samples(name), self.settings),
                        personal=personal_part(self),
                    )
                    for name in trained.samples
                }
            )
        )
        mean, told = (state.tensors[name].clone() for name in ("mean", "told"))
        found: dict[Participant, Tensor] = {}
        for name, reply in replies.items():
            own = mean_representation(federation.schema, reply.gradient)
            shares = None
            if federation.task.name in WITH_CLASSES:
                shares, _ = class_shares(federation.schema, reply.gradient)
            failure = unusable(name, own, shares)
            if failure is None:
                found[name] = own
            else:
                failures += (failure,)
        for group in coalitions:
            telling = [name for name in group if name in found]
            if telling:
                counts = torch.tensor([trained.samples[name] for name in telling])
                values = torch.stack([found[name] for name in telling]).to(mean)
                places = [position[name] for name in group]
                mean[places] = (counts / counts.sum()).to(mean) @ values
                told[places] = 1.0
        passes = {name: 2 * reply.samples for name, reply in replies.items()}
        losses = {name: reply.losses[0] for name, reply in replies.items()}
        report = RoundReport(losses, failures, passes)
        numbers = 2 * self.shared_size(federation)
        return {"mean": mean, "told": told}, report.with_traffic(list(trained.samples), numbers)


def shifted_bias(schema: ParameterSchema, rows: Tensor, shift: Tensor) -> Tensor:
    """Return models whose bias does what a shift of their representation would do."""
    rows = rows.clone()
    views = schema.unflatten(rows)
    views[BIAS].add_((views[WEIGHT] @ shift[:, :, None])[:, :, 0])
    return rows


def _chosen(
    rows: Tensor,
    others: Tensor,
    which: "set[Participant] | dict[Participant, float]",
    participants: tuple[Participant, ...],
) -> Tensor:
    """Return the rows of some participants, and other rows for the rest."""
    chosen = torch.tensor([[name in which] for name in participants], device=rows.device)
    return torch.where(chosen, rows, others)
