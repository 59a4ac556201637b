"""Certificates: a formation with all that a third party needs to check it without trusting us.

A certificate is one JSON file. It holds both graphs (or coalition values in place of the benefit
graph) and their SHA-256 in a canonical form, the coalitions, and every claim with its status. Its
last entry, ``sha256``, is taken over the file itself with the 64 digits of that entry set to zeros,
so that any changed byte shows.

The checks are in `proof`, which shares no code with the search. This module is above both: it
passes the search to the checks that need one.
"""

import hashlib
import json
import math
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedegoists.coalitions.exact.best_partition import best_partition, prepare
from fedegoists.coalitions.formation import Formation, positions
from fedegoists.coalitions.formation_options import FormationMethod, Objective
from fedegoists.coalitions.partition_search import search_best
from fedegoists.coalitions.principles import (
    CHECK_LIMIT,
    DEFAULT_BUDGET,
    Coalition,
    Verification,
    check_partition,
    verify,
)
from fedegoists.coalitions.proof.certificate_claims import (
    Claim,
    ClaimName,
    Status,
    principle_claims,
)
from fedegoists.coalitions.proof.coalition_listing import TooLateError
from fedegoists.coalitions.proof.exhaustive_check import objective_value
from fedegoists.coalitions.proof.price_proof import (
    PriceProof,
    SearchedBounds,
    last_places,
    proven_bound,
    states_optimum,
)
from fedegoists.coalitions.proof.strategy_proofness import reach_each_other
from fedegoists.coalitions.proof.value_exhaustion import MOST_TRIED, best_by_trying_all
from fedegoists.coalitions.proof.verification import (
    CertificateCheck,
    CheckedClaim,
    check_demand,
    check_objective,
    check_principles,
    check_proof,
    check_strategy_proof,
    check_upper_bound,
    check_welfare,
)
from fedegoists.coalitions.proving import prove
from fedegoists.coalitions.truthful_search import independent_groups
from fedegoists.coalitions.value_principles import Judge, likelihoods_of
from fedegoists.coalitions.welfare import welfare_by
from fedegoists.errors import (
    CertificateError,
    FedEgoistsError,
    MissingDependencyError,
    SettingsError,
)
from fedegoists.files import read_text, write_bytes
from fedegoists.graphs import BenefitGraph, CoalitionValues, CompetitionGraph, UncertainBenefits
from fedegoists.graphs.coalition_values import DEFAULT_CONFIDENCE, Benefits, pair_graph
from fedegoists.graphs.values_files import values_from_dict
from fedegoists.notebooks import data_frame, html_table
from fedegoists.version import __version__

if TYPE_CHECKING:
    from fedegoists.coalitions.proof.certificate_format import CertificateDocument


MOST_SEARCHED = 200
"""Certificates of earlier versions have no proof of their upper bound. For up to this many
participants the search is repeated; with more, it would not end in time."""


