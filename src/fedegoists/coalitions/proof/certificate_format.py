"""The JSON format of certificates; reading one checks its shape, not yet its claims."""

import json
import sys
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedegoists.coalitions.formation_options import FormationMethod, Objective
from fedegoists.coalitions.proof.certificate_claims import ClaimName, Status, expected_claims
from fedegoists.coalitions.proof.coalition_listing import MOST_TRIPLES
from fedegoists.coalitions.proof.doubt_check import StatedDoubt
from fedegoists.coalitions.proof.price_proof import PriceProof
from fedegoists.coalitions.proof.sealed_parts import ListOf, SealedPart, TextsByName
from fedegoists.errors import CertificateError, first_problem, shown
from fedegoists.files import json_value

VERSION = 1


class _SealedGraph(SealedPart):
    # The graphs check their content themselves, at the first error and without copies.
    participants: list[Any]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @property
    def content(self) -> dict[str, object]:
        """The graph as `from_dict` takes it."""
        return {name: value for name, value in self if name != "sha256"}


class _SealedBenefit(_SealedGraph):
    edges: list[Any]


class _SealedCompetition(_SealedGraph):
    pairs: list[Any]


class _SealedValues(BaseModel):
    """Coalition values; `values_from_dict` checks all but the digest."""

    model_config = ConfigDict(extra="allow", strict=True)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @property
    def content(self) -> dict[str, object]:
        """The values as `values_from_dict` takes them."""
        return self.model_dump(exclude={"sha256"})


class _SealedClaim(SealedPart):
    claim: ClaimName
    status: Status
    value: float | None = None
    witnesses: ListOf[str] = Field(default_factory=list)


class _SealedPrices(SealedPart):
    members: ListOf[str] = Field(min_length=1)
    prices: ListOf[float | int]
    at_most: float | int
    triples: ListOf[ListOf[str | float | int]] = Field(
        default_factory=list, max_length=MOST_TRIPLES
    )
    rows: ListOf[str] = Field(default_factory=list)
    row_prices: ListOf[float | int] = Field(default_factory=list)

    @property
    def content(self) -> PriceProof:
        """The entry of the proof; the checker judges its content."""
        return PriceProof(
            members=tuple(self.members),
            prices=tuple(map(float, self.prices)),
            at_most=float(self.at_most),
            triples=tuple((str(a), str(b), str(c)) for a, b, c, _ in self.triples),
            triple_prices=tuple(float(entry[3]) for entry in self.triples),
            rows=tuple(self.rows),
            row_prices=tuple(map(float, self.row_prices)),
        )


class CertificateDocument(SealedPart):
    """The content of a certificate file."""

    format: Literal["fedegoists certificate"]
    version: Literal[1]
    method: FormationMethod
    objective: Objective = "welfare"
    fewest_members: int = Field(default=1, ge=1)
    seed: int = Field(ge=0)
    coalitions: ListOf[ListOf[str]]
    claims: ListOf[_SealedClaim]
    notes: ListOf[str]
    proof: ListOf[_SealedPrices] = Field(default_factory=list)
    benefit: _SealedBenefit | None = None
    values: _SealedValues | None = None
    confidence: float | None = Field(default=None, ge=0.5, lt=1)
    doubt: StatedDoubt | None = None
    competition: _SealedCompetition
    software: TextsByName
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


def read_document(text: str, where: str) -> CertificateDocument:
    """Parse a certificate.

    Raises
    ------
    CertificateError
        If the text is no certificate, is of another version, or has claims that contradict
        themselves.
    """
    data = json_value(text, where, CertificateError)
    try:
        if "\\ud" in text.lower():  # the escape of a half
            json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise CertificateError(
            f"{where}: not a certificate: a text has half of a character (a lone surrogate), which "
            "no file or screen takes"
        ) from None
    if (
        isinstance(data, dict)
        and data.get("format") == "fedegoists certificate"
        and data.get("version") != VERSION
    ):
        raise CertificateError(
            f"{where}: certificate version {shown(data.get('version'))}; this software reads "
            f"version {VERSION}. Use the version of fedegoists that wrote it"
        )
    try:
        document = CertificateDocument.model_validate(data)
    except ValidationError as error:
        problem = first_problem(error)
        raise CertificateError(f"{where}: not a certificate: {problem}") from None
    has = [document.benefit is not None, document.values is not None]
    if has != [document.confidence is None, document.confidence is not None]:
        raise CertificateError(
            f"{where}: not a certificate: expected either a benefit graph, or coalition values and "
            "the confidence demanded"
        )
    kind = None if document.values is None else document.values.content.get("kind")
    if (kind == "uncertain benefits") != (document.doubt is not None):
        raise CertificateError(
            f"{where}: not a certificate: uncertain benefits and a statement about doubt belong "
            "together"
        )
    if document.doubt is not None and document.doubt.seed != document.seed:
        raise CertificateError(f"{where}: not a certificate: two different seeds")
    if document.values is not None and (document.method, document.objective) != ("best", "welfare"):
        raise CertificateError(
            f"{where}: not a certificate: coalition values are decided by method 'best' and the "
            "objective 'welfare' only"
        )
    _check_proof(document, where)
    if document.method == "truthful" and (
        document.fewest_members > 2 or document.objective != "welfare"
    ):
        raise CertificateError(
            f"{where}: not a certificate: method 'truthful' knows neither a demanded number of "
            "members nor another objective than welfare"
        )
    if document.values is not None and document.proof:
        raise CertificateError(
            f"{where}: not a certificate: prices prove a bound on a benefit graph, not on "
            "coalition values"
        )
    _check_claims(document, where)
    return document


def _check_proof(document: CertificateDocument, where: str) -> None:
    """Refuse entries of a proof that are of another type, or numbers that no float takes."""
    for number, entry in enumerate(document.proof):
        kinds = [[isinstance(one, str) for one in triple] for triple in entry.triples]
        if any(kind != [True, True, True, False] for kind in kinds):
            raise CertificateError(
                f"{where}: not a certificate: 'proof' → {number} → 'triples': expected three names "
                "and a price"
            )
        numbers = [*entry.prices, entry.at_most, *entry.row_prices]
        numbers += [one for triple in entry.triples for one in triple if not isinstance(one, str)]
        if any(abs(one) > sys.float_info.max for one in numbers):
            raise CertificateError(
                f"{where}: not a certificate: 'proof' → {number}: a number is too large"
            )


def _check_claims(document: CertificateDocument, where: str) -> None:
    """Refuse claims that contradict themselves."""
    expected = expected_claims(
        document.fewest_members, document.objective, document.confidence, document.method
    )
    if [claim.claim for claim in document.claims] != expected:
        raise CertificateError(f"{where}: not a certificate: a claim is missing or out of order")
    valued = expected.index("welfare")  # the first claim that has a value
    for claim in document.claims[:valued]:
        given = claim.model_fields_set
        if "value" in given or ("witnesses" in given) != (claim.status == "refuted"):
            raise CertificateError(
                f"{where}: the claim {claim.claim!r} has witnesses only if refuted, and no value"
            )
    for claim in document.claims[valued:]:
        if claim.value is None or claim.value < 0:
            raise CertificateError(f"{where}: the claim {claim.claim!r} has no valid value")
        provable = claim.status == "proven" or (
            claim.claim == "objective" and claim.status == "not proven"
        )
        if not provable or "witnesses" in claim.model_fields_set:
            raise CertificateError(f"{where}: the claim {claim.claim!r} can only be proven")
