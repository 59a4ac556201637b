"""The audit log: who did what and when, each entry holding the hash of the one before."""

import enum
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.store.database import Store, earliest_after
from fedegoists.coordinator.store.tables import AuditEntry
from fedegoists.coordinator.store.times import CLOCK_WENT_BACK

__all__ = [
    "BEGINNING",
    "Action",
    "LogCheck",
    "append",
    "check_chain",
    "digest_of",
    "entries",
    "entry_line",
]

BEGINNING = "0" * 64
"""What stands for the hash before the first entry."""

BATCH = 1000


class Action(enum.StrEnum):
    """What can be done here, and is written down."""

    ACCOUNT_INVITED = "account invited"
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
    BENEFIT_RECORDED = "benefit recorded"
    COALITIONS_FORMED = "coalitions formed"
    OPENED_TO_AUDITOR = "opened to auditor"
    RUN_QUEUED = "run queued"
    RUN_ENDED = "run ended"
    RESTORED = "restored from backup"
    CLOCK_WENT_BACK = CLOCK_WENT_BACK


def append(
    store: Store, session: Session, actor: str, action: Action, details: Mapping[str, Any]
) -> AuditEntry:
    """Add an entry inside a transaction that writes; it is kept if the rest of it is."""
    last = session.scalar(select(AuditEntry).order_by(AuditEntry.id.desc()).limit(1))
    now = store.now(session)
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
    details: Mapping[str, Any],
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
    """Return the hash over everything an entry says, the hash of the one before included."""
    content = [entry.id, entry.at, entry.actor, entry.action, entry.details, entry.previous]
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()


def entries(session: Session, after: int = 0) -> Iterator[AuditEntry]:
    """Yield entries in order, a few at a time."""
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
    """Return an entry as one line of JSON, with everything that its hash is made from."""
    columns = entry.__table__.columns.keys()
    return json.dumps({name: getattr(entry, name) for name in columns})


@dataclass(frozen=True)
class LogCheck:
    """What a check of the audit log found.

    Attributes
    ----------
    count : int
        How many entries there are.
    head : str
        The hash of the last one. Keep it elsewhere: then even a log that was cut off, or written
        anew as a whole, shows.
    problems : tuple of str
        What is wrong; empty if nothing is.
    """

    count: int
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check_chain(session: Session, expected_head: str | None = None) -> LogCheck:
    """Check that no entry was changed, left out, put in, or moved.

    Parameters
    ----------
    expected_head : str, optional
        A hash noted earlier; it must still be that of an entry.
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
            "the log was cut off or written anew"
        )
    return LogCheck(count, head, tuple(problems[:100]))


def _earliest(entry: AuditEntry) -> str:
    try:
        return earliest_after(entry)
    except (ValueError, KeyError, TypeError):
        return ""  # its hash says that it was changed
