"""A member's part in secure sums: its keys, and what it has answered in which round.

Keys are in memory only. A member that restarts has no part in sums that are under way.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedegoists.federation.secure_sums.fixed_point import Ring
from fedegoists.federation.secure_sums.mask_streams import (
    SECRET,
    derived,
    public_key,
    shared_secrets,
)
from fedegoists.federation.secure_sums.mask_vectors import add_pair_mask, blind, own_mask
from fedegoists.federation.secure_sums.peer_identity import PeerIdentity
from fedegoists.federation.secure_sums.shamir import SHARE_BYTES, split
from fedegoists.federation.secure_sums.sum_messages import (
    Agreement,
    LostSessionError,
    MaskKey,
    MaskOffer,
    PeerKeys,
    Roster,
    SumError,
    SumPolicy,
    SumPurpose,
    UnmaskOrder,
    UnmaskShares,
)

MOST_SESSIONS = 200
"""Sessions that a member remembers; the oldest are forgotten."""

NONCE = 12


@dataclass(frozen=True, repr=False)
class _SessionKeys:
    """A member's keys of one session."""

    channel: bytes
    public: PeerKeys


@dataclass(frozen=True, repr=False)
class _RoundSecrets:
    """A member's secrets of one round, of which others hold shares."""

    key: bytes
    seed: bytes
    shares: tuple[bytes, bytes]
    offer: MaskOffer


@dataclass(repr=False)
class _MaskedRound:
    """A round in which the member has uploaded: what it needs to answer the order to unmask."""

    agreement: Agreement
    digest: str
    shares: dict[str, tuple[bytes, bytes]]
    answered: bool = False


@dataclass(repr=False)
class _Session:
    """A session with its secrets: those with each member are for messages and blinded sums."""

    keys: _SessionKeys
    roster: Roster
    name: str
    secrets: dict[str, bytes]
    offered: _RoundSecrets | None = None
    masked: _MaskedRound | None = None
    next_number: int = 0
    checked: tuple[Agreement, dict[str, tuple[bytes, bytes]]] | None = None


