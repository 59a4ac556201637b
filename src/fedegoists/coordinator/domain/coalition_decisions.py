"""Decisions of a consortium: its benefit graphs, formations, and what-ifs."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

import networkx as nx  # noqa: F401, loaded now, so that the first what-if does not wait for it
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from fedegoists.coalitions import (
    Certificate,
    Formation,
    FormationMethod,
    Objective,
    WhatIf,
    form,
    what_if,
)
from fedegoists.commitments import Commitment
from fedegoists.commitments.commitment import new_secret
from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain.competitor_reports import active_reports, competition_of
from fedegoists.coordinator.domain.consortia import (
    close_reports,
    consortium_with,
    is_closed,
    participants_of,
)
from fedegoists.coordinator.domain.worker_process import WorkerProcess
from fedegoists.coordinator.store import CoordinatorStore, Transaction
from fedegoists.coordinator.store.audit_check import reports_digest, text_digest
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.database_tables import (
    AuditEntry,
    BenefitRow,
    ConsortiumRow,
    FormationRow,
)
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.participants import MAX_PARTICIPANTS

KEPT = 16
"""Decisions whose validity and what-ifs are cached."""

IN_THREAD = 14
"""Largest consortium whose best partition is found without compiled code, so at once."""


class FormationOrder(BaseModel):
    """How to form coalitions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: FormationMethod = "best"
    objective: Objective = "welfare"
    fewest_members: int = Field(default=1, ge=1, le=MAX_PARTICIPANTS)
    time_limit: float = Field(default=1.0, ge=0.05, le=60)
    seed: int = Field(default=0, ge=0, le=2**31)
    draft: bool = False
    """Whether the decision is for the manager only until it is published."""


# Benefit graphs ------------------------------------------------------------------------------


def record_benefit(
    session: Transaction, by: str, consortium: ConsortiumRow, graph: BenefitGraph, source: str
) -> BenefitRow:
    """Store a benefit graph; the latest one counts."""
    text = graph.to_json()
    found = BenefitRow(
        consortium_id=consortium.id,
        source=source[:200],
        graph=text,
        digest=text_digest(text),
        created=session.now(),
    )
    session.add(found)
    session.flush()
    append(
        session,
        by,
        Action.BENEFIT_RECORDED,
        consortium,
        number=found.id,
        sha256=found.digest,
        source=found.source,
    )
    return found


def graph_of(estimate: BenefitRow) -> BenefitGraph:
    """Return the graph that was recorded."""
    return _graph(estimate.digest, estimate.graph)


@lru_cache(maxsize=16)
def _graph(_digest: str, text: str) -> BenefitGraph:
    return BenefitGraph.from_json(text)


# Forming ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Inputs:
    benefit_id: int
    benefit: BenefitGraph
    competition: CompetitionGraph
    reports: str


