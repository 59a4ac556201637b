"""FedPAC: representations are held near the centres of their classes, and heads are combined.

Xu, Tong and Huang, "Personalized Federated Learning with Feature Alignment and Classifier
Collaboration", ICLR 2023, Algorithm 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import nnls
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import LARGEST
from fedegoists.federation.requests import Gradient, LocalTerms, Representation, Train
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.learning.model_registry import OUTPUT_LAYER
from fedegoists.methods.method import (
    Coalitions,
    MethodSettings,
    RoundReport,
    State,
    in_company,
    mixing_matrix,
    parts_of,
    setting,
)
from fedegoists.methods.method_registry import WITH_CLASSES
from fedegoists.methods.representation_measures import (
    WEIGHT,
    class_shares,
    parts_of_samples,
    probes_of,
    representation_size,
    unusable,
)
from fedegoists.methods.silo_training import LocalModels, personal_part, train_silos

ALL_SAMPLES = 2**40
"""A batch size that no silo has."""


@dataclass(frozen=True)
class ClassMeans:
    """What a silo's representations are, by class.

    Attributes
    ----------
    shares : Tensor
        Each class's share of the samples.
    means : Tensor
        The mean representation of each class times its share, as rows.
    samples : int
        The silo's training samples.
    """

    shares: Tensor
    means: Tensor
    samples: int


@dataclass(frozen=True)
class FedPAC(MethodSettings):
    """A round trains the head on a body that stands still, then the body below the head.

    Beside ℓ_i, the body descends λ · mean (z − c_y)², with z the representation of a sample, c_y
    the centre of its class over the samples of all members after the last round, and the mean over
    samples and entries. Bodies are averaged by sample count. The next head of i is Σ_j α_j φ_j:
    weights on the simplex that minimise Σ_j α_j² V_j + ‖h_i − Σ_j α_j h_j‖², the variance and the
    bias of the mean h_i of onehot(y) zᵀ, at the shared body before the round.

    A class with fewer than five samples in the coalition has no centre: it would tell of single
    samples. The model that is evaluated is that after local training. A participant that is alone
    trains as Local does.
    """

    lam: float = setting(1.0, "λ, how strongly representations are held near centres", 0, 1e6)
    head: float = setting(0.2, "fraction of a round's steps in which the head is trained", 0, 1)

    key: ClassVar[str] = "fedpac"

    def check_model(self, federation: Federation) -> None:
        """Refuse a model without representations, or a task without classes."""
        representation_size(self.key, federation, self.personal)
        if federation.task.name not in WITH_CLASSES:
            raise SettingsError(
                f"{self.key}: a {federation.task.name} has no classes; choose another method, such "
                "as feddbe"
            )

    def start(
        self, federation: Federation, coalitions: Coalitions, initial: Tensor, seed: int
    ) -> State:
        """Return the state before the first round, in which there are no centres."""
        self.check_model(federation)
        begun = super().start(federation, coalitions, initial, seed)
        outputs, width = federation.schema.unflatten(initial)[WEIGHT].shape[1:]
        classes = max(outputs, 2)
        own = {
            "begin": initial,
            "centres": initial.new_zeros(len(initial), classes * width),
            "pulls": initial.new_zeros(len(initial), classes),
        }
        return State(0, {**begun.tensors, **own})

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Measure, train, average the bodies and combine the heads."""
        participants = federation.participants
        accompanied = in_company(coalitions, participants)
        alone = [name for name in participants if name not in accompanied]
        own = train_silos(self, federation, state, seed, names=alone)
        if not accompanied:
            return state.after(parameters=own.rows), own.report
        begin = state.tensors["begin"]
        trained = self._trained(federation, state, seed, accompanied)
        answered = [name for name in accompanied if name in trained.samples]
        before, measured = self._measured(federation, begin, f"{seed}/before", answered)
        variances, told = self._variances(federation, begin, seed, before)
        after, again = self._measured(federation, trained.rows, f"{seed}/after", answered)
        mixing = mixing_matrix(coalitions, participants, trained.samples).to(begin.device)
        chosen = torch.tensor([[name in answered] for name in participants], device=begin.device)
        heads = self._combined(federation, coalitions, trained.rows, before, variances)
        head = federation.schema.mask([OUTPUT_LAYER]).to(begin.device)
        centres, pulls = self._centres(federation, coalitions, state, after)
        report = trained.report.with_traffic(accompanied, self.shared_size(federation))
        report = report.with_traffic(accompanied, centres.shape[1] + pulls.shape[1], sent=0)
        following = state.after(
            parameters=torch.where(chosen, trained.rows, own.rows),
            begin=torch.where(head, heads, mixing @ trained.rows),
            centres=centres,
            pulls=pulls,
        )
        # Last: of the losses, that of training counts, and not those at an empty output layer.
        return following, own.report | measured | told | again | report

    def _combined(
        self,
        federation: Federation,
        coalitions: Coalitions,
        rows: Tensor,
        means: Mapping[Participant, ClassMeans],
        variances: Mapping[Participant, float],
    ) -> Tensor:
        """Return combinations of models, of which the heads count; who was not measured has own."""
        position = {name: k for k, name in enumerate(federation.participants)}
        found = rows.clone()
        for group in coalitions:
            members = [name for name in group if name in variances]
            if not members:
                continue
            weights = head_weights(
                [means[name].means.double().cpu().numpy() for name in members],
                [variances[name] for name in members],
            )
            places = [position[name] for name in members]
            found[places] = torch.from_numpy(weights).to(rows) @ rows[places]
        return found

    def _centres(
        self,
        federation: Federation,
        coalitions: Coalitions,
        state: State,
        means: Mapping[Participant, ClassMeans],
    ) -> tuple[Tensor, Tensor]:
        """Return the centres of classes in each participant's coalition, and λ where there are."""
        position = {name: k for k, name in enumerate(federation.participants)}
        centres, pulls = (state.tensors[name].clone() for name in ("centres", "pulls"))
        for group in coalitions:
            told = [means[name] for name in group if name in means]
            if told:
                places = [position[name] for name in group]
                values, there = centres_of(told)
                centres[places] = values.flatten().to(centres)
                pulls[places] = self.lam * there.to(pulls)
        return centres, pulls

    def _trained(
        self, federation: Federation, state: State, seed: int, names: list[Participant]
    ) -> LocalModels:
        """Train the heads, then the bodies."""
        body = tuple(n for n in federation.schema.names if not n.startswith(OUTPUT_LAYER))
        centres, pulls = state.tensors["centres"], state.tensors["pulls"]
        terms = {
            name: LocalTerms(
                frozen_first=body,
                first_steps=parts_of(self.settings.steps, self.head)[0],
                frozen=(OUTPUT_LAYER,),
                representation=Representation(
                    centres=centres[k].reshape(pulls.shape[1], -1), pulls=pulls[k]
                ),
            )
            for k, name in enumerate(federation.participants)
            if name in names
        }
        rows = state.tensors["begin"]
        return train_silos(self, federation, state, seed, names=names, rows=rows, terms=terms)

    def _measured(
        self,
        federation: Federation,
        rows: Tensor,
        seed: str,
        names: Sequence[Participant],
    ) -> tuple[dict[Participant, ClassMeans], RoundReport]:
        """Return the class means of participants at their rows."""
        probes = probes_of(federation.schema, rows)
        position = {name: k for k, name in enumerate(federation.participants)}
        requests = {
            name: Gradient(
                parameters=probes[position[name]],
                seed=seed,
                passes=parts_of_samples(federation.samples(name), self.settings),
                personal=personal_part(self),
            )
            for name in names
        }
        replies, failures = sorted_out(federation.call(requests))
        found = {}
        for name, reply in replies.items():
            shares, means = class_shares(federation.schema, reply.gradient)
            failure = unusable(name, means, shares)
            if failure is None:
                found[name] = ClassMeans(shares, means, federation.samples(name))
            else:
                failures += (failure,)
        report = RoundReport(
            {name: reply.losses[0] for name, reply in replies.items()},
            failures,
            {name: 2 * reply.samples for name, reply in replies.items()},
        )
        return found, report.with_traffic(list(names), 2 * self.shared_size(federation))

    def _variances(
        self,
        federation: Federation,
        rows: Tensor,
        seed: int,
        means: Mapping[Participant, ClassMeans],
    ) -> tuple[dict[Participant, float], RoundReport]:
        """Return V_i = (E‖z‖² − Σ_k ‖share_k · mean_k‖²) / n_i of participants.

        E‖z‖² is what a pull to centres of zeros adds to the loss at an output layer of zeros, in a
        step of no length.
        """
        position = {name: k for k, name in enumerate(federation.participants)}
        empty = probes_of(federation.schema, rows)[:, 0]
        outputs, width = federation.schema.unflatten(rows)[WEIGHT].shape[1:]
        classes = max(outputs, 2)
        within = Representation(
            centres=rows.new_zeros(classes, width), pulls=rows.new_ones(classes)
        )
        still = self.settings.changed(
            steps=1,
            batch_size=ALL_SAMPLES,
            learning_rate=0.0,
            precision="float32",
            augment=False,
            class_weights=None,
            sam_radius=0.0,
            halve=False,
        )
        requests = {
            name: Train(
                parameters=empty[position[name]],
                settings=still.changed(
                    passes=parts_of_samples(federation.samples(name), self.settings)
                ),
                terms=LocalTerms(representation=within),
                seed=stream_seed(seed, "variance"),
                personal=personal_part(self),
            )
            for name in means
        }
        replies, failures = sorted_out(federation.call(requests))
        found = {}
        for name, reply in replies.items():
            squares = width * (reply.loss - float(np.log(classes)))
            own = means[name]
            spread = squares - float((own.means**2).sum())
            if abs(spread) < LARGEST:
                found[name] = max(spread, 0.0) / own.samples
            else:
                failures += (Failure(name, "not finite", "variance of representations"),)
        report = RoundReport(
            {name: reply.loss for name, reply in replies.items()},
            failures,
            {name: reply.sample_passes for name, reply in replies.items()},
        )
        return found, report.with_traffic(list(means), self.shared_size(federation))