class SiloSums:
    """A member's keys and answers.

    Parameters
    ----------
    identity : PeerIdentity
        By which it signs, and checks others.
    policy : SumPolicy
        Which sums it takes part in.
    """

    def __init__(self, identity: PeerIdentity, policy: SumPolicy | None = None) -> None:
        self.identity = identity
        self.site = identity.site
        self.policy = policy or SumPolicy()
        self._advertised: dict[str, tuple[SumPurpose, _SessionKeys]] = {}
        self._sessions: dict[str, _Session] = {}

    def advertise(self, purpose: SumPurpose) -> PeerKeys:
        """Return new keys for a session that is to be set up."""
        channel = secrets.token_bytes(SECRET)
        public = self.identity.signed(purpose, public_key(channel).hex())
        self._advertised[public.channel] = (purpose, _SessionKeys(channel, public))
        _forget_oldest(self._advertised)
        return public

    def join(self, roster: Roster) -> MaskOffer:
        """Check the members of a session, and return the offer for its first round.

        Raises
        ------
        SumError
            If the roster is not one that this member may be part of.
        """
        own = next((peer for peer in roster.peers if peer.site == self.site), None)
        purpose, keys = self._advertised.get(own.channel if own else "", (None, None))
        if keys is None or keys.public != own or purpose != roster.purpose:
            raise LostSessionError("the session is not one for which keys were made here")
        if len(roster.peers) < self.policy.fewest:
            raise SumError(
                f"{len(roster.peers)} members; here at least {self.policy.fewest} for sums"
            )
        for peer in roster.peers:
            if peer.site != self.site:
                self.identity.check(roster.purpose, peer)
        del self._advertised[keys.public.channel]
        shared = _exchanged(keys.channel, {peer.site: peer.channel for peer in roster.peers})
        session = _Session(keys, roster, roster.session, shared)
        self._sessions[session.name] = session
        _forget_oldest(self._sessions)
        return self._offer(session, 0)

    def offer(self, name: str, number: int) -> MaskOffer:
        """Return the offer for a round to come, as for a member that missed the last one."""
        session = self._session(name)
        if session.offered is not None and session.offered.offer.key.number == number:
            return session.offered.offer
        if number < session.next_number:
            raise SumError(f"round {number} of this session is over")
        return self._offer(session, number)

    def masked(
        self, agreement: Agreement, sealed: Mapping[str, str], vectors: Mapping[int, Ring]
    ) -> tuple[dict[int, Ring], MaskOffer]:
        """Return this member's vectors under masks, and its offer for the next round.

        Parameters
        ----------
        sealed : mapping of str to str
            The encrypted shares for this member, by sender.
        vectors : mapping of int to Ring
            The encoded and weighted vector for each sum with a part of this member, by index.

        Raises
        ------
        SumError
            If anything is not as agreed. Nothing has left then.
        """
        session = self._session(agreement.session)
        if session.checked is None or session.checked[0] is not agreement:
            self.check(agreement, sealed)
        own = session.offered
        assert own is not None  # checked
        assert session.checked is not None
        shares = session.checked[1]
        expected = {k for k, one in enumerate(agreement.sums) if self.site in one.members}
        if vectors.keys() != expected:
            raise SumError("vectors for other sums than agreed")
        digest = agreement.digest
        session.offered = session.checked = None  # a key is used once
        session.next_number = agreement.number + 1
        result = _under_masks(self.site, session, agreement, digest, own, vectors)
        session.masked = _MaskedRound(agreement, digest, shares)
        return result, self._offer(session, agreement.number + 1)

    def check(self, agreement: Agreement, sealed: Mapping[str, str]) -> None:
        """Refuse an agreement that this member may not be part of, before anything is computed.

        The shares prove that the keys of others are theirs, and for this session and round.
        """
        session = self._session(agreement.session)
        offered, roster = session.offered, session.roster
        if offered is None or offered.offer.key.number != agreement.number:
            raise SumError(f"no key for round {agreement.number} is offered: it may be over")
        if offered.offer.key not in agreement.keys:
            raise SumError("the key of this member is another one")
        if not set(agreement.sites) <= set(roster.sites):
            raise SumError("a member that is not in this session")
        if len(agreement.sites) < roster.threshold:
            raise SumError(
                f"{len(agreement.sites)} of {len(roster.peers)} members are too few to take masks "
                f"off; at least {roster.threshold}"
            )
        if any(one.receiver not in (None, *roster.sites) for one in agreement.sums):
            raise SumError("a receiver that is not in this session")
        self.policy.check(agreement.sums, agreement.sites)
        shares = {self.site: offered.shares}
        for key in agreement.keys:
            if key.site != self.site:
                shares[key.site] = self._opened(session, key, sealed.get(key.site, ""))
        session.checked = (agreement, shares)

    def unmasked(self, order: UnmaskOrder) -> UnmaskShares:
        """Return this member's shares for a round; once, and for each peer one of the two kinds.

        Raises
        ------
        SumError
            If the round is another one, was answered before, or has lost too many members.
        """
        session = self._session(order.session)
        masked, roster = session.masked, session.roster
        if masked is None or masked.agreement.number != order.number:
            raise SumError(f"round {order.number} is not one that waits for shares")
        if masked.digest != order.agreement:
            raise SumError("the agreement is another one here")
        if masked.answered:
            raise SumError(f"shares for round {order.number} were given before")
        survivors, members = set(order.survivors), masked.agreement.sites
        if not survivors <= set(members) or self.site not in survivors:
            raise SumError("these are no survivors of this round")
        if len(survivors) < roster.threshold:
            raise SumError(
                f"{len(survivors)} of {len(roster.peers)} members are left; masks come off with at "
                f"least {roster.threshold}"
            )
        self.policy.check(masked.agreement.sums, survivors)
        masked.answered = True
        given, masked.shares = masked.shares, {}
        return UnmaskShares(
            seeds={site: given[site][1].hex() for site in members if site in survivors},
            keys={site: given[site][0].hex() for site in members if site not in survivors},
        )

    def unblinded(
        self, agreement: Agreement, index: int, survivors: tuple[str, ...], total: Ring
    ) -> Ring:
        """Return a sum of which this member is the receiver, without the masks only it knows.

        Parameters
        ----------
        survivors : tuple of str
            The members whose vectors are in it.
        """
        session = self._session(agreement.session)
        one = agreement.sums[index] if index < len(agreement.sums) else None
        if one is None or one.receiver != self.site:
            raise SumError("this member is not the receiver of the sum")
        result, digest = total.copy(), bytes.fromhex(agreement.digest)
        for site in one.members:
            if site in survivors:
                result -= blind(session.secrets[site], digest, index, site, len(total))
        return result

    def _session(self, name: str) -> _Session:
        session = self._sessions.get(name)
        if session is None:
            raise LostSessionError("this session is not known here")
        return session

    def _offer(self, session: _Session, number: int) -> MaskOffer:
        """Make the secrets of a round, and the offer with their shares."""
        roster = session.roster
        key, seed = secrets.token_bytes(SECRET), secrets.token_bytes(SECRET)
        public = MaskKey(
            site=self.site, number=number, key=public_key(key).hex(), commitment=commitment(seed)
        )
        holders = list(range(1, len(roster.peers) + 1))
        of_key, of_seed = (split(secret, roster.threshold, holders) for secret in (key, seed))
        bound = _bound_content(session.name, public)
        sealed: dict[str, str] = {}
        for site in roster.sites:
            if site != self.site:
                holder = roster.holder(site)
                nonce = secrets.token_bytes(NONCE)
                content = of_key[holder] + of_seed[holder]
                cipher = self._cipher(session, self.site, site)
                sealed[site] = (nonce + cipher.encrypt(nonce, content, bound)).hex()
        own = roster.holder(self.site)
        offer = MaskOffer(key=public, shares=sealed)
        session.offered = _RoundSecrets(key, seed, (of_key[own], of_seed[own]), offer)
        session.next_number = max(session.next_number, number)
        return offer

    def _cipher(self, session: _Session, sender: str, receiver: str) -> ChaCha20Poly1305:
        peer = receiver if sender == self.site else sender
        name = bytes.fromhex(session.name)
        key = derived(session.secrets[peer], name, f"shares/{sender}/{receiver}")
        return ChaCha20Poly1305(key)

    def _opened(self, session: _Session, key: MaskKey, sealed: str) -> tuple[bytes, bytes]:
        """Decrypt a peer's shares of its mask key and its seed."""
        content = bytes.fromhex(sealed)
        cipher = self._cipher(session, key.site, self.site)
        bound = _bound_content(session.name, key)
        try:
            both = cipher.decrypt(content[:NONCE], content[NONCE:], bound)
        except (InvalidTag, ValueError):
            raise SumError(
                f"the shares of {key.site} are missing, or not for this member and this key"
            ) from None
        if len(both) != 2 * SHARE_BYTES:
            raise SumError(f"the shares of {key.site} have another length")
        return both[:SHARE_BYTES], both[SHARE_BYTES:]


