"""What would change a decision: which weights or reports, by how much, and whose coalition.

The best partition P stays the best until another one passes it. Only one weight changes, that of an
edge from j to i:

- *Inside* a coalition, P loses with the weight, and so does every partition that unites j and i.
  The best that separates them stays. P is passed when the weight has fallen by the difference
  between the two, or at zero, if the coalition is not admissible without the edge.
- *Across* coalitions, P stays and every partition that unites j and i gains. P is passed when the
  weight has risen by the difference between P and the best of these.

Up to 20 participants all these differences follow from the best totals of all sets
(`exact.subset_table`), and are exact. With more, a search is repeated with changed weights.

Under uncertain benefits, weights are promised benefits, and the probabilities stay.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedegoists.coalitions.exact.admissible import ValueProblem
from fedegoists.coalitions.exact.subset_table import SubsetTable, additive_totals, sets_holding
from fedegoists.coalitions.exact.value_enumeration import most_exact
from fedegoists.coalitions.formation import Formation, check_formation, positions
from fedegoists.coalitions.forming import form
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.rearranging import moved_between
from fedegoists.coalitions.usage import usage_graph
from fedegoists.errors import SettingsError
from fedegoists.graphs import BenefitGraph, UncertainBenefits

DEFAULT_LIMIT = 10.0
"""Seconds."""

TINY = 1e-6
"""The weight of a new edge that tells what any weight would allow, in parts of the largest."""

STEPS = 6
"""Halvings of the weight, where a search is repeated for each."""


@dataclass(frozen=True)
class WeightChange:
    """The least change of one weight that changes coalitions.

    Attributes
    ----------
    source, target : str
        The benefit of `source` to `target`.
    weight, becomes : float
        The weight now, and the weight beyond which other coalitions are better.
    moved : tuple of str
        Who would be in another coalition then.
    falls : bool
        Whether the weight falls; otherwise it rises.
    exact : bool
        Whether that is the least change; otherwise it is one that was found by a search.
    """

    source: str
    target: str
    weight: float
    becomes: float
    moved: Coalition
    falls: bool
    exact: bool = True

    @property
    def change(self) -> float:
        """By how much the weight changes."""
        return self.becomes - self.weight

    def __str__(self) -> str:
        verb = "falls below" if self.falls else "rises above"
        if self.falls and self.becomes == 0:
            verb = "falls to"
        return (
            f"If the benefit of {self.source} to {self.target}, {self.weight:.3g}, {verb} "
            f"{self.becomes:.3g}: another coalition for {', '.join(self.moved)}"
        )


@dataclass(frozen=True)
class ReportChange:
    """What one more or one less competing pair would change.

    Attributes
    ----------
    a, b : str
        The two participants.
    named : bool
        True if they start to compete, False if they no longer do.
    moved : tuple of str
        Who would be in another coalition then.
    welfare_change : float
        By how much the welfare would change.
    """

    a: str
    b: str
    named: bool
    moved: Coalition
    welfare_change: float

    def __str__(self) -> str:
        case = "competed" if self.named else "did not compete"
        return (
            f"If {self.a} and {self.b} {case}: another coalition for {', '.join(self.moved)}, "
            f"total benefit {self.welfare_change:+.3g}"
        )


@dataclass(frozen=True)
class UnnamedReach:
    """Whose contributions would reach a participant that competes without anybody saying so.

    Attributes
    ----------
    participant : str
    direct : tuple of str
        Members of its coalition whose data it uses.
    indirect : tuple of str
        Members whose data reaches it through others.
    """

    participant: str
    direct: Coalition
    indirect: Coalition

    def __str__(self) -> str:
        through = f", and through others {', '.join(self.indirect)}" if self.indirect else ""
        verb = "contributes" if len(self.direct) == 1 else "contribute"
        return (
            f"{self.participant} would be reached by what {', '.join(self.direct)} {verb}{through}"
        )


@dataclass(frozen=True)
class Sensitivity:
    """What would change a decision.

    Attributes
    ----------
    weights : tuple of WeightChange
        The smallest relative changes first.
    reports : tuple of ReportChange
        Those that move most participants first.
    reach : tuple of UnnamedReach
        What an unnamed competitor would reach.
    examined, pairs : int
        How many ordered pairs were examined for weights, of how many.
    reports_examined, reports_open : int
        How many pairs were examined for reports, and how many were not within the time limit.
    exact : bool
        Whether all changes are exact.
    """

    weights: tuple[WeightChange, ...]
    reports: tuple[ReportChange, ...]
    reach: tuple[UnnamedReach, ...]
    examined: int
    pairs: int
    reports_examined: int
    reports_open: int
    exact: bool


def unnamed_reach(formation: Formation) -> tuple[UnnamedReach, ...]:
    """Return what would reach each participant if it competed with others of its coalition.

    Examples
    --------
    >>> from fedegoists import CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2, 0], [0, 0, 2], [2, 0, 0]], ["North", "South", "East"])
    >>> formation = form(benefit, CompetitionGraph([], benefit.participants))
    >>> print(unnamed_reach(formation)[0])
    North would be reached by what East contributes, and through others South
    """
    usage = usage_graph(formation)
    found = []
    for group in formation.coalitions:
        for name in group if len(group) > 1 else ():
            node = usage.nodes[name]
            direct = node["contributors"]
            indirect = tuple(one for one in node["alliance"] if one not in (name, *direct))
            found.append(UnnamedReach(name, direct, indirect))
    return tuple(found)


def sensitivity(formation: Formation, *, time_limit: float = DEFAULT_LIMIT) -> Sensitivity:
    """Return which weights and reports, changed by how much, would change whose coalition.

    Parameters
    ----------
    time_limit : float
        Seconds; pairs that are not examined by then are counted as such.

    Examples
    --------
    >>> from fedegoists import CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], ["North", "South", "East"])
    >>> formation = form(benefit, CompetitionGraph([("South", "East")], benefit.participants))
    >>> print(sensitivity(formation).weights[0])
    If the benefit of North to South, 2, falls below 2: another coalition for North
    """
    check_formation(formation)
    if formation.values is not None and not isinstance(formation.values, UncertainBenefits):
        raise SettingsError(
            "sensitivity works on benefits; this decision is on coalition values, whose standard "
            "errors are in the certificate"
        )
    deadline = time.perf_counter() + time_limit
    best = formation.method == "best" and formation.objective == "welfare"
    exact = best and formation.benefit.n <= most_exact() and formation.risk != "worst-decile"
    examiner = _Exact(formation) if exact else _Searched(formation, deadline)
    n = formation.benefit.n
    order = _pairs(formation)
    asked = _asked(formation)
    reports: list[ReportChange] = []
    reported = 0
    for a, b, named in asked:
        if time.perf_counter() > deadline - time_limit / 2:
            break
        reported += 1
        answer = examiner.report(a, b, named=named)
        reports += [] if answer is None else [answer]
    weights, examined = [], 0
    for j, i in order:
        if time.perf_counter() > deadline:
            break
        examined += 1
        change = examiner.weight(j, i)
        if change is not None:
            weights.append(change)
    largest = float(formation.benefit.weights.max(initial=0.0)) or 1.0
    return Sensitivity(
        tuple(sorted(weights, key=lambda one: abs(one.change) / max(one.weight, 0.01 * largest))),
        tuple(sorted(reports, key=lambda one: (-len(one.moved), one.welfare_change))),
        unnamed_reach(formation),
        examined,
        n * (n - 1),
        reported,
        len(asked) - reported,
        exact,
    )


def _pairs(formation: Formation) -> list[tuple[int, int]]:
    """Return all ordered pairs, those with a benefit first, the largest first."""
    weights = formation.benefit.weights
    n = len(weights)
    pairs = [(j, i) for j in range(n) for i in range(n) if j != i]
    return sorted(pairs, key=lambda pair: (-float(weights[pair]), pair))


def _asked(formation: Formation) -> list[tuple[int, int, bool]]:
    """Return the pairs inside coalitions, which may start to compete, and those that compete."""
    rivals, names = formation.competition.matrix, formation.participants
    home = {k: g for g, group in enumerate(positions(formation.coalitions, names)) for k in group}
    return [
        (a, b, not rivals[a, b])
        for a in range(len(names))
        for b in range(a + 1, len(names))
        if rivals[a, b] or home[a] == home[b]
    ]


class _Exact:
    """Exact changes, from the best totals of all sets."""

    def __init__(self, formation: Formation) -> None:
        self._formation = formation
        values = formation.values
        if not isinstance(values, UncertainBenefits):
            weights = formation.benefit.weights
            values = UncertainBenefits(weights, np.zeros_like(weights), formation.participants)
        self._values = values
        self._problem = ValueProblem(
            values,
            formation.competition.matrix,
            formation.confidence or 0.5,
            formation.fewest_members,
        )
        self._table = SubsetTable(self._problem)
        groups = positions(formation.coalitions, formation.participants)
        self._home = {k: frozenset(group) for group in groups for k in group}

    def weight(self, j: int, i: int) -> WeightChange | None:
        """Return the least change of a weight that changes coalitions."""
        table, names = self._table, self._formation.participants
        weight = float(self._values.promised[j, i])
        if self._formation.competition.matrix[j, i]:
            return None
        inside = self._home[j] == self._home[i]
        if inside:
            if weight == 0:
                return None  # more benefit inside is no reason to change
            value, coalition = table.apart(j, i)
            becomes = weight - (table.highest - value)
            if becomes <= 0:
                becomes, coalition = 0.0, self._without(j, i)
        else:
            value, coalition = self._with(j, i)
            becomes = weight + max(table.highest - value, 0.0)
        if not coalition or not np.isfinite(becomes):
            return None
        moved = self._moved(table.partition(coalition))
        if not moved:
            return None
        return WeightChange(names[j], names[i], weight, becomes, moved, falls=inside)

    def _without(self, j: int, i: int) -> int:
        """Return a coalition of the best partition without an edge, if the present one breaks."""
        table, changed = self._table, self._changed(j, i, 0.0)
        masks = sets_holding(self._problem.competition, j, i)
        totals = additive_totals(changed, masks)
        own = sum(1 << k for k in self._home[j])
        if totals[masks == own].max(initial=-np.inf) > -np.inf:
            return 0
        together, united = table.united(masks, totals)
        apart, coalition = table.apart(j, i)
        return united if together > apart else coalition

    def _with(self, j: int, i: int) -> tuple[float, int]:
        """Return the best total that unites two, the weight between them not counted as changed."""
        table = self._table
        if self._values.promised[j, i] > 0:
            return table.together(j, i)
        tiny = TINY * float(self._values.promised.max(initial=0.0))
        if not tiny:
            return -np.inf, 0
        masks = sets_holding(self._problem.competition, j, i)
        totals = additive_totals(self._changed(j, i, tiny), masks)
        value, coalition = table.united(masks, totals)
        return value - tiny, coalition

    def _changed(self, j: int, i: int, weight: float) -> ValueProblem:
        weights, errors = self._values.weights.copy(), self._values.errors.copy()
        weights[j, i], errors[j, i] = weight, 0.0
        values = UncertainBenefits(
            weights, errors, self._values.participants, null_share=self._values.null_share
        )
        return replace(self._problem, values=values)

    def report(self, a: int, b: int, *, named: bool) -> ReportChange | None:
        """Return what one more or one less competing pair changes."""
        table, names = self._table, self._formation.participants
        if named:
            value, coalition = table.apart(a, b)
        else:
            rivals = self._problem.competition.copy()
            rivals[a, b] = rivals[b, a] = False
            free = replace(self._problem, competition=rivals)
            masks = sets_holding(rivals, a, b)
            value, coalition = table.united(masks, additive_totals(free, masks))
            if value <= table.highest * (1 + 1e-12):
                return None
        moved = self._moved(table.partition(coalition))
        change = value - table.highest
        return ReportChange(names[a], names[b], named, moved, change) if moved else None

    def _moved(self, partition: Iterable[Sequence[int]]) -> Coalition:
        names = self._formation.participants
        after = [_names(group, names) for group in partition]
        return moved_between(self._formation.coalitions, after)


class _Searched:
    """Changes found by forming coalitions again."""

    def __init__(self, formation: Formation, deadline: float) -> None:
        self._formation = formation
        self._deadline = deadline
        groups = positions(formation.coalitions, formation.participants)
        self._home = {k: frozenset(group) for group in groups for k in group}

    def weight(self, j: int, i: int) -> WeightChange | None:
        """Return a change of a weight inside a coalition that changes coalitions."""
        formation, names = self._formation, self._formation.participants
        weight = float(formation.benefit.weights[j, i])
        if self._home[j] != self._home[i] or not weight:
            return None
        moved = self._formed(j, i, 0.0)
        if not moved:
            return None
        low, high = 0.0, weight
        for _ in range(STEPS):
            if time.perf_counter() > self._deadline:
                break
            middle = (low + high) / 2
            if now := self._formed(j, i, middle):
                low, moved = middle, now
            else:
                high = middle
        return WeightChange(names[j], names[i], weight, low, moved, falls=True, exact=False)

    def _formed(self, j: int, i: int, weight: float) -> Coalition:
        """Return who moves with another weight, where the result is better than the present one."""
        formation = self._formation
        weights = formation.benefit.to_numpy()
        weights[j, i] = weight
        again = _again(formation, BenefitGraph(weights, formation.participants))
        own = formation.welfare - (formation.benefit.weights[j, i] - weight)
        if again.welfare <= own * (1 + 1e-9) and weight:
            return ()
        return self._moved(again)

    def report(self, a: int, b: int, *, named: bool) -> ReportChange | None:
        """Return what one more or one less competing pair changes."""
        formation, names = self._formation, self._formation.participants
        pair = [(names[a], names[b])]
        changed = formation.competition.changed(pair if named else (), () if named else pair)
        again = _again(replace(formation, competition=changed), formation.benefit)
        if not named and again.welfare <= formation.welfare * (1 + 1e-9):
            return None
        moved = self._moved(again)
        change = again.welfare - formation.welfare
        return ReportChange(names[a], names[b], named, moved, change) if moved else None

    def _moved(self, again: Formation) -> Coalition:
        return moved_between(self._formation.coalitions, again.coalitions)


def _again(formation: Formation, benefit: BenefitGraph) -> Formation:
    """Form again by the same method, in a fraction of a second."""
    values = formation.values
    if isinstance(values, UncertainBenefits):
        rise = benefit.weights - formation.benefit.weights
        p = np.maximum(values.probabilities, 1e-300)
        weights = np.maximum(
            values.weights + np.where(values.probabilities > 0, rise / p, 0.0), 0.0
        )
        changed = UncertainBenefits(
            weights,
            np.where(weights > 0, values.errors, 0.0),
            values.participants,
            null_share=values.null_share,
        )
        return form(
            changed,
            formation.competition,
            confidence=formation.confidence,
            fewest_members=formation.fewest_members,
            risk=formation.risk,
            scenarios=formation.scenarios,
            seed=formation.seed,
            time_limit=0.3,
        )
    return form(
        benefit,
        formation.competition,
        formation.method,
        objective=formation.objective,
        fewest_members=formation.fewest_members,
        seed=formation.seed,
        time_limit=0.3 if formation.method == "best" else None,
    )


def _names(members: Iterable[int], names: Sequence[str]) -> Coalition:
    return tuple(names[k] for k in members)
