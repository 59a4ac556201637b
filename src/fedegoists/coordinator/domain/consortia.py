"""Consortia and their members: founding, inviting, deadlines, expelling."""

from collections.abc import Sequence

from sqlalchemy import select, update

from fedegoists.coordinator.coordinator_errors import ConflictError, NotFoundError
from fedegoists.coordinator.domain import accounts
from fedegoists.coordinator.domain.unfinished_runs import end_run, unfinished_in
from fedegoists.coordinator.store import CoordinatorStore, Transaction
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.database_tables import (
    AccountRow,
    ConsortiumRow,
    MemberRow,
    ReportRow,
)
from fedegoists.graphs.participants import MAX_PARTICIPANTS, validated_name


def create(session: Transaction, by: str, name: str, deadline: str | None = None) -> ConsortiumRow:
    """Found a consortium, whose members may report competitors until the deadline."""
    name = validated_name(name, "consortium")
    if session.scalar(select(ConsortiumRow).where(ConsortiumRow.name == name)):
        raise ConflictError(f"there is a consortium {name!r} already; choose another name")
    found = ConsortiumRow(name=name, created=session.now())
    session.add(found)
    session.flush()
    append(session, by, Action.CONSORTIUM_CREATED, found)
    if deadline is not None:
        set_deadline(session, by, found, deadline)
    return found


def consortium_with(session: Transaction, consortium_id: int) -> ConsortiumRow:
    """Return a consortium by its number."""
    found = session.get(ConsortiumRow, consortium_id)
    if found is None:
        raise NotFoundError("there is no such consortium")
    return found


def member_with(session: Transaction, member_id: int) -> MemberRow:
    """Return a member by its number."""
    member = session.get(MemberRow, member_id)
    if member is None or member.state == "expelled":
        raise NotFoundError("there is no such member")
    return member


def members_of(session: Transaction, consortium: ConsortiumRow) -> Sequence[MemberRow]:
    """Return all members, expelled ones included, in the order of their invitations."""
    return session.scalars(
        select(MemberRow).where(MemberRow.consortium_id == consortium.id).order_by(MemberRow.id)
    ).all()


def member_names(session: Transaction, consortium: ConsortiumRow) -> list[str]:
    """Return the names of the members that are invited or have joined."""
    return [one.name for one in members_of(session, consortium) if one.state != "expelled"]


def participants_of(session: Transaction, consortium: ConsortiumRow) -> list[str]:
    """Return the names of the members that have joined, and so take part in decisions."""
    return [one.name for one in members_of(session, consortium) if one.state == "joined"]


def member_named(session: Transaction, consortium: ConsortiumRow, name: str) -> MemberRow:
    """Return a member that is invited or has joined."""
    found = session.scalar(
        select(MemberRow).where(MemberRow.consortium_id == consortium.id, MemberRow.name == name)
    )
    if found is None or found.state == "expelled":
        raise NotFoundError(f"there is no member {name!r} in this consortium")
    return found


def invite(
    session: Transaction, by: str, consortium: ConsortiumRow, name: str
) -> tuple[MemberRow, str]:
    """Invite an organisation; return the invitation, which is shown once."""
    name = validated_name(name, "member")
    members = members_of(session, consortium)
    if any(member.name == name for member in members):
        raise ConflictError(f"{name!r} is or was a member already; names are used once")
    for member in members:
        if member.state != "expelled" and _looks(member.name) == _looks(name):
            raise ConflictError(
                f"{name!r} differs from the member {member.name!r} only in spaces or in upper and "
                "lower case; choose a name that others can tell apart"
            )
    if len(members) >= MAX_PARTICIPANTS:
        raise ConflictError(f"a consortium has at most {MAX_PARTICIPANTS:,} members")
    member = MemberRow(consortium_id=consortium.id, name=name, created=session.now())
    session.add(member)
    session.flush()
    account = AccountRow(role="member", label=name, member_id=member.id, created=session.now())
    session.add(account)
    session.flush()
    action = Action.MEMBER_INVITED
    return member, accounts.invited(session, account, by, action, consortium, member=name)


