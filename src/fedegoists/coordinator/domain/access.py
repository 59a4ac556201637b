"""Who is asking: invitations, tokens, sessions and client certificates. Only hashes are kept."""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from fedegoists.coordinator.coordinator_errors import ConflictError, NotAllowedError, NotFoundError
from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.tables import Account, Credential, Member
from fedegoists.coordinator.store.times import shifted

__all__ = [
    "Kind",
    "Principal",
    "Role",
    "accept_invitation",
    "add_certificate",
    "authenticate",
    "close_session",
    "csrf_token",
    "end_account",
    "end_others_named",
    "first_manager",
    "invite_account",
    "new_invitation",
    "open_session",
    "secret_digest",
]

Role = Literal["manager", "member", "monitor"]
Kind = Literal["invitation", "token", "session", "certificate"]

INVITATION_SECONDS = 14 * 24 * 3600
SESSION_SECONDS = 12 * 3600


@dataclass(frozen=True)
class Principal:
    """Somebody who has shown who it is."""

    account_id: int
    role: Role
    label: str
    member_id: int | None
    consortium_id: int | None
    kind: Kind

    @property
    def actor(self) -> str:
        """Return how the audit log calls this account."""
        return f"{self.role} {self.label}"[:200]


def secret_digest(secret: str) -> str:
    """Return what is kept of a secret. Secrets are 256 random bits, so one hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_token(session_secret: str) -> str:
    """Return what a form must send along to show that it came from our own page."""
    return hashlib.sha256(b"csrf " + session_secret.encode()).hexdigest()


def invite_account(store: Store, session: Session, by: str, role: Role, label: str) -> str:
    """Make an account for a manager or a monitor; return the invitation, which is shown once."""
    account = Account(role=role, label=label, created=store.now(session))
    session.add(account)
    session.flush()
    append(store, session, by, Action.ACCOUNT_INVITED, {"role": role, "label": label})
    return new_invitation(store, session, account)


def new_invitation(store: Store, session: Session, account: Account) -> str:
    """Return a new invitation for an account; everything it had before ends."""
    now = store.now(session)
    _end_credentials(session, account.id, now)
    return _issued(store, session, account.id, "invitation", INVITATION_SECONDS)


def _issued(
    store: Store, session: Session, account_id: int, kind: Kind, seconds: float | None
) -> str:
    secret = f"fe-{kind}-{secrets.token_urlsafe(32)}"
    now = store.now(session)
    session.add(
        Credential(
            account_id=account_id,
            kind=kind,
            digest=secret_digest(secret),
            created=now,
            expires=None if seconds is None else shifted(now, seconds),
        )
    )
    session.flush()
    return secret


def _end_credentials(session: Session, account_id: int, now: str) -> None:
    session.execute(
        update(Credential)
        .where(Credential.account_id == account_id, Credential.ended.is_(None))
        .values(ended=now)
    )


def first_manager(store: Store) -> str | None:
    """Return a one-time login for the first manager, as long as there is none yet."""
    with store.write() as session:
        managers = session.scalars(
            select(Account).where(Account.role == "manager", Account.ended.is_(None))
        ).all()
        if not managers:
            return invite_account(store, session, "coordinator", "manager", "manager")
        joined = session.scalar(
            select(Credential.id)
            .join(Account)
            .where(Account.role == "manager", Credential.kind != "invitation")
            .limit(1)
        )
        return None if joined is not None else new_invitation(store, session, managers[0])


def authenticate(
    store: Store, session: Session, secret: str, kinds: tuple[Kind, ...]
) -> Principal | None:
    """Return who has this secret, if it is one of these kinds and still good."""
    return _principal(store, session, secret_digest(secret), kinds)


def authenticate_certificate(store: Store, session: Session, fingerprint: str) -> Principal | None:
    """Return who registered the client certificate with this SHA-256."""
    return _principal(store, session, fingerprint, ("certificate",))


def _principal(
    store: Store, session: Session, digest: str, kinds: tuple[Kind, ...]
) -> Principal | None:
    found = session.scalar(select(Credential).where(Credential.digest == digest))
    if found is None or found.kind not in kinds or found.ended or found.account.ended:
        return None
    if found.expires is not None and found.expires <= store.now(session):
        return None
    account = found.account
    return Principal(
        account.id,
        account.role,  # type: ignore[arg-type]
        account.label,
        account.member_id,
        account.member.consortium_id if account.member else None,
        found.kind,
    )


def accept_invitation(store: Store, session: Session, invitation: str) -> tuple[Principal, str]:
    """Exchange an invitation, once, for a token that lasts.

    Raises
    ------
    NotAllowedError
        If it is unknown, used, replaced by a newer one, or too old.
    """
    principal = authenticate(store, session, invitation, ("invitation",))
    if principal is None:
        raise NotAllowedError(
            "this invitation is unknown, already used, replaced or too old; "
            "ask the manager for a new one"
        )
    _end_credentials(session, principal.account_id, store.now(session))
    token = _issued(store, session, principal.account_id, "token", None)
    member = session.get(Member, principal.member_id) if principal.member_id else None
    if member is not None and member.state == "invited":
        member.state = "joined"
        details = {"consortium": member.consortium.name, "member": member.name}
        append(store, session, principal.actor, Action.MEMBER_JOINED, details)
    else:
        details = {"role": principal.role, "label": principal.label}
        append(store, session, principal.actor, Action.ACCOUNT_JOINED, details)
    return principal, token


def open_session(store: Store, session: Session, principal: Principal) -> str:
    """Return the secret of a new session for a browser."""
    return _issued(store, session, principal.account_id, "session", SESSION_SECONDS)


def close_session(store: Store, session: Session, secret: str) -> None:
    """End a session; ending one that is not there changes nothing."""
    session.execute(
        update(Credential)
        .where(
            Credential.digest == secret_digest(secret),
            Credential.kind == "session",
            Credential.ended.is_(None),
        )
        .values(ended=store.now(session))
    )


def add_certificate(store: Store, session: Session, principal: Principal, fingerprint: str) -> None:
    """Let an account also show who it is by a client certificate."""
    taken = session.scalar(select(Credential).where(Credential.digest == fingerprint))
    if taken is not None and not (taken.kind == "certificate" and taken.ended):
        raise ConflictError("this client certificate is registered already")
    if taken is not None:  # it ended, as with a new invitation, and is shown again
        session.delete(taken)
        session.flush()
    session.add(
        Credential(
            account_id=principal.account_id,
            kind="certificate",
            digest=fingerprint,
            created=store.now(session),
        )
    )
    details = {"sha256": fingerprint}
    append(store, session, principal.actor, Action.CERTIFICATE_ADDED, details)


def end_account(store: Store, session: Session, account: Account) -> None:
    """Have an account, with all its credentials, end now."""
    account.ended = store.now(session)
    _end_credentials(session, account.id, account.ended)


def end_others_named(store: Store, session: Session, by: Principal, label: str) -> None:
    """Have every manager and monitor of a name end, but not the one who asks."""
    found = session.scalars(
        select(Account).where(
            Account.role != "member",
            Account.label == label,
            Account.ended.is_(None),
            Account.id != by.account_id,
        )
    ).all()
    if not found:
        raise NotFoundError(f"there is no manager or monitor {label!r} other than yourself")
    for account in found:
        end_account(store, session, account)
        details = {"role": account.role, "label": label}
        append(store, session, by.actor, Action.ACCOUNT_ENDED, details)
