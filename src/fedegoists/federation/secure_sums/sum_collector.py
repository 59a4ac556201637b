"""The server's part in secure sums: collects masked vectors, and takes masks off their sums."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedegoists.federation.secure_sums.fixed_point import Ring
from fedegoists.federation.secure_sums.mask_streams import public_key, shared_secrets
from fedegoists.federation.secure_sums.mask_vectors import add_pair_mask, own_mask
from fedegoists.federation.secure_sums.shamir import ShareError, combine, fits
from fedegoists.federation.secure_sums.silo_sums import commitment
from fedegoists.federation.secure_sums.sum_messages import (
    Agreement,
    Roster,
    SumError,
    UnmaskOrder,
    UnmaskShares,
)

MOST_TRIES = 500
"""Choices of shares that are tried where some are wrong."""


class TooFewError(SumError):
    """A round that has lost too many members; nothing of it can be read."""


@dataclass(frozen=True)
class SumOf:
    """A sum without masks.

    Attributes
    ----------
    total : Ring
        The sum; still under the masks of its receiver, if it has one.
    members : tuple of str
        The members whose vectors are in it.
    """

    total: Ring
    members: tuple[str, ...]


class SumCollector:
    """One round of a session at the server.

    Parameters
    ----------
    length : int
        Of every vector.
    """

    def __init__(self, roster: Roster, agreement: Agreement, length: int) -> None:
        self.roster, self.agreement, self._length = roster, agreement, length
        self._vectors: dict[str, dict[int, Ring]] = {}
        self._shares: dict[str, UnmaskShares] = {}
        self._order: UnmaskOrder | None = None
        self._wrong: dict[str, set[str]] = {}

    def add(self, site: str, vectors: Mapping[int, Ring]) -> None:
        """Add a member's masked vectors, by the index of their sums.

        Raises
        ------
        SumError
            If they are not as agreed; the member then counts as dropped out.
        """
        expected = {k for k, one in enumerate(self.agreement.sums) if site in one.members}
        if site not in self.agreement.sites or vectors.keys() != expected:
            raise SumError("vectors for other sums than agreed")
        if any(vector.shape != (self._length,) for vector in vectors.values()):
            raise SumError(f"a vector of another length than {self._length}")
        if self._order is not None or site in self._vectors:
            raise SumError("a vector that comes too late, or twice")
        self._vectors[site] = dict(vectors)

    def order(self) -> UnmaskOrder:
        """End the uploads, and return what survivors are asked for.

        Raises
        ------
        TooFewError
            If too few members have uploaded.
        """
        if len(self._vectors) < self.roster.threshold:
            raise TooFewError(
                f"{len(self._vectors)} of {len(self.roster.peers)} members have sent their part of "
                f"a masked sum; at least {self.roster.threshold} are needed"
            )
        if self._order is None:
            self._order = UnmaskOrder(
                session=self.agreement.session,
                number=self.agreement.number,
                agreement=self.agreement.digest,
                survivors=tuple(sorted(self._vectors)),
            )
        return self._order

    def share(self, site: str, shares: UnmaskShares) -> None:
        """Add a survivor's shares.

        Raises
        ------
        SumError
            If they are not those that it was asked for.
        """
        survivors = set(self.order().survivors)
        if site not in survivors or shares.seeds.keys() != survivors:
            raise SumError("shares of other members than asked for")
        if shares.keys.keys() != set(self.agreement.sites) - survivors:
            raise SumError("shares of other members than asked for")
        self._shares[site] = shares

    def sums(self) -> list[SumOf]:
        """Return all sums.

        Raises
        ------
        TooFewError
            If too few members gave their shares.
        SumError
            If shares are wrong.
        """
        needed = self.roster.threshold
        if len(self._shares) < needed:
            raise TooFewError(
                f"{len(self._shares)} members gave shares of masks; at least {needed} are needed"
            )
        keys = {key.site: key for key in self.agreement.keys}
        seeds = {
            site: self._secret(
                {holder: one.seeds[site] for holder, one in self._shares.items()},
                lambda seed, site=site: commitment(seed) == keys[site].commitment,  # type: ignore[misc]
                site,
            )
            for site in self.order().survivors
        }
        dropped = {
            site: self._secret(
                {holder: one.keys[site] for holder, one in self._shares.items()},
                lambda key, site=site: public_key(key).hex() == keys[site].key,  # type: ignore[misc]
                site,
            )
            for site in self.agreement.sites
            if site not in seeds
        }
        return [self._sum(index, seeds, dropped) for index in range(len(self.agreement.sums))]

    def liars(self) -> tuple[str, ...]:
        """Return the members that made the shares wrong which `sums` could do without.

        Nobody can check a share that it is given. So a member with wrong shares of most secrets is
        the liar itself; where a few members have wrong shares of one secret, its owner may be.
        """
        found: set[str] = set()
        secrets = len(self.agreement.sites)
        for holder in self._shares:
            wrong = [site for site, holders in self._wrong.items() if holder in holders]
            found |= {holder} if 2 * len(wrong) > secrets else set(wrong)
        return tuple(sorted(found))

    def _secret(
        self, shares: Mapping[str, str], is_secret: Callable[[bytes], bool], site: str
    ) -> bytes:
        """Return a secret from some of its shares, the first choice of them that fits."""
        points = {self.roster.holder(one): bytes.fromhex(own) for one, own in shares.items()}
        for chosen in _choices(sorted(points), self.roster.threshold):
            own = {holder: points[holder] for holder in chosen}
            try:
                secret = combine(own)
            except ShareError:
                continue
            if is_secret(secret):
                wrong = {k for k in points.keys() - own.keys() if not fits(own, k, points[k])}
                self._wrong[site] = {self.roster.sites[k - 1] for k in wrong}
                return secret
        raise SumError(f"the shares of the masks of {site} are wrong")

    def _sum(self, index: int, seeds: Mapping[str, bytes], dropped: Mapping[str, bytes]) -> SumOf:
        digest = bytes.fromhex(self.agreement.digest)
        keys = {key.site: bytes.fromhex(key.key) for key in self.agreement.keys}
        agreed = self.agreement.sums[index].members
        members = tuple(site for site in agreed if site in seeds)
        total: Ring = np.zeros(self._length, np.uint32)
        for site in members:
            total += self._vectors[site][index]
            total -= own_mask(seeds[site], digest, index, self._length)
        # What survivors have added for a member that dropped out, it would have subtracted.
        for site, key in dropped.items():
            if site in agreed:
                pairs = shared_secrets(key, {other: keys[other] for other in members})
                for other, secret in pairs.items():
                    add_pair_mask(total, secret, digest, index, site, other)
        return SumOf(total, members)


def _choices(holders: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    """Return choices of holders: the first ones, then each of them left out once, then by chance.

    So one liar is found after as many tries as there are members, and a few of them soon.
    """
    yield holders[:count]
    if len(holders) == count:
        return
    for left_out in holders[:count]:
        yield [one for one in holders if one != left_out][:count]
    chance = random.Random(0)  # noqa: S311 - no secret depends on it
    for _ in range(MOST_TRIES):
        yield sorted(chance.sample(holders, count))
