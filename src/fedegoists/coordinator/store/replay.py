"""Whether the tables say what the audit log says was done."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.store.audit_log import Action, LogCheck, check_chain, entries
from fedegoists.coordinator.store.tables import (
    AuditEntry,
    BenefitEstimate,
    CompetitionReport,
    ConsortiumRecord,
    FormationRecord,
    Member,
)

__all__ = ["check_log", "report_digest", "text_digest"]


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, by which the log refers to it."""
    return hashlib.sha256(text.encode()).hexdigest()


def report_digest(salt: str, consortium: str, reporter: str, competitor: str) -> str:
    """Return what the log says of a report: enough to vouch for it, not enough to read it."""
    return text_digest(json.dumps([salt, consortium, reporter, competitor], ensure_ascii=False))


def check_log(session: Session, expected_head: str | None = None) -> LogCheck:
    """Check the chain, and that what is in the tables is what was done, no more and no less."""
    chain = check_chain(session, expected_head)
    found = _Told(entries(session))
    problems = list(chain.problems)
    problems += _differences("consortium", found.consortia, _consortia(session))
    problems += _differences(
        "member", found.members, {(c, m): state for c, m, state in _members(session)}
    )
    problems += _differences("report", found.reports, _reports(session))
    problems += _differences("formation", found.formations, _formations(session))
    problems += _differences("benefit estimate", found.benefits, _benefits(session))
    return LogCheck(chain.count, chain.head, tuple(problems[:100]))


class _Told:
    """What the log tells."""

    def __init__(self, log: Iterable[AuditEntry]) -> None:
        self.consortia: dict[Any, Any] = {}
        self.members: dict[Any, Any] = {}
        self.reports: dict[Any, Any] = {}
        self.formations: dict[Any, Any] = {}
        self.benefits: dict[Any, Any] = {}
        for entry in log:
            try:
                self._read(entry.action, json.loads(entry.details))
            except (ValueError, KeyError, TypeError):
                continue  # the chain says that it was changed

    def _read(self, action: str, details: dict[str, Any]) -> None:
        match action:
            case Action.CONSORTIUM_CREATED | Action.REPORTS_REOPENED:
                self.consortia[(details["consortium"],)] = ("collecting", None)
            case Action.DEADLINE_SET:
                self.consortia[(details["consortium"],)] = ("collecting", details["deadline"])
            case Action.REPORTS_CLOSED:
                _, deadline = self.consortia[(details["consortium"],)]
                self.consortia[(details["consortium"],)] = ("closed", deadline)
            case Action.MEMBER_INVITED:
                self.members[details["consortium"], details["member"]] = "invited"
            case Action.MEMBER_JOINED:
                self.members[details["consortium"], details["member"]] = "joined"
            case Action.MEMBER_EXPELLED:
                self.members[details["consortium"], details["member"]] = "expelled"
            case Action.COMPETITOR_REPORTED:
                self.reports[details["report"]] = True
            case Action.REPORT_WITHDRAWN:
                self.reports[details["report"]] = False
            case Action.COALITIONS_FORMED:
                key = details["consortium"], details["number"]
                self.formations[key] = (details["commitment"], details["certificate"])
            case Action.BENEFIT_RECORDED:
                self.benefits[details["consortium"], details["number"]] = details["sha256"]


def _consortia(session: Session) -> dict[Any, Any]:
    return {
        (row.name,): (row.state, row.deadline) for row in session.scalars(select(ConsortiumRecord))
    }


def _members(session: Session) -> Iterable[tuple[str, str, str]]:
    for member in session.scalars(select(Member)):
        yield member.consortium.name, member.name, member.state


def _reports(session: Session) -> dict[Any, Any]:
    consortia = dict(session.execute(select(ConsortiumRecord.id, ConsortiumRecord.name)).all())
    names = dict(session.execute(select(Member.id, Member.name)).all())
    return {
        report_digest(
            row.salt, consortia[row.consortium_id], names[row.reporter_id], names[row.competitor_id]
        ): row.withdrawn is None
        for row in session.scalars(select(CompetitionReport))
    }


def _formations(session: Session) -> dict[Any, Any]:
    consortia = dict(session.execute(select(ConsortiumRecord.id, ConsortiumRecord.name)).all())
    return {
        (consortia[row.consortium_id], row.number): (row.commitment, text_digest(row.certificate))
        for row in session.scalars(select(FormationRecord))
    }


def _benefits(session: Session) -> dict[Any, Any]:
    consortia = dict(session.execute(select(ConsortiumRecord.id, ConsortiumRecord.name)).all())
    return {
        (consortia[row.consortium_id], row.id): text_digest(row.graph)
        for row in session.scalars(select(BenefitEstimate))
    }


def _differences(what: str, told: dict[Any, Any], kept: dict[Any, Any]) -> list[str]:
    def named(key: Any) -> str:
        return f"{key[:16]}…" if isinstance(key, str) else ", ".join(map(str, key))

    problems = [
        f"{what} {named(key)}: in the log, but not in the tables" for key in told.keys() - kept
    ]
    problems += [
        f"{what} {named(key)}: in the tables, but not in the log" for key in kept.keys() - told
    ]
    problems += [
        f"{what} {named(key)}: the tables say something else than the log"
        for key in told.keys() & kept.keys()
        if told[key] != kept[key]
    ]
    return sorted(problems)
