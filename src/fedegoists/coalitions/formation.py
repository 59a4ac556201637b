"""What forming coalitions gives: a partition, how good it is, and how it came about."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from fedegoists.coalitions.contraction import bits
from fedegoists.coalitions.exact.best_partition import quick_upper_bound
from fedegoists.coalitions.exact.incumbent import welfare_of
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.participants import index_of

if TYPE_CHECKING:
    from fedegoists.coalitions.proof.certificate import Certificate

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "Coalition",
    "Formation",
    "Merge",
    "Method",
    "Objective",
    "Progress",
    "make_formation",
    "positions",
]

Method = Literal["best", "stable", "published", "cliques"]
METHODS: tuple[Method, ...] = get_args(Method)

Objective = Literal["welfare", "fair", "participation"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

Progress = Callable[[float, float], None]
"""Called now and then with the welfare reached and the upper bound so far."""

Coalition = tuple[str, ...]


@dataclass(frozen=True)
class Merge:
    """One step of a formation: coalitions that were united, why, and what that gained.

    Attributes
    ----------
    sets : tuple of coalitions
        What was united.
    rule : str
        ``cycle``, ``path`` and ``neighbors`` are the rules of Algorithm 1; ``search`` is a set
        found by the search for mergers; ``optimum`` and ``best found`` stand for a coalition of
        the best partition, whose members are united in one step.
    gain : float
        By how much the union's utility exceeds that of its parts together.
    """

    sets: tuple[Coalition, ...]
    rule: str
    gain: float

    def __str__(self) -> str:
        sets = " + ".join(f"{{{', '.join(s)}}}" for s in self.sets)
        return f"{sets} ({self.rule}, gain {self.gain:.6g})"


@dataclass(frozen=True)
class Formation:
    """Coalitions, how good they are, and how they came about.

    Attributes
    ----------
    coalitions : tuple of tuples of names
        A partition in canonical order: members in the order of the participants, coalitions in the
        order of their first members.
    welfare : float
        The sum of all benefits inside the coalitions.
    upper_bound : float
        No partition that satisfies both principles has a higher welfare.
    stable : bool or None
        Whether no set of coalitions could still gain by merging: True if proven, False if a set is
        known, None if it was not proven within the budget.
    trace : tuple of Merge
        Every merge, in order; see `start`.
    start : tuple of coalitions
        The partition the first merge of the trace applies to.
    objective : {"welfare", "fair", "participation"}
        What was to be best.
    best_by_objective : bool
        For another objective than welfare, whether it is proven to be at its best; see `proven`.
    notes : tuple of str
        What was not reached within the budget, in words.
    """

    benefit: BenefitGraph = field(repr=False)
    competition: CompetitionGraph = field(repr=False)
    method: Method
    coalitions: tuple[Coalition, ...]
    welfare: float
    upper_bound: float
    stable: bool | None
    start: tuple[Coalition, ...] = field(repr=False, default=())
    trace: tuple[Merge, ...] = field(repr=False, default=())
    seed: int = 0
    notes: tuple[str, ...] = ()
    objective: Objective = "welfare"
    best_by_objective: bool = field(repr=False, default=False)

    @property
    def participants(self) -> tuple[str, ...]:
        """Everybody, in order."""
        return self.benefit.participants

    @property
    def optimal(self) -> bool:
        """Whether the welfare is proven to be the highest possible, up to rounding."""
        return self.welfare >= self.upper_bound * (1 - 1e-9)

    @property
    def proven(self) -> bool:
        """Whether no valid partition is better by the objective, up to rounding."""
        return self.optimal if self.objective == "welfare" else self.best_by_objective

    @property
    def gap(self) -> float:
        """By which part of the upper bound the welfare may be improvable; 0 if it is optimal."""
        return 0.0 if self.optimal else 1 - self.welfare / self.upper_bound

    @cached_property
    def utilities(self) -> Mapping[str, float]:
        """What each participant receives inside its coalition."""
        received: dict[str, float] = {}
        for group in self.coalitions:
            rows = [self._place[name] for name in group]
            inside = self.benefit.weights[np.ix_(rows, rows)]
            received |= {name: math.fsum(inside[:, k].tolist()) for k, name in enumerate(group)}
        return MappingProxyType({name: received[name] for name in self.participants})

    @cached_property
    def _home(self) -> dict[str, Coalition]:
        return {name: group for group in self.coalitions for name in group}

    def coalition_of(self, participant: str | int) -> Coalition:
        """Return the coalition a participant is in."""
        return self._home[self.name_of(participant)]

    def name_of(self, participant: str | int) -> str:
        """Return a participant's name as the graphs have it; an unknown one is an error."""
        return self.participants[self.position_of(participant)]

    def position_of(self, participant: str | int, where: str = "formation") -> int:
        """Return a participant's position; an error about an unknown one says where it stands."""
        return index_of(participant, self.participants, where, self._place)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.participants)}

    @cached_property
    def certificate(self) -> "Certificate":
        """The result for a third party to re-check, as derived by the independent checker."""
        from fedegoists.coalitions.proof.certificate import Certificate

        return Certificate.of(self)


def positions(coalitions: Iterable[Coalition], participants: Coalition) -> list[list[int]]:
    """Return coalitions by their members' positions among the participants."""
    place = {name: k for k, name in enumerate(participants)}
    return [[place[name] for name in group] for group in coalitions]


def make_formation(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    method: Method,
    partition: list[list[int]],
    *,
    stable: bool | None,
    start: list[list[int]],
    merges: list[tuple[str, list[int]]],
    notes: tuple[str, ...],
    upper_bound: float | None = None,
    seed: int = 0,
    objective: Objective = "welfare",
    best_by_objective: bool = False,
) -> Formation:
    """Return the formation that a partition of positions is, with its merges as sets of bits."""
    weights = benefit.weights
    welfare = welfare_of(weights, partition)
    if upper_bound is None:
        upper_bound = quick_upper_bound(weights, competition.matrix)
    names = benefit.participants

    def named(group: Iterable[int]) -> Coalition:
        return tuple(names[k] for k in group)

    trace = []
    for rule, sets in merges:
        groups = [list(bits(members)) for members in sets]
        everyone = [k for group in groups for k in group]
        gain = math.fsum(
            [
                *weights[np.ix_(everyone, everyone)].ravel().tolist(),
                *(-w for g in groups if len(g) > 1 for w in weights[np.ix_(g, g)].ravel().tolist()),
            ]
        )
        trace.append(Merge(tuple(named(group) for group in groups), rule, gain))
    return Formation(
        benefit=benefit,
        competition=competition,
        method=method,
        coalitions=tuple(named(group) for group in partition),
        welfare=welfare,
        upper_bound=max(upper_bound, welfare),
        stable=stable,
        start=tuple(named(group) for group in start),
        trace=tuple(trace),
        seed=seed,
        notes=notes,
        objective=objective,
        best_by_objective=best_by_objective and objective != "welfare",
    )
