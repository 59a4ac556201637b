"""The requirements of a partition under coalition values, checked plainly, with witnesses.

Like `principles`, this module judges the results of the searches and uses none of their code. It
works on names, sets and the expected gains of the members of a coalition S:

1. No free riders (Principle 1). Each member i of a coalition of two or more *receives*, gain_i(S) >
   0, and *gives*: without i, the total gain of the other members would be lower. Where gains are
   sums of benefits, these are the two sums of Equation 1.
2. No conflict of interest (Principle 2): as in `principles`.
3. Participation: the probability that i gains is at least the confidence. Under uncertain benefits:
   the probability that nobody rides free in S is.
4. Merge-stable (Equation 2): no set of two or more coalitions can be united into one that satisfies
   1 to 3 and has a higher total gain than they have together.

A gain counts as positive above a billionth of the largest gain from any pair, so that rounding
decides nothing.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import NormalDist

import numpy as np

from fedegoists.coalitions.principles import (
    MOST_WITNESSES,
    Coalition,
    FreeRider,
    Merger,
    TooSmall,
    Verification,
    check_partition,
    conflicts,
    further_conflicts,
    named,
)
from fedegoists.coalitions.proof.likelihoods import Likelihoods
from fedegoists.errors import GraphError
from fedegoists.graphs import CoalitionValues, CompetitionGraph, UncertainBenefits
from fedegoists.graphs.coalition_values import Bools, least_gain, pair_bounds


@dataclass(frozen=True)
class ValuedFreeRider(FreeRider):
    """A member that does not gain in expectation, or without which the others gain as much.

    `amount` is its expected gain, or by how much the others' total is higher with it.
    """

    amount: float
    unit: str

    def __str__(self) -> str:
        group = named(self.coalition)
        amount = f"{self.amount:+.3g} {self.unit}".rstrip()
        if self.missing == "incoming":
            return f"{self.participant} gains nothing in its coalition {group}: {amount} expected"
        return (
            f"{self.participant} gives nothing in its coalition {group}: the others' total gain "
            f"changes by {amount} with it"
        )


@dataclass(frozen=True)
class UnlikelyGain:
    """A member whose probability of gaining is below the confidence agreed on."""

    participant: str
    coalition: Coalition
    probability: float
    confidence: float

    def __str__(self) -> str:
        return (
            f"{self.participant} gains with probability {self.probability:.3g} only in its "
            f"coalition {named(self.coalition)}; at least {self.confidence:g} is demanded"
        )


@dataclass(frozen=True)
class RiskyCoalition(UnlikelyGain):
    """A coalition in which somebody may ride free: the member that is the likeliest to."""

    def __str__(self) -> str:
        return (
            f"nobody rides free in the coalition {named(self.coalition)} with probability "
            f"{self.probability:.3g} only; at least {self.confidence:g} is demanded "
            f"({self.participant} is the likeliest to)"
        )


def gain_probability(gain: float, error: float) -> float:
    """Return the probability that a gain is positive, by a normal approximation.

    Examples
    --------
    >>> round(gain_probability(0.02, 0.01), 3), gain_probability(0.02, 0.0)
    (0.977, 1.0)
    """
    if error <= 0:
        return 1.0 if gain > 0 else 0.0
    return NormalDist().cdf(gain / error)


def likelihoods_of(values: UncertainBenefits) -> Likelihoods:
    """Return what estimates say, for the independent checks."""
    names = values.participants
    known = np.argwhere((values.weights != 0) | (values.errors != 0)).tolist()
    return Likelihoods(
        names,
        {
            (names[j], names[i]): (float(values.weights[j, i]), float(values.errors[j, i]))
            for j, i in known
        },
        values.given_share,
    )


class Judge:
    """Looks up gains by name, and judges single coalitions."""

    def __init__(
        self,
        values: CoalitionValues,
        competition: CompetitionGraph,
        confidence: float,
        fewest_members: int = 1,
    ) -> None:
        self.values = values
        self.competition = competition
        self.confidence = confidence
        self.fewest_members = fewest_members
        self.least = least_gain(values)
        self._quantile = NormalDist().inv_cdf(confidence)
        self.likelihoods = likelihoods_of(values) if isinstance(values, UncertainBenefits) else None
        names = values.participants
        self._place = {name: k for k, name in enumerate(names)}
        helps = pair_bounds(values) > 0
        self.gives = {
            name: {names[i] for i in np.flatnonzero(helps[j])} for j, name in enumerate(names)
        }

    def row(self, group: Iterable[str]) -> Bools:
        """Return a coalition as a row of a boolean matrix."""
        row = np.zeros(len(self._place), dtype=np.bool_)
        row[[self._place[name] for name in group]] = True
        return row

    def gains(self, group: Sequence[str]) -> dict[str, float]:
        """Return the expected gain of each member."""
        found = self.values.gains(self.row(group)[None])[0]
        return {name: float(found[self._place[name]]) for name in group}

    def errors(self, group: Sequence[str]) -> dict[str, float]:
        """Return the standard error of each member's expected gain."""
        found = self.values.standard_errors(self.row(group)[None])[0]
        return {name: float(found[self._place[name]]) for name in group}

    def total(self, group: Sequence[str]) -> float:
        """Return the total expected gain of a coalition."""
        return math.fsum(self.gains(group).values())

    def contribution(self, name: str, group: Sequence[str]) -> float:
        """Return by how much the others' total gain in a coalition is higher with a member."""
        others = [other for other in group if other != name]
        if self.likelihoods is not None:  # benefits add up
            promised = self.likelihoods.promised
            return math.fsum(promised.get((name, other), 0.0) for other in others)
        with_it, without = self.gains(group), self.gains(others)
        return math.fsum([*(with_it[k] for k in others), *(-without[k] for k in others)])

    def free_riders(self, group: Coalition) -> Iterable[ValuedFreeRider]:
        """Principle 1: yield every member that does not receive, or does not give."""
        if len(group) < 2:
            return
        gains, unit = self.gains(group), self.values.unit
        for name in group:
            if (given := self.contribution(name, group)) <= self.least:
                yield ValuedFreeRider(name, group, "outgoing", given, unit)
            if gains[name] <= self.least:
                yield ValuedFreeRider(name, group, "incoming", gains[name], unit)

    def unlikely(self, group: Coalition) -> Iterable[UnlikelyGain]:
        """Participation: yield every member that is not likely enough to gain."""
        if len(group) < 2:
            return
        if self.likelihoods is not None:
            yield from self._risky(self.likelihoods, group)
            return
        gains, errors = self.gains(group), self.errors(group)
        for name in group:
            if gains[name] < self._quantile * errors[name]:
                probability = gain_probability(gains[name], errors[name])
                yield UnlikelyGain(name, group, probability, self.confidence)

    def _risky(self, likelihoods: Likelihoods, group: Coalition) -> Iterable[RiskyCoalition]:
        safety = likelihoods.safety(group)
        if safety < self.confidence * (1 - 1e-12):
            sure = {
                name: min(likelihoods.receives(name, group), likelihoods.gives(name, group))
                for name in group
            }
            yield RiskyCoalition(min(group, key=sure.__getitem__), group, safety, self.confidence)

    def admits(self, group: Coalition) -> bool:
        """Whether a coalition without competitors satisfies everything else."""
        return len(group) == 1 or (
            len(group) >= self.fewest_members
            and next(iter(self.free_riders(group)), None) is None
            and next(iter(self.unlikely(group)), None) is None
        )


