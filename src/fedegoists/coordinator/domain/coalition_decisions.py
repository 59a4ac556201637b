"""Decisions: recording who benefits whom, forming coalitions, and asking what if."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

import networkx as nx  # noqa: F401, what-if needs it: loaded now, not while the first one waits
from sqlalchemy import func, select
from sqlalchemy.orm import Session

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
from fedegoists.coordinator.coordinator_errors import ConflictError, NotFoundError
from fedegoists.coordinator.domain.competitor_reports import active_reports, competition_of
from fedegoists.coordinator.domain.consortia import (
    close_reports,
    consortium_with,
    is_closed,
    participants_of,
)
from fedegoists.coordinator.domain.worker_process import ProcessOfItsOwn
from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.replay import reports_digest, text_digest
from fedegoists.coordinator.store.tables import (
    BenefitEstimate,
    ConsortiumRecord,
    FormationRecord,
)
from fedegoists.graphs import BenefitGraph, CompetitionGraph

__all__ = [
    "Decider",
    "Wish",
    "benefit_among",
    "certificate_of",
    "commitment_for",
    "formation_of",
    "formation_record",
    "graph_of",
    "latest_benefit",
    "latest_formation",
    "quick_what_if",
    "record_benefit",
    "trial_of",
]

IN_THREAD = 14
"""Up to so many participants the best partition is found without compiling anything."""


@dataclass(frozen=True)
class Wish:
    """How to form coalitions."""

    method: FormationMethod = "best"
    objective: Objective = "welfare"
    time_limit: float = 1.0
    seed: int = 0


# Who benefits whom ---------------------------------------------------------------------------


def record_benefit(
    store: Store,
    session: Session,
    by: str,
    consortium: ConsortiumRecord,
    graph: BenefitGraph,
    source: str,
) -> BenefitEstimate:
    """Keep a benefit graph; the latest one counts."""
    text = graph.to_json()
    found = BenefitEstimate(
        consortium_id=consortium.id,
        source=source[:200],
        graph=text,
        digest=text_digest(text),
        created=store.now(session),
    )
    session.add(found)
    session.flush()
    details = {
        "consortium": consortium.name,
        "number": found.id,
        "sha256": found.digest,
        "source": found.source,
    }
    append(store, session, by, Action.BENEFIT_RECORDED, details)
    return found


def latest_benefit(session: Session, consortium: ConsortiumRecord) -> BenefitEstimate | None:
    """Return the benefit graph that counts, if there is one."""
    return session.scalar(
        select(BenefitEstimate)
        .where(BenefitEstimate.consortium_id == consortium.id)
        .order_by(BenefitEstimate.id.desc())
        .limit(1)
    )


def graph_of(estimate: BenefitEstimate) -> BenefitGraph:
    """Return a benefit graph as it was recorded."""
    return _graph(estimate.digest, estimate.graph)


def benefit_among(estimate: BenefitEstimate, participants: Sequence[str]) -> BenefitGraph:
    """Return the graph among some participants, in their order.

    Raises
    ------
    ConflictError
        If the graph does not know one of them.
    """
    graph = graph_of(estimate)
    missing = [name for name in participants if name not in graph.participants]
    if missing:
        raise ConflictError(
            f"the benefit graph does not know {missing[0]!r}; record one with all participants"
        )
    return graph.restricted_to(participants)


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
    """Forms coalitions; large consortia in a process of their own, so that nobody else waits."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pool = ProcessOfItsOwn()

    def close(self) -> None:
        """Stop what is still being formed."""
        self._pool.close()

    def form(self, by: str, consortium_id: int, wish: Wish) -> FormationRecord:
        """Decide who trains with whom, by what has been reported until reports were closed.

        Raises
        ------
        ConflictError
            If reports are still open, nobody has joined, who benefits whom is not known, or
            something changed meanwhile.
        """
        with self.store.read() as session:
            inputs = self._inputs(session, consortium_id)
        formation = self._formed(inputs, wish)
        certificate = formation.certificate
        text = certificate.to_json()
        with self.store.write() as session:
            consortium = consortium_with(session, consortium_id)
            now = self._inputs(session, consortium_id)
            if (now.benefit_id, now.reports) != (inputs.benefit_id, inputs.reports) or (
                now.benefit.participants != inputs.benefit.participants
            ):
                raise ConflictError("members, benefits or reports changed meanwhile; form again")
            close_reports(self.store, session, "coordinator", consortium)
            number = 1 + (
                session.scalar(
                    select(func.max(FormationRecord.number)).where(
                        FormationRecord.consortium_id == consortium_id
                    )
                )
                or 0
            )
            secret, salt = new_secret(), _new_salt()
            commitment = Commitment(_context(consortium, number), certificate, secret)
            record = FormationRecord(
                consortium_id=consortium_id,
                number=number,
                benefit_id=inputs.benefit_id,
                certificate=text,
                certificate_digest=text_digest(text),
                secret=secret.hex(),
                commitment=commitment.digest,
                reports=inputs.reports,
                salt=salt,
                created=self.store.now(session),
            )
            session.add(record)
            details = {
                "consortium": consortium.name,
                "number": number,
                "commitment": record.commitment,
                "certificate": record.certificate_digest,
                "reports": reports_digest(salt, record.reports),
                "benefit": inputs.benefit_id,
                "method": wish.method,
            }
            append(self.store, session, by, Action.COALITIONS_FORMED, details)
        with _ONE_BY_ONE:
            _keep_trial(record.certificate_digest, _trial(formation))  # the manager asks what if
        return record

    def _inputs(self, session: Session, consortium_id: int) -> _Inputs:
        consortium = consortium_with(session, consortium_id)
        if not is_closed(self.store, session, consortium):
            raise ConflictError(
                "members may still report competitors; close the reports, or wait for the deadline"
            )
        participants = [member.name for member in participants_of(session, consortium)]
        if not participants:
            raise ConflictError("nobody has joined yet")
        estimate = latest_benefit(session, consortium)
        if estimate is None:
            raise ConflictError("who benefits whom is not known yet; record or learn it first")
        return _Inputs(
            estimate.id,
            benefit_among(estimate, participants),
            competition_of(session, consortium),
            json.dumps(active_reports(session, consortium), ensure_ascii=False, sort_keys=True),
        )

    def _formed(self, inputs: _Inputs, wish: Wish) -> Formation:
        if wish.method != "best" or inputs.benefit.n <= IN_THREAD:
            return _form(inputs.benefit, inputs.competition, wish)
        return self._pool.call(_form, inputs.benefit, inputs.competition, wish)