@dataclass(frozen=True)
class Certificate:
    """The claims of a formation, with all that is needed to derive them again.

    Make one with `Formation.certificate`, write it with `save`, and check it with `check`, or on
    the command line with ``fedegoists verify certificate.json``.
    """

    benefit: BenefitGraph
    competition: CompetitionGraph
    method: FormationMethod
    seed: int
    coalitions: tuple[Coalition, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    software: Mapping[str, str]
    objective: Objective = "welfare"
    fewest_members: int = 1
    changed: tuple[str, ...] = ()
    """The alterations found when the file was read; empty for an intact certificate."""
    values: CoalitionValues | None = None
    """The coalition values, if these decided; `benefit` then holds the gains of pairs alone."""
    confidence: float | None = None
    """With coalition values: the least probability of gaining that was demanded of each member."""
    doubt: Mapping[str, Any] | None = None
    """With uncertain benefits: probabilities, regret and the best measurement, as stated."""
    proof: tuple[PriceProof, ...] = ()
    """Prices that prove the upper bound, for components too large to compare all partitions."""

    @property
    def benefits(self) -> Benefits:
        """What decided: the coalition values, or else the benefit graph."""
        return self.benefit if self.values is None else self.values

    # Making --------------------------------------------------------------------------------

    @classmethod
    def of(cls, formation: Formation, *, budget: int | None = DEFAULT_BUDGET) -> "Certificate":
        """Certify a formation; principles and stability are derived by the independent checker."""
        benefit, coalitions = formation.benefit, formation.coalitions
        checked = _verified(formation, budget)
        proof = () if formation.values is not None else prove(formation)
        bound, notes = _stated_bound(formation, proof)
        claims = [
            *principle_claims(checked),
            *([_strategy_proof(formation)] if formation.method == "truthful" else []),
            Claim("welfare", "proven", formation.welfare),
            Claim("upper bound", "proven", bound),
        ]
        if formation.objective != "welfare":
            value = objective_value(benefit, coalitions, formation.objective)
            status: Status = "proven" if formation.best_by_objective else "not proven"
            claims.append(Claim("objective", status, value))
        return cls(
            benefit=benefit,
            competition=formation.competition,
            method=formation.method,
            seed=formation.seed,
            coalitions=coalitions,
            claims=tuple(claims),
            notes=notes,
            software=_software(),
            objective=formation.objective,
            fewest_members=formation.fewest_members,
            values=formation.values,
            confidence=formation.confidence,
            doubt=None if formation.doubt is None else formation.doubt.to_dict(),
            proof=proof,
        )

    # Notebooks -----------------------------------------------------------------------------

    def to_frame(self) -> Any:
        """Return a pandas data frame of the claims: claim, status, value, witnesses."""
        rows = [(one.claim, one.status, one.value, one.witnesses) for one in self.claims]
        return data_frame(("claim", "status", "value", "witnesses"), rows)

    def _repr_html_(self) -> str:
        title = "Certificate" if not self.changed else "Certificate, ALTERED after it was made"
        rows = [(one.claim, one.status, one.value, "; ".join(one.witnesses)) for one in self.claims]
        return html_table(title, ("claim", "status", "value", "witnesses"), rows)

    # Files ---------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the certificate as JSON text, digest included."""
        value = {
            "format": "fedegoists certificate",
            "version": 1,
            "method": self.method,
            "objective": self.objective,
            # Absent where nothing is demanded, as in certificates of earlier versions.
            **({"fewest_members": self.fewest_members} if self.fewest_members > 1 else {}),
            "seed": self.seed,
            "coalitions": self.coalitions,
            "claims": [
                {key: item for key, item in vars(claim).items() if item not in (None, ())}
                for claim in self.claims
            ],
            "notes": self.notes,
            **({"proof": [entry.to_dict() for entry in self.proof]} if self.proof else {}),
            **self._sealed_benefits(),
            "competition": {**self.competition.to_dict(), "sha256": self.competition.sha256},
            "software": dict(self.software),
            "sha256": "0" * 64,
        }
        blank = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        return blank.replace(f'"sha256": "{"0" * 64}"\n}}', f'"sha256": "{_digest(blank)}"\n}}')

    def _sealed_benefits(self) -> dict[str, object]:
        if self.values is None:
            return {"benefit": {**self.benefit.to_dict(), "sha256": self.benefit.sha256}}
        values = {**self.values.to_dict(), "sha256": self.values.sha256}
        doubt = {} if self.doubt is None else {"doubt": self.doubt}
        return {"confidence": self.confidence, **doubt, "values": values}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file that only its owner can read: it names competitors."""
        write_bytes(path, self.to_json().encode(), private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Certificate":
        """Read a certificate from a file; see `from_json`."""
        text = read_text(path)
        certificate = cls.from_json(text, str(path))
        if str(path) != "-" and Path(path).stat().st_size != len(text.encode()):
            marked = "a byte-order mark was put in front"
            return replace(certificate, changed=(*certificate.changed, marked))
        return certificate

    @classmethod
    def from_json(cls, text: str, where: str = "certificate") -> "Certificate":
        """Read a certificate; alterations that leave it readable are kept for `check`.

        Raises
        ------
        CertificateError
            If the text is no certificate, or is damaged so that nothing can be checked.
        """
        from fedegoists.coalitions.proof.certificate_format import read_document  # needs pydantic

        document = read_document(text, where)
        changed = []
        if _digest(text) != document.sha256:
            changed.append("the file's SHA-256 is not the one it states")
        try:
            benefits, name = _read_benefits(document, where)
            competition = CompetitionGraph.from_dict(
                document.competition.content, f"{where}, competition graph"
            )
            stated = document.values or document.benefit
            if stated is not None and benefits.sha256 != stated.sha256:
                changed.append(f"the SHA-256 of the {name} is not the one stated")
            if competition.sha256 != document.competition.sha256:
                changed.append("the SHA-256 of the competition graph is not the one stated")
            if benefits.participants != competition.participants:
                raise CertificateError("its two graphs are over different participants")
            coalitions = check_partition(document.coalitions, benefits.participants)
        except FedEgoistsError as error:
            altered = f" ({changed[0]})" if changed else ""
            raise CertificateError(f"{where}: {error}{altered}") from None
        graph = benefits if isinstance(benefits, BenefitGraph) else pair_graph(benefits)
        return cls(
            benefit=graph,
            competition=competition,
            method=document.method,
            objective=document.objective,
            fewest_members=document.fewest_members,
            seed=document.seed,
            coalitions=coalitions,
            claims=tuple(
                Claim(item.claim, item.status, item.value, tuple(item.witnesses))
                for item in document.claims
            ),
            notes=tuple(document.notes),
            software=document.software,
            changed=tuple(changed),
            values=None if isinstance(benefits, BenefitGraph) else benefits,
            confidence=document.confidence,
            doubt=None if document.doubt is None else document.doubt.model_dump(),
            proof=tuple(entry.content for entry in document.proof),
        )

    # Checking ------------------------------------------------------------------------------

    def check(
        self,
        *,
        budget: int | None = DEFAULT_BUDGET,
        time_limit: float = CHECK_LIMIT,
        fewest_members: int | None = None,
    ) -> CertificateCheck:
        """Derive all claims of the certificate again.

        Parameters
        ----------
        budget : int or None
            For merge-stability: how many sets of coalitions to look at; None means all.
        time_limit : float
            Seconds for the whole check. The proof of the upper bound takes less than a second for
            two dozen participants, and up to some four seconds for each component of 50 to 100.
            A search has to be repeated for certificates of earlier versions, for coalition values,
            and for an objective with too many participants to try all partitions.
        fewest_members : int, optional
            The fewest members that the consortium agreed on; the certificate must state
            the same. A certificate alone cannot show that nothing else was agreed on.
        """
        deadline = time.perf_counter() + time_limit
        verification = _verified(self, budget, deadline)
        stated = {claim.claim: claim for claim in self.claims}
        groups = positions(self.coalitions, self.benefit.participants)
        altered = "; ".join(self.changed) or "yes"
        checked = [
            CheckedClaim("unchanged", "yes", altered, not self.changed),
            *(
                []
                if fewest_members is None
                else [check_demand(self.fewest_members, fewest_members)]
            ),
            *check_principles(stated, verification, may_merge=self.method == "truthful"),
            *self._check_strategy_proof(stated),
            check_welfare(
                stated["welfare"], welfare_by(self.benefits, groups), exact=self.values is None
            ),
        ]
        if verification.violations:
            groups = [[i] for i in range(self.benefit.n)]  # everybody alone is always valid
        claim, reached = stated["upper bound"], welfare_by(self.benefits, groups)
        checked.append(self._check_bound(claim, reached, groups, deadline))
        if "objective" in stated:
            checked.append(
                check_objective(
                    stated["objective"],
                    self.benefit,
                    self.competition,
                    self.coalitions,
                    self.objective,
                    lambda: self._search_objective(max(deadline - time.perf_counter(), 0.01)),
                    time_limit,
                    self.fewest_members,
                    deadline,
                )
            )
        if self.doubt is not None:
            checked += self._check_doubt(deadline)
        return CertificateCheck(tuple(checked))

    def _check_strategy_proof(self, stated: Mapping[ClaimName, Claim]) -> list[CheckedClaim]:
        """Derive the groups of method ``truthful`` and its coalitions again."""
        if self.method != "truthful":
            return []
        claim = stated["strategy-proof"]
        try:
            groups = _groups_of(self.competition)
        except SettingsError as error:
            return [CheckedClaim(claim.claim, claim.status, f"not derived: {error}", False)]
        return [check_strategy_proof(claim, self.benefit, self.coalitions, groups)]

    def _check_doubt(self, deadline: float) -> tuple[CheckedClaim, ...]:
        """Derive the probabilities, the regret and the worth of the measurement again."""
        from fedegoists.coalitions.proof.doubt_check import DoubtCheck, StatedDoubt

        assert isinstance(self.values, UncertainBenefits)
        assert self.confidence is not None
        plain = json.loads(json.dumps(self.doubt))  # of tuples, lists
        return DoubtCheck(
            StatedDoubt.model_validate(plain),
            likelihoods_of(self.values),
            self.coalitions,
            self.competition.competes,
            self.confidence,
            self.fewest_members,
        ).claims(lambda: time.perf_counter() > deadline)

    def _check_bound(
        self, claim: Claim, reached: float, groups: list[list[int]], deadline: float
    ) -> CheckedClaim:
        """Confirm the upper bound from its proof, or search again where there is none."""
        time_limit = max(deadline - time.perf_counter(), 0.01)
        if self.values is not None:
            from fedegoists.coalitions.value_partition_search import quick_value_bound

            return check_upper_bound(
                claim,
                reached,
                quick_value_bound(self.values, self.competition),
                lambda: self._search_value_bound(groups, time_limit),
                time_limit,
                all_tried=len(self.values.participants) <= MOST_TRIED,
            )
        # Certificates of earlier versions have no proof; the search then has to be repeated.
        old = not self.proof and self.benefit.n <= MOST_SEARCHED
        try:
            proven = proven_bound(
                self.benefit,
                self.competition,
                _named(groups, self.benefit.participants),
                self.proof,
                fewest_members=self.fewest_members,
                enough=claim.value or 0.0,
                deadline=deadline,
                search=(lambda: self._search_bounds(groups, time_limit)) if old else None,
            )
        except TooLateError:
            found = "not confirmed within the time limit"
            return CheckedClaim("upper bound", f"{claim.value:.9g}", found, False)
        except MissingDependencyError as error:
            return CheckedClaim("upper bound", f"{claim.value:.9g}", f"not derived: {error}", False)
        return check_proof(claim, reached, proven, f"not derived in {time_limit:g} s")

    def _search_bounds(self, groups: list[list[int]], time_limit: float) -> SearchedBounds:
        """Search again, from a valid partition, for bounds of all components."""
        weights, competition = self.benefit.entries, self.competition.entries
        prepare(weights, competition, self.fewest_members)
        deadline = time.perf_counter() + time_limit
        optimum = best_partition(
            weights,
            competition,
            [groups],
            seconds=time_limit,
            deadline=deadline,
            seed=self.seed,
            fewest_members=self.fewest_members,
        )
        names = self.benefit.participants
        bounds = {frozenset(names[k] for k in members): bound for members, bound in optimum.bounds}
        return SearchedBounds(_named(optimum.partition, names), bounds)

    def _search_value_bound(
        self, groups: list[list[int]], time_limit: float
    ) -> tuple[float, float]:
        """Try all partitions of a few participants; search again with more."""
        assert self.values is not None
        assert self.confidence is not None
        if len(self.values.participants) <= MOST_TRIED:
            judge = Judge(self.values, self.competition, self.confidence, self.fewest_members)
            best, _ = best_by_trying_all(judge)
            return best, best
        from fedegoists.coalitions.value_partition_search import value_bound

        return value_bound(
            self.values,
            self.competition,
            groups,
            confidence=self.confidence,
            seed=self.seed,
            time_limit=time_limit,
            fewest_members=self.fewest_members,
        )

    def _search_objective(self, time_limit: float) -> tuple[list[Coalition], bool]:
        found = search_best(
            self.benefit,
            self.competition,
            seed=self.seed,
            time_limit=time_limit,
            objective=self.objective,
            fewest_members=self.fewest_members,
        )
        coalitions = _named(found.partition, self.benefit.participants)
        return list(coalitions), found.best_by_objective

    def formation(self) -> Formation:
        """Return the certified formation, without its trace; claims are taken as stated."""
        stated = {claim.claim: claim for claim in self.claims}
        groups = positions(self.coalitions, self.benefit.participants)
        reached = welfare_by(self.benefits, groups)
        status = stated["merge-stable"].status
        return Formation(
            benefit=self.benefit,
            competition=self.competition,
            method=self.method,
            coalitions=self.coalitions,
            welfare=reached,
            upper_bound=max(stated["upper bound"].value or 0.0, reached),
            stable={"proven": True, "refuted": False}.get(status),
            seed=self.seed,
            notes=self.notes,
            objective=self.objective,
            best_by_objective="objective" in stated and stated["objective"].status == "proven",
            fewest_members=self.fewest_members,
            values=self.values,
            confidence=self.confidence,
            **(
                {}
                if self.doubt is None
                else {"risk": self.doubt["risk"], "scenarios": self.doubt["scenarios"]}
            ),
            prices=self.proof,
            # Bounds of coalition values are totals, rounded up a little.
            closed=None
            if self.values is not None
            else states_optimum(stated["upper bound"].value or 0.0, reached),
        )


def _stated_bound(
    formation: Formation, proof: tuple[PriceProof, ...]
) -> tuple[float, tuple[str, ...]]:
    """Return the upper bound to state, the lowest that is proven, and the notes.

    Where the search knows a lower one, a note says so.
    """
    searched = formation.upper_bound
    if formation.values is not None:
        return searched, formation.notes
    proven = proven_bound(
        formation.benefit,
        formation.competition,
        formation.coalitions,
        proof,
        fewest_members=formation.fewest_members,
        enough=searched,
    )
    if proven.closed:
        return formation.welfare, formation.notes
    claims_optimum = states_optimum(searched, formation.welfare)
    if proven.welfare <= Fraction(searched) + last_places(searched) and not claims_optimum:
        return searched, formation.notes
    bound = math.nextafter(float(proven.welfare), math.inf)
    while states_optimum(bound, formation.welfare):  # some gap is smaller than the sum is rounded
        bound = math.nextafter(bound, math.inf)
    if not claims_optimum and math.isclose(bound, searched, rel_tol=1e-9):
        return bound, formation.notes
    note = (
        f"the search bounds the welfare by {searched:.9g}, which has no proof that is short enough "
        f"to be checked; this certificate proves {bound:.9g}"
    )
    return bound, (*formation.notes, note)


def _strategy_proof(formation: Formation) -> Claim:
    """Claim that no participant gains by misreporting, if the coalitions are derived again."""
    groups = _groups_of(formation.competition)
    derived = reach_each_other(formation.benefit, groups)
    same = derived == set(map(frozenset, formation.coalitions))
    return Claim("strategy-proof", "proven" if same else "not proven")


def _groups_of(competition: CompetitionGraph) -> list[Coalition]:
    """Return the groups of method ``truthful``, which depend on the competition graph alone."""
    groups, _ = independent_groups(competition)
    return list(_named(groups, competition.participants))


def _named(groups: Iterable[Iterable[int]], names: Sequence[str]) -> tuple[Coalition, ...]:
    """Return groups of positions as coalitions."""
    return tuple(tuple(names[k] for k in group) for group in groups)


def _verified(
    decision: Formation | Certificate, budget: int | None, deadline: float = math.inf
) -> Verification:
    """Check the coalitions of a decision by the independent checker."""
    return verify(
        decision.benefits,
        decision.competition,
        decision.coalitions,
        budget=budget,
        fewest_members=decision.fewest_members,
        confidence=decision.confidence or DEFAULT_CONFIDENCE,
        deadline=deadline,
    )


def _read_benefits(document: "CertificateDocument", where: str) -> tuple[Benefits, str]:
    """Return the benefit graph or the coalition values of a certificate, and its name."""
    if document.values is not None:
        name = "coalition values"
        return values_from_dict(document.values.content, f"{where}, {name}"), name
    assert document.benefit is not None
    name = "benefit graph"
    return BenefitGraph.from_dict(document.benefit.content, f"{where}, {name}"), name


def _software() -> dict[str, str]:
    versions = {"fedegoists": __version__, "python": platform.python_version()}
    for package in ("numpy", "ortools"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _digest(text: str) -> str:
    """Return the SHA-256 of a certificate with the digits of its last entry set to zeros."""
    blank = re.sub(r'("sha256":\s*")[0-9a-f]{64}("\s*\}\s*)\Z', rf"\g<1>{'0' * 64}\g<2>", text)
    return hashlib.sha256(blank.encode()).hexdigest()
