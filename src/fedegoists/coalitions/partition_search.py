"""The searches behind the formation methods; each returns a partition as plain values.

``stable`` merges until Equation 2 of the paper holds. ``published`` is Algorithm 1, ``cliques``
its lines 1 to 6. ``best`` starts from both and looks for the best partition by an objective, with
the searches in `exact`.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedegoists.coalitions.algorithm1 import baseline_coalitions, merge_as_published
from fedegoists.coalitions.array_types import Partition
from fedegoists.coalitions.contraction import Contraction, OutOfTimeError, bits
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.best_partition import (
    LARGEST,
    ComponentPrices,
    Optimum,
    best_partition,
    prepare,
)
from fedegoists.coalitions.exact.fairest_partition import fairest_partition
from fedegoists.coalitions.exact.solvers import has_solver, load_solver, missing_packages
from fedegoists.coalitions.formation_options import Objective
from fedegoists.coalitions.merging import stabilise
from fedegoists.coalitions.rearranging import moved_between, repaired
from fedegoists.coalitions.welfare import welfare
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.install_hints import install_command

GapReport = Callable[[float, float], None]
"""Called repeatedly during a search with the welfare reached and the upper bound so far."""

PUBLISHED_SHARE, PUBLISHED_SHARE_OF_MANY, MANY = 0.3, 0.05, 1000
"""The fraction of the time that Algorithm 1 may take as a start for method ``best``: the first, or
the second with more participants than the third, where it hardly ever ends in time."""

WORK_SHARE = 0.7
"""The fraction of the time limit that is planned as work, so that work rather than the clock ends
the search and the same seed gives the same result."""

_STAGES: Mapping[Objective, int] = {"welfare": 1, "participation": 2, "fair": 3}
"""The searches that share the time: for welfare, for participation, for fairness."""

NOT_PROVEN_STABLE = "that no coalitions should merge was not proven within the budget"


def lacking_notes() -> list[str]:
    """Return a note on packages that the exact search lacks; none where all are installed."""
    missing = missing_packages()
    if not missing:
        return []
    are = "is" if len(missing) == 1 else "are"
    return [
        f"{' and '.join(missing)} {are} not installed, so a slower local search decided, without "
        f"a proof that nothing is better; for the exact search: {install_command('exact')}"
    ]


@dataclass(frozen=True)
class SearchResult:
    """A partition in canonical order, how it was reached, and what is known about it."""

    partition: list[list[int]]
    stable: bool | None  # None if not proven
    start: list[list[int]]  # the partition to which the first merge applies
    merges: list[tuple[str, list[int]]]  # the rule, and the coalitions united as bitsets
    notes: tuple[str, ...] = ()  # what was not reached within the budget
    upper_bound: float | None = None  # on any welfare; None if the search derives none
    best_by_objective: bool = False
    prices: tuple[ComponentPrices, ...] = ()  # for a proof of the upper bound
    closed: bool | None = None  # whether the upper bound is reached in every component, if known


def search_stable(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    keep: Partition = (),
    fewest_members: int = 1,
) -> SearchResult:
    """Merge until stable, from everybody alone and, if given, from the coalitions to keep.

    Of two results with the same welfare, the one is returned that moves fewer participants away
    from the coalitions to keep.
    """
    z = Contraction(benefit, competition)
    if not keep:
        return _stabilised(z, fewest_members)
    start = repaired(keep, benefit, competition, z, fewest_members)
    found = [_stabilised(z.copy(), fewest_members, start), _stabilised(z, fewest_members)]
    reached = [welfare(benefit.entries, result.partition) for result in found]
    good = [
        result
        for result, own in zip(found, reached, strict=True)
        if math.isclose(own, max(reached), rel_tol=1e-12)
    ]
    return min(good, key=lambda one: len(moved_between(keep, one.partition)) if good[1:] else 0)


def _stabilised(
    z: Contraction, fewest_members: int, start: list[list[int]] | None = None
) -> SearchResult:
    """Merge until stable, from a partition in canonical order or from everybody alone."""
    start = start or [[k] for k in bits(z.nodes)]
    z.merge_all(start)
    merges, proven = stabilise(z, fewest_members=fewest_members)
    return SearchResult(
        z.partition(),
        stable=True if proven else None,
        start=start,
        merges=[("search", sets) for sets in merges],
        notes=() if proven else (NOT_PROVEN_STABLE,),
    )


def search_published(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    cover: list[list[int]] | None = None,
    *,
    merge: bool = True,
    deadline: float = math.inf,
) -> SearchResult:
    """Run Algorithm 1, or its lines 1 to 6 only if not told to merge.

    Raises
    ------
    OutOfTimeError
        If the deadline passes.
    """
    notes = []
    z = Contraction(benefit, competition)
    coalitions, largest = baseline_coalitions(z, competition.matrix, cover, deadline)  # lines 1-6
    z.merge_all(coalitions)  # line 7: the graphs Zb and Zc of Definition 2
    start = z.partition()
    if not largest:
        notes.append(
            "the cliques are the largest found; that none is larger was not proven in time"
        )
    merges: list[tuple[str, list[int]]] = []
    if merge:
        merges, smallest = merge_as_published(z, deadline)  # lines 8-11
        if not smallest:
            notes.append(
                f"after {len(merges)} merges the smallest cycle or path was not found in time; "
                "the remaining merges are those of method 'stable'"
            )
    # Algorithm 1 ends merge-stable (Proposition 2). The search below only confirms it, unless a
    # budget ended before; after lines 1 to 6 alone it tells whether mergers are left.
    rest, proven = stabilise(z)
    if merge:
        merges += [("search", sets) for sets in rest]
        stable = True if proven else None
    else:
        stable = False if rest else (True if proven else None)
    if stable is None:
        notes.append(NOT_PROVEN_STABLE)
    return SearchResult(z.partition() if merge else start, stable, start, merges, tuple(notes))


def search_best(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    *,
    seed: int,
    time_limit: float,
    keep: Partition = (),
    objective: Objective = "welfare",
    fewest_members: int = 1,
    progress: GapReport | None = None,
) -> SearchResult:
    """Look for the best partition by an objective, until proven or the time limit.

    Parameters
    ----------
    keep : coalitions
        Among equally good partitions prefer one that moves few participants away from these.
    fewest_members : int
        The fewest members of a coalition of two or more.
    """
    interrupted = False
    try:
        # Loading may take long the first time, and is not part of the limit.
        prepare(benefit.entries, competition.entries, fewest_members)
        if (keep or objective == "fair") and has_solver():
            load_solver()
    except KeyboardInterrupt:
        interrupted = True  # without work to do, nothing below needs what was not loaded
    began = time.perf_counter()
    merged = search_stable(benefit, competition, fewest_members=fewest_members).partition
    # The last step, a search for mergers and its account, takes about as long as this one did;
    # twice that is reserved for it, as the machine may be busier by then.
    reserve = min(2 * (time.perf_counter() - began), 0.2 * time_limit)
    stages = _Stages(
        benefit=benefit,
        competition=competition,
        fewest_members=fewest_members,
        seed=seed,
        keep=keep,
        starts=[merged],
        deadline=began + time_limit - reserve,
        share=WORK_SHARE * time_limit / _STAGES[objective],
        interrupted=interrupted,
    )
    if keep:
        stages.starts.insert(0, stages.repaired(keep))
    share = PUBLISHED_SHARE if benefit.n <= MANY else PUBLISHED_SHARE_OF_MANY
    notes = stages.add_published_start(began + share * time_limit)
    # The other objectives begin with the best welfare, which is often close to theirs.
    optimum = stages.run(participation=False, progress=progress)
    upper_bound, prices, closed = optimum.upper_bound, optimum.prices, optimum.optimal
    notes += [
        f"{size:,} participants belong together, too many for the exact search; a local search "
        "looked for better partitions, and the upper bound is a quick one"
        for size in optimum.local
        if size > LARGEST
    ]
    if any(size <= LARGEST for size in optimum.local) or (objective == "fair" and not has_solver()):
        notes += lacking_notes()
    if objective != "welfare":
        optimum = stages.run(participation=True)
    best, proven_best = optimum.partition, optimum.optimal
    if objective == "fair":
        best, proven_best = stages.run_fairest(best)
    z = Contraction(benefit, competition)
    z.merge_all(best)
    # A merge raises some utility and lowers none, so it is good for every objective.
    _, proven_stable = stabilise(z, fewest_members=fewest_members)
    partition = z.partition()
    if stages.interrupted:
        notes.append("interrupted; this is the best partition found until then")
    elif stages.clock_ended:
        notes.append("the time limit ended the search; the same seed may give another result")
    if objective != "welfare" and not proven_best:
        notes.append(f"that no partition is better by the objective '{objective}' is not proven")
    if not proven_stable:
        notes.append(NOT_PROVEN_STABLE)
    rule = "optimum" if proven_best else "best found"
    return SearchResult(
        partition,
        stable=True if proven_stable else None,
        start=[[k] for k in range(benefit.n)],
        merges=[(rule, [1 << k for k in group]) for group in partition if len(group) > 1],
        notes=tuple(notes),
        upper_bound=upper_bound,
        best_by_objective=proven_best,
        prices=prices,
        # With another objective, or after a merge, this is not the partition that was judged.
        closed=closed if objective == "welfare" else None,
    )


@dataclass
class _Stages:
    """The stages of one search for the best partition; each starts from the earlier results."""

    benefit: BenefitGraph
    competition: CompetitionGraph
    fewest_members: int
    seed: int
    keep: Partition
    starts: list[list[list[int]]]
    deadline: float
    share: float
    interrupted: bool
    clock_ended: bool = False
    unspent: float = 0.0

    def add_published_start(self, deadline: float) -> list[str]:
        """Add the partition of Algorithm 1 to the starts, or return a note why there is none."""
        try:
            if not self.interrupted:
                found = search_published(self.benefit, self.competition, deadline=deadline)
                # Algorithm 1 knows no demand; coalitions that are too small are taken apart.
                enough = self.fewest_members <= 2
                self.starts.append(found.partition if enough else self.repaired(found.partition))
        except OutOfTimeError:
            return [
                "the published algorithm, one of the starts, did not finish in its time; "
                "the same seed may give another result"
            ]
        except KeyboardInterrupt:
            self.interrupted = True
        return []

    def repaired(self, partition: Partition) -> list[list[int]]:
        """Return a partition with members put on their own until it is valid."""
        singles = Contraction(self.benefit, self.competition)
        return repaired(partition, self.benefit, self.competition, singles, self.fewest_members)

    @property
    def _work(self) -> float:
        """The work for the next stage, including what earlier stages did not need."""
        return 0.0 if self.interrupted else self.share + self.unspent

    def run(self, *, participation: bool, progress: GapReport | None = None) -> Optimum:
        """Look for the highest welfare or, before that, the fewest participants alone."""
        optimum = best_partition(
            self.benefit.entries,
            self.competition.entries,
            self.starts,
            seconds=self._work,
            deadline=self.deadline,
            seed=self.seed,
            keep=self.keep,
            participation=participation,
            fewest_members=self.fewest_members,
            progress=progress,
        )
        self.starts.append(optimum.partition)
        self.unspent = optimum.unspent
        self.interrupted |= optimum.interrupted
        self.clock_ended |= optimum.clock_ended
        return optimum

    def run_fairest(self, best: list[list[int]]) -> tuple[list[list[int]], bool]:
        """Look for the fairest partition; return it and whether it is proven to be."""
        effort = Effort(self._work, self.deadline)
        proven = False
        try:
            best, proven = fairest_partition(
                self.benefit.weights,
                self.competition.matrix,
                self.starts,
                effort,
                self.fewest_members,
            )
        except KeyboardInterrupt:
            self.interrupted = True
        self.clock_ended |= effort.clock_ended
        return best, proven
