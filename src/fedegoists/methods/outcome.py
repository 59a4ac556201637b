"""The outcome of a run: models, measurements, failures, costs and findings."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.robust_sums import BoundKind, Excess
from fedegoists.federation.seam import Failure
from fedegoists.methods.method import RoundReport, State

SUBJECTS: dict[BoundKind, str] = {
    "norm": "an update or gradient was shortened; its norm was",
    "samples": "its sample count was reduced; it was",
}
NOTED = 3.0
"""Norms that exceed their bound by less are shortened, and not worth a word."""

FindingKind = Literal["left out", "suspected", "rolled back", "unexplained", "norm", "samples"]


@dataclass(frozen=True)
class Finding:
    """An observation about a member that concerns the consortium's manager, and nobody else.

    Attributes
    ----------
    round : int
        The round after which it was made.
    participant : str
        The member; empty where no single one could be found.
    kind : str
        ``left out``: its updates harmed the others, and are not used any more; ``suspected``: they
        may have; ``rolled back`` and ``unexplained``: validation losses exploded, and no member
        could be found; ``norm`` and ``samples``: it exceeded a bound.
    detail : str
        One sentence for the log.
    """

    round: int
    participant: str
    kind: FindingKind
    detail: str

    def __str__(self) -> str:
        about = f"{self.participant}: " if self.participant else ""
        return f"{about}{self.kind} in round {self.round}: {self.detail}"


@dataclass(frozen=True)
class Row:
    """One measurement: a participant's metric on a split after some rounds."""

    participant: Participant
    round: int
    split: str
    metric: str
    value: float


@dataclass
class Outcome:
    """The outcome of a run so far.

    Attributes
    ----------
    state : State
        The method's state.
    best : Tensor
        The parameters of the step each participant would choose by its validation data.
    best_round, best_score : list
        Which round that was, and its validation score and negative loss; minus infinity as long as
        a participant was never validated.
    rows : list of Row
        Everything measured.
    failures : list of (round, Failure)
        All failures.
    spent : dict
        Sample passes and bytes sent and received by participant, in all.
    findings : list of Finding
        Members that exceeded a bound or harmed others; only for the consortium's manager.
    at_home : tuple of Participant
        After the last round: participants whose chosen models are in their silos as a whole. Their
        rows of `best` are initial values.
    norms : dict
        The last median norms of updates in each coalition, where only sums are seen.
    """

    state: State
    best: Tensor
    best_round: list[int]
    best_score: list[tuple[float, float]]
    rows: list[Row] = field(default_factory=list)
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    spent: dict[str, dict[Participant, int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    norms: dict[str, list[float]] = field(default_factory=dict)
    at_home: tuple[Participant, ...] = ()

    def copy(self) -> "Outcome":
        """Return a copy that later rounds do not change."""
        return Outcome(
            self.state,
            self.best.clone(),
            list(self.best_round),
            list(self.best_score),
            list(self.rows),
            list(self.failures),
            {kind: dict(own) for kind, own in self.spent.items()},
            list(self.findings),
            {group: list(own) for group, own in self.norms.items()},
            self.at_home,
        )

    def account(self, report: RoundReport, unasked: Container[Participant] = ()) -> None:
        """Add the failures and costs of a round; those of members left out are no failures."""
        self.failures += [
            (self.state.round, one) for one in report.failures if one.participant not in unasked
        ]
        for kind, amounts in (
            ("sample_passes", report.sample_passes),
            ("bytes_sent", report.bytes_sent),
            ("bytes_received", report.bytes_received),
        ):
            totals = self.spent.setdefault(kind, {})
            for name, amount in amounts.items():
                totals[name] = totals.get(name, 0) + amount


def with_excesses(outcome: Outcome, excesses: Iterable[Excess]) -> list[Finding]:
    """Return the findings with members that exceeded bounds, each member and bound once."""
    found = {(one.participant, one.kind): one for one in outcome.findings}
    most: dict[tuple[str, BoundKind], float] = {}
    for one in excesses:
        key = (one.participant.name, one.kind)
        most[key] = max(one.times, most.get(key, 0.0))
    new = [
        Finding(outcome.state.round, name, kind, f"{SUBJECTS[kind]} {times:.3g} times the bound")
        for (name, kind), times in most.items()
        if (name, kind) not in found and (kind == "samples" or times >= NOTED)
    ]
    return [*outcome.findings, *new]