FEWEST = 5
"""Samples of a class in a coalition below which members are not told its centre.

The centre of a class with one sample is the representation of that sample.
"""


def centres_of(members: Sequence[ClassMeans]) -> tuple[Tensor, Tensor]:
    """Return the mean representation of each class over all samples, and which classes have one.

    Classes with fewer than `FEWEST` samples have none.

    Examples
    --------
    >>> one = ClassMeans(torch.tensor([0.5, 0.5]), torch.tensor([[1.0], [0.0]]), 4)
    >>> other = ClassMeans(torch.tensor([1.0, 0.0]), torch.tensor([[5.0], [0.0]]), 6)
    >>> centres_of([one, other])  # class 0: two samples at 2, six at 5; class 1: two samples
    (tensor([[4.2500],
            [0.0000]]), tensor([1., 0.]))
    """
    counts = torch.stack([one.shares * one.samples for one in members]).sum(0)
    sums = torch.stack([one.means * one.samples for one in members]).sum(0)
    there = counts > FEWEST - 0.5  # shares are read from gradients, up to rounding
    centres = torch.where(there[:, None], sums / counts.clamp_min(0.5)[:, None], 0.0)
    return centres, there.to(sums)


def head_weights(
    means: Sequence[npt.NDArray[np.float64]], variances: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return the weights of all heads in each member's next one, a row for each.

    Row i minimises αᵀ P α on the simplex, with P the diagonal of variances plus all products
    ⟨h_i − h_j, h_i − h_k⟩. This is the least-squares problem ‖A α‖² with AᵀA = P; of
    ‖A β‖² + (Σβ − 1)² with β ≥ 0, it is the solution divided by its sum.

    Examples
    --------
    Two that are alike share; the third, far away, is alone.

    >>> h = [np.array([0.0]), np.array([0.0]), np.array([9.0])]
    >>> head_weights(h, [1.0, 1.0, 1.0]).round(1).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    count = len(means)
    rows = np.empty((count, count))
    flat = np.array([one.ravel() for one in means]).reshape(count, -1)
    # The weights do not depend on the unit, but the search loses small numbers beside huge ones.
    lengths = np.sqrt(np.maximum(variances, 0.0))
    unit = max(lengths.max(), np.ptp(flat, axis=0).max(initial=0.0)) or 1.0
    flat = flat / unit
    spread = np.diag(np.maximum(lengths / unit, 1e-6))  # so that there is one solution only
    for k in range(count):
        apart = (flat[k] - flat).T
        stacked = np.vstack([spread, apart, np.ones((1, count))])
        target = np.zeros(len(stacked))
        target[-1] = 1.0
        solution, _ = nnls(stacked, target)
        rows[k] = solution / solution.sum()
    return rows
