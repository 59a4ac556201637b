"""How sure a decision under uncertain benefits is, and which measurement would make it surer.

- For every coalition, the probability that nobody rides free in it, and for every member that it
  receives and that it gives (`fedegoists.graphs.uncertain_benefits`).
- *Standing benefit*: the promised benefits of each coalition times the probability that nobody
  rides free in it. It counts a coalition with a free rider as nothing.
- *Expected regret*: the mean over scenarios of the highest welfare that a valid partition has
  there, minus that of the coalitions formed, of which those with a free rider count nothing.
- *Best measurement*: the pair for which to know whether its benefit is real would raise the
  standing benefit most. If the benefit is p likely to be real, it is p times the standing benefit
  of the coalitions formed if it is, plus 1 − p times that of those formed if it is not, minus that
  of today's.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from fedegoists.coalitions.array_types import Floats, Partition
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.admissible import ValueProblem
from fedegoists.coalitions.exact.best_partition import best_partition, prepare
from fedegoists.coalitions.exact.enumeration import is_small
from fedegoists.coalitions.exact.reduction import Subproblem, components
from fedegoists.coalitions.exact.subset_table import SubsetTable, additive_totals, sets_holding
from fedegoists.coalitions.exact.value_enumeration import most_exact
from fedegoists.coalitions.formation import Formation, positions
from fedegoists.coalitions.formation_options import Risk
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.value_partition_search import reduced, search_values
from fedegoists.coalitions.welfare import as_rows, welfare
from fedegoists.coalitions.worst_decile import scenario_welfare, worst_mean
from fedegoists.graphs import CompetitionGraph, UncertainBenefits
from fedegoists.graphs.participant_graph import Entries

PROPOSALS = 800
"""Proposals of the search in a scenario, per participant, where not all partitions are compared."""

MOST_MEASUREMENTS = 120
"""Pairs for which the value of a measurement is computed, the most uncertain and largest first."""

MOST_SETS = 1_000_000
"""Sets of participants that are valued for measurements; the work is counted, not the time."""

SEARCHED_MEASUREMENTS = 2
"""The same for more participants than can be enumerated, where each needs a search."""


@dataclass(frozen=True)
class CoalitionDoubt:
    """How sure one coalition is.

    Attributes
    ----------
    members : tuple of str
    safety : float
        A lower bound on the probability that nobody rides free.
    receives, gives : mapping of str to float
        The probability that each member receives a benefit, and that it gives one.
    expected : float
        The promised benefits inside.
    """

    members: Coalition
    safety: float
    receives: Mapping[str, float]
    gives: Mapping[str, float]
    expected: float

    def __str__(self) -> str:
        weakest, chance = min(
            ((name, min(self.receives[name], self.gives[name])) for name in self.members),
            key=lambda one: one[1],
        )
        riding = "receive nothing" if self.receives[weakest] <= self.gives[weakest] else "only take"
        least = percent(self.safety)
        if self.safety < 1 and not least.startswith("over"):
            least += " or more"
        return (
            f"{{{', '.join(self.members)}}}: the probability that nobody rides free is "
            f"{least}. The likeliest to {riding} is {weakest} "
            f"({percent(1 - chance)})."
        )


@dataclass(frozen=True)
class Measurement:
    """The pair to measure next.

    Attributes
    ----------
    source, target : str
        The benefit of `source` to `target`.
    probability : float
        The probability that it is real, as known now.
    gain : float
        By how much the measurement raises the standing benefit in expectation.
    if_real, if_not : tuple of coalitions
        What would be formed after either result.
    """

    source: str
    target: str
    probability: float
    gain: float
    if_real: tuple[Coalition, ...]
    if_not: tuple[Coalition, ...]

    def words(self, now: Iterable[Coalition]) -> str:
        """Return what to measure, why, and what either result would change."""
        now = set(now)
        company = {name for group in now for name in group}
        text = (
            f"Measure first whether {self.source}'s data really benefits {self.target}; that is "
            f"{percent(self.probability)} likely now. To know it is worth {self.gain:.3g} of total "
            "benefit in expectation."
        )
        for result, groups in (("it does", self.if_real), ("it does not", self.if_not)):
            new = [group for group in groups if group not in now and len(group) > 1]
            alone = [group[0] for group in groups if len(group) == 1 and group[0] in company]
            if new or alone:
                parts = [f"{{{', '.join(group)}}}" for group in new]
                parts += [f"{', '.join(alone)} alone"] if alone else []
                text += f" If {result}: {'; '.join(parts)}."
            else:
                text += f" If {result}: the coalitions stay."
        return text


@dataclass(frozen=True)
class DoubtReport:
    """How sure a decision is; see the module for what the numbers mean.

    Attributes
    ----------
    null_share : float
        The estimated share of pairs without benefit.
    standing : float
        The standing benefit of the decision.
    worst_tenth : float
        The mean welfare of the worst tenth of the scenarios.
    regret : float
        The expected regret, found by a search in every scenario.
    proven : int
        In how many scenarios the search proved its partition to be the best.
    scenario_best : tuple of partitions
        The best partition found in each scenario.
    measurement : Measurement or None
        None if no single measurement would raise the standing benefit.
    examined : int
        For how many pairs the value of a measurement was computed.
    uncertain : int
        How many listed pairs are not certain.
    """

    risk: Risk
    scenarios: int
    seed: int
    null_share: float
    coalitions: tuple[CoalitionDoubt, ...]
    standing: float
    worst_tenth: float
    regret: float
    proven: int
    scenario_best: tuple[tuple[Coalition, ...], ...]
    measurement: Measurement | None
    examined: int
    uncertain: int

    def to_dict(self) -> dict[str, object]:
        """Return the report for JSON; scenarios refer to a list of distinct partitions."""
        distinct = list(dict.fromkeys(self.scenario_best))
        number = {partition: k for k, partition in enumerate(distinct)}
        report = asdict(self)
        del report["scenario_best"]
        return {
            **report,
            "partitions": distinct,
            "scenario_best": [number[partition] for partition in self.scenario_best],
        }

    @property
    def lines(self) -> list[str]:
        """The report in sentences for a manager."""
        found = [str(one) for one in self.coalitions]
        found.append(
            f"Counting a coalition with a free rider as nothing, {self.standing:.4g} of total "
            f"benefit is expected; {self.worst_tenth:.4g} on average in the worst tenth of "
            f"{self.scenarios} scenarios. Knowing the truth would bring {self.regret:.3g} more."
        )
        if self.measurement is not None:
            found.append(self.measurement.words(one.members for one in self.coalitions))
        if self.examined < self.uncertain:
            found.append(
                f"That is the best of {self.examined} measurements that were examined, of "
                f"{self.uncertain} that are possible."
            )
        elif self.measurement is None and self.uncertain:
            found.append("No single measurement would raise the expected benefit.")
        return found


def percent(probability: float) -> str:
    """Return a probability in words that never claim certainty by rounding.

    Examples
    --------
    >>> percent(0.934), percent(0.9991), percent(1.0), percent(0.0004)
    ('93 %', 'over 99 %', '100 %', 'under 1 %')
    """
    if 0.995 <= probability < 1:
        return "over 99 %"
    return "under 1 %" if 0 < probability < 0.005 else f"{100 * probability:.0f} %"


def doubt_report(formation: Formation) -> DoubtReport:
    """Return how sure a formation under uncertain benefits is."""
    values = formation.values
    assert isinstance(values, UncertainBenefits)
    groups = positions(formation.coalitions, formation.participants)
    drawn = values.scenarios(formation.scenarios, formation.seed)
    best, proven = _best_in_scenarios(formation, drawn, groups)
    own = np.array([welfare(one, without_riders(one, groups)) for one in drawn])
    reached = np.array(
        [welfare(one, partition) for one, partition in zip(drawn, best, strict=True)]
    )
    measurement, examined, uncertain = best_measurement(formation)
    names = formation.participants
    return DoubtReport(
        risk=formation.risk or "expected",
        scenarios=formation.scenarios,
        seed=formation.seed,
        null_share=values.null_share,
        coalitions=_coalition_doubts(values, formation.coalitions),
        standing=standing_benefit(values, groups),
        worst_tenth=worst_mean(scenario_welfare(drawn, groups)),
        regret=math.fsum((reached - own).tolist()) / len(drawn),
        proven=proven,
        scenario_best=tuple(_named(partition, names) for partition in best),
        measurement=measurement,
        examined=examined,
        uncertain=uncertain,
    )


def standing_benefit(values: UncertainBenefits, groups: Partition) -> float:
    """Return the promised benefits of the coalitions times their probabilities to stand."""
    rows = as_rows(groups, values.n)
    return math.fsum((values.gains(rows).sum(axis=1) * values.safety(rows)).tolist())


def without_riders(weights: Floats, groups: Partition) -> list[list[int]]:
    """Return the partition with the members of coalitions with a free rider alone."""
    kept: list[list[int]] = []
    for group in groups:
        inside = weights[np.ix_(group, group)]
        exchanging = (inside.sum(axis=0) > 0) & (inside.sum(axis=1) > 0)
        valid = len(group) == 1 or bool(exchanging.all())
        kept += [list(group)] if valid else [[k] for k in group]
    return kept


def _coalition_doubts(
    values: UncertainBenefits, coalitions: Sequence[Coalition]
) -> tuple[CoalitionDoubt, ...]:
    place = {name: k for k, name in enumerate(values.participants)}
    together = [group for group in coalitions if len(group) > 1]
    rows = as_rows([[place[name] for name in group] for group in together], values.n)
    receives, gives, safety = values.receiving(rows), values.giving(rows), values.safety(rows)
    expected = values.gains(rows).sum(axis=1)
    return tuple(
        CoalitionDoubt(
            group,
            float(safety[k]),
            {name: float(receives[k, place[name]]) for name in group},
            {name: float(gives[k, place[name]]) for name in group},
            float(expected[k]),
        )
        for k, group in enumerate(together)
    )


def _best_in_scenarios(
    formation: Formation, drawn: Floats, groups: Partition
) -> tuple[list[list[list[int]]], int]:
    """Return the best partition found in each scenario, and how many of them are proven."""
    rivals = formation.competition.entries
    prepare(Entries.of(drawn.max(axis=0)), rivals, formation.fewest_members)
    found: list[list[list[int]]] = []
    starts: list[Partition] = [groups]
    proven = 0
    for one in drawn:
        valid = [without_riders(one, start) for start in starts]
        start = max(valid, key=lambda start: welfare(one, start))
        best, sure = _best_here(one, formation, start)
        found.append(best)
        proven += sure
        starts = [groups, *found[-8:]]  # the best partitions of other scenarios may be good here
    return found, proven


def _best_here(
    weights: Floats, formation: Formation, start: list[list[int]]
) -> tuple[list[list[int]], bool]:
    """Return the best partition found of one benefit graph, and whether it is proven to be."""
    rivals, least = formation.competition.matrix, formation.fewest_members
    links = Entries.of(weights), formation.competition.entries
    if all(is_small(len(part)) for part in components(*links, least)):
        optimum = best_partition(
            *links,
            [start],
            seconds=math.inf,
            deadline=math.inf,
            seed=formation.seed,
            fewest_members=least,
        )
        return optimum.partition, optimum.optimal
    from fedegoists.coalitions.exact.annealing import Annealing  # loads compiled code

    usable = np.where(rivals, 0.0, weights)
    problem = Subproblem(usable, usable > 0, rivals, formation.seed, fewest_members=least)
    annealing = Annealing(problem, start)
    annealing.run(PROPOSALS * len(weights), Effort(math.inf))
    return max(start, annealing.best, key=lambda one: welfare(weights, one)), False


def _named(partition: Partition, names: Sequence[str]) -> tuple[Coalition, ...]:
    return tuple(tuple(names[k] for k in group) for group in partition)


# The value of a measurement ----------------------------------------------------------------------


def best_measurement(formation: Formation) -> tuple[Measurement | None, int, int]:
    """Return the best measurement, of how many pairs, and how many are uncertain."""
    values = formation.values
    assert isinstance(values, UncertainBenefits)
    assert formation.confidence is not None
    p, names = values.probabilities, formation.participants
    doubtful = np.argwhere((p > 0) & (p < 1) & ~formation.competition.matrix)
    size = [float(p[j, i] * (1 - p[j, i]) * values.weights[j, i]) for j, i in doubtful.tolist()]
    order = [doubtful[k].tolist() for k in np.argsort(-np.array(size), kind="stable")]
    members, problem = reduced(
        values, formation.competition, formation.confidence, formation.fewest_members
    )
    exact = len(members) <= most_exact()
    order = order[: MOST_MEASUREMENTS if exact else SEARCHED_MEASUREMENTS]
    now = positions(formation.coalitions, names)
    base = standing_benefit(values, now)
    after = _Tables(problem, members, now) if exact else _Searches(formation)
    best: Measurement | None = None
    examined = 0
    for j, i in order:
        if after.sets > MOST_SETS:
            break
        examined += 1
        real, not_real = (values.measured(j, i, real=result) for result in (True, False))
        if_real, if_not = after.formed(real, j, i), after.formed(not_real, j, i)
        chance = float(p[j, i])
        gain = chance * standing_benefit(real, if_real) - base
        gain += (1 - chance) * standing_benefit(not_real, if_not)
        if gain > max(1e-9 * base, 0.0 if best is None else best.gain):
            best = Measurement(
                names[j], names[i], chance, gain, _named(if_real, names), _named(if_not, names)
            )
    return best, examined, len(doubtful)


class _Tables:
    """What would be formed after a measurement, from the best totals of all sets."""

    def __init__(self, problem: ValueProblem, members: list[int], now: Partition) -> None:
        self._problem, self._members = problem, members
        self._now = now
        self._table = SubsetTable(problem) if members else None
        self._home = {k: group for group in now for k in group}
        self.sets = 0

    def formed(self, known: UncertainBenefits, j: int, i: int) -> list[list[int]]:
        """Return the best partition if one pair is known."""
        now = [list(group) for group in self._now]
        table, place = self._table, {k: own for own, k in enumerate(self._members)}
        if table is None or j not in place or i not in place:
            return now
        if self._home[j] is not self._home[i] and not known.weights[j, i]:
            return now
        a, b = place[j], place[i]
        inside = known.restricted_to([known.participants[k] for k in self._members])
        problem = ValueProblem(
            inside,
            self._problem.competition,
            self._problem.confidence,
            self._problem.fewest_members,
        )
        masks = sets_holding(problem.competition, a, b)
        self.sets += len(masks)
        together, coalition = table.united(masks, additive_totals(problem, masks))
        apart, own = table.apart(a, b)
        if self._home[j] is not self._home[i]:
            if together <= table.highest:
                return now
        elif apart > together:
            coalition = own
        partition = table.partition(coalition)
        rest = set(self._now_members()).difference(self._members)
        named = [[self._members[k] for k in group] for group in partition]
        return sorted([*named, *([k] for k in rest)])

    def _now_members(self) -> list[int]:
        return sorted(self._home)


class _Searches:
    """What would be formed after a measurement, by a search for each."""

    def __init__(self, formation: Formation) -> None:
        self._formation = formation
        self._competition: CompetitionGraph = formation.competition
        self.sets = 0

    def formed(self, known: UncertainBenefits, j: int, i: int) -> list[list[int]]:  # noqa: ARG002
        """Return the best partition found if one pair is known."""
        formation = self._formation
        assert formation.confidence is not None
        found = search_values(
            known,
            self._competition,
            confidence=formation.confidence,
            seed=formation.seed,
            time_limit=0.5,
            keep=positions(formation.coalitions, formation.participants),
            fewest_members=formation.fewest_members,
        )
        return [list(group) for group in found.partition]