def _form(benefit: BenefitGraph, competition: CompetitionGraph, wish: Wish) -> Formation:
    return form(
        benefit,
        competition,
        wish.method,
        objective=wish.objective,
        seed=wish.seed,
        time_limit=wish.time_limit,
    )


def _new_salt() -> str:
    return secrets.token_hex(32)


def _context(consortium: ConsortiumRecord, number: int) -> str:
    return f"{consortium.name}, formation {number}"


# What was decided -----------------------------------------------------------------------------


def formation_record(
    session: Session, consortium: ConsortiumRecord, number: int
) -> FormationRecord:
    """Return a decision by its number."""
    found = session.scalar(
        select(FormationRecord).where(
            FormationRecord.consortium_id == consortium.id, FormationRecord.number == number
        )
    )
    if found is None:
        raise NotFoundError("there is no such formation")
    return found


def latest_formation(session: Session, consortium: ConsortiumRecord) -> FormationRecord | None:
    """Return the decision that counts, if there is one."""
    return session.scalar(
        select(FormationRecord)
        .where(FormationRecord.consortium_id == consortium.id)
        .order_by(FormationRecord.number.desc())
        .limit(1)
    )


def formation_of(record: FormationRecord) -> Formation:
    """Return a decision as it was made."""
    return _certificate(record.certificate_digest, record.certificate)[1]


def certificate_of(record: FormationRecord) -> Certificate:
    """Return a decision's certificate."""
    return _certificate(record.certificate_digest, record.certificate)[0]


@lru_cache(maxsize=16)
def _certificate(_digest: str, text: str) -> tuple[Certificate, Formation]:
    certificate = Certificate.from_json(text)
    return certificate, certificate.formation()


def commitment_for(consortium: ConsortiumRecord, record: FormationRecord) -> Commitment:
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


def trial_of(session: Session, consortium: ConsortiumRecord, number: int) -> Formation:
    """Return a decision for what-if questions; the same one for as long as it is kept."""
    digest = session.scalar(
        select(FormationRecord.certificate_digest).where(
            FormationRecord.consortium_id == consortium.id, FormationRecord.number == number
        )
    )
    found = None if digest is None else _TRIALS.get(digest)
    if found is not None:
        return found
    record = formation_record(session, consortium, number)
    with _ONE_BY_ONE:  # whoever else asked for it meanwhile finds it there
        found = _TRIALS.get(record.certificate_digest)
        if found is None:
            found = _trial(formation_of(record))
            _keep_trial(record.certificate_digest, found)
    return found


def _trial(formation: Formation) -> Formation:
    """Return a decision as if it were made by method ``stable``, which answers in milliseconds."""
    return replace(formation, method="stable", objective="welfare")


def _keep_trial(digest: str, trial: Formation) -> None:
    _TRIALS[digest] = trial
    while len(_TRIALS) > KEPT_TRIALS:
        _TRIALS.pop(next(iter(_TRIALS)), None)


_TRIALS: dict[str, Formation] = {}
"""By the hash of their certificate, so that its text, which may be megabytes, is read once."""

KEPT_TRIALS = 16

_ONE_BY_ONE = Lock()
"""Answers are computed one after the other: at once, each would be ready only with the last."""


def quick_what_if(
    trial: Formation,
    add: Sequence[tuple[str, str]] = (),
    remove: Sequence[tuple[str, str]] = (),
    leaves: Sequence[str] = (),
) -> WhatIf:
    """Return what a change would bring, in milliseconds.

    The coalitions are taken apart as far as the change demands and merged until nobody gains by
    merging; a search for the best partition, as a formation itself makes it, may move more.
    """
    with _ONE_BY_ONE:
        answer = what_if(trial, add=add, remove=remove, leaves=leaves)
        _ = answer.moved, answer.utility_changes  # computed here, while no other answer is
    return answer
