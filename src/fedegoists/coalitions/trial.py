"""Trying out competition in a millisecond or two: only what the answer shows is computed."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedegoists.coalitions.contraction import Contraction
from fedegoists.coalitions.exact.incumbent import welfare_of
from fedegoists.coalitions.formation import Coalition, Formation, positions
from fedegoists.coalitions.merging import stabilise
from fedegoists.coalitions.what_if import moved_between, without_rivals
from fedegoists.errors import SettingsError
from fedegoists.graphs import CompetitionGraph

__all__ = ["Trial", "Trialled"]

Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Trialled:
    """What a change of competition would bring; see `WhatIf`, of which this is the short form."""

    coalitions: tuple[Coalition, ...]
    welfare: float
    welfare_change: float
    moved: tuple[str, ...]
    utility_changes: Mapping[str, float]


class Trial:
    """A formation on which changes of competition are tried, again and again.

    The answers are those of `what_if` on the same formation with the method ``stable``, but the
    graphs are put into the form that the search needs only once.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], ["North", "South", "East"])
    >>> trial = Trial(form(benefit, CompetitionGraph([], benefit.participants)))
    >>> trial.changed(add=[("South", "East")]).coalitions
    (('North', 'East'), ('South',))
    """

    def __init__(self, formation: Formation) -> None:
        self.formation = formation
        self._weights = formation.benefit.weights
        self._largest = float(self._weights.max(initial=0.0))
        self._base = Contraction(formation.benefit, formation.competition)
        self._kept = positions(formation.coalitions, formation.participants)
        self._before = dict(formation.utilities)

    def changed(self, add: Pairs = (), remove: Pairs = ()) -> Trialled:
        """Return what competition that arises or ends would bring.

        Raises
        ------
        SettingsError
            If a pair to add competes already, or one to remove does not.
        """
        rivals = self._rivals(add, remove)
        before = self.formation
        if rivals == self._base.rivals:
            unchanged = dict.fromkeys(before.participants, 0.0)
            return Trialled(before.coalitions, before.welfare, 0.0, (), unchanged)
        groups = self._formed(rivals)
        names = before.participants
        coalitions = tuple(tuple(names[k] for k in group) for group in groups)
        welfare = welfare_of(self._weights, groups)
        return Trialled(
            coalitions,
            welfare,
            welfare - before.welfare,
            moved_between(before.coalitions, coalitions),
            self._changes(coalitions, groups),
        )

    def _rivals(self, add: Pairs, remove: Pairs) -> list[int]:
        """Return by participant with whom it competes after the change."""
        rivals = list(self._base.rivals)
        for pairs, wanted in ((remove, False), (add, True)):
            for pair in pairs:
                one, other = (self.formation.position_of(name, "competition") for name in pair)
                if one == other:
                    CompetitionGraph([pair], self.formation.participants)  # says what is wrong
                if bool(rivals[one] >> other & 1) == wanted:
                    a, b = (self.formation.participants[k] for k in (one, other))
                    raise SettingsError(
                        f"{a!r} and {b!r} compete already; nothing to add"
                        if wanted
                        else f"{a!r} and {b!r} do not compete; nothing to remove"
                    )
                rivals[one] ^= 1 << other
                rivals[other] ^= 1 << one
        return rivals

    def _formed(self, rivals: list[int]) -> list[list[int]]:
        """Merge until stable, from the coalitions there are and from everybody alone."""
        start: list[list[int]] = []
        for group in self._kept:
            members = sum(1 << k for k in group)
            if any(rivals[k] & members for k in group):
                start += without_rivals(group, self._weights, rivals)
            else:
                start.append(group)
        found = []
        for origin in (start, []):
            z = self._base.with_rivals(rivals)
            z.merge_all(origin)
            stabilise(z)
            found.append(z.partition())
        welfare = [welfare_of(self._weights, groups) for groups in found]
        top = max(welfare)
        good = [
            groups
            for groups, own in zip(found, welfare, strict=True)
            if math.isclose(own, top, rel_tol=1e-12)
        ]
        return good[0] if len(good) == 1 else min(good, key=self._moves)

    def _moves(self, groups: list[list[int]]) -> int:
        names = self.formation.participants
        after = [tuple(names[k] for k in group) for group in groups]
        return len(moved_between(self.formation.coalitions, after))

    def _changes(
        self, coalitions: tuple[Coalition, ...], groups: list[list[int]]
    ) -> dict[str, float]:
        """Return what everybody gains or loses; whose coalition is the same, nothing."""
        same = set(self.formation.coalitions)
        changes = dict.fromkeys(self.formation.participants, 0.0)
        for coalition, group in zip(coalitions, groups, strict=True):
            if coalition in same:
                continue
            inside = self._weights[group][:, group]
            for k, name in enumerate(coalition):
                change = math.fsum(inside[:, k].tolist()) - self._before[name]
                if abs(change) > 1e-12 * self._largest:
                    changes[name] = change
        return changes