def verify_values(
    values: CoalitionValues,
    competition: CompetitionGraph,
    coalitions: Iterable[Iterable[str]],
    *,
    confidence: float,
    budget: int | None,
    fewest_members: int = 1,
    deadline: float = math.inf,
) -> Verification:
    """Check a partition against the requirements; see `fedegoists.coalitions.verify`."""
    if values.participants != competition.participants:
        raise GraphError("the values and the competition graph are over different participants")
    names = values.participants
    partition = check_partition(coalitions, names)
    judge = Judge(values, competition, confidence, fewest_members)
    rivals = {name: set(competition.competitors(name)) for name in names}
    found, complete = valued_merger(judge, partition, budget, deadline)
    riders = tuple(rider for group in partition for rider in judge.free_riders(group))
    together = tuple(islice(conflicts(judge.gives, rivals, partition), MOST_WITNESSES))
    return Verification(
        free_riders=riders[:MOST_WITNESSES],
        further_free_riders=len(riders[MOST_WITNESSES:]),
        conflicts=together,
        further_conflicts=further_conflicts(rivals, partition, together),
        mergers=() if found is None else (found,),
        complete=complete,
        fewest_members=fewest_members,
        too_small=tuple(
            TooSmall(group, fewest_members)
            for group in partition
            if 1 < len(group) < fewest_members
        ),
        confidence=confidence,
        unlikely=tuple(one for group in partition for one in judge.unlikely(group)),
    )


