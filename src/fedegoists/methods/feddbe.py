"""FedDBE: what is one's own of the representation goes into a memory, and means are held together.

Zhang, Hua, Cao, Wang, Song, Xue, Ma and Guan, "Eliminating Domain Bias for Federated Learning in
Representation Space", NeurIPS 2023, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Gradient, LocalTerms, Representation
from fedegoists.federation.seam import Federation, sorted_out
from fedegoists.learning.model_registry import OUTPUT_LAYER
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
from fedegoists.methods.silo_training import LocalModels, personal_part, train_silos

WEIGHT, BIAS = f"{OUTPUT_LAYER}weight", f"{OUTPUT_LAYER}bias"


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
            return state.after(parameters=rows, **means), report | asked
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
                        personal=personal_part(self),
                    )
                    for name in trained.samples
                }
            )
        )
        mean, told = (state.tensors[name].clone() for name in ("mean", "told"))
        found = {
            name: mean_representation(federation.schema, reply.gradient)
            for name, reply in replies.items()
        }
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


def representation_size(method: str, federation: Federation, personal: tuple[str, ...]) -> int:
    """Return the size of a representation: of what goes into the output layer.

    Raises
    ------
    SettingsError
        If there is no such layer or none below it, if it stays in the silos, or if the task's loss
        does not tell mean representations.
    """
    schema, task = federation.schema, federation.task
    shapes = dict(zip(schema.names, schema.shapes, strict=True))
    wanted = f"{method}: representations are what goes into the layer {OUTPUT_LAYER.strip('.')}"
    if not {WEIGHT, BIAS} < shapes.keys() or len(shapes[WEIGHT]) != 2:
        raise SettingsError(
            f"{wanted}, with a weight and a bias, above other layers; this model has "
            f"{', '.join(schema.names)}. Choose another model, or a method that shares whole "
            "models, such as fedavg"
        )
    if any(name.startswith(personal or ("\0",)) for name in (WEIGHT, BIAS)):
        raise SettingsError(f"{wanted}, which must not be personal; leave out --personal")
    if task.name == "survival" or getattr(task, "own_loss", None) is not None:
        raise SettingsError(
            f"{method}: mean representations are read from gradients of squared error, logistic "
            "loss or cross-entropy, and this model has another loss; choose another method"
        )
    return shapes[WEIGHT][1]


def probes_of(schema: ParameterSchema, rows: Tensor) -> Tensor:
    """Return two models for each: with an output layer of zeros, and with one bias of one.

    The gradient of the output layer's weights is the mean of d z over samples, with d the slope of
    the loss at an output. Without weights d is the same for all samples of a class, and between the
    two models it differs by the same number for all samples, whatever their class. So the
    difference of the two gradients tells the mean of z; see `mean_representation`.
    """
    probes = rows[:, None].repeat(1, 2, 1)
    views = schema.unflatten(probes)
    views[WEIGHT].zero_()
    views[BIAS].zero_()
    views[BIAS][:, 1, 0] = 1.0
    return probes


def mean_representation(schema: ParameterSchema, gradients: Tensor) -> Tensor:
    """Return the mean of z over samples, from the gradients at a silo's two probes."""
    views = schema.unflatten(gradients[1] - gradients[0])
    return views[WEIGHT][0] / views[BIAS][0]


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
