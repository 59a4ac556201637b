"""Invitations, tokens and sessions."""

import pytest

from fedegoists.coordinator.coordinator_errors import NotAllowedError
from fedegoists.coordinator.domain import accounts
from fedegoists.coordinator.store.database_tables import Base, CredentialRow


def test_an_invitation_works_once_and_only_hashes_are_kept(store):
    with store.write() as session:
        invitation = accounts.invite_account(session, "coordinator", "manager", "Ann")
    with store.write() as session:
        principal, token = accounts.accept_invitation(session, invitation)
    assert (principal.role, principal.label) == ("manager", "Ann")
    with pytest.raises(NotAllowedError, match="already used"), store.write() as session:
        accounts.accept_invitation(session, invitation)
    with store.read() as session:
        assert accounts.authenticate(session, token, "token").label == "Ann"
        assert accounts.authenticate(session, token, "session") is None
        assert accounts.authenticate(session, invitation, "invitation", "token") is None
        for table in Base.metadata.sorted_tables:
            for row in session.execute(table.select()):
                assert token not in str(row)
                assert invitation not in str(row)


def test_invitations_and_sessions_expire(store, clock):
    with store.write() as session:
        invitation = accounts.invite_account(session, "coordinator", "manager", "Ann")
    clock.move(days=15)
    with pytest.raises(NotAllowedError), store.write() as session:
        accounts.accept_invitation(session, invitation)
    again = accounts.first_manager(store)
    assert again not in (None, invitation)
    with store.write() as session:
        principal, _ = accounts.accept_invitation(session, again)
        opened = accounts.open_session(session, principal)
    clock.move(hours=13)
    with store.read() as session:
        assert accounts.authenticate(session, opened, "session") is None


def test_sessions_of_an_account_do_not_fill_the_disk(store):
    with store.write() as session:
        login = accounts.invite_account(session, "coordinator", "manager", "Ann")
        principal, _ = accounts.accept_invitation(session, login)
        opened = [accounts.open_session(session, principal) for _ in range(50)]
    with store.read() as session:
        valid = [accounts.authenticate(session, one, "session") is not None for one in opened]
        rows = session.query(CredentialRow).filter_by(kind="session").count()
    assert valid == [False] * 30 + [True] * 20
    assert rows == 20
