"""A commitment to a decision: published before anything is opened, and opened part by part."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from fedegoists.coalitions import Certificate
from fedegoists.commitments import leaves
from fedegoists.commitments.member_certificate import MemberCertificate, OpenedEntry
from fedegoists.commitments.merkle import DIGEST_BYTES, Level, prove, tree
from fedegoists.commitments.opening import Opening
from fedegoists.errors import CertificateError


def new_secret() -> bytes:
    """Return a secret for one commitment; with it, all entries can be opened."""
    return secrets.token_bytes(DIGEST_BYTES)


@dataclass(frozen=True)
class Commitment:
    """A decision bound by one published hash.

    Parameters
    ----------
    context : str
        Which decision this is, such as the consortium and the number of the formation.
    certificate : Certificate
        The decision with both graphs.
    secret : bytes
        32 random bytes, from which every entry's salt is derived. Never use one twice.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> banks = ["North", "South", "East"]
    >>> benefit = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], banks)
    >>> formation = form(benefit, CompetitionGraph([("South", "East")], banks))
    >>> commitment = Commitment("example", formation.certificate, bytes(32))
    >>> mine = commitment.member_certificate("East", reported=["South"])
    >>> mine.check(commitment.digest).ok, mine.coalition
    (True, ('East',))
    >>> commitment.opening().check(commitment.digest).ok
    True
    """

    context: str
    certificate: Certificate
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.certificate.values is not None:
            raise CertificateError(
                "a commitment holds benefits between two participants; a decision on coalition "
                "values cannot be opened member by member. Show its whole certificate instead"
            )
        if len(self.secret) != DIGEST_BYTES:
            raise CertificateError(
                f"a commitment needs a secret of {DIGEST_BYTES} bytes, not {len(self.secret)}"
            )

    @cached_property
    def _levels(self) -> list[Level]:
        return tree(leaves.hashed(self.secret, self.certificate))

    @cached_property
    def digest(self) -> str:
        """The published hash: it reveals nothing, and fits this decision only."""
        participants, least = self.certificate.benefit.participants, self.certificate.fewest_members
        return leaves.commitment_digest(self.context, participants, self._levels[-1][0], least)

    def member_certificate(self, member: str, reported: Iterable[str] = ()) -> MemberCertificate:
        """Open the entries that concern one member, and no reports of others.

        Parameters
        ----------
        member : str
            The member.
        reported : names
            The competitors that this member reported itself, to show it that they count.
        """
        names = self.certificate.benefit.participants
        place = {name: k for k, name in enumerate(names)}
        if member not in place:
            raise CertificateError(f"{member!r} is not a participant of this decision")
        own = place[member]
        coalition = next(group for group in self.certificate.coalitions if member in group)
        together = [place[name] for name in coalition]
        others = [p for p in together if p != own]
        rivals = sorted(place[name] for name in reported if name in place)
        keys: list[leaves.Key] = [("coalition", p) for p in together]
        for p in others:
            keys += [("benefit", p, own), ("benefit", own, p)]
        keys += [("competition", *sorted((own, p))) for p in dict.fromkeys([*others, *rivals])]
        values = self._values
        positions = [leaves.position_of(key, len(names)) for key in keys]
        return MemberCertificate(
            context=self.context,
            participants=names,
            member=member,
            coalition=coalition,
            fewest_members=self.certificate.fewest_members,
            reported=tuple(names[p] for p in rivals),
            commitment=self.digest,
            opened=tuple(
                OpenedEntry(key=key, value=values[key], salt=leaves.salt_of(self.secret, key).hex())
                for key in keys
            ),
            proof=tuple(
                digest.hex()
                for digest in prove(self._levels, [k for k in positions if k is not None])
            ),
        )

    @cached_property
    def _values(self) -> dict[leaves.Key, leaves.Value]:
        return dict(leaves.entries(self.certificate))

    def opening(self) -> Opening:
        """Open all entries, for an auditor: it names every competitor."""
        return Opening(
            context=self.context,
            commitment=self.digest,
            secret=self.secret.hex(),
            certificate=self.certificate.to_json(),
        )
