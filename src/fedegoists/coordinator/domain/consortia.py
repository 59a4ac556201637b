"""Consortia and their members: founding, inviting, deadlines, expelling."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.coordinator_errors import ConflictError, NotFoundError
from fedegoists.coordinator.domain import access
from fedegoists.coordinator.domain.run_endings import end_run, unfinished_in
from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.tables import Account, ConsortiumRecord, Member
from fedegoists.graphs.participants import MAX_PARTICIPANTS, validated_name

__all__ = [
    "close_due",
    "close_reports",
    "consortium_of",
    "consortium_with",
    "create",
    "expel",
    "invite",
    "invite_again",
    "is_closed",
    "member_named",
    "members_of",
    "participants_of",
    "reopen_reports",
    "set_deadline",
]


def create(
    store: Store, session: Session, by: str, name: str, deadline: str | None = None
) -> ConsortiumRecord:
    """Found a consortium, whose members may report competitors until the deadline."""
    name = validated_name(name, "consortium")
    if session.scalar(select(ConsortiumRecord).where(ConsortiumRecord.name == name)):
        raise ConflictError(f"there is a consortium {name!r} already; choose another name")
    found = ConsortiumRecord(name=name, created=store.now(session))
    session.add(found)
    session.flush()
    append(store, session, by, Action.CONSORTIUM_CREATED, {"consortium": name})
    if deadline is not None:
        set_deadline(store, session, by, found, deadline)
    return found


def consortium_with(session: Session, consortium_id: int) -> ConsortiumRecord:
    """Return a consortium by its number."""
    found = session.get(ConsortiumRecord, consortium_id)
    if found is None:
        raise NotFoundError("there is no such consortium")
    return found


def consortium_of(session: Session, member_id: int) -> tuple[ConsortiumRecord, Member]:
    """Return a member with its consortium."""
    member = session.get(Member, member_id)
    if member is None or member.state == "expelled":
        raise NotFoundError("there is no such member")
    return member.consortium, member


def members_of(session: Session, consortium: ConsortiumRecord) -> Sequence[Member]:
    """Return everybody who is or was invited, in the order in which they were."""
    return session.scalars(
        select(Member).where(Member.consortium_id == consortium.id).order_by(Member.id)
    ).all()


def participants_of(session: Session, consortium: ConsortiumRecord) -> list[Member]:
    """Return who has joined and takes part in decisions."""
    return [member for member in members_of(session, consortium) if member.state == "joined"]


def member_named(session: Session, consortium: ConsortiumRecord, name: str) -> Member:
    """Return a member who is invited or has joined."""
    found = session.scalar(
        select(Member).where(Member.consortium_id == consortium.id, Member.name == name)
    )
    if found is None or found.state == "expelled":
        raise NotFoundError(f"there is no member {name!r} in this consortium")
    return found


def invite(
    store: Store, session: Session, by: str, consortium: ConsortiumRecord, name: str
) -> tuple[Member, str]:
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
    member = Member(consortium_id=consortium.id, name=name, created=store.now(session))
    session.add(member)
    session.flush()
    account = Account(role="member", label=name, member_id=member.id, created=store.now(session))
    session.add(account)
    session.flush()
    details = {"consortium": consortium.name, "member": name}
    append(store, session, by, Action.MEMBER_INVITED, details)
    return member, access.new_invitation(store, session, account)


def _looks(name: str) -> str:
    """Return what is left of a name for whoever reads it quickly in a list."""
    return "".join(name.split()).casefold()


def invite_again(
    store: Store, session: Session, by: str, consortium: ConsortiumRecord, name: str
) -> str:
    """Return a new invitation for a member who lost its token; the old token ends."""
    member = member_named(session, consortium, name)
    details = {"role": "member", "label": member.name}
    append(store, session, by, Action.ACCOUNT_INVITED, details)
    return access.new_invitation(store, session, _account(session, member))


def expel(store: Store, session: Session, by: str, consortium: ConsortiumRecord, name: str) -> None:
    """Have a member leave: its token ends, and later decisions do without it and its reports.

    Runs that are not over end, so that nothing of it is used any more; one that does without it
    is started anew.
    """
    member = member_named(session, consortium, name)
    if member.state == "joined":
        for run in unfinished_in(session, consortium):
            end_run(store, session, run, "cancelled", f"{name!r} was expelled")
    member.state = "expelled"
    access.end_account(store, session, _account(session, member))
    details = {"consortium": consortium.name, "member": member.name}
    append(store, session, by, Action.MEMBER_EXPELLED, details)


def _account(session: Session, member: Member) -> Account:
    found = session.scalar(select(Account).where(Account.member_id == member.id))
    assert found is not None  # made with the member
    return found


# When reports end ---------------------------------------------------------------------------


def is_closed(store: Store, session: Session, consortium: ConsortiumRecord) -> bool:
    """Whether members can no longer change what they report."""
    due = consortium.deadline is not None and consortium.deadline <= store.now(session)
    return consortium.state == "closed" or due


def set_deadline(
    store: Store, session: Session, by: str, consortium: ConsortiumRecord, deadline: str | None
) -> None:
    """Say until when members may report; only while they still may, and never in the past."""
    if is_closed(store, session, consortium):
        raise ConflictError("reports are closed; reopen them first")
    if deadline is not None and deadline <= store.now(session):
        raise ConflictError("the deadline is in the past; close the reports instead")
    consortium.deadline = deadline
    details = {"consortium": consortium.name, "deadline": deadline}
    append(store, session, by, Action.DEADLINE_SET, details)


def close_reports(store: Store, session: Session, by: str, consortium: ConsortiumRecord) -> None:
    """Freeze what has been reported, as a decision needs it."""
    if consortium.state != "closed":
        consortium.state = "closed"
        append(store, session, by, Action.REPORTS_CLOSED, {"consortium": consortium.name})


def reopen_reports(store: Store, session: Session, by: str, consortium: ConsortiumRecord) -> None:
    """Let members report again, until they are closed or a new deadline passes."""
    if not is_closed(store, session, consortium):
        raise ConflictError("reports are open already")
    unfinished = unfinished_in(session, consortium)
    if unfinished:
        raise ConflictError(
            f"run {unfinished[0].number} relies on the reports there are; cancel it, or wait for it"
        )
    consortium.state, consortium.deadline = "collecting", None
    append(store, session, by, Action.REPORTS_REOPENED, {"consortium": consortium.name})


def close_due(store: Store) -> None:
    """Write down which deadlines have passed, so that no clock can undo it."""
    with store.read() as session:
        waiting = session.scalars(
            select(ConsortiumRecord).where(ConsortiumRecord.state == "collecting")
        ).all()
        due = [found.id for found in waiting if is_closed(store, session, found)]
    for consortium_id in due:
        with store.write() as session:
            found = consortium_with(session, consortium_id)
            if is_closed(store, session, found):
                close_reports(store, session, "coordinator", found)
