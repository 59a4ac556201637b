"""The decision as a function of reports, and its outcomes in true utility."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedegoists.coalitions.array_types import Floats
from fedegoists.coalitions.formation_options import FormationMethod
from fedegoists.coalitions.forming import search_by
from fedegoists.coalitions.upper_bound import competing_groups
from fedegoists.coalitions.welfare import utilities, welfare
from fedegoists.graphs import BenefitGraph, CompetitionGraph

Decide = Callable[[BenefitGraph, CompetitionGraph], list[list[int]]]
"""A decision: from reported graphs to a partition of positions."""

Lie = Literal["misreport", "invent", "hide", "duplicate", "leave"]
LIES: tuple[Lie, ...] = get_args(Lie)
"""Misreporting received benefit; inventing or hiding a competitor; taking part under two names;
leaving together with others."""

NOTHING = 1e-9
"""Gains of no more than this fraction of what a participant could receive at most are rounding."""


@dataclass(frozen=True)
class Temptation:
    """The most that one participant gains by one kind of lie.

    Attributes
    ----------
    lie : {"misreport", "invent", "hide", "duplicate", "leave"}
        The kind of lie.
    gain : float
        By how much its true utility rises; 0 if no lie of this kind pays.
    bound : float
        No lie of this kind gains more. Equal to `gain` where all were tried or a proof exists.
    report : str
        What to report for that gain; empty if nothing pays.
    others_lose : float
        By how much that report lowers the true utility of all others; negative if it raises it.
    """

    lie: Lie
    gain: float
    bound: float
    report: str = ""
    others_lose: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether no lie of this kind gains more."""
        return self.bound <= self.gain


def decision_rule(
    method: FormationMethod, seed: int, fewest_members: int, time_limit: float | None
) -> Decide:
    """Return the decision by a formation method, as `form` makes it."""

    def decide(benefit: BenefitGraph, competition: CompetitionGraph) -> list[list[int]]:
        return search_by(
            method,
            benefit,
            competition,
            seed=seed,
            time_limit=time_limit,
            fewest_members=fewest_members,
        ).partition

    return decide


class Truth:
    """The true graphs, the decision on true reports, and the value of other decisions."""

    def __init__(
        self, benefit: BenefitGraph, competition: CompetitionGraph, decide: Decide
    ) -> None:
        self.benefit = benefit
        self.competition = competition
        self.decide = decide
        self.partition = decide(benefit, competition)
        self.utilities: Floats = utilities(benefit.weights, self.partition)
        self.welfare = welfare(benefit.weights, self.partition)
        self.highest = highest_utilities(benefit, competition)

    @property
    def names(self) -> tuple[str, ...]:
        """The participants."""
        return self.benefit.participants

    def best_until(
        self, lie: Lie, i: int, outcomes: "Iterator[ReportOutcome]", highest: float, deadline: float
    ) -> Temptation:
        """Return the temptation of the best outcome; `highest` bounds those after the deadline."""
        tried, complete = [], True
        for outcome in outcomes:
            tried.append(outcome)
            if time.perf_counter() > deadline:
                complete = next(outcomes, None) is None
                break
        if complete:
            highest = max((outcome.utility for outcome in tried), default=0.0)
        return self.best_of(lie, i, tried, highest)

    def best_of(
        self, lie: Lie, i: int, outcomes: "list[ReportOutcome]", bound: float
    ) -> Temptation:
        """Return the temptation of the best outcome; of equal ones the first."""
        now = float(self.utilities[i])
        least = NOTHING * max(float(self.highest[i]), now)
        best = max(outcomes, key=lambda outcome: outcome.utility, default=None)
        if best is None or best.utility - now <= least:
            return Temptation(lie, 0.0, 0.0 if bound - now <= least else bound - now)
        gain = best.utility - now
        return Temptation(lie, gain, max(bound - now, gain), best.report, best.others_lose)

    def outcome(self, i: int, partition: list[list[int]], report: str) -> "ReportOutcome":
        """Return the true value for participant i of a decision on false reports."""
        received = float(utilities(self.benefit.weights, partition)[i])
        others = welfare(self.benefit.weights, partition) - received
        before = self.welfare - float(self.utilities[i])
        return ReportOutcome(received, before - others, report, partition)


@dataclass(frozen=True)
class ReportOutcome:
    """What a false report leads to: the liar's true utility and what all others lose together."""

    utility: float
    others_lose: float
    report: str
    partition: list[list[int]]

    def home_of(self, i: int) -> list[int]:
        """Return the coalition of a participant."""
        return next(group for group in self.partition if i in group)


def highest_utilities(benefit: BenefitGraph, competition: CompetitionGraph) -> Floats:
    """Return for each participant an upper bound on its utility in a coalition without competitors.

    Of participants that all compete with one another, a coalition holds at most one.

    Examples
    --------
    a and b compete, so c is with one of them at most:

    >>> benefit = BenefitGraph.from_edges([("a", "c", 2), ("b", "c", 3)], ["a", "b", "c"])
    >>> highest_utilities(benefit, CompetitionGraph([("a", "b")], ["a", "b", "c"])).tolist()
    [0.0, 0.0, 3.0]
    """
    usable = np.where(competition.matrix, 0.0, benefit.weights)
    most = np.zeros(benefit.n)
    for group in competing_groups(competition.matrix):
        most += usable[group, :].max(axis=0)
    return most


def large_benefit(benefit: BenefitGraph) -> float:
    """Return a benefit that outweighs all others together."""
    # In proportion to them, so that the search still tells small differences between the others.
    return 2.0 * math.fsum(benefit.weights.ravel().tolist()) or 1.0


def listed(names: tuple[str, ...], positions: list[int]) -> str:
    """Return the names at some positions, or "nobody"."""
    return ", ".join(names[k] for k in positions) or "nobody"
