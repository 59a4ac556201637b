"""A member's certificate: proof that the principles hold for it, without what others reported.

It opens the member's coalition as it is committed to for everybody in it, the benefits between the
member and the others in it, that the member competes with none of them, and that the competitors
the member itself reported are counted. All other entries of the graphs stay hidden behind salted
hashes. Checking it needs nothing but this file and the published commitment.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedegoists.coalitions import CertificateCheck, CheckedClaim
from fedegoists.commitments import leaves
from fedegoists.commitments.merkle import DIGEST_BYTES, leaf_hash, root_from
from fedegoists.errors import CertificateError, GraphError
from fedegoists.files import read_text, write_bytes
from fedegoists.graphs.interchange import json_value
from fedegoists.graphs.participants import MAX_PARTICIPANTS

__all__ = ["FORMAT", "MemberCertificate", "OpenedEntry"]

FORMAT = "fedegoists member certificate"
VERSION = 1

HASH = r"^[0-9a-f]{64}$"


@dataclass(frozen=True)
class OpenedEntry:
    """One entry of the commitment, with the salt that lets anybody hash it."""

    key: leaves.Key
    value: leaves.Value
    salt: bytes = field(repr=False)


class _EntryFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    key: list[str | int] = Field(max_length=3)
    value: str | bool | list[int]
    salt: str = Field(pattern=HASH)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    format: str
    version: int
    context: str
    participants: list[str] = Field(max_length=MAX_PARTICIPANTS)
    member: str
    coalition: list[str]
    reported: list[str]
    commitment: str = Field(pattern=HASH)
    opened: list[_EntryFile]
    proof: list[str]


@dataclass(frozen=True)
class MemberCertificate:
    """What a member needs to check a decision as far as it concerns it.

    Make one with `Commitment.member_certificate`, write it with `save`, and check it with `check`,
    or on the command line with ``fedegoists verify certificate.json``.
    """

    context: str
    participants: tuple[str, ...]
    member: str
    coalition: tuple[str, ...]
    reported: tuple[str, ...]
    commitment: str
    opened: tuple[OpenedEntry, ...]
    proof: tuple[bytes, ...] = field(repr=False)

    # Files ---------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the certificate as JSON text."""
        entries = [
            _EntryFile.model_construct(key=list(e.key), value=e.value, salt=e.salt.hex())
            for e in self.opened
        ]
        file = _File.model_construct(
            format=FORMAT,
            version=VERSION,
            context=self.context,
            participants=list(self.participants),
            member=self.member,
            coalition=list(self.coalition),
            reported=list(self.reported),
            commitment=self.commitment,
            opened=entries,
            proof=[digest.hex() for digest in self.proof],
        )
        return file.model_dump_json(indent=1, warnings=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file that only its owner can read."""
        write_bytes(path, self.to_json().encode(), private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MemberCertificate":
        """Read a certificate from a file."""
        return cls.from_json(read_text(path), str(path))

    @classmethod
    def from_json(cls, text: str, where: str = "member certificate") -> "MemberCertificate":
        """Read a certificate from JSON text.

        Raises
        ------
        CertificateError
            If the text is no member certificate, or is damaged so that nothing can be checked.
        """
        try:
            file = _File.model_validate(json_value(text, where))
            proof = tuple(bytes.fromhex(digest) for digest in file.proof)
        except GraphError as error:
            raise CertificateError(str(error)) from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise CertificateError(f"{where}: {place}: {first['msg']}") from None
        except ValueError:
            raise CertificateError(
                f"{where}: the proof is not made of hexadecimal hashes"
            ) from None
        if (file.format, file.version) != (FORMAT, VERSION):
            raise CertificateError(f"{where}: not a {FORMAT} of version {VERSION}")
        if any(len(digest) != DIGEST_BYTES for digest in proof):
            raise CertificateError(f"{where}: the proof holds a hash of another length")
        return cls(
            context=file.context,
            participants=tuple(file.participants),
            member=file.member,
            coalition=tuple(file.coalition),
            reported=tuple(file.reported),
            commitment=file.commitment,
            opened=tuple(
                OpenedEntry(
                    tuple(e.key),
                    tuple(e.value) if isinstance(e.value, list) else e.value,
                    bytes.fromhex(e.salt),
                )
                for e in file.opened
            ),
            proof=proof,
        )

    # Checking ------------------------------------------------------------------------------

    def check(
        self, commitment: str | None = None, reported: Sequence[str] | None = None
    ) -> CertificateCheck:
        """Check everything that the certificate shows.

        Parameters
        ----------
        commitment : str, optional
            The published commitment, as other members have it too; compared with this one's.
        reported : names, optional
            Whom the member did report; each must be counted.
        """
        known: Mapping[leaves.Key, leaves.Value] = {e.key: e.value for e in self.opened}
        claims = [self._bound(commitment)]
        place = {name: k for k, name in enumerate(self.participants)}
        named = {self.member, *self.coalition, *self.reported}
        if len(place) != len(self.participants) or not named <= place.keys():
            claims.append(CheckedClaim("names", "known, each once", "not so", False))
            return CertificateCheck(tuple(claims))
        own = place[self.member]
        others = [place[name] for name in self.coalition if name != self.member]
        claims += [
            self._same_coalition(known, place),
            self._no_free_riding(known, own, others),
            self._no_conflict(known, own, others),
            self._counted(known, own, place, self.reported if reported is None else reported),
        ]
        return CertificateCheck(tuple(claims))

    def _bound(self, commitment: str | None) -> CheckedClaim:
        """Whether all that is opened belongs to the commitment that everybody was given."""
        expected = self.commitment if commitment is None else commitment
        n = len(self.participants)
        found = "yes"
        hashes: dict[int, bytes] = {}
        for entry in self.opened:
            position = leaves.position_of(entry.key, n)
            if position is None or position in hashes:
                found = f"no: there is no entry {entry.key}, or it is opened twice"
                break
            hashes[position] = leaf_hash(entry.salt, leaves.content_of(entry.key, entry.value))
        else:
            try:
                root = root_from(hashes, leaves.size_for(n), self.proof)
            except CertificateError as error:
                found = f"no: {error}"
            else:
                digest = leaves.commitment_digest(self.context, self.participants, root)
                if not digest == expected == self.commitment:
                    found = f"no: it belongs to {digest[:16]}…"
        return CheckedClaim("bound to the commitment", f"{expected[:16]}…", found, found == "yes")

    def _same_coalition(
        self, known: Mapping[leaves.Key, leaves.Value], place: Mapping[str, int]
    ) -> CheckedClaim:
        together = tuple(sorted(place[name] for name in self.coalition))
        agreed = all(known.get(("coalition", p)) == together for p in together)
        ok = agreed and self.member in self.coalition
        found = "the same for everybody in it" if ok else "not the same for everybody in it"
        return CheckedClaim("coalition", ", ".join(self.coalition), found, ok)

    def _no_free_riding(
        self, known: Mapping[leaves.Key, leaves.Value], own: int, others: Sequence[int]
    ) -> CheckedClaim:
        if not others:
            return CheckedClaim("no free riders", "proven", "alone: nobody is used", True)
        try:
            gets = sum(weight_of(known, p, own) > 0 for p in others)
            gives = sum(weight_of(known, own, p) > 0 for p in others)
        except ValueError as error:
            return CheckedClaim("no free riders", "proven", str(error), False)
        found = f"{self.member} benefits from {gets} and benefits {gives} of {len(others)}"
        return CheckedClaim("no free riders", "proven", found, bool(gets and gives))

    def _no_conflict(
        self, known: Mapping[leaves.Key, leaves.Value], own: int, others: Sequence[int]
    ) -> CheckedClaim:
        open_pairs = [known.get(("competition", *sorted((own, p)))) for p in others]
        ok = all(pair is False for pair in open_pairs)
        found = f"no competitor of {self.member} is in its coalition"
        return CheckedClaim("no conflicts", "proven", found if ok else "not shown", ok)

    def _counted(
        self,
        known: Mapping[leaves.Key, leaves.Value],
        own: int,
        place: Mapping[str, int],
        reported: Sequence[str],
    ) -> CheckedClaim:
        missing = [
            name
            for name in reported
            if name not in place
            or known.get(("competition", *sorted((own, place[name])))) is not True
        ]
        stated = f"{len(reported)} counted"
        found = f"not counted: {', '.join(missing)}" if missing else stated
        return CheckedClaim("own reports", stated, found, not missing)


def weight_of(known: Mapping[leaves.Key, leaves.Value], source: int, target: int) -> float:
    """Return an opened benefit, or say that it is not opened."""
    digits = known.get(("benefit", source, target))
    if digits is None:
        raise ValueError("a benefit inside the coalition is not opened")
    return leaves.weight_of(digits)
