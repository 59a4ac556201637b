"""Core stability: whether a group of participants would gain by leaving together.

A *blocking group* is a set of participants, from any coalitions, that could form a coalition of
their own which satisfies both principles, and in which each of them receives strictly more than
now. A partition without blocking groups is *core-stable*. Such a partition need not exist.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats
from fedegoists.coalitions.formation import positions
from fedegoists.coalitions.principles import Coalition, check_partition
from fedegoists.coalitions.welfare import utilities_by
from fedegoists.errors import GraphError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.argument_kinds import check_graphs

BLOCKING_BUDGET = 20_000
"""Sets of participants that the audit looks at before it says "not proven"."""

ROUNDING = 1e-12
"""Gains below this fraction do not count: 0.1 + 0.2 is no more than 0.3."""


@dataclass(frozen=True)
class BlockingGroup:
    """Participants that would all gain by leaving together; `gains` are in their order."""

    members: Coalition
    gains: tuple[float, ...]

    def __str__(self) -> str:
        gains = ", ".join(
            f"{name} +{gain:.3g}" for name, gain in zip(self.members, self.gains, strict=True)
        )
        return f"{{{', '.join(self.members)}}} would all gain by leaving together ({gains})"


@dataclass(frozen=True)
class CoreAudit:
    """The result of the audit.

    Attributes
    ----------
    blocking : BlockingGroup or None
        A group that would gain by leaving together, if one is known.
    complete : bool
        Whether a blocking group was found or excluded; False if the budget ended before.
    """

    blocking: BlockingGroup | None
    complete: bool

    @property
    def core_stable(self) -> bool | None:
        """True if no group blocks, False if one does, None if that is not known."""
        return False if self.blocking else (True if self.complete else None)

    def __str__(self) -> str:
        if self.blocking:
            return str(self.blocking)
        if self.complete:
            return "no group would gain by leaving: core-stable"
        return "core stability is not proven: the budget or the time ended"


def audit_core(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    coalitions: Iterable[Iterable[str]],
    *,
    budget: int | None = BLOCKING_BUDGET,
    fewest_members: int = 1,
    deadline: float = math.inf,
) -> CoreAudit:
    """Look for a blocking group of a partition; exact unless the budget ends.

    Start from all participants. A participant that could not receive more than now from the
    independent ones that are left, or would benefit none of them, is in no blocking group; leave
    it out, and repeat. If the rest are all independent, they are a blocking group. Otherwise take
    one that competes in the rest: a blocking group is without it, or without all its competitors;
    look at both cases.

    Parameters
    ----------
    coalitions : iterable of iterables of names
        A partition of the participants.
    budget : int or None
        How many sets of participants to look at; None means as many as it takes.
    fewest_members : int
        The fewest members that a coalition of two or more may have, a blocking group too.
    deadline : float
        When to end the search, by `time.perf_counter`, like the budget.

    Examples
    --------
    a and b would rather be together than with those they are with now:

    >>> edges = [("a", "b", 3), ("b", "a", 3), ("a", "c", 1), ("c", "a", 1), ("b", "d", 1)]
    >>> benefit = BenefitGraph.from_edges([*edges, ("d", "b", 1)], ["a", "b", "c", "d"])
    >>> competition = CompetitionGraph([("a", "d"), ("b", "c")], ["a", "b", "c", "d"])
    >>> print(audit_core(benefit, competition, [("a", "c"), ("b", "d")]))
    {a, b} would all gain by leaving together (a +2, b +2)
    >>> audit_core(benefit, competition, [("a", "b"), ("c",), ("d",)]).core_stable
    True
    """
    check_graphs(benefit, competition)
    if not isinstance(benefit, BenefitGraph):
        raise GraphError("the audit works on benefit graphs, not on coalition values")
    if benefit.participants != competition.participants:
        raise GraphError("the benefit and the competition graph are over different participants")
    names = benefit.participants
    partition = check_partition(coalitions, names)
    now = utilities_by(benefit, positions(partition, names))
    search = _Blocking(benefit, competition, now, fewest_members)
    members, complete = search.group(budget, deadline)
    if members is None:
        return CoreAudit(None, complete)
    received = search.received(members)
    gains = (math.fsum([*received[i], -float(now[i])]) for i in members)
    return CoreAudit(BlockingGroup(tuple(names[i] for i in members), tuple(gains)), True)


class _Blocking:
    """The search for a blocking group, on the links of both graphs: memory grows with these."""

    def __init__(
        self,
        benefit: BenefitGraph,
        competition: CompetitionGraph,
        now: Floats,
        fewest_members: int,
    ) -> None:
        self._now = now
        self._fewest_members = fewest_members
        self._n = benefit.n
        self._one, self._other, _, _ = competition.entries
        givers, takers, benefits, n = benefit.entries
        usable = ~np.isin(givers * n + takers, self._one * n + self._other)
        self._givers, self._takers = givers[usable], takers[usable]
        self._benefits = benefits[usable]

    def received(self, members: list[int]) -> dict[int, list[float]]:
        """Return what each member of a group receives from the others."""
        group = np.zeros(self._n, dtype=np.bool_)
        group[members] = True
        inside = group[self._givers] & group[self._takers]
        received: dict[int, list[float]] = {i: [] for i in members}
        links = zip(self._takers[inside].tolist(), self._benefits[inside].tolist(), strict=True)
        for taker, weight in links:
            received[taker].append(weight)
        return received

    def group(self, budget: int | None, deadline: float) -> tuple[list[int] | None, bool]:
        """Return the members of a blocking group, if any, and whether that is certain."""
        # These sums only exclude participants, so rounding errs on the side of keeping them.
        more = self._now * (1 + ROUNDING)
        cases = [np.ones(self._n, dtype=np.bool_)]
        looked_at = 0
        while cases:
            looked_at += 1
            if (budget is not None and looked_at > budget) or time.perf_counter() > deadline:
                return None, False
            group = self._hopeful(cases.pop())
            # Whatever follows in this case is a subset, so it is too small as well.
            if not group.any() or group.sum() < self._fewest_members:
                continue
            both = group[self._one] & group[self._other]
            competitors = np.bincount(self._one[both], minlength=self._n)
            disputed = int(competitors.argmax())
            without = group.copy()
            if not competitors[disputed]:
                members = np.flatnonzero(group).tolist()
                received = self.received(members)
                worse = [i for i in members if not math.fsum(received[i]) > more[i]]
                if not worse:
                    return members, True
                without[worse[0]] = False
                cases.append(without)
                continue
            without[disputed] = False
            cases.append(without)
            independent = group.copy()
            independent[self._other[self._one == disputed]] = False
            cases.append(independent)
        return None, True

    def _hopeful(self, group: Bools) -> Bools:
        """Leave out, again and again, who could not gain in a group or would benefit nobody."""
        enough = self._now * (1 - ROUNDING)
        while True:
            inside = group[self._givers] & group[self._takers]
            gets = np.bincount(self._takers[inside], self._benefits[inside], minlength=self._n)
            gives = np.bincount(self._givers[inside], minlength=self._n) > 0
            hopeful = group & (gets > enough) & gives
            if (hopeful == group).all():
                return group
            group = hopeful
