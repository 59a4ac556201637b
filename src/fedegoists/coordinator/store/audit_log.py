"""The audit log: a chain of entries in which each holds the hash of the entry before."""

import enum
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.store.database import Transaction, earliest_after
from fedegoists.coordinator.store.database_tables import AuditEntry, ConsortiumRow
from fedegoists.coordinator.store.moments import CLOCK_WENT_BACK

BEGINNING = "0" * 64
"""The previous hash of the first entry."""

BATCH = 1000


class Action(enum.StrEnum):
    """Recorded actions."""

    ACCOUNT_INVITED = "account invited"
    INVITED_AGAIN = "invited again"
    ACCOUNT_JOINED = "account joined"
    ACCOUNT_ENDED = "account ended"
    CERTIFICATE_ADDED = "client certificate added"
    CONSORTIUM_CREATED = "consortium created"
    MEMBER_INVITED = "member invited"
    MEMBER_JOINED = "member joined"
    MEMBER_EXPELLED = "member expelled"
    DEADLINE_SET = "deadline set"
    REPORTS_CLOSED = "reports closed"
    REPORTS_REOPENED = "reports reopened"
    COMPETITOR_REPORTED = "competitor reported"
    REPORT_WITHDRAWN = "report withdrawn"
    REPORTING_FINISHED = "reporting finished"
    BENEFIT_RECORDED = "benefit recorded"
    COALITIONS_FORMED = "coalitions formed"
    DECISION_PUBLISHED = "decision published"
    OPENED_TO_AUDITOR = "opened to auditor"
    RUN_QUEUED = "run queued"
    RUN_ENDED = "run ended"
    RESTORED = "restored from backup"
    CLOCK_WENT_BACK = CLOCK_WENT_BACK


def append(
    session: Transaction,
    actor: str,
    action: Action,
    consortium: ConsortiumRow | None = None,
    **details: object,
) -> AuditEntry:
    """Add an entry in a transaction that writes; both are kept, or neither."""
    if consortium is not None:
        details["consortium"] = consortium.name
    last = session.scalar(select(AuditEntry).order_by(AuditEntry.id.desc()).limit(1))
    now = session.now()
    if last is not None and now < earliest_after(last):
        logging.getLogger("fedegoists.coordinator").warning(
            "the clock went back: it says %s, the audit log %s", now, last.at
        )
        said = {"clock": now}
        last = _added(session, last, last.at, "coordinator", Action.CLOCK_WENT_BACK, said)
    return _added(session, last, now, actor, action, details)


def _added(
    session: Session,
    last: AuditEntry | None,
    at: str,
    actor: str,
    action: Action,
    details: Mapping[str, object],
) -> AuditEntry:
    entry = AuditEntry(
        id=last.id + 1 if last else 1,
        at=at,
        actor=actor,
        action=action.value,
        details=json.dumps(details, ensure_ascii=False, sort_keys=True, separators=(",", ":")),
        previous=last.digest if last else BEGINNING,
        digest="",
    )
    entry.digest = digest_of(entry)
    session.add(entry)
    session.flush()
    return entry


def digest_of(entry: AuditEntry) -> str:
    """Return the hash over all fields of an entry, the hash of the entry before included."""
    content = [entry.id, entry.at, entry.actor, entry.action, entry.details, entry.previous]
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()


def entries(session: Session, after: int = 0) -> Iterator[AuditEntry]:
    """Yield entries in order, loaded in batches."""
    while True:
        found = session.scalars(
            select(AuditEntry).where(AuditEntry.id > after).order_by(AuditEntry.id).limit(BATCH)
        ).all()
        yield from found
        if len(found) < BATCH:
            return
        after = found[-1].id
        session.expunge_all()


def entry_line(entry: AuditEntry) -> str:
    """Return an entry as one line of JSON, with all fields of its hash."""
    columns = entry.__table__.columns.keys()
    return json.dumps({name: getattr(entry, name) for name in columns})


@dataclass(frozen=True)
class LogCheck:
    """Result of a check of the audit log.

    Attributes
    ----------
    count : int
        The number of entries.
    head : str
        The hash of the last entry. With a copy of it kept elsewhere, even a truncated or
        rewritten log is detected.
    problems : tuple of str
        Descriptions of the alterations; empty if there are none.
    """

    count: int
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def check_chain(session: Session, expected_head: str | None = None) -> LogCheck:
    """Check that no entry was changed, removed, inserted or moved.

    Parameters
    ----------
    expected_head : str, optional
        A head noted earlier; an entry must still have this hash.
    """
    problems = []
    count, head, at, seen = 0, BEGINNING, "", expected_head in (None, BEGINNING)
    for entry in entries(session):
        count += 1
        if entry.id != count:
            problems.append(f"entry {count} is missing: entry {entry.id} follows {count - 1}")
            count = entry.id
        if entry.previous != head:
            problems.append(f"entry {entry.id} does not follow the one before it")
        if digest_of(entry) != entry.digest:
            problems.append(f"entry {entry.id} was changed")
        if entry.at < at:
            problems.append(f"entry {entry.id} is earlier than the one before it")
        head, at = entry.digest, _earliest(entry)
        seen = seen or head == expected_head
    if not seen:
        problems.append(
            f"no entry has the hash {str(expected_head)[:16]}…, which was noted before: "
            "the log was truncated or rewritten"
        )
    return LogCheck(count, head, tuple(problems[:100]))


def _earliest(entry: AuditEntry) -> str:
    try:
        return earliest_after(entry)
    except (ValueError, KeyError, TypeError):
        return ""  # a changed entry; its hash is reported
