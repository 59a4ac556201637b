"""Trials: rounds repeated from a good state without one member, judged by the others' losses."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedegoists.federation.batches import stream_seed
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Evaluate
from fedegoists.federation.robust_sums import LEAST_MEMBERS, BoundedSilos
from fedegoists.federation.seam import MemoryKey, sorted_out
from fedegoists.methods.method import Coalitions, Method, State
from fedegoists.methods.outcome import Outcome
from fedegoists.methods.silo_training import personal_parts

FLOOR = 0.05
"""Losses below this fraction of a member's first loss differ by noise only."""

MOST = 10.0
"""Largest logarithm of a ratio of losses, where one of them is not finite."""

LEAST_VOTERS = LEAST_MEMBERS - 1
Losses = Mapping[Participant, float]


@dataclass(frozen=True)
class TrialLosses:
    """The validation losses of a trial; infinite where not finite.

    Attributes
    ----------
    last : mapping of Participant to float
        Those after its last round; members that did not answer are missing.
    highest : mapping of Participant to float
        The highest of all its rounds. A harmful member that throws models to and fro may leave
        them at a good place by chance, but not after every round.
    """

    last: Losses
    highest: Losses


@dataclass(frozen=True)
class Snapshot:
    """A good state to go back to: the outcome then, and the copy of the silos' memory."""

    outcome: Outcome
    memory: Mapping[MemoryKey, Tensor]


@dataclass(frozen=True)
class Watched:
    """The members of a coalition that are judged: the same silos in all repetitions.

    Attributes
    ----------
    names : tuple of str
        The members that are not left out.
    groups : tuple of tuples of Participant
        The coalition in each repetition.
    """

    names: tuple[str, ...]
    groups: tuple[tuple[Participant, ...], ...]

    def of(self, name: str) -> list[Participant]:
        """Return a member in all repetitions."""
        return [one for group in self.groups for one in group if one.name == name]


def rise(before: float, after: float, first: float) -> float:
    """Return the logarithm of a ratio of losses; small ones, relative to the first, count less.

    Examples
    --------
    >>> round(rise(1.0, 1.5, first=0.0), 3)
    0.405
    >>> rise(0.001, 0.002, first=1.0) < 0.02
    True
    """
    if math.isinf(before) or math.isinf(after):
        return 0.0 if before == after else math.copysign(MOST, after - before)
    floor = FLOOR * abs(first) + 1e-12
    return max(-MOST, min(MOST, math.log((after + floor) / (before + floor))))


def first_losses(outcome: Outcome) -> dict[Participant, float]:
    """Return the first validation loss of each participant."""
    found: dict[Participant, float] = {}
    for row in outcome.rows:
        if row.split == "validation" and row.metric == "loss":
            found.setdefault(row.participant, row.value)
    return found


class Trials:
    """Trials from one good state; see `run`.

    Each trial draws other batches, so that the difference of two sums is not exactly the update of
    the member that one of them lacks.

    Parameters
    ----------
    method, silos, coalitions, seed : as in `fedegoists.methods.run`
        What is trained.
    good : Snapshot
        The state to start from.
    watched : sequence of Watched
        The coalitions; only their members are asked.
    outcome : Outcome
        The costs are added to it.
    gone : collection of Participant
        Members that are left out already.
    """

    def __init__(
        self,
        method: Method,
        silos: BoundedSilos,
        coalitions: Coalitions,
        good: Snapshot,
        watched: Sequence[Watched],
        outcome: Outcome,
        *,
        gone: Iterable[Participant],
        seed: int,
    ) -> None:
        self._method, self._silos, self._coalitions = method, silos, coalitions
        self._good, self._outcome = good, outcome
        present = {one for each in watched for name in each.names for one in each.of(name)}
        self._silent = frozenset(silos.participants) - present | frozenset(gone)
        self._voters = [one for one in silos.participants if one in present]
        self._first = first_losses(good.outcome)
        self._seed = (seed, "trial", good.outcome.state.round, len(outcome.findings))
        self._number = 0

    def run(self, without: Iterable[Participant], length: int) -> TrialLosses:
        """Train for some rounds without some members; return all validation losses."""
        silos, method = self._silos, self._method
        silos.restore(method.name, self._good.memory)
        self._number += 1
        seed = stream_seed(*self._seed, self._number) % 2**31
        silent, silos.silent = silos.silent, self._silent | frozenset(without)
        state = self._good.outcome.state
        last: Losses = {}
        highest: dict[Participant, float] = {}
        try:
            for _ in range(length):
                state, report = method.round(silos, self._coalitions, state, seed)
                self._outcome.account(report, unasked=silos.participants)
                last = self._validation_losses(state)
                highest |= {name: max(loss, highest.get(name, loss)) for name, loss in last.items()}
        finally:
            silos.silent = silent
        return TrialLosses(last, highest)

    def _validation_losses(self, state: State) -> Losses:
        rows = dict(zip(self._silos.participants, state.parameters.unbind(), strict=True))
        personal = personal_parts(self._method, self._voters)
        requests = {
            name: Evaluate(parameters=rows[name], split="validation", personal=personal[name])
            for name in self._voters
        }
        replies, failures = sorted_out(self._silos.call(requests))
        found = {name: reply.losses[0] for name, reply in replies.items()}
        broken = {one.participant: math.inf for one in failures if one.reason == "not finite"}
        return {**found, **broken}

    def harm(self, suspect: str, watched: Watched, control: Losses, without: Losses) -> float:
        """Return how much lower losses are without a member, for most of the others.

        The lower median of the others' voices: more than half of them see at least this harm, and
        a single voice, whatever it says, does not decide.
        """
        voices = []
        for name in watched.names:
            own = [
                rise(without[one], control[one], self._first.get(one, 0.0))
                for one in watched.of(name)
                if one in control and one in without
            ]
            if own and name != suspect:
                voices.append(statistics.fmean(own))
        return statistics.median_low(voices) if len(voices) >= LEAST_VOTERS else 0.0
