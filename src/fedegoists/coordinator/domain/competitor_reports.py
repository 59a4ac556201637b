"""Competitors, reported in confidence: either side's report counts."""

import secrets

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain.consortia import (
    is_closed,
    member_named,
    participants_of,
)
from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.replay import report_digest
from fedegoists.coordinator.store.tables import CompetitionReport, ConsortiumRecord, Member
from fedegoists.graphs import CompetitionGraph

__all__ = ["active_reports", "competition_of", "report", "reported_by", "withdraw"]


def report(
    store: Store, session: Session, consortium: ConsortiumRecord, reporter: Member, name: str
) -> None:
    """Note that a member names another as its competitor; saying it twice changes nothing."""
    competitor = _open_for(store, session, consortium, reporter, name)
    if _active(session, reporter, competitor) is not None:
        return
    found = CompetitionReport(
        consortium_id=consortium.id,
        reporter_id=reporter.id,
        competitor_id=competitor.id,
        salt=secrets.token_hex(32),
        created=store.now(session),
    )
    session.add(found)
    _log(store, session, Action.COMPETITOR_REPORTED, consortium, reporter, competitor, found.salt)


def withdraw(
    store: Store, session: Session, consortium: ConsortiumRecord, reporter: Member, name: str
) -> None:
    """Take a report back; what is not there is left so."""
    competitor = _open_for(store, session, consortium, reporter, name)
    found = _active(session, reporter, competitor)
    if found is not None:
        found.withdrawn = store.now(session)
        _log(store, session, Action.REPORT_WITHDRAWN, consortium, reporter, competitor, found.salt)


def _open_for(
    store: Store, session: Session, consortium: ConsortiumRecord, reporter: Member, name: str
) -> Member:
    if is_closed(store, session, consortium):
        why = _why_closed(store, session, consortium)
        raise ConflictError(f"{why}: reports can no longer be changed")
    competitor = member_named(session, consortium, name)
    if competitor.id == reporter.id:
        raise ConflictError("nobody competes with itself; name another member")
    return competitor


def _why_closed(store: Store, session: Session, consortium: ConsortiumRecord) -> str:
    if consortium.deadline is None:
        return "the manager has closed the reports"
    if consortium.deadline <= store.now(session):
        return "the deadline has passed"
    # By the manager before the deadline, or at a deadline before the clock went back.
    return "reporting is over"


def _active(session: Session, reporter: Member, competitor: Member) -> CompetitionReport | None:
    return session.scalar(
        select(CompetitionReport).where(
            CompetitionReport.reporter_id == reporter.id,
            CompetitionReport.competitor_id == competitor.id,
            CompetitionReport.withdrawn.is_(None),
        )
    )


def _log(
    store: Store,
    session: Session,
    action: Action,
    consortium: ConsortiumRecord,
    reporter: Member,
    competitor: Member,
    salt: str,
) -> None:
    """Write down that something was reported, but not whom: the log is shown to others."""
    digest = report_digest(salt, consortium.name, reporter.name, competitor.name)
    details = {"consortium": consortium.name, "member": reporter.name, "report": digest}
    append(store, session, f"member {reporter.name}"[:200], action, details)


def reported_by(session: Session, member: Member) -> tuple[str, ...]:
    """Return whom a member itself has named, of those who still are members."""
    rows = session.scalars(
        select(Member)
        .join(CompetitionReport, CompetitionReport.competitor_id == Member.id)
        .where(CompetitionReport.reporter_id == member.id, CompetitionReport.withdrawn.is_(None))
        .where(Member.state != "expelled")
        .order_by(Member.id)
    )
    return tuple(row.name for row in rows)


def active_reports(session: Session, consortium: ConsortiumRecord) -> dict[str, list[str]]:
    """Return whom everybody has named, among those who take part."""
    names = {member.id: member.name for member in participants_of(session, consortium)}
    found: dict[str, list[str]] = {}
    for row in session.scalars(
        select(CompetitionReport)
        .where(CompetitionReport.consortium_id == consortium.id)
        .where(CompetitionReport.withdrawn.is_(None))
        .order_by(CompetitionReport.id)
    ):
        if row.reporter_id in names and row.competitor_id in names:
            found.setdefault(names[row.reporter_id], []).append(names[row.competitor_id])
    return found


def competition_of(session: Session, consortium: ConsortiumRecord) -> CompetitionGraph:
    """Return who competes with whom: a pair counts whoever of the two, or both, reported it."""
    names = [member.name for member in participants_of(session, consortium)]
    pairs = {
        tuple(sorted((reporter, competitor)))
        for reporter, competitors in active_reports(session, consortium).items()
        for competitor in competitors
    }
    return CompetitionGraph([(a, b) for a, b in sorted(pairs)], names)