class Decider:
    """Forms coalitions; those of large consortia in another process, so that no request waits."""

    def __init__(self, store: CoordinatorStore) -> None:
        self.store = store
        self._worker = WorkerProcess()

    def close(self) -> None:
        """Stop forming."""
        self._worker.close()

    def form(self, by: str, consortium_id: int, order: FormationOrder) -> FormationRow:
        """Decide who trains with whom, from the closed reports and the latest benefit graph.

        Raises
        ------
        ConflictError
            If reports are open, there are no participants or no benefit graph, the method does
            not suit the objective or the smallest number of members, or any of these changed
            meanwhile.
        """
        if order.objective != "welfare" and order.method != "best":
            raise ConflictError(f"the objective {order.objective!r} needs the method 'best'")
        if order.fewest_members > 2 and order.method not in ("best", "stable"):
            raise ConflictError(
                f"at least {order.fewest_members} members need the method 'best' or 'stable'"
            )
        with self.store.read() as session:
            inputs = self._inputs(session, consortium_id)
        formation = self._formed(inputs, order)
        certificate = formation.certificate
        text = certificate.to_json()
        with self.store.write() as session:
            consortium = consortium_with(session, consortium_id)
            now = self._inputs(session, consortium_id)
            if (now.benefit_id, now.reports) != (inputs.benefit_id, inputs.reports) or (
                now.benefit.participants != inputs.benefit.participants
            ):
                raise ConflictError("members, benefits or reports changed meanwhile; form again")
            close_reports(session, "coordinator", consortium)
            number = session.next_number(FormationRow, consortium)
            secret, salt = new_secret(), _new_salt()
            commitment = Commitment(_context(consortium, number), certificate, secret)
            record = FormationRow(
                consortium_id=consortium_id,
                number=number,
                benefit_id=inputs.benefit_id,
                certificate=text,
                certificate_digest=text_digest(text),
                secret=secret.hex(),
                commitment=commitment.digest,
                reports=inputs.reports,
                salt=salt,
                created=session.now(),
                published=None if order.draft else session.now(),
            )
            session.add(record)
            append(
                session,
                by,
                Action.COALITIONS_FORMED,
                consortium,
                number=number,
                commitment=record.commitment,
                certificate=record.certificate_digest,
                reports=reports_digest(salt, record.reports),
                benefit=inputs.benefit_id,
                method=order.method,
                draft=order.draft,
            )
        _keep_basis(record.certificate_digest, formation)  # what-ifs usually follow
        return record

    def _inputs(self, session: Transaction, consortium_id: int) -> _Inputs:
        consortium = consortium_with(session, consortium_id)
        if not is_closed(session, consortium):
            raise ConflictError(
                "members may still report competitors; close the reports, or wait for the deadline"
            )
        participants = participants_of(session, consortium)
        if not participants:
            raise ConflictError("no member has joined yet; invite members first")
        estimate = session.latest(BenefitRow, consortium)
        if estimate is None:
            raise ConflictError("there is no benefit graph yet; upload or learn one first")
        graph = graph_of(estimate)
        missing = [name for name in participants if name not in graph.participants]
        if missing:
            raise ConflictError(
                f"the benefit graph does not know {missing[0]!r}; record one with all participants"
            )
        return _Inputs(
            estimate.id,
            graph.restricted_to(participants),
            competition_of(session, consortium),
            json.dumps(active_reports(session, consortium), ensure_ascii=False, sort_keys=True),
        )

    def _formed(self, inputs: _Inputs, order: FormationOrder) -> Formation:
        graphs, options = (inputs.benefit, inputs.competition), order.model_dump(exclude={"draft"})
        if order.method != "best" or inputs.benefit.n <= IN_THREAD:
            return form(*graphs, **options)
        return self._worker.call(form, *graphs, **options)


def _new_salt() -> str:
    return secrets.token_hex(32)


def _context(consortium: ConsortiumRow, number: int) -> str:
    return f"{consortium.name}, formation {number}"


# Formations ----------------------------------------------------------------------------------


def publish(session: Transaction, by: str, consortium: ConsortiumRow, number: int) -> FormationRow:
    """Show a draft to the members, each its own part; a published one stays as it is.

    Raises
    ------
    ConflictError
        If it is not the latest one, or members, benefits or reports changed since.
    """
    record = session.numbered(FormationRow, consortium, number)
    if record.published is not None:
        return record
    if not is_current(session, consortium, number, formation_of(record)):
        raise ConflictError(
            "members, benefits or reports changed since this draft, or there is a later one; form "
            "coalitions again, then publish that decision"
        )
    record.published = session.now()
    append(session, by, Action.DECISION_PUBLISHED, consortium, number=number)
    return record


def published_formation(session: Transaction, consortium: ConsortiumRow) -> FormationRow | None:
    """Return the latest decision that members may see, if there is one."""
    own = select(FormationRow).where(
        FormationRow.consortium_id == consortium.id, FormationRow.published.is_not(None)
    )
    return session.scalar(own.order_by(FormationRow.number.desc()).limit(1))


