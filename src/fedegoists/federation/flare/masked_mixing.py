"""The coordinator's part in masked sums: one round of all coalitions.

A round is two calls: members train and upload under masks, and give the shares by which masks come
off the sums. Keys for the next round ride on the upload; a new session takes two small calls more.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from fedegoists.federation.flare.sum_sessions import (
    FEWEST,
    Calling,
    Members,
    SumSession,
    SumSessions,
    is_lost,
)
from fedegoists.federation.mixing import (
    Mixed,
    Sum,
    VectorName,
    bounds_of,
    mixture,
    summed_names,
    with_withheld,
)
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Trained
from fedegoists.federation.requests import Request, Train
from fedegoists.federation.seam import Failure
from fedegoists.federation.secure_sums.agreed_training import training_digest
from fedegoists.federation.secure_sums.fixed_point import as_ring, as_tensor, decode
from fedegoists.federation.secure_sums.sum_collector import SumCollector, SumOf
from fedegoists.federation.secure_sums.sum_messages import (
    AgreedSum,
    Agreement,
    SumError,
    SumPurpose,
)
from fedegoists.federation.secure_sums.sum_requests import (
    MaskedTrain,
    MaskedTrained,
    TakeMixture,
    Unmask,
    Unmasked,
)
from fedegoists.federation.validated import Tensors
from fedegoists.learning.parameters import ParameterSchema


@dataclass
class _SumRound:
    """A coalition's part in one round."""

    members: Members
    sums: list[Sum] = field(default_factory=list)
    agreed: list[Sum] = field(default_factory=list)
    names: dict[str, Participant] = field(default_factory=dict)
    collector: SumCollector | None = None
    results: list[SumOf] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    failed: str = "too few members are there"

    def next_holders(self) -> list[str]:
        """Return the members to ask for shares: enough of them, and all others the next time."""
        assert self.collector is not None
        survivors = self.collector.order().survivors
        if self.asked:
            return [site for site in survivors if site not in self.asked]
        first = self.collector.agreement.number % len(survivors)
        in_turn = (*survivors[first:], *survivors[:first])
        return list(in_turn[: self.collector.roster.threshold])


@dataclass
class _Gathered:
    """What members told in one round."""

    uploads: dict[Participant, MaskedTrained] = field(default_factory=dict)
    others: dict[Participant, Trained | Failure] = field(default_factory=dict)
    failures: dict[Participant, Failure] = field(default_factory=dict)


