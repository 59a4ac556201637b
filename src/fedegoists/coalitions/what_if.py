"""What-if: how coalitions change with competition, benefits or participants."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedegoists.coalitions.formation import Formation, check_formation, positions
from fedegoists.coalitions.forming import (
    check_fewest_members,
    check_values_options,
    formation_of,
    plain_number,
    search_by,
)
from fedegoists.coalitions.partition_search import SearchResult
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.rearranging import moved_between
from fedegoists.coalitions.welfare import utilities_by, welfare_by
from fedegoists.errors import SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph, UncertainBenefits
from fedegoists.graphs.coalition_values import Benefits, pair_bounds
from fedegoists.graphs.participants import index_of

Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Newcomer:
    """A participant that joins: the benefits it gives and receives, and its competitors."""

    name: str
    gives: Mapping[str, float] = field(default_factory=dict)
    receives: Mapping[str, float] = field(default_factory=dict)
    competes: Sequence[str] = ()


@dataclass(frozen=True)
class ChangedWeight:
    """Another benefit of a source to a target; of uncertain ones, the error stays by default."""

    source: str
    target: str
    weight: float
    error: float | None = None

    def __str__(self) -> str:
        error = "" if self.error is None else f", with a standard error of {self.error:.9g}"
        return f"The benefit of {self.source} to {self.target} becomes {self.weight:.9g}{error}."


@dataclass(frozen=True)
class WhatIf:
    """A formation before and after a change.

    Everything but the new partition itself is computed when it is first asked for: reading the
    coalitions, the moves and the utilities takes a millisecond or two with method ``stable``.

    Attributes
    ----------
    before : Formation
        The formation before the change.
    benefit : BenefitGraph or CoalitionValues
        What the participants gain from one another after the change.
    competition : CompetitionGraph
        The competition graph after the change.
    found : SearchResult or None
        The new partition; None if nothing changed.
    fewest_members : int
        The fewest members of a coalition of two or more after the change.
    confidence : float or None
        With coalition values: the least probability of gaining demanded after the change.
    weights : tuple of ChangedWeight
        The benefits that were changed, as they were taken: of uncertain ones with their errors.
    """

    before: Formation
    benefit: Benefits = field(repr=False)
    competition: CompetitionGraph = field(repr=False)
    found: SearchResult | None = field(repr=False)
    fewest_members: int = 1
    confidence: float | None = None
    weights: tuple[ChangedWeight, ...] = ()

    @cached_property
    def after(self) -> Formation:
        """The new formation, by the same method, with all that `form` tells about it."""
        before = self.before
        if self.found is None:
            return before
        return formation_of(
            self.benefit,
            self.competition,
            before.method,
            self.found,
            seed=before.seed,
            objective=before.objective,
            fewest_members=self.fewest_members,
            confidence=self.confidence,
            risk=before.risk,
            scenarios=before.scenarios,
        )

    @cached_property
    def coalitions(self) -> tuple[Coalition, ...]:
        """The new coalitions."""
        if self.found is None:
            return self.before.coalitions
        names = self.benefit.participants
        return tuple(tuple(names[k] for k in group) for group in self.found.partition)

    @cached_property
    def welfare(self) -> float:
        """The new welfare."""
        if self.found is None:
            return self.before.welfare
        return welfare_by(self.benefit, self.found.partition)

    @property
    def welfare_change(self) -> float:
        """By how much the welfare rises or falls."""
        return self.welfare - self.before.welfare

    @cached_property
    def moved(self) -> tuple[str, ...]:
        """The fewest participants whose moves turn the old coalitions into the new ones."""
        return moved_between(self.before.coalitions, self.coalitions)

    @cached_property
    def utility_changes(self) -> Mapping[str, float]:
        """The gain or loss of each participant that is there before and after."""
        before = self.before.utilities
        changes = {name: 0.0 for name in self.benefit.participants if name in before}
        if self.found is None:
            return changes
        largest = max(_largest(self.before.benefit), _largest(self.benefit))
        # Utilities differ only where a coalition has other members than before.
        same = set(self.before.coalitions)
        groups = zip(self.coalitions, self.found.partition, strict=True)
        new = [(names, group) for names, group in groups if names not in same]
        received = utilities_by(self.benefit, [group for _, group in new])
        for names, group in new:
            for name, k in zip(names, group, strict=True):
                change = float(received[k]) - before.get(name, 0.0)
                if name in changes and abs(change) > 1e-12 * largest:
                    changes[name] = change
        return changes

    @property
    def joined(self) -> tuple[str, ...]:
        """The participants that are new."""
        known = set(self.before.participants)
        return tuple(name for name in self.benefit.participants if name not in known)

    @property
    def left(self) -> tuple[str, ...]:
        """The participants that left."""
        present = set(self.benefit.participants)
        return tuple(name for name in self.before.participants if name not in present)

    def _amount(self, change: float) -> str:
        unit = "" if isinstance(self.benefit, BenefitGraph) else self.benefit.unit
        return f"{change:.3g} {unit}".rstrip()

    def __str__(self) -> str:
        lines = [str(one) for one in self.weights]
        lines += [f"{name} leaves." for name in self.left]
        lines += [f"{name} joins {_company(self.after, name)}." for name in self.joined]
        lines += [f"{name} moves to {_company(self.after, name)}." for name in self.moved]
        if not self.moved:
            lines.append("Nobody moves.")
        changes = sorted(self.utility_changes.items(), key=lambda item: -abs(item[1]))
        lines += [
            f"{name} {'gains' if change > 0 else 'loses'} {self._amount(abs(change))}."
            for name, change in changes
            if change
        ]
        sign = "rises" if self.welfare_change > 0 else "falls"
        total = "benefit" if isinstance(self.benefit, BenefitGraph) else "gain"
        lines.append(
            f"The total {total} {sign} by {self._amount(abs(self.welfare_change))} to "
            f"{self.welfare:.6g}."
            if self.welfare_change
            else f"The total {total} stays {self.welfare:.6g}."
        )
        if self.found is not None and not (self.before.optimal and self.after.optimal):
            lines.append(
                "Before and after are not both proven to be the best possible, so part of the "
                "difference may be due to the search."
            )
        return "\n".join(lines)


def what_if(
    formation: Formation,
    *,
    add: Pairs = (),
    remove: Pairs = (),
    joins: Iterable[Newcomer] = (),
    leaves: Iterable[str] = (),
    fewest_members: int | None = None,
    confidence: float | None = None,
    time_limit: float | None = None,
    weights: Iterable[ChangedWeight] = (),
) -> WhatIf:
    """Form the coalitions again after a change, moving as few participants as possible.

    Parameters
    ----------
    add, remove : pairs of names
        Pairs that start or stop to compete.
    joins : newcomers
        The participants that join; newcomers may refer to one another.
    leaves : names
        The participants that leave.
    fewest_members : int, optional
        Another smallest number of members of a coalition of two or more; as before by default.
    confidence : float, optional
        With coalition values: another least probability of gaining; as before by default.
    time_limit : float, optional
        As for `form`.
    weights : ChangedWeight
        Benefits between present participants, other than those that were decided by; one for each
        pair at most.

    Returns
    -------
    WhatIf
        The new formation by the same method, and the difference. Among equally good formations one
        that moves few is chosen; with method ``best`` and a proven optimum, one that moves fewest.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], ["North", "South", "East"])
    >>> formation = form(benefit, CompetitionGraph([], benefit.participants))
    >>> print(what_if(formation, add=[("South", "East")]))
    East moves to a coalition of its own.
    East loses 3.
    North loses 2.
    South loses 1.
    The total benefit falls by 6 to 3.
    """
    check_formation(formation)
    joins = tuple(joins)
    benefit, competition = formation.benefits, formation.competition
    changes = tuple(weights)
    if changes:
        benefit, changes = _with_weights(benefit, changes)
    if leaving := {formation.name_of(name) for name in leaves}:
        stay = [name for name in formation.participants if name not in leaving]
        benefit, competition = benefit.restricted_to(stay), competition.restricted_to(stay)
        if isinstance(benefit, UncertainBenefits):
            benefit = benefit.relearned()
    if joins:
        benefit = _with_newcomers(benefit, joins)
        competition = CompetitionGraph(competition.pairs, benefit.participants)
        add = [*add, *_pairs_of_newcomers(joins)]
    competition = competition.changed(add, remove)
    least = formation.fewest_members if fewest_members is None else plain_number(fewest_members)
    check_fewest_members(least, formation.method)
    demanded = check_values_options(
        benefit,
        formation.method,
        formation.objective,
        formation.confidence if confidence is None else confidence,
    )
    found = None
    same = (
        formation.benefits,
        formation.competition,
        formation.fewest_members,
        formation.confidence,
    )
    if (benefit, competition, least, demanded) != same:
        place = {name: k for k, name in enumerate(benefit.participants)}
        kept = [[name for name in group if name in place] for group in formation.coalitions]
        found = search_by(
            formation.method,
            benefit,
            competition,
            seed=formation.seed,
            time_limit=time_limit,
            objective=formation.objective,
            fewest_members=least,
            keep=positions(filter(None, map(tuple, kept)), place),
            confidence=demanded,
            risk=formation.risk,
            scenarios=formation.scenarios,
        )
    return WhatIf(formation, benefit, competition, found, least, demanded, changes)


def _largest(benefits: Benefits) -> float:
    """Return the largest benefit from one participant to another."""
    if isinstance(benefits, BenefitGraph):
        return float(benefits.weights.max(initial=0.0))
    return float(pair_bounds(benefits).max(initial=0.0))


def _with_weights(
    benefit: Benefits, changes: Sequence[ChangedWeight]
) -> tuple[Benefits, tuple[ChangedWeight, ...]]:
    """Return the changed benefits, and the changes as they were taken."""
    if not isinstance(benefit, BenefitGraph | UncertainBenefits):
        raise SettingsError(
            f"the benefit of {changes[0].source!r} to {changes[0].target!r} cannot change by "
            "itself, as the coalitions were formed from coalition values; change these, and form "
            "again"
        )
    names = benefit.participants
    matrix = np.array(benefit.weights, dtype=np.float64)
    errors = benefit.errors.copy() if isinstance(benefit, UncertainBenefits) else None
    taken: dict[tuple[int, ...], ChangedWeight] = {}
    for one in changes:
        place = tuple(index_of(name, names, "what-if") for name in (one.source, one.target))
        if place in taken:
            raise SettingsError(
                f"the benefit of {one.source!r} to {one.target!r} is changed twice; keep one"
            )
        matrix[place] = one.weight
        if one.error is not None and errors is None:
            raise SettingsError(
                f"an error of the benefit of {one.source!r} to {one.target!r}, but the coalitions "
                "were formed from benefits without errors; leave it out"
            )
        if one.error is not None and errors is not None:
            errors[place] = one.error
        error = None if errors is None else float(errors[place])
        source, target = (names[k] for k in place)
        taken[place] = ChangedWeight(source, target, one.weight, error)
    if errors is None:
        return BenefitGraph(matrix, names), tuple(taken.values())
    return UncertainBenefits(matrix, errors, names), tuple(taken.values())


def _with_newcomers(benefit: Benefits, joins: Sequence[Newcomer]) -> BenefitGraph:
    if not isinstance(benefit, BenefitGraph):
        raise SettingsError(
            f"{joins[0].name!r} cannot join by benefits alone, as the coalitions were formed from "
            "coalition values; add it to the values, with its learning curve and exchange rates, "
            "and form the coalitions again"
        )
    names = (*benefit.participants, *(newcomer.name for newcomer in joins))
    edges = list(benefit.edges())
    for newcomer in joins:
        edges += [(newcomer.name, target, weight) for target, weight in newcomer.gives.items()]
        edges += [(source, newcomer.name, weight) for source, weight in newcomer.receives.items()]
    return BenefitGraph.from_edges(edges, names)


def _pairs_of_newcomers(joins: Sequence[Newcomer]) -> Iterable[tuple[str, str]]:
    for newcomer in joins:
        for rival, times in Counter(newcomer.competes).items():
            if times > 1:
                raise SettingsError(
                    f"{rival!r} is listed twice among the competitors of {newcomer.name!r}; "
                    "keep one"
                )
            yield newcomer.name, rival


def _company(formation: Formation, name: str) -> str:
    others = [other for other in formation.coalition_of(name) if other != name]
    return f"the coalition of {', '.join(others)}" if others else "a coalition of its own"