def commitment(seed: bytes) -> str:
    """Return the hash by which a seed is recognised."""
    return hashlib.sha256(b"fedegoists seed" + seed).hexdigest()


def _under_masks(
    site: str,
    session: _Session,
    agreement: Agreement,
    digest: str,
    own: _RoundSecrets,
    vectors: Mapping[int, Ring],
) -> dict[int, Ring]:
    salt = bytes.fromhex(digest)
    others = {key.site: key.key for key in agreement.keys if key.site != site}
    pairs = _exchanged(own.key, others)
    result: dict[int, Ring] = {}
    for index, vector in vectors.items():
        one = agreement.sums[index]
        total = vector + own_mask(own.seed, salt, index, len(vector))
        for other in one.members:
            if other != site:
                add_pair_mask(total, pairs[other], salt, index, site, other)
        if one.receiver is not None:
            total += blind(session.secrets[one.receiver], salt, index, site, len(vector))
        result[index] = total
    return result


def _exchanged(private: bytes, publics: Mapping[str, str]) -> dict[str, bytes]:
    try:
        return shared_secrets(private, {site: bytes.fromhex(key) for site, key in publics.items()})
    except ValueError:  # a point of small order
        raise SumError("a key of a member is not usable") from None


def _bound_content(session: str, key: MaskKey) -> bytes:
    head = f"fedegoists mask key\n{session}\n{key.site}\n{key.number}\n{key.key}\n{key.commitment}"
    return head.encode()


def _forget_oldest(known: dict[str, Any]) -> None:
    while len(known) > MOST_SESSIONS:
        del known[next(iter(known))]
