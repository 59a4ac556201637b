"""Check that every credential that lets a caller in was given out by the service.

Sessions are not in the log: they would show the manager when members sign in. They end within
half a day, and when a backup is restored.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.store.audit_log import Action
from fedegoists.coordinator.store.database_tables import AccountRow, AuditEntry, CredentialRow

GIVEN = {
    Action.ACCOUNT_INVITED: ("invitation", "invitation"),
    Action.INVITED_AGAIN: ("invitation", "invitation"),
    Action.MEMBER_INVITED: ("invitation", "invitation"),
    Action.ACCOUNT_JOINED: ("token", "token"),
    Action.MEMBER_JOINED: ("token", "token"),
    Action.CERTIFICATE_ADDED: ("certificate", "sha256"),
}
"""Kind of the credential that an action gives out, and the detail with its hash."""

ENDING = (Action.ACCOUNT_ENDED, Action.MEMBER_EXPELLED)


def unlogged_credentials(session: Session, log: Iterable[AuditEntry]) -> list[str]:
    """Return a problem for each valid credential that the log does not tell of."""
    given, earlier = _given(log)
    problems = []
    found = session.scalars(
        select(CredentialRow)
        .join(AccountRow)
        .where(CredentialRow.kind != "session", CredentialRow.ended.is_(None))
        .where(AccountRow.ended.is_(None))
        .order_by(CredentialRow.id)
    )
    for row in found:
        if given.get(row.digest) == (row.account_id, row.kind):
            continue
        # Earlier versions logged that credentials were given out, but not which.
        if row.digest not in given and earlier[row.kind] > 0:
            earlier[row.kind] -= 1
            continue
        whose = f"{row.account.role} {row.account.label}"
        problems.append(f"{row.kind} of {whose}: in the tables, but not in the log")
    return problems


def _given(log: Iterable[AuditEntry]) -> tuple[dict[str, tuple[int, str]], Counter[str]]:
    """Return account and kind of each valid credential by its hash, and those without a hash."""
    given: dict[str, tuple[int, str]] = {}
    earlier: Counter[str] = Counter()
    for entry in log:
        try:
            _replay(given, earlier, entry.action, json.loads(entry.details))
        except (ValueError, KeyError, TypeError):
            continue  # a changed entry; the check of the chain reports it
    return given, earlier


def _replay(
    given: dict[str, tuple[int, str]], earlier: Counter[str], action: str, details: dict[str, Any]
) -> None:
    if action == Action.RESTORED and details.get("credentials") == "ended":
        given.clear()
        earlier.clear()
        return
    kind, name = next((given_ for one, given_ in GIVEN.items() if one == action), ("", ""))
    account = details.get("account")
    if kind and (account is None or name not in details):
        earlier[kind] += 1
        return
    # A certificate is added to the other credentials; everything else ends those before.
    if account is not None and (action in ENDING or kind in ("invitation", "token")):
        for digest in [digest for digest, (whose, _) in given.items() if whose == account]:
            del given[digest]
    if kind and account is not None:
        given[details[name]] = account, kind
