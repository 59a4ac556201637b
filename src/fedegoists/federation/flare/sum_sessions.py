"""The coordinator's sessions of secure sums: which members of a coalition have which keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import ReplyT
from fedegoists.federation.requests import Request
from fedegoists.federation.seam import Failure, sorted_out
from fedegoists.federation.secure_sums.sum_messages import (
    LOST_SESSION,
    MaskOffer,
    Roster,
    SumPurpose,
)
from fedegoists.federation.secure_sums.sum_requests import Advertise, Join, Offer, Offered

FEWEST = 3
"""Members of a coalition whose sums are masked: of two, each could compute the other's part."""

Members = tuple[Participant, ...]


class Calling(Protocol):
    """The part of a federation that sends requests."""

    def call(
        self, requests: Mapping[Participant, Request[ReplyT]], timeout: float | None = None
    ) -> dict[Participant, ReplyT | Failure]:
        """Send some participants a request each."""


@dataclass
class SumSession:
    """A session of a coalition.

    Attributes
    ----------
    number : int
        Which round of the session comes next.
    offers : dict
        The offers for that round, by site.
    """

    roster: Roster
    number: int = 0
    offers: dict[str, MaskOffer] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether enough members have keys for the next round."""
        return len(self.offers) >= max(FEWEST, self.roster.threshold)

    def next_round(self, offers: Mapping[str, MaskOffer]) -> None:
        """Go on to the next round with the offers that came with the uploads of the last one."""
        self.number += 1
        self.offers = {
            site: offer for site, offer in offers.items() if offer.key.number == self.number
        }


class SumSessions:
    """The sessions of all coalitions.

    Parameters
    ----------
    federation : Calling
        By which members are asked for keys.
    sites : mapping of str to str
        The participants, and their names in certificates.
    """

    def __init__(self, federation: Calling, sites: Mapping[str, str]) -> None:
        self._federation, self._sites = federation, dict(sites)
        self._known: dict[Members, SumSession] = {}

    def site(self, member: Participant) -> str:
        """Return a participant's name in its certificate."""
        return self._sites[member.name]

    def __contains__(self, members: Members) -> bool:
        return members in self._known

    def __getitem__(self, members: Members) -> SumSession:
        return self._known[members]

    def end(self, members: Members) -> None:
        """Forget a session, so that the next round makes new keys."""
        self._known.pop(members, None)

    def ready(
        self, coalitions: Mapping[Members, SumPurpose], timeout: float | None
    ) -> dict[Participant, Failure]:
        """Have a session with keys for a round for each of some coalitions, as far as possible.

        Returns
        -------
        dict
            The participants without keys, and why.
        """
        missing = {
            name: Offer(session=session.roster.session, number=session.number)
            for members in coalitions
            if (session := self._known.get(members)) is not None
            for name in members
            if self.site(name) not in session.offers
        }
        given, without = self._asked(missing, timeout)
        for members in coalitions:
            if members not in self._known:
                continue
            session = self._known[members]
            for name in members:
                if name in given and self.site(name) in session.roster.sites:
                    session.offers[self.site(name)] = given[name].offer
            # A member that has lost its keys, or was away when the session began, is back.
            if not session.complete or any(is_lost(without.get(name)) for name in members):
                self.end(members)
        fresh = {one: why for one, why in coalitions.items() if one not in self._known}
        again = self._set_up(fresh, timeout)
        renewed = {name for members in fresh for name in members}
        return {name: one for name, one in without.items() if name not in renewed} | again

    def _set_up(
        self, coalitions: Mapping[Members, SumPurpose], timeout: float | None
    ) -> dict[Participant, Failure]:
        """Begin new sessions: keys, their exchange, and offers for the first round."""
        if not coalitions:
            return {}
        advertising = {
            name: Advertise(purpose=purpose)
            for members, purpose in coalitions.items()
            for name in members
        }
        keys, silent = sorted_out(self._federation.call(advertising, timeout))
        failures = {one.participant: one for one in silent}
        rosters: dict[Members, Roster] = {}
        joining: dict[Participant, Join] = {}
        for members, purpose in coalitions.items():
            own = {
                self.site(name): keys[name].keys
                for name in members
                if name in keys and keys[name].keys.site == self.site(name)
            }
            if len(own) >= FEWEST:
                roster = Roster(purpose=purpose, peers=tuple(own[site] for site in sorted(own)))
                rosters[members] = roster
                joining |= {name: Join(roster=roster) for name in members if self.site(name) in own}
        offered, refusing = self._asked(joining, timeout)
        for members, roster in rosters.items():
            offers = {self.site(name): offered[name].offer for name in members if name in offered}
            session = SumSession(roster, 0, offers)
            if session.complete:
                self._known[members] = session
        return failures | refusing

    def _asked(
        self,
        requests: Mapping[Participant, Offer] | Mapping[Participant, Join],
        timeout: float | None,
    ) -> tuple[dict[Participant, Offered], dict[Participant, Failure]]:
        if not requests:
            return {}, {}
        given, failures = sorted_out(self._federation.call(requests, timeout))
        return given, {one.participant: one for one in failures}


def is_lost(reply: object) -> bool:
    """Return whether a member answered that it does not know the session."""
    return isinstance(reply, Failure) and LOST_SESSION in reply.detail
