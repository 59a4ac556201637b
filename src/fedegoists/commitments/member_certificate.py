"""A member's certificate: proof that the principles hold for it, without the reports of others.

It opens the member's coalition as it is committed to for each of its members, the benefits between
the member and the others in it, the entries that the member competes with none of them, and those
that the competitors it reported itself are counted. All other entries of the graphs stay hidden
behind salted hashes. Checking it needs only this file and the published commitment.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedegoists.coalitions import CertificateCheck, CheckedClaim
from fedegoists.coalitions.proof.verification import check_demand
from fedegoists.commitments import leaves
from fedegoists.commitments.disclosure import HASH, VERSION, Disclosure
from fedegoists.commitments.merkle import leaf_hash, root_from
from fedegoists.errors import CertificateError
from fedegoists.graphs.participants import MAX_PARTICIPANTS

Known = Mapping[leaves.Key, leaves.Value]


class OpenedEntry(BaseModel):
    """One entry of the commitment, with the salt needed to hash it, in hexadecimal digits."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    key: leaves.Key = Field(max_length=3)
    value: leaves.Value
    salt: str = Field(pattern=HASH, repr=False)


class MemberCertificate(Disclosure):
    """All that a member needs to check a decision as far as it concerns it.

    Make one with `Commitment.member_certificate`, write it with `save`, and check it with `check`,
    or on the command line with ``fedegoists verify certificate.json``.
    """

    FORMAT = "fedegoists member certificate"

    format: Literal["fedegoists member certificate"] = "fedegoists member certificate"
    version: Literal[1] = VERSION
    context: str
    participants: tuple[str, ...] = Field(max_length=MAX_PARTICIPANTS)
    member: str
    coalition: tuple[str, ...]
    fewest_members: int = Field(default=1, ge=1)
    reported: tuple[str, ...]
    commitment: str = Field(pattern=HASH)
    opened: tuple[OpenedEntry, ...]
    proof: tuple[Annotated[str, Field(pattern=HASH)], ...] = Field(repr=False)

    def to_json(self) -> str:
        """Return the content of the file as JSON text.

        Where no smallest number of members is demanded, none is written, as in earlier versions.
        """
        unused = {"fewest_members"} if self.fewest_members == 1 else set[str]()
        return self.model_dump_json(indent=1, exclude=unused) + "\n"

    def check(
        self,
        commitment: str | None = None,
        reported: Sequence[str] | None = None,
        *,
        fewest_members: int | None = None,
    ) -> CertificateCheck:
        """Check all claims that the opened entries support.

        Parameters
        ----------
        commitment : str, optional
            The published commitment, as other members have it too; compared with this one's.
        reported : names, optional
            The competitors that the member did report; each must be counted.
        fewest_members : int, optional
            The fewest members that the consortium agreed on; this file must state the
            same.
        """
        known = {entry.key: entry.value for entry in self.opened}
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
        if fewest_members is not None:
            claims.insert(1, check_demand(self.fewest_members, fewest_members))
        if self.fewest_members > 1:
            claims.insert(-1, self._enough_members())
        return CertificateCheck(tuple(claims))

    def _bound(self, commitment: str | None) -> CheckedClaim:
        """Whether all opened entries belong to the published commitment."""
        expected = self.commitment if commitment is None else commitment
        n = len(self.participants)
        try:
            hashes: dict[int, bytes] = {}
            for entry in self.opened:
                position = leaves.position_of(entry.key, n)
                if position is None or position in hashes:
                    raise CertificateError(f"there is no entry {entry.key}, or it is opened twice")
                content = leaves.content_of(entry.key, entry.value)
                hashes[position] = leaf_hash(bytes.fromhex(entry.salt), content)
            root = root_from(hashes, leaves.size_for(n), map(bytes.fromhex, self.proof))
            digest = leaves.commitment_digest(
                self.context, self.participants, root, self.fewest_members
            )
            ok = digest == expected == self.commitment
            found = "yes" if ok else f"no: it belongs to {digest[:16]}…"
        except CertificateError as error:
            ok, found = False, f"no: {error}"
        return CheckedClaim("bound to the commitment", f"{expected[:16]}…", found, ok)

    def _same_coalition(self, known: Known, place: Mapping[str, int]) -> CheckedClaim:
        together = tuple(sorted(place[name] for name in self.coalition))
        agreed = all(known.get(("coalition", p)) == together for p in together)
        ok = agreed and self.member in self.coalition
        found = "the same for everybody in it" if ok else "not the same for everybody in it"
        return CheckedClaim("coalition", ", ".join(self.coalition), found, ok)

    def _no_free_riding(self, known: Known, own: int, others: Sequence[int]) -> CheckedClaim:
        """Both sums of Equation 1, for this member."""
        if not others:
            return CheckedClaim("no free riders", "proven", "alone: nobody is used", True)
        try:
            gets = sum(leaves.weight_of(known.get(("benefit", p, own))) > 0 for p in others)
            gives = sum(leaves.weight_of(known.get(("benefit", own, p))) > 0 for p in others)
        except ValueError as error:
            return CheckedClaim("no free riders", "proven", str(error), False)
        found = f"{self.member} benefits from {gets} and benefits {gives} of {len(others)}"
        return CheckedClaim("no free riders", "proven", found, bool(gets and gives))

    def _no_conflict(self, known: Known, own: int, others: Sequence[int]) -> CheckedClaim:
        """Principle 2, for this member."""
        ok = all(known.get(_pair(own, p)) is False for p in others)
        found = f"no competitor of {self.member} is in its coalition"
        return CheckedClaim("no conflicts", "proven", found if ok else "not shown", ok)

    def _enough_members(self) -> CheckedClaim:
        """Whether the coalition is one participant alone, or as large as the demand."""
        size = len(set(self.coalition))
        found = "alone" if size == 1 else f"{size} members, at least {self.fewest_members} demanded"
        return CheckedClaim(
            "enough members", "proven", found, size == 1 or size >= self.fewest_members
        )

    def _counted(
        self, known: Known, own: int, place: Mapping[str, int], reported: Sequence[str]
    ) -> CheckedClaim:
        missing = [
            name
            for name in reported
            if name not in place or known.get(_pair(own, place[name])) is not True
        ]
        stated = f"{len(reported)} counted"
        found = f"not counted: {', '.join(missing)}" if missing else stated
        return CheckedClaim("own reports", stated, found, not missing)


def _pair(one: int, other: int) -> leaves.Key:
    return ("competition", min(one, other), max(one, other))