class MaskedMixing:
    """Masked sums of coalitions.

    Parameters
    ----------
    federation : Calling
        By which members are asked.
    sites : mapping of str to str
        The participants, and their names in certificates.
    run, schema_is : str
        What all sessions are for: the run, and the hash of the parameters' names and shapes.
    tell : callable
        Is told of sums that failed.
    """

    def __init__(
        self,
        federation: Calling,
        sites: Mapping[str, str],
        schema: ParameterSchema,
        *,
        run: str,
        schema_is: str,
        tell: Callable[[str], None],
    ) -> None:
        self._federation, self._schema = federation, schema
        self._run, self._schema_is, self._tell = run, schema_is, tell
        self._sessions = SumSessions(federation, sites)

    def mix(
        self,
        requests: Mapping[Participant, Train],
        sums: Sequence[Sum],
        others: Mapping[Participant, Train],
        timeout: float | None = None,
    ) -> tuple[Mixed, dict[Participant, Trained | Failure]]:
        """Have participants train, and return means of their models.

        Parameters
        ----------
        requests, sums
            As for `Federation.mix`; all sums are masked.
        others : mapping of Participant to Train
            Participants that are in none of these sums, and send what they train.

        Returns
        -------
        tuple
            The means, and the replies of the others.
        """
        rounds: dict[Members, _SumRound] = {}
        for wanted in sums:
            members = tuple(sorted(name for name in wanted.coalition if name in requests))
            rounds.setdefault(members, _SumRound(members)).sums.append(wanted)
        gathered = _Gathered()
        self._upload(rounds, requests, others, gathered, bounds_of(sums), timeout)
        lost = {
            members: _SumRound(members, one.sums)
            for members, one in rounds.items()
            if any(is_lost(gathered.failures.get(name)) for name in members)
            and not any(name in gathered.uploads for name in members)
        }
        if lost:  # the members' processes were restarted, and know no session
            rounds |= lost
            for name in (name for members in lost for name in members):
                gathered.failures.pop(name, None)
            self._upload(lost, requests, {}, gathered, bounds_of(sums), timeout)
        self._unmask(rounds, gathered, timeout)
        at_home = self._hand_out(rounds, gathered, timeout)
        _name_liars(rounds.values(), gathered)
        for one in rounds.values():
            if not one.results:
                self._sessions.end(one.members)
                names = ", ".join(map(str, one.members))
                self._tell(f"no masked sum of {names} in this round: {one.failed}")
        mixed = self._mixed(requests, list(rounds.values()), gathered, at_home)
        return mixed, gathered.others

    def _upload(
        self,
        rounds: Mapping[Members, _SumRound],
        requests: Mapping[Participant, Train],
        others: Mapping[Participant, Train],
        gathered: _Gathered,
        bounds: Mapping[Participant, float],
        timeout: float | None,
    ) -> None:
        """Have all members train, and collect what they send under masks."""
        purposes = {members: self._purpose(members, requests) for members in rounds}
        gathered.failures |= self._sessions.ready(purposes, timeout)
        asked: dict[Participant, MaskedTrain | Train] = dict(others)
        for members, one in rounds.items():
            if members in self._sessions:
                session = self._sessions[members]
                asked |= self._agreed(one, session, requests, bounds, gathered)
        if not asked:
            return
        replies = self._federation.call(cast("dict[Participant, Request[Any]]", asked), timeout)
        for name, reply in replies.items():
            if name in others:
                gathered.others[name] = cast("Trained | Failure", reply)
            elif isinstance(reply, Failure):
                gathered.failures[name] = reply
        for members, one in rounds.items():
            if one.collector is None:
                continue
            offers = {}
            for site, name in one.names.items():
                reply = replies[name]
                if isinstance(reply, MaskedTrained):
                    self._collect(one.collector, site, name, reply, gathered)
                    offers[site] = reply.offer
            self._sessions[members].next_round(offers)

    def _purpose(self, members: Members, requests: Mapping[Participant, Train]) -> SumPurpose:
        slots = requests[members[0]].slots
        repetition = members[0].repetition
        return SumPurpose(
            run=self._run,
            method=slots[0] if slots else "",
            repetition="" if repetition is None else str(repetition),
            schema_is=self._schema_is,
        )

    def _agreed(
        self,
        one: _SumRound,
        session: SumSession,
        requests: Mapping[Participant, Train],
        bounds: Mapping[Participant, float],
        gathered: _Gathered,
    ) -> dict[Participant, MaskedTrain]:
        """Agree on the sums of a coalition, and return the requests to those who take part."""
        site = self._sessions.site
        one.names = {site(name): name for name in one.members if site(name) in session.offers}
        bound = min((bounds[name] for name in one.members if name in bounds), default=None)
        digests = self._digests({name: requests[name] for name in one.names.values()}, bound)
        # Members agree on one training. One with another start, as after an absence, is left out
        # of this round; the mean brings it back to the others.
        training = Counter(digests.values()).most_common(1)[0][0]
        for name, digest in digests.items():
            if digest != training:
                del one.names[site(name)]
                gathered.failures[name] = Failure(
                    name, "error", "starts from another model than most of its coalition"
                )
        there = frozenset(one.names.values())
        one.agreed = [given for given in one.sums if _weight(given, there) > 0]
        for given in [given for given in one.agreed if _tells(given, there)]:
            one.agreed.remove(given)
            self._tell(
                f"{given.receivers[0]} continues with its own model: a mean of it and one other "
                "member would tell it that member's model"
            )
        if not one.agreed:
            return {}
        first = requests[next(iter(one.names.values()))]
        agreement = Agreement(
            session=session.roster.session,
            number=session.number,
            label=str(first.seed),
            keys=tuple(session.offers[name].key for name in sorted(one.names)),
            sums=tuple(_agreed_sum(given, there, site) for given in one.agreed),
            training=training,
        )
        length = len(summed_names(first)) * self._schema.size
        one.collector = SumCollector(session.roster, agreement, length)
        return {
            name: MaskedTrain(
                train=requests[name],
                agreement=agreement,
                sealed={
                    other: offer.shares[own]
                    for other, offer in session.offers.items()
                    if other != own and own in offer.shares
                },
                bound=bound,
            )
            for own, name in one.names.items()
        }

    def _digests(
        self, requests: Mapping[Participant, Train], bound: float | None
    ) -> dict[Participant, str]:
        """Return the hash of each member's training; equal ones are hashed once."""
        tensors, known = Tensors(), dict[str, str]()
        result = {}
        for name, train in requests.items():
            content = train.model_dump_json(context=tensors)
            if content not in known:
                known[content] = training_digest(self._schema, train, bound)
            result[name] = known[content]
        return result

    def _collect(
        self,
        collector: SumCollector,
        site: str,
        name: Participant,
        reply: MaskedTrained,
        gathered: _Gathered,
    ) -> None:
        """Add a member's upload, or note why it cannot be used."""
        parts = [k for k, one in enumerate(collector.agreement.sums) if site in one.members]
        try:
            if len(parts) != len(reply.masked):
                raise SumError("vectors for other sums than agreed")
            vectors = map(as_ring, reply.masked)
            collector.add(site, dict(zip(parts, vectors, strict=True)))
        except SumError as error:
            gathered.failures[name] = Failure(name, "wrong shape", str(error))
        else:
            gathered.uploads[name] = reply

    def _unmask(
        self, rounds: Mapping[Members, _SumRound], gathered: _Gathered, timeout: float | None
    ) -> None:
        """Ask for shares, and take masks off the sums.

        At first as many members as are needed, in turn; all others where some of these fail.
        """
        for one in rounds.values():
            if one.collector is not None:
                try:
                    one.collector.order()
                except SumError as error:
                    one.failed, one.collector = str(error), None
        for _ in ("enough", "all others"):
            asked = {
                one.names[site]: Unmask(order=one.collector.order())
                for one in rounds.values()
                if one.collector is not None and not one.results
                for site in one.next_holders()
            }
            if not asked:
                break
            replies = self._federation.call(asked, timeout)
            for one in rounds.values():
                if one.collector is not None and not one.results:
                    self._share(one, one.collector, replies, gathered)

    def _share(
        self,
        one: _SumRound,
        collector: SumCollector,
        replies: Mapping[Participant, Unmasked | Failure],
        gathered: _Gathered,
    ) -> None:
        """Collect shares, and take masks off the sums if there are enough."""
        for site, name in one.names.items():
            reply = replies.get(name)
            if reply is None:
                continue
            one.asked.add(site)
            try:
                if isinstance(reply, Unmasked):
                    collector.share(site, reply.shares)
                else:
                    one.failed = str(reply)
                    gathered.failures[name] = reply
            except SumError as error:
                gathered.failures[name] = Failure(name, "error", str(error))
        try:
            one.results = collector.sums()
        except SumError as error:
            one.failed = f"{error}; {one.failed}" if gathered.failures else str(error)

    def _hand_out(
        self, rounds: Mapping[Members, _SumRound], gathered: _Gathered, timeout: float | None
    ) -> frozenset[Participant]:
        """Send sums that are not shown to their receivers; return those that have got theirs."""
        asked = {
            given.receivers[0]: TakeMixture(
                agreement=one.collector.agreement.digest,
                index=index,
                survivors=result.members,
                total=as_tensor(result.total),
                step=given.step,
            )
            for one in rounds.values()
            if one.collector is not None and one.results
            for index, (given, result) in enumerate(zip(one.agreed, one.results, strict=True))
            if not given.shown and result.members and given.receivers[0] in gathered.uploads
        }
        if not asked:
            return frozenset()
        replies = self._federation.call(asked, timeout)
        for name, reply in replies.items():
            if isinstance(reply, Failure):
                gathered.failures[name] = reply
        return frozenset(name for name in replies if name not in gathered.failures)

    def _mixed(
        self,
        requests: Mapping[Participant, Train],
        rounds: Sequence[_SumRound],
        gathered: _Gathered,
        at_home: frozenset[Participant],
    ) -> Mixed:
        names = tuple(requests)
        position = {name: k for k, name in enumerate(names)}
        starts = torch.stack([request.parameters for request in requests.values()]).float()
        vectors = summed_names(next(iter(requests.values())))
        trained: dict[VectorName, Tensor] = {"parameters": starts}
        if "momentum" in vectors:
            trained["momentum"] = torch.zeros_like(starts)
        means = {name: rows.clone() for name, rows in trained.items()}
        received = set(at_home)
        for one in rounds:
            if one.collector is None or not one.results:
                continue
            agreement = one.collector.agreement
            for given, agreed, result in zip(one.agreed, agreement.sums, one.results, strict=True):
                share = agreed.share(result.members)
                if share == 0 or not given.shown:
                    continue
                total = decode(result.total, agreement.bits)
                mean = mixture(self._schema, vectors, total, share)
                for name in given.receivers:
                    own = with_withheld(self._schema, requests[name], mean)
                    for vector, values in own.items():
                        means[vector][position[name]] = values
                    received.add(name)
        uploads = gathered.uploads
        return Mixed(
            names,
            trained,
            means,
            frozenset(received),
            {name: reply.loss for name, reply in uploads.items()},
            {name: reply.sample_passes for name, reply in uploads.items()},
            tuple(gathered.failures.values()),
            {name: reply.norm for name, reply in uploads.items() if reply.norm is not None},
            at_home,
            {name: sum(own.numel() for own in reply.masked) for name, reply in uploads.items()},
        )