def valued_merger(
    judge: Judge,
    partition: Sequence[Coalition],
    budget: int | None,
    deadline: float = math.inf,
) -> tuple[Merger | None, bool]:
    """Return coalitions that should merge, if any, and whether the search came to its end.

    A case is a set of coalitions that a merger holds for sure, and a set of others that it may
    hold. From those that it may hold, leave out competitors of the sure ones, and singles that
    nobody in the case could help or that could help nobody. If even the highest gains that the case
    allows are no rise, it holds no merger. If all of the case together are a merger, return it.
    Otherwise take a coalition that it may hold, one with competitors first: a merger is with it, or
    without it.
    """
    order = {name: k for k, name in enumerate(judge.values.participants)}
    home = {name: c for c, group in enumerate(partition) for name in group}
    everybody = range(len(partition))
    benefits = [
        {home[t] for name in partition[c] for t in judge.gives[name]} - {c} for c in everybody
    ]
    benefited = [{other for other in everybody if c in benefits[other]} for c in everybody]
    competes = [
        {home[r] for name in partition[c] for r in judge.competition.competitors(name)} - {c}
        for c in everybody
    ]
    now = [judge.total(group) for group in partition]

    def idle(c: int, case: set[int]) -> bool:
        return len(partition[c]) == 1 and not (benefits[c] & case and benefited[c] & case)

    def united(case: set[int]) -> Coalition:
        members = [name for c in case for name in partition[c]]
        return tuple(sorted(members, key=order.__getitem__))

    cases: list[tuple[set[int], set[int]]] = [(set(), set(everybody))]
    looked_at = 0
    while cases:
        looked_at += 1
        if (budget is not None and looked_at > budget) or time.perf_counter() > deadline:
            return None, False
        sure, maybe = cases.pop()
        maybe = maybe - {r for c in sure for r in competes[c]}
        while drop := {c for c in maybe if idle(c, sure | maybe)}:
            maybe = maybe - drop
        case = sure | maybe
        group = united(case)
        if len(case) < 2 or len(group) < judge.fewest_members or any(idle(c, case) for c in sure):
            continue
        parts = math.fsum(now[c] for c in case)
        highest = math.fsum(judge.values.upper_gains(judge.row(group)[None])[0].tolist())
        if highest - parts <= judge.least:
            continue
        disputed = {c for c in maybe if competes[c] & case}
        if not disputed:
            rise = judge.total(group) - parts
            if rise > judge.least and judge.admits(group):
                return Merger(tuple(partition[c] for c in sorted(case)), rise), True
        if maybe:
            pick = max(disputed or maybe, key=lambda c: (len(competes[c] & case), -c))
            cases.append((sure, maybe - {pick}))
            cases.append((sure | {pick}, maybe - {pick}))
    return None, True
