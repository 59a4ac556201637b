"""A full opening, for an auditor: both graphs, all claims, and the secret that binds them."""

import os
from typing import Literal

from pydantic import Field

from fedegoists.coalitions import Certificate, CertificateCheck, CheckedClaim
from fedegoists.commitments import leaves
from fedegoists.commitments.disclosure import HASH, VERSION, Disclosure
from fedegoists.commitments.member_certificate import MemberCertificate
from fedegoists.commitments.merkle import tree
from fedegoists.errors import GraphError
from fedegoists.files import json_value, read_text


class Opening(Disclosure):
    """All content of a commitment. It names every competitor, so it is for an auditor only.

    `certificate` is the text of the certificate, letter by letter.
    """

    FORMAT = "fedegoists opening"

    format: Literal["fedegoists opening"] = "fedegoists opening"
    version: Literal[1] = VERSION
    context: str
    commitment: str
    secret: str = Field(pattern=HASH, repr=False)
    certificate: str = Field(repr=False)

    def check(
        self,
        commitment: str | None = None,
        *,
        time_limit: float = 10.0,
        fewest_members: int | None = None,
    ) -> CertificateCheck:
        """Derive the commitment again from the graphs, and all claims of the certificate.

        Parameters
        ----------
        commitment : str, optional
            The published commitment, as members have it; compared with this one's.
        time_limit : float
            Seconds for deriving the upper bound again.
        fewest_members : int, optional
            The fewest members that the consortium agreed on; the certificate must state
            the same.
        """
        certificate = Certificate.from_json(self.certificate, "the certificate of the opening")
        expected = self.commitment if commitment is None else commitment
        root = tree(leaves.hashed(bytes.fromhex(self.secret), certificate))[-1][0]
        digest = leaves.commitment_digest(
            self.context, certificate.benefit.participants, root, certificate.fewest_members
        )
        ok = digest == expected == self.commitment
        found = "yes" if ok else f"no: it belongs to {digest[:16]}…"
        bound = CheckedClaim("bound to the commitment", f"{expected[:16]}…", found, ok)
        check = certificate.check(time_limit=time_limit, fewest_members=fewest_members)
        return CertificateCheck((bound, *check.claims))


def read_disclosure(path: str | os.PathLike[str]) -> MemberCertificate | Opening | None:
    """Return a member's certificate or an auditor's opening; None if the file is neither."""
    text = read_text(path)
    if MemberCertificate.FORMAT not in text and Opening.FORMAT not in text:
        return None  # before a large certificate is parsed in vain
    try:
        data = json_value(text, str(path))
    except GraphError:
        return None
    form = data.get("format") if isinstance(data, dict) else None
    if form == MemberCertificate.FORMAT:
        return MemberCertificate.from_json(text, str(path))
    return Opening.from_json(text, str(path)) if form == Opening.FORMAT else None
