"""Bounds on what one member can do to the others: sample counts, norms, and members left out.

One bad member may send updates that are far too long, or claim to have most of the samples.
`BoundedSilos` limits both relative to its coalition, before a method sees them. It cannot tell
updates of a plausible length from honest ones; the methods' room has a guard that judges their
effect.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from fedegoists.federation.mixing import Mixed, Sum, VectorName, mix_plain
from fedegoists.federation.participant import Participant
from fedegoists.federation.reasons import Reason
from fedegoists.federation.replies import Gradients, Reply, ReplyT, Trained
from fedegoists.federation.requests import Gradient, OfModels, Request, Train
from fedegoists.federation.seam import Failure, StatefulFederation
from fedegoists.federation.validated import Validated

TINY = 1e-30
LEAST_MEMBERS = 3
"""In a smaller coalition nobody can tell which of the members is the bad one."""


class RobustSettings(Validated):
    """What protects the members of a coalition from one bad member.

    Attributes
    ----------
    factor : float
        Updates and gradients are shortened to this multiple of the median norm in the coalition.
    samples_factor : float
        Sample counts are reduced to this multiple of the median count in the coalition.
    rule : {"mean", "trimmed", "median"}
        How the models of a coalition become one where they are seen; see `robust_mean`.
    guard : bool
        Whether the run looks for the member that harms the others' validation losses.
    audit : float
        Rounds spent on audits of members at most, as a fraction of all rounds; there is at least
        one audit unless it is 0.
    """

    factor: float = Field(default=3.0, ge=1)
    samples_factor: float = Field(default=10.0, ge=1)
    rule: Literal["mean", "trimmed", "median"] = "mean"
    guard: bool = True
    audit: float = Field(default=0.2, ge=0, le=10)


REFUSED = 3.0
"""Vectors that exceed their bound by more are not shortened but refused: nothing in them helps."""

GRADIENT_SLACK = 2.0
"""Gradients of single batches differ more than updates of many steps: their bound is looser."""

WINDOW = 5
"""Rounds over which the median norm is taken where only sums are seen."""

NOT_ASKED: tuple[Reason, str] = ("refused", "not asked")
Rule = Literal["mean", "trimmed", "median"]
BoundKind = Literal["norm", "samples"]


@dataclass(frozen=True)
class Excess:
    """A member that exceeded a bound.

    Attributes
    ----------
    participant : Participant
        The member.
    kind : {"norm", "samples"}
        The bound.
    times : float
        How many times the bound was exceeded.
    """

    participant: Participant
    kind: BoundKind
    times: float


def bounded_counts(counts: Mapping[Participant, int], factor: float) -> dict[Participant, int]:
    """Return sample counts, none larger than a multiple of the median count.

    Examples
    --------
    >>> a, b, c = map(Participant, "abc")
    >>> bounded_counts({a: 100, b: 120, c: 2**50}, factor=10)
    {'a': 100, 'b': 120, 'c': 1200}
    """
    most = int(factor * statistics.median_low(counts.values()))
    return {name: min(count, most) for name, count in counts.items()}


def norm_bound(norms: Iterable[float], factor: float) -> float:
    """Return the longest norm that is allowed beside these: a multiple of their median.

    Examples
    --------
    >>> norm_bound([1.0, 1.5, 400.0], factor=3)
    4.5
    """
    return factor * statistics.median_low(norms)


def robust_mean(rows: Tensor, rule: Rule) -> Tensor:
    """Return the mean of some rows, or a mean that one of them cannot move far.

    Parameters
    ----------
    rule : {"mean", "trimmed", "median"}
        ``trimmed`` leaves out the largest and the smallest quarter of the numbers at each place,
        at least one of each; ``median`` takes the middle one.

    Examples
    --------
    >>> rows = torch.tensor([[1.0], [2.0], [3.0], [1000.0]])
    >>> [robust_mean(rows, rule).item() for rule in ("mean", "trimmed", "median")]
    [251.5, 2.5, 2.5]
    """
    if rule == "mean":
        return rows.mean(0)
    count = len(rows)
    # A median is what is left when all but the middle one or two are left out.
    left_out = max(1, count // 4) if rule == "trimmed" else (count - 1) // 2
    return rows.sort(0).values[left_out : count - left_out].mean(0)


def _key(coalition: Iterable[Participant]) -> str:
    return "\n".join(map(str, coalition))


def _with_silent(mixed: Mixed, requests: Mapping[Participant, Train]) -> Mixed:
    """Return a result with the rows of all requests: members that were not asked stay as before."""
    if len(mixed.names) == len(requests):
        return mixed
    position = {name: k for k, name in enumerate(mixed.names)}

    def all_rows(vectors: Mapping[VectorName, Tensor]) -> dict[VectorName, Tensor]:
        found: dict[VectorName, Tensor] = {}
        for kind, rows in vectors.items():
            own = [
                rows[position[name]]
                if name in position
                else one.parameters.to(rows)
                if kind == "parameters"
                else torch.zeros_like(one.parameters).to(rows)
                for name, one in requests.items()
            ]
            found[kind] = torch.stack(own)
        return found

    gone = [name for name in requests if name not in position]
    return replace(
        mixed,
        names=tuple(requests),
        trained=all_rows(mixed.trained),
        means=all_rows(mixed.means),
        failures=(*mixed.failures, *(Failure(name, *NOT_ASKED) for name in gone)),
    )


class BoundedSilos:
    """A federation in which one member's replies cannot outweigh those of its coalition.

    Bounds apply in coalitions of three members or more, and only while a member answers in the
    clear. Members that are left out, and all others that are `silent`, are not asked to train: to
    a method they are members that do not answer.

    Parameters
    ----------
    federation : StatefulFederation
        The silos.
    coalitions : sequence of sequences of Participant
        Who is compared with whom.
    settings : RobustSettings
        The bounds.
    """

    def __init__(
        self,
        federation: StatefulFederation,
        coalitions: Iterable[Sequence[Participant]],
        settings: RobustSettings,
    ) -> None:
        self._federation, self._settings = federation, settings
        self._groups = [tuple(group) for group in coalitions if len(group) >= LEAST_MEMBERS]
        self.participants, self.schema = federation.participants, federation.schema
        self.task, self.device = federation.task, federation.device
        self.deployed = federation.deployed
        self.stream_name = federation.stream_name
        self.memory, self.restore = federation.memory, federation.restore
        self.personal_model, self.deliver = federation.personal_model, federation.deliver
        self.masks, self.consents = federation.masks, federation.consents
        self.silent: frozenset[Participant] = frozenset()
        self.norms: dict[str, list[float]] = {}
        self._excesses: list[Excess] = []

    def drained(self) -> list[Excess]:
        """Return the members that exceeded a bound since the last time."""
        found, self._excesses = self._excesses, []
        return found

    def samples(self, participant: Participant) -> int:
        """Return a participant's training samples, no more than is plausible beside the others."""
        own = self._federation.samples(participant)
        for group in self._groups:
            if participant in group:
                counts = {one: self._federation.samples(one) for one in group}
                count = bounded_counts(counts, self._settings.samples_factor)[participant]
                if count < own:
                    self._excesses.append(Excess(participant, "samples", own / count))
                return count
        return own

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each; see `Federation.call`."""
        asked = {
            name: request
            for name, request in requests.items()
            if name not in self.silent or not isinstance(request, Train | Gradient)
        }
        replies = self._federation.call(asked, timeout)
        for group in self._groups:
            own = {
                name: (cast("OfModels[Reply]", requests[name]), reply)
                for name in group
                if isinstance(reply := replies.get(name), Trained | Gradients)
            }
            bounded = self._bounded(own) if len(own) >= LEAST_MEMBERS else {}
            replies.update(cast("dict[Participant, ReplyT | Failure]", bounded))
        return {
            name: replies[name] if name in asked else Failure(name, *NOT_ASKED) for name in requests
        }

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: Sequence[Sum],
        timeout: float | None = None,
    ) -> Mixed:
        """Have participants train, and return means of their models; see `Federation.mix`.

        Where the models are seen, the updates of this round are compared. Where they are hidden,
        silos shorten theirs at home, to a bound from the rounds before.
        """
        if not any(self.masks(one.coalition) for one in sums):
            mixed = mix_plain(self, requests, sums, timeout)
            return mixed if self._settings.rule == "mean" else self._by_rule(mixed, sums)
        asked = {name: one for name, one in requests.items() if name not in self.silent}
        mixed = self._federation.mix(
            asked, [self._with_bound(one) for one in sums if self._asked(one)], timeout
        )
        self._note_norms(sums, mixed.norms)
        return _with_silent(mixed, requests)

    def _asked(self, one: Sum) -> bool:
        """Return whether a sum has contributors and receivers that are asked."""
        return any(name not in self.silent for name in one.weights) and any(
            name not in self.silent for name in one.receivers
        )

    def _with_bound(self, one: Sum) -> Sum:
        """Return a sum without the members that are not asked, and with the present bound."""
        coalition = tuple(name for name in one.coalition if name not in self.silent)
        known = self.norms.get(_key(one.coalition), ())
        bound = norm_bound(known, self._settings.factor) if known else math.inf
        return replace(
            one,
            coalition=coalition,
            weights={name: own for name, own in one.weights.items() if name in coalition},
            receivers=tuple(name for name in one.receivers if name in coalition),
            bound=bound if len(coalition) >= LEAST_MEMBERS else one.bound,
        )

    def _note_norms(self, sums: Iterable[Sum], norms: Mapping[Participant, float]) -> None:
        """Keep the median norms of the last rounds of each coalition."""
        for coalition in dict.fromkeys(one.coalition for one in sums):
            told = {name: norms[name] for name in coalition if name in norms}
            known = self.norms.setdefault(_key(coalition), [])
            if len(told) >= LEAST_MEMBERS:
                longest = norm_bound(known or told.values(), self._settings.factor)
                self._excesses += [
                    Excess(name, "norm", norm / longest)
                    for name, norm in told.items()
                    if 0 < longest < norm
                ]
                known.append(statistics.median_low(told.values()))
                del known[:-WINDOW]

    def _by_rule(self, mixed: Mixed, sums: Iterable[Sum]) -> Mixed:
        """Return the result with robust means instead of weighted ones."""
        position = {name: k for k, name in enumerate(mixed.names)}
        means = {name: rows.clone() for name, rows in mixed.means.items()}
        for one in sums:
            rows = [position[name] for name in one.weights if name in mixed.losses]
            if len(rows) >= LEAST_MEMBERS and one.receivers:
                places = [position[name] for name in one.receivers]
                for name, vectors in mixed.trained.items():
                    means[name][places] = robust_mean(vectors[rows], self._settings.rule)
        return replace(mixed, means=means)

    def _bounded(
        self, answers: Mapping[Participant, tuple[OfModels[Reply], Reply]]
    ) -> dict[Participant, Reply | Failure]:
        """Return the replies of one coalition that had to be changed, changed or refused."""
        changes: dict[Participant, dict[str, object]] = {}
        refused: dict[Participant, float] = {}
        vectors: dict[str, dict[Participant, Tensor | None]] = {
            "parameters": self._updates(answers),
            "momentum": {
                name: one.momentum for name, (_, one) in answers.items() if isinstance(one, Trained)
            },
            "gradient": {
                name: one.gradient
                for name, (_, one) in answers.items()
                if isinstance(one, Gradients)
            },
        }
        for field, found in vectors.items():
            slack = GRADIENT_SLACK if field == "gradient" else 1.0
            given = {name: one for name, one in found.items() if one is not None}
            for name, factors in self._shortening(given, slack).items():
                if float(factors.min()) * REFUSED < 1:
                    refused[name] = float(1 / factors.min())
                reply = answers[name][1]
                vector = given[name] * factors
                if field == "parameters":
                    # Only the update was too long. Where it was withheld, it stays so.
                    shown = cast("Trained", reply).parameters
                    vector = shown - (1 - factors) * given[name]
                changes.setdefault(name, {})[field] = vector
        counts = {
            name: one.samples for name, (_, one) in answers.items() if isinstance(one, Trained)
        }
        if len(counts) >= LEAST_MEMBERS:
            for name, count in bounded_counts(counts, self._settings.samples_factor).items():
                if count < counts[name]:
                    changes.setdefault(name, {})["samples"] = count
                    self._excesses.append(Excess(name, "samples", counts[name] / count))
        bounded: dict[Participant, Reply | Failure] = {
            name: answers[name][1].model_copy(update=changed) for name, changed in changes.items()
        }
        for name, times in refused.items():
            detail = f"{times:.3g} times as long as is plausible beside the others"
            bounded[name] = Failure(name, "error", detail)
        return bounded

    def _updates(
        self, answers: Mapping[Participant, tuple[OfModels[Reply], Reply]]
    ) -> dict[Participant, Tensor | None]:
        """Return parameters after training minus before, where silos do not withhold them."""
        found: dict[Participant, Tensor | None] = {}
        for name, (request, reply) in answers.items():
            if isinstance(reply, Trained):
                update = reply.parameters - request.parameters.to(reply.parameters)
                if request.personal is not None:
                    withheld = self.schema.mask(request.personal.prefixes).to(update.device)
                    update = torch.where(withheld, 0.0, update)
                found[name] = update
        return found

    def _shortening(
        self, vectors: Mapping[Participant, Tensor], slack: float
    ) -> dict[Participant, Tensor]:
        """Return factors for the rows of vectors that are too long, of members that have any."""
        if len(vectors) < LEAST_MEMBERS:
            return {}
        norms = {name: one.norm(dim=-1, keepdim=True) for name, one in vectors.items()}
        # A contributor's gradient is long at models that are not its own.
        lengths = [float(one.max()) for one in norms.values()]
        longest = norm_bound(lengths, slack * self._settings.factor)
        factors: dict[Participant, Tensor] = {}
        if not longest:
            return factors  # most are at rest, as a momentum at the start
        for name, norm in norms.items():
            most = float(norm.max())
            if most > longest:
                factors[name] = (longest / norm.clamp_min(TINY)).clamp_max(1.0)
                self._excesses.append(Excess(name, "norm", most / longest))
        return factors
