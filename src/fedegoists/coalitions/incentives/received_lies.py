"""Misreports of received benefit, and why a finite number of them suffices.

A participant i reports its column of the benefit graph. Reports of the form "a very large
benefit from each of A, nothing from the others" reach every coalition of i that some report
reaches, one report for each set A of other participants.

*Methods that read only who benefits whom* (``stable``, ``published``, ``cliques``, ``truthful``):
two columns with the same positive entries lead to the same decision, so one for each set is enough.

*Method best.* Let any column c lead to coalition S of i, and let A be the members of S from which c
states a benefit. Replace c by the large benefit L from A alone. Every coalition T of i that is
valid under the new report and holds all of A is valid under c too, as its benefits to i are among
those that c states. S is among them: whoever in S gives to i only is in A. L outweighs everything
else, so the decision maximises the others' welfare over these T. Under c, S was at least as good as
each T, and c(T) ≥ c(A) = c(S); so the others' welfare with S is at least that with T. The new
report leads to S as well, or to a partition of the same welfare. Where welfares tie, the
decision's own rule between them applies. A has no competitors, as S has none.
"""

import itertools
import time
from collections.abc import Iterable

from fedegoists.coalitions.contraction import bits, rows_as_bitsets
from fedegoists.coalitions.formation_options import FormationMethod
from fedegoists.coalitions.incentives.reporting import (
    ReportOutcome,
    Temptation,
    Truth,
    large_benefit,
    listed,
)
from fedegoists.graphs import BenefitGraph

MOST_EXACT = 10
"""Participants for which all reports that matter are tried; each further one doubles them."""

STRATEGY_PROOF: tuple[FormationMethod, ...] = ("cliques", "truthful")
"""Methods under which no misreport of received benefit pays, by the proof in `truthful_search`.

The groups of ``cliques`` depend on the competition graph alone, too.
"""


def received_temptation(
    truth: Truth, i: int, method: FormationMethod, deadline: float
) -> Temptation:
    """Return the most that participant i gains by misreporting the benefit it receives."""
    if method in STRATEGY_PROOF:
        return Temptation("misreport", 0.0, 0.0)
    highest = float(truth.highest[i])
    if highest <= truth.utilities[i]:
        return Temptation("misreport", 0.0, 0.0)
    if truth.benefit.n <= MOST_EXACT:
        outcomes, complete = tried_all(truth, i, method, deadline)
    else:
        outcomes, complete = _searched(truth, i, deadline), False
    reached = max((outcome.utility for outcome in outcomes), default=0.0)
    bound = max(reached, float(truth.utilities[i])) if complete else highest
    return truth.best_of("misreport", i, outcomes, bound)


def tried_all(
    truth: Truth, i: int, method: FormationMethod, deadline: float
) -> tuple[list[ReportOutcome], bool]:
    """Return the best outcome of all reports that matter, and whether all were tried.

    It stops early at an outcome that is as good as any coalition without competitors.
    """
    rivals = rows_as_bitsets(truth.competition.matrix)
    others = ((1 << truth.benefit.n) - 1) & ~(1 << i)
    # No set that merges, and no component, holds competitors, so benefits between these matter to
    # no method but `stable`, whose search may look at them when it chooses what to merge first.
    if method != "stable":
        others &= ~rivals[i]
    best: ReportOutcome | None = None
    for claimed in _subsets(others):
        if method == "best" and any(rivals[k] & claimed for k in bits(claimed)):
            continue  # no coalition holds all of these
        if time.perf_counter() > deadline:
            return ([] if best is None else [best]), False
        outcome = reported(truth, i, claimed)
        if best is None or outcome.utility > best.utility:
            best = outcome
            if best.utility >= truth.highest[i]:
                break
    return ([] if best is None else [best]), True


def reported(truth: Truth, i: int, claimed: int) -> ReportOutcome:
    """Return the outcome if i reports a large benefit from some, and nothing from the others."""
    large = large_benefit(truth.benefit)
    weights = truth.benefit.weights.copy()
    weights[:, i] = 0.0
    sources = list(bits(claimed))
    weights[sources, i] = large
    partition = truth.decide(BenefitGraph(weights, truth.names), truth.competition)
    what = f"a large benefit from {listed(truth.names, sources)}, nothing from the others"
    return truth.outcome(i, partition, what if sources else "no benefit from anybody")


def _subsets(of: int) -> Iterable[int]:
    """Yield all subsets of a bitset, smaller ones first."""
    members = list(bits(of))
    for size in range(len(members) + 1):
        for chosen in itertools.combinations(members, size):
            yield sum(1 << k for k in chosen)


def _searched(truth: Truth, i: int, deadline: float) -> list[ReportOutcome]:
    """Return the best outcome that a local search finds: add or drop one source at a time."""
    column = truth.benefit.weights[:, i]
    rivals = rows_as_bitsets(truth.competition.matrix)
    order = sorted(range(truth.benefit.n), key=lambda k: -column[k])
    wanted = 0  # the largest benefits whose sources do not compete
    for k in order:
        if column[k] > 0 and not rivals[k] & (wanted | 1 << i):
            wanted |= 1 << k
    starts = [wanted, sum(1 << int(k) for k in order if column[k] > 0)]
    starts += [1 << k for k in bits(wanted)]
    best: tuple[ReportOutcome, int] | None = None
    seen: set[int] = set()

    def tried(claimed: int) -> bool:
        """Try a report; return whether it is the best so far."""
        nonlocal best
        seen.add(claimed)
        outcome = reported(truth, i, claimed)
        if best is None or outcome.utility > best[0].utility:
            best = outcome, claimed
            return True
        return False

    for start in starts:
        if time.perf_counter() > deadline:
            break
        if start not in seen:
            tried(start)
    improving = best is not None
    while improving and best is not None:
        improving = False
        for k in order:
            near = best[1] ^ 1 << k
            if k == i or near in seen:
                continue
            if time.perf_counter() > deadline:
                return [best[0]]
            if tried(near):
                improving = True
                break
    return [] if best is None else [best[0]]
