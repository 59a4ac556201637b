"""Certificates: a formation with everything a third party needs to re-check it without trusting us.

A certificate is one JSON file. It holds both graphs and their SHA-256 in a canonical form, the
coalitions, and every claim with its status. Its last entry, ``sha256``, is taken over the file
itself with the 64 digits of that entry set to zeros, so that any changed byte shows.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from fedegoists.coalitions.exact.incumbent import welfare_of
from fedegoists.coalitions.formation import Formation, Method, Objective, positions
from fedegoists.coalitions.principles import DEFAULT_BUDGET, check_partition, verify
from fedegoists.coalitions.proof.certificate_claims import (
    CLAIMS,
    Claim,
    ClaimName,
    Status,
    objective_claims,
    principle_claims,
)
from fedegoists.coalitions.proof.verification import CertificateCheck, CheckedClaim, recheck
from fedegoists.errors import CertificateError, FedEgoistsError, GraphError
from fedegoists.files import read_text, write_bytes
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.interchange import json_value
from fedegoists.graphs.participants import shown
from fedegoists.version import __version__

__all__ = ["Certificate", "CertificateCheck", "CheckedClaim", "Claim", "Status"]

FORMAT = "fedegoists certificate"
VERSION = 1


@dataclass(frozen=True)
class Certificate:
    """A formation's claims, with all that is needed to re-derive them.

    Make one with `Formation.certificate`, write it with `save`, and re-check it with `check`, or on
    the command line with ``fedegoists verify certificate.json``.
    """

    benefit: BenefitGraph
    competition: CompetitionGraph
    method: Method
    seed: int
    coalitions: tuple[tuple[str, ...], ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    software: Mapping[str, str]
    objective: Objective = "welfare"
    changed: tuple[str, ...] = ()
    """What is found to be altered on reading a file; empty for an intact certificate."""

    # Making --------------------------------------------------------------------------------

    @classmethod
    def of(cls, formation: Formation, *, budget: int | None = DEFAULT_BUDGET) -> "Certificate":
        """Certify a formation; principles and stability are derived by the independent checker."""
        checked = verify(
            formation.benefit, formation.competition, formation.coalitions, budget=budget
        )
        return cls(
            benefit=formation.benefit,
            competition=formation.competition,
            method=formation.method,
            seed=formation.seed,
            coalitions=formation.coalitions,
            claims=(
                *principle_claims(checked),
                Claim("welfare", "proven", formation.welfare),
                Claim("upper bound", "proven", formation.upper_bound),
                *objective_claims(formation),
            ),
            notes=formation.notes,
            software=_software(),
            objective=formation.objective,
        )

    # Files ---------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the certificate as JSON text, digest included."""
        value = {
            "format": FORMAT,
            "version": VERSION,
            "method": self.method,
            "objective": self.objective,
            "seed": self.seed,
            "coalitions": self.coalitions,
            "claims": [
                {
                    key: item
                    for key, item in (
                        ("claim", claim.claim),
                        ("status", claim.status),
                        ("value", claim.value),
                        ("witnesses", claim.witnesses or None),
                    )
                    if item is not None
                }
                for claim in self.claims
            ],
            "notes": self.notes,
            "benefit": {**self.benefit.to_dict(), "sha256": self.benefit.sha256},
            "competition": {**self.competition.to_dict(), "sha256": self.competition.sha256},
            "software": dict(self.software),
            "sha256": "0" * 64,
        }
        blank = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        return blank.replace(f'"sha256": "{"0" * 64}"\n}}', f'"sha256": "{_digest(blank)}"\n}}')

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file that only its owner can read: it names competitors."""
        write_bytes(path, self.to_json().encode(), private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Certificate":
        """Read a certificate from a file; see `from_json`."""
        text = read_text(path)
        certificate = cls.from_json(text, str(path))
        if Path(path).stat().st_size != len(text.encode()):
            marked = "a byte-order mark was put in front"
            return replace(certificate, changed=(*certificate.changed, marked))
        return certificate

    @classmethod
    def from_json(cls, text: str, where: str = "certificate") -> "Certificate":
        """Read a certificate; anything altered that leaves it readable is kept for `check`.

        Raises
        ------
        CertificateError
            If the text is no certificate, or is damaged so that nothing can be checked.
        """
        try:
            data = json_value(text, where)
        except GraphError as error:
            raise CertificateError(str(error)) from None
        document = _validated(data, where)
        changed = []
        if _digest(text) != document["sha256"]:
            changed.append("the file's SHA-256 is not the one it states")
        try:
            graphs = {}
            for key in ("benefit", "competition"):
                content = dict(document[key])
                stated = content.pop("sha256")
                graph_type = BenefitGraph if key == "benefit" else CompetitionGraph
                graph = graph_type.from_dict(content, f"{where}, {key} graph")
                if graph.sha256 != stated:
                    changed.append(f"the SHA-256 of the {key} graph is not the one stated")
                graphs[key] = graph
            benefit, competition = graphs["benefit"], graphs["competition"]
            assert isinstance(benefit, BenefitGraph)
            assert isinstance(competition, CompetitionGraph)
            if benefit.participants != competition.participants:
                raise CertificateError(f"{where}: its two graphs are over different participants")
            coalitions = check_partition(document["coalitions"], benefit.participants)
        except CertificateError:
            raise
        except FedEgoistsError as error:
            altered = f" ({changed[0]})" if changed else ""
            raise CertificateError(f"{where}: {error}{altered}") from None
        return cls(
            benefit=benefit,
            competition=competition,
            method=document["method"],
            objective=document.get("objective", "welfare"),
            seed=document["seed"],
            coalitions=coalitions,
            claims=tuple(
                Claim(
                    item["claim"],
                    item["status"],
                    item.get("value"),
                    tuple(item.get("witnesses", ())),
                )
                for item in document["claims"]
            ),
            notes=tuple(document["notes"]),
            software=document["software"],
            changed=tuple(changed),
        )

    # Checking ------------------------------------------------------------------------------

    def check(
        self, *, budget: int | None = DEFAULT_BUDGET, time_limit: float = 10.0
    ) -> CertificateCheck:
        """Re-derive everything the certificate claims.

        Parameters
        ----------
        budget : int or None
            For merge-stability: how many sets of coalitions to look at; None means all.
        time_limit : float
            Seconds for deriving the upper bound again, where the quick bound is not enough, and
            as many for an objective where there are too many participants to try all partitions.
        """
        return recheck(self, budget=budget, time_limit=time_limit)

    def formation(self) -> Formation:
        """Return the formation this certifies, without its trace; claims are taken as stated."""
        stated = {claim.claim: claim for claim in self.claims}
        status = stated["merge-stable"].status
        groups = positions(self.coalitions, self.benefit.participants)
        welfare = welfare_of(self.benefit.weights, groups)
        return Formation(
            benefit=self.benefit,
            competition=self.competition,
            method=self.method,
            coalitions=self.coalitions,
            welfare=welfare,
            upper_bound=max(stated["upper bound"].value or 0.0, welfare),
            stable={"proven": True, "refuted": False}.get(status),
            seed=self.seed,
            notes=self.notes,
            objective=self.objective,
            best_by_objective="objective" in stated and stated["objective"].status == "proven",
        )


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


def _validated(data: object, where: str) -> dict[str, Any]:
    """Check the shape of a certificate; the graphs check their own content later."""
    from pydantic import BaseModel, ConfigDict, Field, ValidationError

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    class GraphModel(Strict):
        participants: list[str]
        sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    class BenefitModel(GraphModel):
        edges: list[list[str | float | int]]

    class CompetitionModel(GraphModel):
        pairs: list[list[str]]

    class ClaimModel(Strict):
        claim: ClaimName
        status: Status
        value: float | None = None
        witnesses: list[str] = Field(default_factory=list)

    class CertificateModel(Strict):
        format: Literal["fedegoists certificate"]
        version: Literal[1]
        method: Method
        objective: Objective = "welfare"
        seed: int = Field(ge=0)
        coalitions: list[list[str]]
        claims: list[ClaimModel]
        notes: list[str]
        benefit: BenefitModel
        competition: CompetitionModel
        software: dict[str, str]
        sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    if isinstance(data, dict) and data.get("format") == FORMAT and data.get("version") != VERSION:
        raise CertificateError(
            f"{where}: certificate version {data.get('version')!r}; this software reads version "
            f"{VERSION}. Use the version of fedegoists that wrote it"
        )
    try:
        document = CertificateModel.model_validate(data).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = " → ".join(shown(part) for part in first["loc"]) or "the file"
        raise CertificateError(f"{where}: not a certificate: {place}: {first['msg']}") from None
    names = [claim["claim"] for claim in document["claims"]]
    expected = CLAIMS if document.get("objective", "welfare") != "welfare" else CLAIMS[:-1]
    if names != list(expected):
        raise CertificateError(f"{where}: not a certificate: a claim is missing or out of order")
    for claim in document["claims"][:3]:
        if "value" in claim or ("witnesses" in claim) != (claim["status"] == "refuted"):
            raise CertificateError(
                f"{where}: the claim {claim['claim']!r} has witnesses only if refuted, and no value"
            )
    for claim in document["claims"][3:]:
        if claim.get("value") is None or claim["value"] < 0:
            raise CertificateError(f"{where}: the claim {claim['claim']!r} has no valid value")
        provable = claim["status"] == "proven" or (
            claim["claim"] == "objective" and claim["status"] == "not proven"
        )
        if not provable or "witnesses" in claim:
            raise CertificateError(f"{where}: the claim {claim['claim']!r} can only be proven")
    return document
