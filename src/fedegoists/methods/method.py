"""The shape all methods have: settings, a state that is handed in and out, and one round at a time.

A method is server-side code over a federation. It keeps nothing between rounds but its state, whose
tensors have one row per participant, so that a run can be stopped, stored and continued anywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from fedegoists.errors import PartitionError
from fedegoists.federation.federation import Failure, Federation
from fedegoists.federation.operations import TrainSettings

__all__ = ["Method", "RoundReport", "State", "mixing_matrix", "train_everybody"]

Coalitions = Sequence[Sequence[str]]


@dataclass(frozen=True)
class State:
    """Everything a method knows after some rounds.

    Attributes
    ----------
    round : int
        How many rounds are done.
    tensors : mapping of str to Tensor
        Matrices with a row per participant; ``parameters`` holds the models to evaluate.
    """

    round: int
    tensors: Mapping[str, Tensor]

    @property
    def parameters(self) -> Tensor:
        """The personal models, one row per participant."""
        return self.tensors["parameters"]


@dataclass(frozen=True)
class RoundReport:
    """What happened in a round: losses, who failed, and what was spent by each participant."""

    losses: Mapping[str, float]
    failures: tuple[Failure, ...] = ()
    sample_passes: Mapping[str, int] = field(default_factory=dict)
    bytes_sent: Mapping[str, int] = field(default_factory=dict)
    bytes_received: Mapping[str, int] = field(default_factory=dict)


class Method(Protocol):
    """A way to train in coalitions."""

    @property
    def name(self) -> str:
        """The name in tables and on the command line."""

    @property
    def settings(self) -> TrainSettings:
        """How silos train locally."""

    def start(self, initial: Tensor) -> State:
        """Return the state before the first round; `initial` has one row per participant."""

    def round(
        self, federation: Federation, coalitions: Coalitions, state: State, seed: int
    ) -> tuple[State, RoundReport]:
        """Carry out one round."""


def mixing_matrix(
    coalitions: Coalitions, participants: Sequence[str], weights: Mapping[str, float]
) -> Tensor:
    """Return the row-stochastic matrix that averages over each coalition.

    Row i says how i's next model is mixed from everybody's. Only members of i's coalition have a
    share, in proportion to their weights. Whoever has no weight contributes nothing but still
    receives; where nobody in a coalition has any, each member keeps its own.

    Examples
    --------
    >>> mixing_matrix([["a", "b"], ["c"]], ["a", "b", "c"], {"a": 1, "b": 3, "c": 1}).tolist()
    [[0.25, 0.75, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    """
    position = {name: k for k, name in enumerate(participants)}
    covered = [name for group in coalitions for name in group]
    if sorted(covered) != sorted(participants):
        raise PartitionError("the coalitions are not a partition of the federation's participants")
    matrix = torch.zeros(len(participants), len(participants), dtype=torch.float64)
    for group in coalitions:
        rows = torch.tensor([position[name] for name in group])
        shares = torch.tensor([float(weights.get(name, 0.0)) for name in group]).double()
        if shares.sum() > 0:
            matrix[rows[:, None], rows] = shares / shares.sum()
        else:
            matrix[rows, rows] = 1.0
    return matrix.float()


def train_everybody(
    federation: Federation, state: State, settings: TrainSettings, seed: int
) -> tuple[Tensor, RoundReport, Mapping[str, float]]:
    """Have every silo train from its row; who fails keeps its row.

    Returns the new rows, what happened, and the number of training samples of everybody who
    answered. The momentum starts at zero in every round.
    """
    participants = federation.participants
    payloads = {
        name: {
            "parameters": state.parameters[k],
            "settings": settings,
            "seed": f"{seed}/{state.round}",
            "first_step": state.round * settings.steps,
        }
        for k, name in enumerate(participants)
    }
    replies = federation.call("train", payloads)
    rows = state.parameters.clone()
    losses, passes, samples, failures = {}, {}, {}, []
    for k, name in enumerate(participants):
        reply = replies.get(name, Failure(name, "timeout"))
        if isinstance(reply, Failure):
            failures.append(reply)
            continue
        rows[k] = reply["parameters"]
        losses[name] = reply["loss"]
        passes[name] = reply["sample_passes"]
        samples[name] = float(reply["samples"])
    return rows, RoundReport(losses, tuple(failures), passes), samples


def with_traffic(report: RoundReport, participants: Sequence[str], size: int) -> RoundReport:
    """Return a report in which everybody received and sent one vector of `size` floats."""
    answered = dict.fromkeys(report.losses, 4 * size)
    return replace(
        report, bytes_sent=answered, bytes_received=dict.fromkeys(participants, 4 * size)
    )
