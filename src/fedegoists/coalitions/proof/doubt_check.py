"""Checking what a certificate says about doubt: probabilities, regret, and the best measurement.

All is derived again from the estimates and their errors by `likelihoods`, which shares no code with
`fedegoists.graphs.uncertain_benefits`. Scenarios are drawn again by their documented generator.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

from pydantic import Field

from fedegoists.coalitions.principles import Coalition, check_partition
from fedegoists.coalitions.proof.likelihoods import Edge, Likelihoods, welfare_without_riders
from fedegoists.coalitions.proof.sealed_parts import ListOf, NumbersByName, SealedPart
from fedegoists.coalitions.proof.verification import TOLERANCE, CheckedClaim
from fedegoists.errors import FedEgoistsError

MOST_RETRIED = 7
"""Up to this many participants, all partitions are tried in every scenario."""

Rivals = Callable[[str, str], bool]


class StatedCoalition(SealedPart):
    """What is stated about one coalition."""

    members: ListOf[str]
    safety: float = Field(ge=0, le=1)
    receives: NumbersByName
    gives: NumbersByName
    expected: float


class StatedMeasurement(SealedPart):
    """What is stated about the best measurement."""

    source: str
    target: str
    probability: float = Field(ge=0, le=1)
    gain: float
    if_real: ListOf[ListOf[str]]
    if_not: ListOf[ListOf[str]]


class StatedDoubt(SealedPart):
    """What a certificate states about doubt; see `fedegoists.coalitions.doubt_report`."""

    risk: Literal["expected", "worst-decile"]
    scenarios: int = Field(ge=10, le=100_000)
    seed: int = Field(ge=0)
    null_share: float = Field(gt=0, lt=1)
    coalitions: ListOf[StatedCoalition]
    standing: float
    worst_tenth: float
    regret: float
    proven: int = Field(ge=0)
    measurement: StatedMeasurement | None
    examined: int = Field(ge=0)
    uncertain: int = Field(ge=0)
    partitions: ListOf[ListOf[ListOf[str]]]
    scenario_best: ListOf[int]


class DoubtCheck:
    """Checks what is stated about doubt against estimates and coalitions."""

    def __init__(
        self,
        stated: StatedDoubt,
        likelihoods: Likelihoods,
        coalitions: Sequence[Coalition],
        rivals: Rivals,
        confidence: float,
        fewest_members: int,
    ) -> None:
        self._stated = stated
        self._known = likelihoods
        self._coalitions = coalitions
        self._rivals = rivals
        self._confidence = confidence
        self._fewest = fewest_members

    def claims(self, deadline: Callable[[], bool]) -> tuple[CheckedClaim, ...]:
        """Derive all claims again; `deadline` tells that the time is up."""
        return (self._probabilities(), self._regret(deadline), self._measurement())

    # Probabilities -----------------------------------------------------------------------------

    def _probabilities(self) -> CheckedClaim:
        stated = self._stated
        lowest = min((one.safety for one in stated.coalitions), default=1.0)
        shown = (
            f"nobody rides free with {lowest:.4g} or more; standing benefit {stated.standing:.6g}"
        )
        problem = next(self._wrong_probabilities(), "")
        found = problem or f"derived again, null share {self._known.null_share:.4g}"
        return CheckedClaim("probabilities", shown, found, not problem)

    def _wrong_probabilities(self) -> Iterator[str]:
        stated, known = self._stated, self._known
        if known.null_share < known.derived_share * (1 - TOLERANCE):
            yield (
                f"a null share of {known.null_share:.4g} is assumed, but the estimates themselves "
                f"say {known.derived_share:.4g}"
            )
        if not _close(stated.null_share, known.null_share):
            yield f"refuted: the null share is {known.null_share:.6g}"
        together = [group for group in self._coalitions if len(group) > 1]
        if [tuple(one.members) for one in stated.coalitions] != together:
            yield "refuted: other coalitions than those formed"
            return
        standing = []
        for one in stated.coalitions:
            group, name = tuple(one.members), f"{{{', '.join(one.members)}}}"
            safety, expected = known.safety(group), known.expected(group)
            standing.append(safety * expected)
            if not _close(one.safety, safety):
                yield f"refuted: {safety:.6g} for {name}, not {one.safety:.6g}"
            if not _close(one.expected, expected):
                yield f"refuted: {expected:.6g} of benefit is promised in {name}"
            for table, chance in ((one.receives, known.receives), (one.gives, known.gives)):
                if list(table) != list(group) or not all(
                    _close(table[member], chance(member, group)) for member in group
                ):
                    yield f"refuted: other probabilities for the members of {name}"
        if not _close(stated.standing, math.fsum(standing)):
            yield f"refuted: the standing benefit is {math.fsum(standing):.6g}"

    # Regret ------------------------------------------------------------------------------------

    def _regret(self, late: Callable[[], bool]) -> CheckedClaim:
        stated = self._stated
        shown = (
            f"{stated.regret:.6g} in {stated.scenarios} scenarios; worst tenth "
            f"{stated.worst_tenth:.6g}"
        )
        try:
            problem, found = self._scenarios(late)
        except FedEgoistsError as error:
            problem, found = f"refuted: {error}", ""
        return CheckedClaim("regret", shown, problem or found, not problem)

    def _scenarios(self, late: Callable[[], bool]) -> tuple[str, str]:
        """Return what is wrong, or else what was found."""
        stated, names = self._stated, self._known.participants
        partitions = [check_partition(groups, names) for groups in stated.partitions]
        if len(stated.scenario_best) != stated.scenarios or not all(
            0 <= k < len(partitions) for k in stated.scenario_best
        ):
            return "refuted: not one partition for each scenario", ""
        for partition in partitions:
            if problem := self._forbidden(partition):
                return f"refuted: {problem}", ""
        retry = len(names) <= MOST_RETRIED
        allowed = list(self._allowed()) if retry else []
        regrets, own = [], []
        drawn = self._known.scenarios(stated.scenarios, stated.seed)
        for k, (scenario, number) in enumerate(zip(drawn, stated.scenario_best, strict=True), 1):
            if late():
                return f"not derived in time: {k - 1} of {stated.scenarios} scenarios", ""
            best = partitions[number]
            reached = welfare_without_riders(scenario, best)
            if not math.isclose(reached, inside(scenario, best), rel_tol=TOLERANCE):
                return f"refuted: somebody rides free in the best partition of scenario {k}", ""
            if retry and highest_welfare(scenario, names, allowed) > reached * (1 + TOLERANCE):
                return f"refuted: a better partition in scenario {k}", ""
            regrets.append(reached - welfare_without_riders(scenario, self._coalitions))
            own.append(inside(scenario, self._coalitions))
        regret = math.fsum(regrets) / len(regrets)
        worst = sorted(own)[: max(len(own) // 10, 1)]
        tenth = math.fsum(worst) / len(worst)
        if not math.isclose(stated.regret, regret, rel_tol=TOLERANCE, abs_tol=TOLERANCE * tenth):
            return f"refuted: the regret is {regret:.6g}", ""
        if not math.isclose(stated.worst_tenth, tenth, rel_tol=TOLERANCE, abs_tol=1e-300):
            return f"refuted: the worst tenth has {tenth:.6g}", ""
        how = "all partitions tried" if retry else "shown by the partitions listed"
        return "", f"{regret:.6g} or more, {how}" if not retry else f"{regret:.6g}, {how}"

    def _forbidden(self, partition: Iterable[Coalition]) -> str:
        """Return why a partition is not allowed in any scenario."""
        for group in partition:
            if 1 < len(group) < self._fewest:
                return f"a coalition of {len(group)} where {self._fewest} are demanded"
            for a, b in combinations(group, 2):
                if self._rivals(a, b):
                    return f"{a} and {b} compete but share a coalition"
        return ""

    def _allowed(self) -> Iterator[Coalition]:
        names = self._known.participants
        for size in range(max(self._fewest, 2), len(names) + 1):
            for group in combinations(names, size):
                if not any(self._rivals(a, b) for a, b in combinations(group, 2)):
                    yield group

    # The best measurement ----------------------------------------------------------------------

    def _measurement(self) -> CheckedClaim:
        one = self._stated.measurement
        if one is None:
            found = "not derived again: a measurement that would help is nowhere stated"
            return CheckedClaim("best measurement", "none would help", found, ok=True)
        shown = f"{one.source} to {one.target}, worth {one.gain:.6g}"
        try:
            problem, gain = self._worth(one)
        except FedEgoistsError as error:
            problem, gain = f"refuted: {error}", 0.0
        found = problem or f"worth {gain:.6g} with the coalitions stated"
        return CheckedClaim("best measurement", shown, found, not problem)

    def _worth(self, one: StatedMeasurement) -> tuple[str, float]:
        edge: Edge = (one.source, one.target)
        known, names = self._known, self._known.participants
        chance = known.real.get(edge, 0.0)
        if not 0 < chance < 1:
            return f"refuted: nothing is uncertain about {one.source} and {one.target}", 0.0
        if not _close(one.probability, chance):
            return f"refuted: the probability is {chance:.6g}", 0.0
        gain = [-self._standing(known, self._coalitions)]
        for real, groups in ((True, one.if_real), (False, one.if_not)):
            after = known.after_measuring(edge, real=real)
            partition = check_partition(groups, names)
            if problem := self._forbidden(partition):
                return f"refuted: {problem}", 0.0
            if any(after.safety(group) < self._confidence * (1 - TOLERANCE) for group in partition):
                return "refuted: its coalitions are less safe than demanded", 0.0
            gain.append((chance if real else 1 - chance) * self._standing(after, partition))
        worth = math.fsum(gain)
        scale = TOLERANCE * abs(gain[0])
        if not math.isclose(one.gain, worth, rel_tol=TOLERANCE, abs_tol=scale):
            return f"refuted: worth {worth:.6g}", worth
        return "", worth

    @staticmethod
    def _standing(known: Likelihoods, partition: Iterable[Coalition]) -> float:
        return math.fsum(known.safety(group) * known.expected(group) for group in partition)


def inside(benefits: Mapping[Edge, float], coalitions: Iterable[Collection[str]]) -> float:
    """Return the benefits inside coalitions, with or without free riders."""
    home = {name: k for k, group in enumerate(coalitions) for name in group}
    return math.fsum(w for (j, i), w in benefits.items() if home[j] == home[i])


def highest_welfare(
    benefits: Mapping[Edge, float], names: Sequence[str], allowed: Iterable[Coalition]
) -> float:
    """Return the highest welfare of a partition into allowed coalitions without free riders."""
    number = {name: k for k, name in enumerate(names)}
    worth = {}
    for group in allowed:
        total = welfare_without_riders(
            {edge: w for edge, w in benefits.items() if edge[0] in group and edge[1] in group},
            [group],
        )
        if total > 0:
            worth[sum(1 << number[name] for name in group)] = total
    best = [0.0] * (1 << len(names))
    for left in range(1, len(best)):
        last = left.bit_length() - 1
        best[left] = max(
            best[left ^ 1 << last],
            *(
                w + best[left ^ mask]
                for mask, w in worth.items()
                if mask >> last == 1 and not mask & ~left
            ),
            0.0,
        )
    return best[-1]


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12)
