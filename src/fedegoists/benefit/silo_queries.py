"""Queries to the silos of several repetitions at once, with their costs and failures."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation import (
    Describe,
    Evaluate,
    Failure,
    Federation,
    Gradient,
    Keep,
    Participant,
    Repetition,
    Train,
    sorted_out,
)
from fedegoists.federation.replies import Described, ReplyT
from fedegoists.federation.requests import OfModels

Pairs = Collection[tuple[str, str]]
"""Pairs of names, in either order."""

Apart = Mapping[Repetition | None, Pairs]
"""Competitors in each repetition."""


RARELY = 0.5
"""Participants that answered fewer than this fraction of the calls count as absent."""


@dataclass(frozen=True)
class Cost:
    """The cost of one participant, as the mean over the participants of a repetition.

    Attributes
    ----------
    rounds : int
        Calls that every silo had to answer, one after the other.
    bytes_sent, bytes_received : int
        By one silo in all; numbers of 32 bits.
    sample_passes : int
        Samples in gradients, counted once for each model.
    """

    rounds: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    sample_passes: int = 0


@dataclass
class SiloQueries:
    """Queries to participants, who form a matrix with one row for each repetition."""

    federation: Federation
    names: tuple[tuple[Participant, ...], ...]
    rounds: int = 0
    sent: dict[Participant, int] = field(default_factory=dict)
    received: dict[Participant, int] = field(default_factory=dict)
    passes: dict[Participant, int] = field(default_factory=dict)
    failed: dict[Participant, int] = field(default_factory=dict)
    failures: dict[Participant, Failure] = field(default_factory=dict)
    since: tuple[int, dict[Participant, int]] = (0, {})

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of repetitions, and of participants in each."""
        return len(self.names), len(self.names[0])

    def among(self, apart: Apart) -> Tensor:
        """Return the pairs of competitors in each repetition as a matrix."""
        known = {
            frozenset(Participant(name, repetition) for name in pair)
            for repetition, pairs in apart.items()
            for pair in pairs
        }
        for name in sorted(frozenset().union(*known)):
            if name not in self.federation.participants:
                # A misspelt competitor would see models that it must not see.
                raise SettingsError(f"the competitor {name!r} is not in this federation")
        return torch.tensor(
            [[[{one, other} in known for other in names] for one in names] for names in self.names]
        )

    def gradients(
        self, rows: Tensor, request: Callable[..., Gradient]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return gradients at the rows of (repetitions, participants, rows, parameters).

        Parameters
        ----------
        request : callable
            Makes the request, given its ``parameters``.

        Returns
        -------
        gradients, losses, answered
            Of the shapes of `rows`, without its last, and without its last two axes; zeros where a
            silo failed.
        """
        gradients = torch.zeros_like(rows)
        losses = torch.zeros(rows.shape[:3])
        answered = torch.zeros(self.shape, dtype=torch.bool)
        for place, name, reply in self._replies(rows, request):
            gradients[place] = reply.gradient
            losses[place] = torch.tensor(reply.losses)
            answered[place] = True
            self._count(self.sent, name, 4 * (reply.gradient.numel() + rows.shape[2]))
            self._count(self.passes, name, reply.samples * rows.shape[2])
        return gradients, losses, answered

    def losses(self, rows: Tensor, request: Callable[..., Evaluate]) -> Tensor:
        """Return losses at (repetitions, participants, rows, parameters); NaN for failures."""
        return self._evaluated(rows, request)[0]

    def measures(self, rows: Tensor, request: Callable[..., Evaluate]) -> Tensor:
        """Return metrics and minus losses, both higher for better models, along a first axis."""
        losses, scores = self._evaluated(rows, request)
        sign = 1.0 if self.federation.task.higher_is_better else -1.0
        return torch.stack([sign * scores, -losses])

    def _evaluated(self, rows: Tensor, request: Callable[..., Evaluate]) -> tuple[Tensor, Tensor]:
        """Return losses and metrics at (repetitions, participants, rows, parameters)."""
        losses, scores = (torch.full(rows.shape[:3], torch.nan) for _ in range(2))
        for place, name, reply in self._replies(rows, request):
            losses[place] = torch.tensor(reply.losses)
            scores[place] = torch.tensor(reply.scores)
            self._count(self.sent, name, 8 * rows.shape[2])
        return losses, scores

    def trained(self, rows: Tensor, request: Callable[..., Train]) -> tuple[Tensor, Tensor]:
        """Train from (repetitions, participants, parameters); return models and which answered."""
        models = rows.clone()
        answered = torch.zeros(self.shape, dtype=torch.bool)
        for place, name, reply in self._replies(rows, request):
            models[place] = reply.parameters
            answered[place] = True
            self._count(self.sent, name, 4 * (rows.shape[-1] + 1))
            self._count(self.passes, name, reply.sample_passes)
        return models, answered

    def samples(self) -> Tensor:
        """Return the training samples of all participants; 0 where a silo failed."""
        counts = torch.zeros(self.shape)
        for place, reply in self.descriptions().items():
            counts[place] = float(reply.samples["train"])
        return counts

    def descriptions(self) -> dict[tuple[int, int], Described]:
        """Return the descriptions of silos' data, by place, of those that answered."""
        places = self._places
        self.rounds += 1
        replies, failures = sorted_out(self.federation.call(dict.fromkeys(places, Describe())))
        for failure in failures:
            self._note(failure)
        return {places[name]: reply for name, reply in replies.items()}

    def forget(self, slot: str) -> None:
        """Have all silos empty a slot of their memory."""
        self.rounds += 1
        request = Keep(slot=slot)
        _, failures = sorted_out(self.federation.call(dict.fromkeys(self._places, request)))
        for failure in failures:
            self._note(failure)

    def restart_count(self) -> None:
        """Restart the count of rounds and failures that `answering` uses."""
        self.since = self.rounds, dict(self.failed)

    def answering(self) -> Tensor:
        """Return whether participants answered often enough, (repetitions, participants)."""
        rounds, failed = self.since
        most = (1 - RARELY) * (self.rounds - rounds)
        return torch.tensor(
            [
                [self.failed.get(name, 0) - failed.get(name, 0) <= most for name in names]
                for names in self.names
            ]
        )

    def cost(self, repetition: int) -> Cost:
        """Return the mean cost of the participants of one repetition."""
        names = self.names[repetition]

        def mean(amounts: Mapping[Participant, int]) -> int:
            return round(sum(amounts.get(name, 0) for name in names) / len(names))

        return Cost(self.rounds, mean(self.sent), mean(self.received), mean(self.passes))

    def failures_in(self, repetition: int) -> tuple[str, ...]:
        """Return a line for each participant of a repetition that failed: how often, and why."""
        return tuple(
            f"{name.name}: failed {self.failed[name]} times, last {self.failures[name].why}"
            for name in self.names[repetition]
            if name in self.failed
        )

    @property
    def _places(self) -> dict[Participant, tuple[int, int]]:
        return {
            name: (repetition, k)
            for repetition, names in enumerate(self.names)
            for k, name in enumerate(names)
        }

    def _replies(
        self, rows: Tensor, request: Callable[..., OfModels[ReplyT]]
    ) -> list[tuple[tuple[int, int], Participant, ReplyT]]:
        """Ask all participants about their rows; return the places and replies of the answers."""
        places = self._places
        requests = {name: request(parameters=rows[place]) for name, place in places.items()}
        self.rounds += 1
        for name, sent in requests.items():
            self._count(self.received, name, 4 * sent.parameters.numel())
        replies, failures = sorted_out(self.federation.call(requests))
        for failure in failures:
            self._note(failure)
        return [(places[name], name, reply) for name, reply in replies.items()]

    def _note(self, failure: Failure) -> None:
        self._count(self.failed, failure.participant, 1)
        self.failures[failure.participant] = failure

    @staticmethod
    def _count(amounts: dict[Participant, int], name: Participant, amount: int) -> None:
        amounts[name] = amounts.get(name, 0) + amount


def by_repetition(federation: Federation) -> dict[Repetition | None, tuple[Participant, ...]]:
    """Return the participants of each repetition, checked: equally many, and at least two."""
    found: dict[Repetition | None, list[Participant]] = {}
    for name in federation.participants:
        found.setdefault(name.repetition, []).append(name)
    sizes = {len(names) for names in found.values()}
    if len(sizes) > 1:
        raise SettingsError("repetitions that run at once must have equally many participants")
    if min(sizes) < 2:
        raise SettingsError("a benefit graph needs at least two participants")
    return {repetition: tuple(names) for repetition, names in found.items()}
