"""Confidential reports of competitors; a report of either side counts."""

import secrets

from sqlalchemy import or_, select

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain.consortia import (
    is_closed,
    member_named,
    members_of,
    participants_of,
)
from fedegoists.coordinator.store import Transaction
from fedegoists.coordinator.store.audit_check import report_digest
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.database_tables import ConsortiumRow, MemberRow, ReportRow
from fedegoists.graphs import CompetitionGraph


def report(session: Transaction, reporter: MemberRow, name: str) -> None:
    """Report a member as a competitor; a second report changes nothing."""
    competitor = _open_for(session, reporter, name)
    if _active(session, reporter, competitor) is not None:
        return
    found = ReportRow(
        consortium_id=reporter.consortium_id,
        reporter_id=reporter.id,
        competitor_id=competitor.id,
        salt=secrets.token_hex(32),
        created=session.now(),
    )
    session.add(found)
    _log(session, Action.COMPETITOR_REPORTED, reporter, competitor, found.salt)


def withdraw(session: Transaction, reporter: MemberRow, name: str) -> None:
    """Withdraw a report, if there is one."""
    competitor = _open_for(session, reporter, name)
    found = _active(session, reporter, competitor)
    if found is not None:
        found.withdrawn = session.now()
        _log(session, Action.REPORT_WITHDRAWN, reporter, competitor, found.salt)


def finish_reporting(session: Transaction, reporter: MemberRow) -> None:
    """Record that a member has reported all of its competitors, or has none.

    Both are recorded alike. It may still change its reports until they are closed.
    """
    _check_open(session, reporter)
    if reporter.reported is None:
        reporter.reported = session.now()
        action, consortium = Action.REPORTING_FINISHED, reporter.consortium
        append(session, f"member {reporter.name}"[:200], action, consortium, member=reporter.name)


def _check_open(session: Transaction, reporter: MemberRow) -> None:
    if is_closed(session, reporter.consortium):
        why = _why_closed(session, reporter.consortium)
        raise ConflictError(f"{why}: reports can no longer be changed")


def _open_for(session: Transaction, reporter: MemberRow, name: str) -> MemberRow:
    """Return the competitor, if reports are open and it can be one."""
    _check_open(session, reporter)
    competitor = member_named(session, reporter.consortium, name)
    if competitor.id == reporter.id:
        raise ConflictError("a member cannot be its own competitor; name another member")
    return competitor


def _why_closed(session: Transaction, consortium: ConsortiumRow) -> str:
    if consortium.deadline is None:
        return "the manager has closed the reports"
    if consortium.deadline <= session.now():
        return "the deadline has passed"
    # By the manager before the deadline, or at a deadline before the clock went back.
    return "reporting is over"


def _active(session: Transaction, reporter: MemberRow, competitor: MemberRow) -> ReportRow | None:
    return session.scalar(
        select(ReportRow).where(
            ReportRow.reporter_id == reporter.id,
            ReportRow.competitor_id == competitor.id,
            ReportRow.withdrawn.is_(None),
            # As if there were none: to report again must not show whether there is one.
            ReportRow.sealed.is_(None),
        )
    )


def _log(
    session: Transaction, action: Action, reporter: MemberRow, competitor: MemberRow, salt: str
) -> None:
    """Log a report, but not the competitor: the log is shown to others."""
    consortium, name = reporter.consortium, reporter.name
    digest = report_digest(salt, consortium.name, name, competitor.name)
    append(session, f"member {name}"[:200], action, consortium, member=name, report=digest)


def reported_by(session: Transaction, member: MemberRow) -> tuple[str, ...]:
    """Return the competitors that a member has reported and that are still members.

    Those that it reported before it was invited again are sealed, and left out.
    """
    rows = session.scalars(
        select(MemberRow)
        .join(ReportRow, ReportRow.competitor_id == MemberRow.id)
        .where(ReportRow.reporter_id == member.id, ReportRow.withdrawn.is_(None))
        .where(ReportRow.sealed.is_(None))
        .where(MemberRow.state != "expelled")
        .order_by(MemberRow.id)
    )
    return tuple(row.name for row in rows)


def shown_at(session: Transaction, member: MemberRow, moment: str) -> set[str]:
    """Return the competitors that a member had reported at a time, without sealed reports."""
    rows = session.scalars(
        select(MemberRow.name)
        .join(ReportRow, ReportRow.competitor_id == MemberRow.id)
        .where(ReportRow.reporter_id == member.id, ReportRow.sealed.is_(None))
        .where(ReportRow.created <= moment)
        .where(or_(ReportRow.withdrawn.is_(None), ReportRow.withdrawn > moment))
    )
    return set(rows)


def active_reports(session: Transaction, consortium: ConsortiumRow) -> dict[str, list[str]]:
    """Return the reported competitors by reporter, among the participants.

    Sealed reports are among them.
    """
    members = members_of(session, consortium)
    names = {member.id: member.name for member in members if member.state == "joined"}
    found: dict[str, list[str]] = {}
    for row in session.scalars(
        select(ReportRow)
        .where(ReportRow.consortium_id == consortium.id)
        .where(ReportRow.withdrawn.is_(None))
        .order_by(ReportRow.id)
    ):
        if row.reporter_id in names and row.competitor_id in names:
            reported = found.setdefault(names[row.reporter_id], [])
            if names[row.competitor_id] not in reported:  # it may be sealed, and reported again
                reported.append(names[row.competitor_id])
    return found


def competition_of(session: Transaction, consortium: ConsortiumRow) -> CompetitionGraph:
    """Return the competition graph: a pair competes if one of the two, or both, reported it."""
    pairs = {
        tuple(sorted((reporter, competitor)))
        for reporter, competitors in active_reports(session, consortium).items()
        for competitor in competitors
    }
    names = participants_of(session, consortium)
    return CompetitionGraph([(a, b) for a, b in sorted(pairs)], names)
