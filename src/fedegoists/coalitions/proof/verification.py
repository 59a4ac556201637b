"""Re-deriving what a certificate claims, with the independent checker where that is possible."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.coalitions.exact.best_partition import best_partition, prepare, quick_upper_bound
from fedegoists.coalitions.exact.incumbent import welfare_of
from fedegoists.coalitions.formation import positions
from fedegoists.coalitions.forming import form_best
from fedegoists.coalitions.principles import verify
from fedegoists.coalitions.proof.certificate_claims import Claim, principle_claims
from fedegoists.coalitions.proof.exhaustive_check import exhaust, is_better, objective_value
from fedegoists.errors import MissingDependencyError

if TYPE_CHECKING:
    from fedegoists.coalitions.proof.certificate import Certificate

__all__ = ["CertificateCheck", "CheckedClaim", "recheck"]

TOLERANCE = 1e-9


@dataclass(frozen=True)
class CheckedClaim:
    """What a certificate says, what came out on re-checking, and whether the two agree."""

    claim: str
    stated: str
    found: str
    ok: bool


@dataclass(frozen=True)
class CertificateCheck:
    """The result of re-deriving a certificate."""

    claims: tuple[CheckedClaim, ...]

    @property
    def ok(self) -> bool:
        """Whether the file is unchanged, everything it claims holds, and all checks pass."""
        return all(claim.ok for claim in self.claims)


def recheck(
    certificate: "Certificate", *, budget: int | None, time_limit: float
) -> CertificateCheck:
    """Re-derive everything a certificate claims; see `Certificate.check`."""
    verification = verify(
        certificate.benefit, certificate.competition, certificate.coalitions, budget=budget
    )
    results = [
        CheckedClaim(
            "unchanged",
            "yes",
            "; ".join(certificate.changed) or "yes",
            not certificate.changed,
        )
    ]
    stated = {claim.claim: claim for claim in certificate.claims}
    for found in principle_claims(verification):
        detail = found.status + "".join(f"; {w}" for w in found.witnesses)
        claim = stated[found.claim]
        results.append(
            CheckedClaim(
                found.claim,
                claim.status,
                detail,
                claim.status == found.status == "proven",
            )
        )
    results.append(_check_welfare(certificate, stated["welfare"]))
    results.append(_check_bound(certificate, stated["upper bound"], time_limit))
    if "objective" in stated:
        results.append(_check_objective(certificate, stated["objective"], time_limit))
    return CertificateCheck(tuple(results))


def _check_welfare(certificate: "Certificate", claim: Claim) -> CheckedClaim:
    partition = positions(certificate.coalitions, certificate.benefit.participants)
    welfare = welfare_of(certificate.benefit.weights, partition)
    assert claim.value is not None
    ok = math.isclose(claim.value, welfare, rel_tol=TOLERANCE)
    return CheckedClaim("welfare", f"{claim.value:.9g}", f"{welfare:.9g}", ok)


def _check_bound(certificate: "Certificate", claim: Claim, time_limit: float) -> CheckedClaim:
    """Derive an upper bound that is as low as the stated one, or a partition above it."""
    assert claim.value is not None
    weights, competition = certificate.benefit.weights, certificate.competition.matrix
    highest = claim.value * (1 + TOLERANCE)
    stated = f"{claim.value:.9g}"
    bound = quick_upper_bound(weights, competition)
    partition = positions(certificate.coalitions, certificate.benefit.participants)
    valid = verify(certificate.benefit, certificate.competition, certificate.coalitions, budget=0)
    if valid.free_riders or valid.conflicts:
        partition = [[i] for i in range(certificate.benefit.n)]
    reached = welfare_of(weights, partition)
    if highest >= bound >= reached * (1 - TOLERANCE):
        return CheckedClaim("upper bound", stated, f"at most {bound:.9g}", True)
    if bound > highest >= reached:
        try:
            prepare(weights, competition)
            optimum = best_partition(
                weights,
                competition,
                [partition],
                seconds=time_limit,
                deadline=time.perf_counter() + time_limit,
                seed=certificate.seed,
            )
        except MissingDependencyError as error:
            return CheckedClaim("upper bound", stated, f"not derived: {error}", False)
        reached = max(reached, welfare_of(weights, optimum.partition))
        bound = min(bound, optimum.upper_bound)
    if reached > highest:
        found = f"refuted; a valid partition reaches {reached:.9g}"
        return CheckedClaim("upper bound", stated, found, False)
    if bound < reached * (1 - TOLERANCE):
        found = f"not derived: at most {bound:.9g}, but a valid partition reaches {reached:.9g}"
        return CheckedClaim("upper bound", stated, found, False)
    if bound > highest:
        found = f"not derived in {time_limit:g} s; at most {bound:.9g} is sure"
        return CheckedClaim("upper bound", stated, found, False)
    return CheckedClaim("upper bound", stated, f"at most {bound:.9g}", True)


def _check_objective(certificate: "Certificate", claim: Claim, time_limit: float) -> CheckedClaim:
    """Judge the coalitions anew, and look for a better partition if none is claimed to be."""
    value = objective_value(certificate.benefit, certificate.coalitions, certificate.objective)
    unit = "alone" if certificate.objective == "participation" else "the least received"
    assert claim.value is not None
    stated = f"{claim.value:.9g} {unit}, {claim.status}"
    found = f"{value:.9g} {unit}"
    if not math.isclose(claim.value, value, rel_tol=TOLERANCE):
        return CheckedClaim("objective", stated, found, False)
    if claim.status != "proven":
        return CheckedClaim("objective", stated, f"{found}, not proven", True)
    tried = exhaust(
        certificate.benefit, certificate.competition, certificate.coalitions, certificate.objective
    )
    if tried.better is not None:
        return _refuted(stated, tried.better)
    if tried.complete:
        return CheckedClaim("objective", stated, f"{found}, all partitions tried", True)
    return _search_objective(certificate, stated, found, time_limit)


def _search_objective(
    certificate: "Certificate", stated: str, found: str, time_limit: float
) -> CheckedClaim:
    """Let the search prove the objective again, for a partition that is as good."""
    try:
        again = form_best(
            certificate.benefit,
            certificate.competition,
            certificate.seed,
            time_limit,
            objective=certificate.objective,
        )
    except MissingDependencyError as error:
        return CheckedClaim("objective", stated, f"{found}; not derived: {error}", False)
    if is_better(
        certificate.benefit, again.coalitions, certificate.coalitions, certificate.objective
    ):
        return _refuted(stated, again.coalitions)
    if not again.best_by_objective:
        found = f"{found}; not derived in {time_limit:g} s that none is better"
        return CheckedClaim("objective", stated, found, False)
    return CheckedClaim("objective", stated, f"{found}, proven by searching again", True)


def _refuted(stated: str, better: Iterable[Sequence[str]]) -> CheckedClaim:
    groups = " ".join(f"{{{', '.join(group)}}}" for group in better)
    return CheckedClaim("objective", stated, f"refuted; better is {groups}", False)
