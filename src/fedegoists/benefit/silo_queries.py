"""Asking silos in several trials at once, and writing down what it costs and who failed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation import Failure, Federation, Reply

__all__ = ["RARELY", "Asking", "Cost", "Groups", "Pairs", "groups_of"]

Groups = Mapping[str, Sequence[str]]
"""The participants of each trial, by the trial's label."""

Pairs = Collection[tuple[str, str]]
"""Names that go together, in either order."""


RARELY = 0.5
"""Who answered less than this part of the calls is absent."""


@dataclass(frozen=True)
class Cost:
    """What one participant spent, in the mean over the participants of a trial.

    Attributes
    ----------
    rounds : int
        Calls that every silo had to answer, one after the other.
    bytes_sent, bytes_received : int
        By one silo in all; numbers of 32 bits.
    sample_passes : int
        Samples whose gradient was taken, counted once for each model.
    """

    rounds: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    sample_passes: int = 0


@dataclass
class Asking:
    """A federation's participants as a matrix: one row for each trial, all of one length."""

    federation: Federation
    names: tuple[tuple[str, ...], ...]
    rounds: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    passes: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    since: tuple[int, dict[str, int]] = (0, {})

    @property
    def shape(self) -> tuple[int, int]:
        """Trials, and participants in each."""
        return len(self.names), len(self.names[0])

    def among(self, pairs: Pairs) -> Tensor:
        """Return which two participants of each trial are among some pairs, in either order."""
        known = {frozenset(pair) for pair in pairs}
        for name in sorted(frozenset().union(*known)):
            if name not in self.federation.participants:
                # A misspelt competitor would be shown what it must not see.
                raise SettingsError(f"{name!r}, who competes, is not in this federation")
        return torch.tensor(
            [[[{one, other} in known for other in names] for one in names] for names in self.names]
        )

    def gradients(self, rows: Tensor, **payload: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Ask for gradients at the last but one axis of (trials, participants, rows, parameters).

        Returns
        -------
        gradients, losses, answered
            Of the shapes of `rows`, without its last, and without its last two axes. Zeros stand
            where a silo failed.
        """
        gradients = torch.zeros_like(rows)
        losses = torch.zeros(rows.shape[:3])
        answered = torch.zeros(self.shape, dtype=torch.bool)
        replies = self._call("loss_and_gradient", rows, payload)
        for trial, names in enumerate(self.names):
            for k, name in enumerate(names):
                reply = replies[name]
                if not isinstance(reply, Failure):
                    gradients[trial, k] = reply["gradient"]
                    losses[trial, k] = torch.tensor(reply["loss"])
                    answered[trial, k] = True
                    self._count(self.sent, name, 4 * (reply["gradient"].numel() + rows.shape[2]))
                    self._count(self.passes, name, reply["samples"] * rows.shape[2])
        return gradients, losses, answered

    def losses(self, rows: Tensor, **payload: Any) -> Tensor:
        """Return losses of (trials, participants, rows, parameters); NaN where a silo failed."""
        losses = torch.full(rows.shape[:3], torch.nan)
        replies = self._call("evaluate", rows, payload)
        for trial, names in enumerate(self.names):
            for k, name in enumerate(names):
                reply = replies[name]
                if not isinstance(reply, Failure):
                    losses[trial, k] = torch.tensor(reply["loss"])
                    self._count(self.sent, name, 8 * rows.shape[2])  # the scores come with them
        return losses

    def trained(self, rows: Tensor, **payload: Any) -> tuple[Tensor, Tensor]:
        """Have silos train from (trials, participants, parameters); return models and who did."""
        models = rows.clone()
        answered = torch.zeros(self.shape, dtype=torch.bool)
        replies = self._call("train", rows, payload)
        for trial, names in enumerate(self.names):
            for k, name in enumerate(names):
                reply = replies[name]
                if not isinstance(reply, Failure):
                    models[trial, k] = reply["parameters"]
                    answered[trial, k] = True
                    self._count(self.sent, name, 4 * (rows.shape[-1] + 1))
                    self._count(self.passes, name, reply["sample_passes"])
        return models, answered

    def samples(self) -> Tensor:
        """Return how many training samples everybody has; 0 where a silo failed."""
        counts = torch.zeros(self.shape)
        replies = self.federation.call("describe", {n: {} for names in self.names for n in names})
        self.rounds += 1
        for trial, names in enumerate(self.names):
            for k, name in enumerate(names):
                reply = replies.get(name, Failure(name, "timeout"))
                if isinstance(reply, Failure):
                    self._note(reply)
                else:
                    counts[trial, k] = float(reply["samples"]["train"])
        return counts

    def count_anew(self) -> None:
        """Let `answering` count from here on."""
        self.since = self.rounds, dict(self.failed)

    def answering(self) -> Tensor:
        """Return who answered often enough, of shape (trials, participants)."""
        rounds, failed = self.since
        most = (1 - RARELY) * (self.rounds - rounds)
        return torch.tensor(
            [
                [self.failed.get(name, 0) - failed.get(name, 0) <= most for name in names]
                for names in self.names
            ]
        )

    def cost(self, trial: int) -> Cost:
        """Return what a participant of one trial spent, in the mean."""
        names = self.names[trial]

        def mean(amounts: Mapping[str, int]) -> int:
            return round(sum(amounts.get(name, 0) for name in names) / len(names))

        return Cost(self.rounds, mean(self.sent), mean(self.received), mean(self.passes))

    def failures_in(self, trial: int) -> tuple[str, ...]:
        """Return a line for each participant of a trial that failed: how often, and why last."""
        return tuple(
            f"{name}: failed {self.failed[name]} times, last {self.failures[name].reason}"
            for name in self.names[trial]
            if name in self.failed
        )

    def _call(
        self, operation: str, rows: Tensor, payload: Mapping[str, Any]
    ) -> dict[str, Reply | Failure]:
        payloads = {
            name: {"parameters": rows[trial, k], **payload}
            for trial, names in enumerate(self.names)
            for k, name in enumerate(names)
        }
        self.rounds += 1
        replies = self.federation.call(operation, payloads)
        result: dict[str, Reply | Failure] = {}
        for name, sent in payloads.items():
            self._count(self.received, name, 4 * sent["parameters"].numel())
            result[name] = replies.get(name, Failure(name, "timeout"))
            if isinstance(result[name], Failure):
                self._note(result[name])
        return result

    def _note(self, failure: Any) -> None:
        self._count(self.failed, failure.participant, 1)
        self.failures[failure.participant] = failure

    @staticmethod
    def _count(amounts: dict[str, int], name: str, amount: int) -> None:
        amounts[name] = amounts.get(name, 0) + amount


def groups_of(federation: Federation, groups: Groups | None) -> tuple[tuple[str, ...], ...]:
    """Return the participants of each trial, checked; without groups, all are one trial."""
    chosen = {"": federation.participants} if groups is None else groups
    names = tuple(tuple(members) for members in chosen.values())
    known = set(federation.participants)
    for members in names:
        for name in members:
            if name not in known:
                raise SettingsError(f"{name!r} is not in this federation")
    if not names or len({len(members) for members in names}) > 1:
        raise SettingsError("trials that run at once must have equally many participants")
    if len(names[0]) < 2:
        raise SettingsError("a benefit graph needs at least two participants")
    return names