def _looks(name: str) -> str:
    """Return a name as it looks to a quick reader."""
    return "".join(name.split()).casefold()


def invite_again(session: Transaction, by: str, consortium: ConsortiumRow, name: str) -> str:
    """Return a new invitation for a member that lost its token; the old token ends.

    The invitation passes through the hands of the manager, who could use it. So the new token
    shows none of the reports made before. They count as before: were they to end, the competition
    graph, which the manager sees, would tell which they were.
    """
    member = member_named(session, consortium, name)
    if member.state == "joined":
        member.invited_again = session.now()
        session.execute(
            update(ReportRow)
            .where(ReportRow.reporter_id == member.id, ReportRow.sealed.is_(None))
            .values(sealed=member.invited_again)
        )
    account, action = _account(session, member), Action.INVITED_AGAIN
    return accounts.invited(session, account, by, action, consortium, member=member.name)


def expel(session: Transaction, by: str, consortium: ConsortiumRow, name: str) -> None:
    """Expel a member: its token ends, and later decisions leave out it and its reports.

    Unfinished runs are cancelled, so that its data and models are no longer used.
    """
    member = member_named(session, consortium, name)
    if member.state == "joined":
        for run in unfinished_in(session, consortium):
            end_run(session, run, "cancelled", f"{name!r} was expelled")
    member.state = "expelled"
    account = _account(session, member)
    accounts.end_account(session, account)
    known = {"member": member.name, "account": account.id}
    append(session, by, Action.MEMBER_EXPELLED, consortium, **known)


def _account(session: Transaction, member: MemberRow) -> AccountRow:
    found = session.scalar(select(AccountRow).where(AccountRow.member_id == member.id))
    assert found is not None  # created with the member
    return found


# The period for reports ----------------------------------------------------------------------


def is_closed(session: Transaction, consortium: ConsortiumRow) -> bool:
    """Whether members can no longer change their reports."""
    due = consortium.deadline is not None and consortium.deadline <= session.now()
    return consortium.state == "closed" or due


def set_deadline(
    session: Transaction, by: str, consortium: ConsortiumRow, deadline: str | None
) -> None:
    """Set the end of the period for reports; only while it lasts, and never in the past."""
    if is_closed(session, consortium):
        raise ConflictError("reports are closed; reopen them first")
    if deadline is not None and deadline <= session.now():
        raise ConflictError("the deadline is in the past; close the reports instead")
    consortium.deadline = deadline
    append(session, by, Action.DEADLINE_SET, consortium, deadline=deadline)


def close_reports(session: Transaction, by: str, consortium: ConsortiumRow) -> None:
    """Close the reports, as a decision needs it."""
    if consortium.state != "closed":
        consortium.state = "closed"
        append(session, by, Action.REPORTS_CLOSED, consortium)


def reopen_reports(session: Transaction, by: str, consortium: ConsortiumRow) -> None:
    """Let members change their reports until they are closed again."""
    if not is_closed(session, consortium):
        raise ConflictError("reports are open already")
    unfinished = unfinished_in(session, consortium)
    if unfinished:
        raise ConflictError(
            f"run {unfinished[0].number} relies on the reports there are; cancel it, or wait for it"
        )
    consortium.state, consortium.deadline = "collecting", None
    for member in members_of(session, consortium):
        member.reported = None
    append(session, by, Action.REPORTS_REOPENED, consortium)


def close_due(store: CoordinatorStore) -> None:
    """Close the reports whose deadline has passed, so that no clock can undo it."""
    with store.read() as session:
        waiting = session.scalars(
            select(ConsortiumRow).where(ConsortiumRow.state == "collecting")
        ).all()
        due = [found.id for found in waiting if is_closed(session, found)]
    for consortium_id in due:
        with store.write() as session:
            found = consortium_with(session, consortium_id)
            if is_closed(session, found):
                close_reports(session, "coordinator", found)
