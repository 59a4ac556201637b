"""A full opening, for an auditor: both graphs, all claims, and the secret that binds them."""

import json
import os
from dataclasses import dataclass, field

from fedegoists.coalitions import Certificate, CertificateCheck, CheckedClaim
from fedegoists.commitments import leaves
from fedegoists.commitments.merkle import DIGEST_BYTES, tree
from fedegoists.errors import CertificateError, GraphError
from fedegoists.files import read_text, write_bytes
from fedegoists.graphs.interchange import json_value

__all__ = ["FORMAT", "Opening"]

FORMAT = "fedegoists opening"
VERSION = 1


@dataclass(frozen=True)
class Opening:
    """Everything a commitment hides. It names every competitor, so it is for an auditor only."""

    context: str
    secret: bytes = field(repr=False)
    certificate: Certificate
    commitment: str

    def to_json(self) -> str:
        """Return the opening as JSON text; the certificate is in it letter by letter."""
        value = {
            "format": FORMAT,
            "version": VERSION,
            "context": self.context,
            "commitment": self.commitment,
            "secret": self.secret.hex(),
            "certificate": self.certificate.to_json(),
        }
        return json.dumps(value, ensure_ascii=False, indent=1) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the opening to a file that only its owner can read."""
        write_bytes(path, self.to_json().encode(), private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Opening":
        """Read an opening from a file."""
        return cls.from_json(read_text(path), str(path))

    @classmethod
    def from_json(cls, text: str, where: str = "opening") -> "Opening":
        """Read an opening from JSON text; anything that is not one is a `CertificateError`."""
        try:
            data = json_value(text, where)
        except GraphError as error:
            raise CertificateError(str(error)) from None
        keys = ("context", "commitment", "secret", "certificate")
        if (
            not isinstance(data, dict)
            or set(data) != {"format", "version", *keys}
            or (data["format"], data["version"]) != (FORMAT, VERSION)
            or not all(isinstance(data[key], str) for key in keys)
        ):
            raise CertificateError(f"{where}: not a {FORMAT} of version {VERSION}")
        try:
            secret = bytes.fromhex(data["secret"])
        except ValueError:
            secret = b""
        if len(secret) != DIGEST_BYTES:
            raise CertificateError(f"{where}: its secret is not {DIGEST_BYTES} hexadecimal bytes")
        certificate = Certificate.from_json(data["certificate"], f"{where}, certificate")
        return cls(data["context"], secret, certificate, data["commitment"])

    def check(self, commitment: str | None = None, *, time_limit: float = 10.0) -> CertificateCheck:
        """Re-derive the commitment from the graphs, and everything the certificate claims.

        Parameters
        ----------
        commitment : str, optional
            The published commitment, as members have it; compared with this one's.
        time_limit : float
            Seconds for deriving the upper bound again.
        """
        expected = self.commitment if commitment is None else commitment
        root = tree(leaves.hashed(self.secret, self.certificate))[-1][0]
        participants = self.certificate.benefit.participants
        digest = leaves.commitment_digest(self.context, participants, root)
        ok = digest == expected == self.commitment
        found = "yes" if ok else f"no: it belongs to {digest[:16]}…"
        bound = CheckedClaim("bound to the commitment", f"{expected[:16]}…", found, ok)
        return CertificateCheck((bound, *self.certificate.check(time_limit=time_limit).claims))