def _name_liars(rounds: Iterable[_SumRound], gathered: _Gathered) -> None:
    """Report members that made shares wrong, as the manager sees failures, and no member does."""
    for one in rounds:
        if one.collector is not None and one.results:
            for site in one.collector.liars():
                wrong = Failure(one.names[site], "error", "gave wrong shares of masks")
                gathered.failures.setdefault(one.names[site], wrong)


def _weight(one: Sum, there: frozenset[Participant]) -> float:
    """Return the weights of the contributors that are there."""
    return math.fsum(weight for name, weight in one.weights.items() if name in there)


def _tells(one: Sum, there: frozenset[Participant]) -> bool:
    """Return whether a mean would show its only receiver the model of one other member."""
    parts = {name for name, weight in one.weights.items() if name in there and weight > 0}
    return not one.shown and 0 < len(parts - set(one.receivers)) < FEWEST - 1


def _agreed_sum(
    one: Sum, there: frozenset[Participant], site: Callable[[Participant], str]
) -> AgreedSum:
    """Return a sum over the contributors that are there; weights are divided by their total."""
    total = _weight(one, there)
    parts = {
        site(name): weight / total
        for name, weight in one.weights.items()
        if name in there and weight > 0
    }
    members = tuple(sorted(parts))
    return AgreedSum(
        members=members,
        weights=tuple(parts[name] for name in members),
        receiver=None if one.shown else site(one.receivers[0]),
    )