def formation_of(record: FormationRow) -> Formation:
    """Return the formation of a decision."""
    return _certificate(record.certificate_digest, record.certificate)[1]


@lru_cache(maxsize=16)
def _certificate(_digest: str, text: str) -> tuple[Certificate, Formation]:
    certificate = Certificate.from_json(text)
    return certificate, certificate.formation()


def commitment_for(consortium: ConsortiumRow, record: FormationRow) -> Commitment:
    """Return the commitment to a decision, able to open any part of it."""
    return _commitment(
        _context(consortium, record.number),
        record.certificate_digest,
        record.certificate,
        record.secret,
    )


@lru_cache(maxsize=16)
def _commitment(context: str, digest: str, text: str, secret: str) -> Commitment:
    return Commitment(context, _certificate(digest, text)[0], bytes.fromhex(secret))


def is_current(
    session: Transaction, consortium: ConsortiumRow, number: int, formation: Formation
) -> bool:
    """Whether a decision is the latest, and members, benefits and competition are unchanged.

    Every change of them is in the audit log, so its head is the key of the cache.
    """
    head = session.scalar(select(AuditEntry.digest).order_by(AuditEntry.id.desc()).limit(1))
    key = str(head), consortium.id, number
    if key not in _CURRENT:
        if len(_CURRENT) >= KEPT:
            _CURRENT.clear()
        # Without the certificate, whose text may be megabytes.
        columns = select(FormationRow.number, FormationRow.benefit_id)
        own = columns.where(FormationRow.consortium_id == consortium.id)
        latest = session.execute(own.order_by(FormationRow.number.desc()).limit(1)).one()
        estimate = session.latest(BenefitRow, consortium)
        now = competition_of(session, consortium)
        _CURRENT[key] = (
            tuple(latest) == (number, estimate and estimate.id)
            and now.participants == formation.participants
            and set(now.pairs) == set(formation.competition.pairs)
        )
    return _CURRENT[key]


_CURRENT: dict[tuple[str, int, int], bool] = {}


# What-ifs -------------------------------------------------------------------------------------


def what_if_basis(session: Transaction, consortium: ConsortiumRow, number: int) -> Formation:
    """Return a decision as if by method ``stable``, which answers what-ifs in milliseconds."""
    own = FormationRow.consortium_id == consortium.id, FormationRow.number == number
    digest = session.scalar(select(FormationRow.certificate_digest).where(*own))
    found = None if digest is None else _BASES.get(digest)
    if found is None:
        record = session.numbered(FormationRow, consortium, number)
        found = _keep_basis(record.certificate_digest, formation_of(record))
    return found


def _keep_basis(digest: str, formation: Formation) -> Formation:
    with _ONE_BY_ONE:  # another thread may have added it meanwhile
        if digest not in _BASES:
            _BASES[digest] = replace(formation, method="stable", objective="welfare")
        found = _BASES[digest]
        while len(_BASES) > KEPT:
            _BASES.pop(next(iter(_BASES)))
    return found


_BASES: dict[str, Formation] = {}
"""By the hash of their certificate, so that its text, which may be megabytes, is read once."""

_ONE_BY_ONE = Lock()
"""Answers are computed one after the other: at once, each would be ready only with the last."""


def quick_what_if(
    basis: Formation,
    add: Sequence[tuple[str, str]] = (),
    remove: Sequence[tuple[str, str]] = (),
    leaves: Sequence[str] = (),
) -> WhatIf:
    """Return the effect of a hypothetical change, in milliseconds.

    The coalitions are taken apart as far as the change demands and merged until no one gains by
    merging; a search for the best partition, as a formation itself makes it, may move more.
    """
    with _ONE_BY_ONE:
        answer = what_if(basis, add=add, remove=remove, leaves=leaves)
        _ = answer.moved, answer.utility_changes  # computed here, while no other answer is
    return answer
