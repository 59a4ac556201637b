"""Bagging: members grow trees for one another, and each one weighs those of the others at home.

Not from the paper. Averaging needs parameters that mean the same in two models, and the splits of
trees do not; the outputs of trees can be added. All members adding trees in every round is how
NVIDIA FLARE and Flower federate boosted trees ("bagging"); new here are the receiver's own weights,
so that a member whose trees do not help is not used.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.seam import Failure, Federation
from fedegoists.learning.forest import is_forest, joined, malformed, room
from fedegoists.methods.method import Coalitions, MethodSettings, RoundReport, State, in_company
from fedegoists.methods.silo_training import LocalModels, train_silos


@dataclass(frozen=True)
class Bagging(MethodSettings):
    """Member i's model is b_i + Σ_j w_ij T_j(x) over the trees T_j of all members of its coalition.

    In every round each member grows new trees for what its own model leaves unexplained, as in
    boosting alone, and sends them. The receivers then choose their weights w_i on their own
    validation data, see `fedegoists.learning.contributor_weights`; the intercepts b_i are theirs,
    too. A member that is alone boosts alone.
    """

    key: ClassVar[str] = "bagging"

    def start(
        self,
        federation: Federation,
        coalitions: Coalitions,
        initial: Tensor,
        seed: int,
    ) -> State:
        """Check that there is a slot for every member of a coalition."""
        if not is_forest(federation.schema):
            raise SettingsError(
                'bagging joins boosted trees, and this model is another; set model = "trees", or '
                "choose another method"
            )
        slots, largest = room(federation.schema)[0], max(map(len, coalitions))
        if largest > slots:
            raise SettingsError(
                f"a coalition has {largest} members, and the model slots for the trees of {slots}; "
                f"set members = {largest} under [training.model_settings]"
            )
        return super().start(federation, coalitions, initial, seed)

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return the number of features, which an empty forest holds in every node."""
        return {"features": initial[:1, 0].clone()}

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Have all members grow trees, and those in company weigh the trees of each other."""
        names = in_company(coalitions, federation.participants)
        grown = train_silos(self, federation, state, seed)
        rows, report = _checked(federation, state, grown)
        shared = _shared(federation, coalitions, rows)
        if not names:
            return state.after(parameters=shared), report
        weighing = self.settings.changed(steps=1, learning_rate=0.0)
        weighed = train_silos(
            self, federation, state, seed, names=names, rows=shared, settings=weighing
        )
        chosen, second = _checked(federation, _with_rows(state, shared), weighed)
        total = report | replace(second, losses={}, sample_passes={})
        # Each sends its own slot and receives one slot of every other member, besides weights.
        slot = federation.schema.size // room(federation.schema)[0]
        size = {name: len(group) for group in coalitions for name in group}
        for name in names:
            total = total.with_traffic([name], slot, received=size[name] - 1)
        return state.after(parameters=chosen), total


def _with_rows(state: State, rows: Tensor) -> State:
    """Return a state with other models."""
    return State(state.round, {**state.tensors, "parameters": rows})


def _checked(
    federation: Federation, before: State, trained: LocalModels
) -> tuple[Tensor, RoundReport]:
    """Return the models after a call, without malformed ones, whose senders count as failed."""
    features = int(before.tensors["features"].item())
    wrong = {
        name: problem
        for name, row in zip(federation.participants, trained.rows, strict=True)
        if name in trained.report.losses
        and (problem := malformed(federation.schema, row, features))
    }
    if not wrong:
        return trained.rows, trained.report
    bad = torch.tensor([[name in wrong] for name in federation.participants])
    report = replace(
        trained.report,
        losses={name: own for name, own in trained.report.losses.items() if name not in wrong},
        failures=(
            *trained.report.failures,
            *(Failure(name, "error", problem) for name, problem in wrong.items()),
        ),
    )
    return torch.where(bad.to(trained.rows.device), before.parameters, trained.rows), report


def _shared(federation: Federation, coalitions: Coalitions, rows: Tensor) -> Tensor:
    """Return the models with the trees of all other members of their coalitions in them."""
    position = {name: k for k, name in enumerate(federation.participants)}
    found = rows.clone()
    for group in coalitions:
        for name in group:
            others = [position[one] for one in group if one != name]
            if others:
                found[position[name]] = joined(
                    federation.schema, rows[position[name]], rows[others]
                )
    return found
