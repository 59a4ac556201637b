"""Checking the claims of a certificate again, one function per claim.

Nothing here searches. Where a claim needs a search to be derived again, the caller passes it in,
so that the checks share no code with the search whose results they judge.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from fedegoists.coalitions.principles import (
    MOST_WITNESSES,
    Coalition,
    Verification,
    named,
)
from fedegoists.coalitions.proof.certificate_claims import Claim, ClaimName, principle_claims
from fedegoists.coalitions.proof.exhaustive_check import exhaust, is_better, objective_value
from fedegoists.coalitions.proof.price_proof import (
    ComponentBound,
    ProvenBound,
    last_places,
    states_optimum,
)
from fedegoists.coalitions.proof.strategy_proofness import reach_each_other
from fedegoists.errors import MissingDependencyError
from fedegoists.graphs import BenefitGraph, CompetitionGraph

TOLERANCE = 1e-9
"""Numbers on coalition values, and utilities, agree if they differ by at most this fraction."""

MOST_SEARCHED = 2_000
"""That no partition is better by an objective is searched for with up to this many participants:
the search needs memory that grows with their square."""


@dataclass(frozen=True)
class CheckedClaim:
    """What a certificate states, what the check found, and whether the two agree.

    Attributes
    ----------
    searched : bool
        Whether the check ran the search of this software again. What it found then depends on the
        search: no proof confirms it.
    """

    claim: str
    stated: str
    found: str
    ok: bool
    searched: bool = False


@dataclass(frozen=True)
class CertificateCheck:
    """The result of checking all claims of a certificate again."""

    claims: tuple[CheckedClaim, ...]

    @property
    def ok(self) -> bool:
        """Whether the file is unchanged, all its claims hold, and all checks pass."""
        return all(claim.ok for claim in self.claims)


def check_principles(
    stated: Mapping[ClaimName, Claim], verification: Verification, *, may_merge: bool = False
) -> tuple[CheckedClaim, ...]:
    """Compare the claims about the principles and stability with the independent checker's.

    Parameters
    ----------
    may_merge : bool
        Whether the method promises no merge-stability. The claim about it must then be true, and
        may be that coalitions could merge.
    """
    return tuple(
        CheckedClaim(
            found.claim,
            stated[found.claim].status,
            "; ".join((found.status, *found.witnesses)),
            stated[found.claim].status == found.status
            and (found.status == "proven" or (may_merge and found.claim == "merge-stable")),
        )
        for found in principle_claims(verification)
    )


def check_strategy_proof(
    claim: Claim,
    benefit: BenefitGraph,
    coalitions: Sequence[Coalition],
    groups: Sequence[Coalition],
) -> CheckedClaim:
    """Compare the coalitions with those that method ``truthful`` makes of its groups.

    Parameters
    ----------
    groups : sequence of coalitions
        The groups of independent participants, derived from the competition graph alone.
    """
    same = set(map(frozenset, coalitions)) == reach_each_other(benefit, groups)
    found = "proven" if same else "refuted; method 'truthful' forms other coalitions"
    return CheckedClaim(claim.claim, claim.status, found, same and claim.status == "proven")


def check_demand(stated: int, expected: int) -> CheckedClaim:
    """Compare the smallest number of members that a certificate states with the one agreed on."""
    found = f"at least {expected} were agreed on"
    return CheckedClaim("demand", f"at least {stated} members", found, stated == expected)


def check_welfare(claim: Claim, welfare: float, *, exact: bool) -> CheckedClaim:
    """Compare the stated welfare with that of the coalitions.

    Parameters
    ----------
    exact : bool
        Whether the welfare is a sum of stated benefits, which is rounded once. That of coalition
        values depends on the order of the sums.
    """
    assert claim.value is not None
    off = abs(Fraction(claim.value) - Fraction(welfare))
    ok = off <= (last_places(welfare) if exact else Fraction(TOLERANCE) * Fraction(welfare))
    return CheckedClaim("welfare", f"{claim.value:.9g}", _beside(welfare, claim.value), ok)


def check_proof(claim: Claim, reached: float, proven: ProvenBound, late: str = "") -> CheckedClaim:
    """Compare the stated upper bound with the one that the certificate proves.

    A component that does not reach its bound counts in full. So the coalitions must reach the bound
    of every component where the stated one says that no partition is better.

    Parameters
    ----------
    reached : float
        The welfare of a valid partition.
    late : str
        What to say of a search that found no bound that is low enough.
    """
    stated = claim.value
    assert stated is not None
    highest = Fraction(stated) + last_places(stated)
    at_most = _beside(float(proven.welfare), stated)
    lacking = _widest_gap(proven) if states_optimum(stated, reached) else None
    better = max(Fraction(reached), proven.known)
    problem = ""
    if better > highest:
        problem = f"refuted; a valid partition reaches {_beside(float(better), stated)}"
    elif proven.rejected:
        problem = f"not proven: {proven.rejected[0]}"
    elif proven.welfare < Fraction(reached) * (1 - Fraction(TOLERANCE)):
        problem = f"not proven: at most {at_most}, but a valid partition reaches {reached:.9g}"
    elif lacking is not None and lacking.known > lacking.own:
        best = _beside(lacking.known / proven.unit, lacking.own / proven.unit)
        problem = f"refuted; {_told(lacking, proven.unit)}, and others reach {best}"
    elif proven.welfare > highest and proven.searched:
        problem = f"{late}; at most {at_most} is sure"
    elif proven.welfare > highest:
        problem = f"not proven: the certificate proves at most {at_most}"
    elif lacking is not None:
        most = _beside(lacking.bound / proven.unit, lacking.own / proven.unit)
        problem = f"not proven: {_told(lacking, proven.unit)}, and at most {most} is proven"
    found = problem or f"at most {at_most}{SEARCHED if proven.searched else ''}"
    return CheckedClaim("upper bound", f"{stated:.9g}", found, not problem, proven.searched)


SEARCHED = ", by searching again, without a proof"


def _widest_gap(proven: ProvenBound) -> ComponentBound | None:
    """Return the component that may lack most, None if the coalitions reach all bounds."""
    lacking = [part for part in proven.parts if not part.closed]
    return max(lacking, key=lambda part: part.bound - part.own, default=None)


def _told(part: ComponentBound, unit: int) -> str:
    first, others = part.members[0], len(part.members) - 1
    return f"the coalitions of {first} and {others} others reach {part.own / unit:.9g}"


def _beside(number: float, other: float) -> str:
    """Return a number as text, with as many digits as tell it from another one."""
    alike = number != other and f"{number:.9g}" == f"{other:.9g}"
    return repr(number) if alike else f"{number:.9g}"


def check_upper_bound(
    claim: Claim,
    reached: float,
    bound: float,
    search: Callable[[], tuple[float, float]],
    time_limit: float,
    *,
    all_tried: bool = False,
) -> CheckedClaim:
    """Derive an upper bound that is as low as the stated one, or a welfare above it.

    Parameters
    ----------
    reached : float
        The welfare of a valid partition.
    bound : float
        An upper bound that is quickly derived; the search is needed only where it is too high.
    search : callable
        Returns the welfare of a valid partition and an upper bound, within the time limit.
    all_tried : bool
        Whether that tries all partitions, with code of its own.
    """
    assert claim.value is not None
    highest = claim.value * (1 + TOLERANCE)
    problem, how = "", ""
    searched = False
    if not highest >= bound >= reached * (1 - TOLERANCE):
        if bound > highest >= reached:
            try:
                better, lower = search()
            except MissingDependencyError as error:
                found = f"not derived: {error}"
                return CheckedClaim("upper bound", f"{claim.value:.9g}", found, False)
            reached, bound = max(reached, better), min(bound, lower)
            searched, how = not all_tried, ", all partitions tried" if all_tried else SEARCHED
        if reached > highest:
            problem = f"refuted; a valid partition reaches {reached:.9g}"
        elif bound < reached * (1 - TOLERANCE):
            problem = (
                f"not derived: at most {bound:.9g}, but a valid partition reaches {reached:.9g}"
            )
        elif bound > highest:
            problem = f"not derived in {time_limit:g} s; at most {bound:.9g} is sure"
    found = problem or f"at most {bound:.9g}{how}"
    return CheckedClaim("upper bound", f"{claim.value:.9g}", found, not problem, searched)


def check_objective(
    claim: Claim,
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    coalitions: Sequence[Coalition],
    objective: str,
    search: Callable[[], tuple[Sequence[Coalition], bool]],
    time_limit: float,
    fewest_members: int = 1,
    deadline: float = math.inf,
) -> CheckedClaim:
    """Judge the coalitions by the objective, and look for a better partition if none is claimed.

    Parameters
    ----------
    search : callable
        Returns the best partition found within the time limit, and whether it is proven to be;
        needed only where too many participants belong together to try all partitions.
    """
    value = objective_value(benefit, coalitions, objective)
    unit = "alone" if objective == "participation" else "the least received"
    assert claim.value is not None
    stated = f"{claim.value:.9g} {unit}, {claim.status}"
    found = f"{value:.9g} {unit}"
    if not math.isclose(claim.value, value, rel_tol=TOLERANCE):
        return CheckedClaim("objective", stated, found, False)
    if claim.status != "proven":
        return CheckedClaim("objective", stated, f"{found}, not proven", True)
    tried = exhaust(benefit, competition, coalitions, objective, fewest_members, deadline)
    better, how, searched = tried.better, "all partitions tried", False
    if not tried.complete and time.perf_counter() > deadline:
        found = f"{found}; not derived in {time_limit:g} s that none is better"
        return CheckedClaim("objective", stated, found, False)
    if not tried.complete and benefit.n > MOST_SEARCHED:
        found = f"{found}; that none is better is derived for up to {MOST_SEARCHED:,} participants"
        return CheckedClaim("objective", stated, found, False)
    if not tried.complete:
        try:
            again, proven = search()
        except MissingDependencyError as error:
            return CheckedClaim("objective", stated, f"{found}; not derived: {error}", False)
        better, how, searched = None, "proven by searching again", True
        if is_better(benefit, again, coalitions, objective):
            better = tuple(again)
        elif not proven:
            found = f"{found}; not derived in {time_limit:g} s that none is better"
            return CheckedClaim("objective", stated, found, False, searched)
    if better is not None:
        groups = [*map(named, better[:MOST_WITNESSES])]
        if len(better) > MOST_WITNESSES:
            groups.append(f"and {len(better) - MOST_WITNESSES:,} more")
        found = f"refuted; better is {' '.join(groups)}"
        return CheckedClaim("objective", stated, found, False, searched)
    return CheckedClaim("objective", stated, f"{found}, {how}", True, searched)
