"""Accounts and their credentials: invitations, tokens, sessions and client certificates.

Of all secrets only hashes are kept.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal, cast

from sqlalchemy import delete, select, update

from fedegoists.coordinator.coordinator_errors import ConflictError, NotAllowedError, NotFoundError
from fedegoists.coordinator.store import CoordinatorStore, Transaction
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.database_tables import (
    AccountRow,
    ConsortiumRow,
    CredentialRow,
    MemberRow,
)
from fedegoists.coordinator.store.moments import shifted

AccountRole = Literal["manager", "member", "monitor"]
CredentialKind = Literal["invitation", "token", "session", "certificate"]

INVITATION_SECONDS = 14 * 24 * 3600
SESSION_SECONDS = 12 * 3600

MOST_SESSIONS = 20
"""Of one account: each is a row, and who has a token could fill the disk with them."""


@dataclass(frozen=True)
class Principal:
    """An authenticated account."""

    account_id: int
    role: AccountRole
    label: str
    member_id: int | None
    kind: CredentialKind

    @property
    def actor(self) -> str:
        """The account's name in the audit log."""
        return f"{self.role} {self.label}"[:200]


def secret_digest(secret: str) -> str:
    """Return the hash of a secret. Secrets are 256 random bits, so one round is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_token(session_secret: str) -> str:
    """Return the token by which a form proves that it came from our own page."""
    return hashlib.sha256(b"csrf " + session_secret.encode()).hexdigest()


def invite_account(session: Transaction, by: str, role: AccountRole, label: str) -> str:
    """Create an account of a manager or a monitor; return its invitation, which is shown once."""
    account = AccountRow(role=role, label=label, created=session.now())
    session.add(account)
    session.flush()
    return invited(session, account, by, Action.ACCOUNT_INVITED, role=role, label=label)


def invited(
    session: Transaction,
    account: AccountRow,
    by: str,
    action: Action,
    consortium: ConsortiumRow | None = None,
    **details: object,
) -> str:
    """Return a new invitation for an account, which is logged; its earlier credentials end."""
    _end_credentials(session, account.id)
    secret = _issued(session, account.id, "invitation", INVITATION_SECONDS)
    known = {"account": account.id, "invitation": secret_digest(secret)}
    append(session, by, action, consortium, **details, **known)
    return secret


def _issued(
    session: Transaction, account_id: int, kind: CredentialKind, seconds: float | None
) -> str:
    secret = f"fe-{kind}-{secrets.token_urlsafe(32)}"
    now = session.now()
    session.add(
        CredentialRow(
            account_id=account_id,
            kind=kind,
            digest=secret_digest(secret),
            created=now,
            expires=None if seconds is None else shifted(now, seconds),
        )
    )
    session.flush()
    return secret


def _end_credentials(session: Transaction, account_id: int) -> None:
    session.execute(
        update(CredentialRow)
        .where(CredentialRow.account_id == account_id, CredentialRow.ended.is_(None))
        .values(ended=session.now())
    )


def first_manager(store: CoordinatorStore) -> str | None:
    """Return a one-time login for the first manager, or None if a manager can sign in already.

    After a restored backup none can.
    """
    with store.write() as session:
        managers = session.scalars(
            select(AccountRow).where(AccountRow.role == "manager", AccountRow.ended.is_(None))
        ).all()
        if not managers:
            return invite_account(session, "coordinator", "manager", "manager")
        joined = session.scalar(
            select(CredentialRow.id)
            .join(AccountRow)
            .where(AccountRow.role == "manager", AccountRow.ended.is_(None))
            .where(CredentialRow.kind == "token", CredentialRow.ended.is_(None))
            .limit(1)
        )
        if joined is not None:
            return None
        first = managers[0]
        details = {"role": first.role, "label": first.label}
        return invited(session, first, "coordinator", Action.INVITED_AGAIN, None, **details)


def authenticate(session: Transaction, secret: str, *kinds: CredentialKind) -> Principal | None:
    """Return the account of a valid secret of one of these kinds, if there is one."""
    return _principal(session, secret_digest(secret), kinds)


def authenticate_certificate(session: Transaction, fingerprint: str) -> Principal | None:
    """Return the account that registered the client certificate with this SHA-256."""
    return _principal(session, fingerprint, ("certificate",))


def _principal(
    session: Transaction, digest: str, kinds: tuple[CredentialKind, ...]
) -> Principal | None:
    found = session.scalar(select(CredentialRow).where(CredentialRow.digest == digest))
    if found is None or found.kind not in kinds or found.ended or found.account.ended:
        return None
    if found.expires is not None and found.expires <= session.now():
        return None
    account = found.account
    role = cast("AccountRole", account.role)
    return Principal(account.id, role, account.label, account.member_id, found.kind)


def check_invitation(session: Transaction, invitation: str) -> Principal:
    """Return the account of an invitation.

    Raises
    ------
    NotAllowedError
        If it is unknown, used, replaced by a newer one, or expired.
    """
    principal = authenticate(session, invitation, "invitation")
    if principal is None:
        raise NotAllowedError(
            "this invitation is unknown, already used, replaced or too old; "
            "ask the manager for a new one"
        )
    return principal


def accept_invitation(session: Transaction, invitation: str) -> tuple[Principal, str]:
    """Exchange an invitation, once, for a token that does not expire.

    Raises
    ------
    NotAllowedError
        As `check_invitation` does.
    """
    principal = check_invitation(session, invitation)
    _end_credentials(session, principal.account_id)
    token = _issued(session, principal.account_id, "token", None)
    member = session.get(MemberRow, principal.member_id) if principal.member_id else None
    known = {"account": principal.account_id, "token": secret_digest(token)}
    actor, role, label = principal.actor, principal.role, principal.label
    if member is not None and member.state == "invited":
        member.state = "joined"
        joined, where = Action.MEMBER_JOINED, member.consortium
        append(session, actor, joined, where, member=member.name, **known)
    else:
        append(session, actor, Action.ACCOUNT_JOINED, None, role=role, label=label, **known)
    return principal, token


def open_session(session: Transaction, principal: Principal) -> str:
    """Return the secret of a new session for a browser; of many, the oldest are removed."""
    own = CredentialRow.account_id == principal.account_id, CredentialRow.kind == "session"
    newest = select(CredentialRow.id).where(*own).order_by(CredentialRow.id.desc())
    for row in session.scalars(newest.offset(MOST_SESSIONS - 1)).all():
        session.execute(delete(CredentialRow).where(CredentialRow.id == row))
    return _issued(session, principal.account_id, "session", SESSION_SECONDS)


def close_session(session: Transaction, secret: str) -> None:
    """End a session, if it exists."""
    session.execute(
        update(CredentialRow)
        .where(
            CredentialRow.digest == secret_digest(secret),
            CredentialRow.kind == "session",
            CredentialRow.ended.is_(None),
        )
        .values(ended=session.now())
    )


def add_certificate(session: Transaction, principal: Principal, fingerprint: str) -> None:
    """Register a client certificate as a further credential of an account."""
    taken = session.scalar(select(CredentialRow).where(CredentialRow.digest == fingerprint))
    if taken is not None and not (taken.kind == "certificate" and taken.ended):
        raise ConflictError("this client certificate is registered already")
    if taken is not None:  # it ended, as with a new invitation, and is registered again
        session.delete(taken)
        session.flush()
    session.add(
        CredentialRow(
            account_id=principal.account_id,
            kind="certificate",
            digest=fingerprint,
            created=session.now(),
        )
    )
    known = {"account": principal.account_id, "sha256": fingerprint}
    append(session, principal.actor, Action.CERTIFICATE_ADDED, None, **known)


def end_account(session: Transaction, account: AccountRow) -> None:
    """End an account with all its credentials."""
    account.ended = session.now()
    _end_credentials(session, account.id)


def end_others_named(session: Transaction, by: Principal, label: str) -> None:
    """End all accounts of managers and monitors with a name, except the one that asks."""
    found = session.scalars(
        select(AccountRow).where(
            AccountRow.role != "member",
            AccountRow.label == label,
            AccountRow.ended.is_(None),
            AccountRow.id != by.account_id,
        )
    ).all()
    if not found:
        raise NotFoundError(f"there is no manager or monitor {label!r} other than yourself")
    for account in found:
        end_account(session, account)
        role, ended = account.role, Action.ACCOUNT_ENDED
        append(session, by.actor, ended, None, role=role, label=label, account=account.id)
