"""The audit log: a chain that shows every change, with times in order."""

import json

import pytest
from sqlalchemy import text

from fedegoists.coordinator.coordinator_errors import ConflictError, StoreError
from fedegoists.coordinator.domain import accounts, consortia
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.audit_log import BEGINNING, check_chain, digest_of, entries
from tests.coordinator.consortia import NAMES, checked, found, report
from tests.coordinator.databases import tampered


def test_a_clock_that_goes_back_is_noticed_and_the_log_stays_in_order(store, clock):
    consortium_id, _ = found(store, NAMES)
    clock.move(seconds=-30)  # as when it is set by a server: time waits for it
    report(store, consortium_id, "South", "East")
    with store.read() as session:
        times = [entry.at for entry in entries(session)]
    assert times == sorted(times)
    clock.move(hours=-3)
    assert store.seconds_behind() == 3 * 3600 + 30
    report(store, consortium_id, "East", "North")
    with store.read() as session:
        *_, before, told, last = entries(session)
    assert (told.action, told.at) == ("clock went back", before.at)
    assert json.loads(told.details) == {"clock": last.at}
    assert last.at == "2026-01-01T08:59:30.000000Z"
    assert store.seconds_behind() == 0
    assert checked(store).ok


def test_time_goes_on_after_a_clock_that_was_far_ahead(store, clock):
    consortium_id, _ = found(store, NAMES)
    clock.move(days=36_500)
    report(store, consortium_id, "South", "East")
    clock.move(days=-36_500)
    with store.write() as session:
        principal, _ = accounts.accept_invitation(
            session, accounts.invite_account(session, "m", "manager", "Ann")
        )
        opened = accounts.open_session(session, principal)
        consortium = consortia.consortium_with(session, consortium_id)
        at = "2026-01-01T13:00:00.000000Z"
        consortia.set_deadline(session, "manager m", consortium, at)
    report(store, consortium_id, "East", "North")
    with store.read() as session:
        assert accounts.authenticate(session, opened, "session") is not None
    clock.move(hours=13)
    with pytest.raises(ConflictError, match="deadline has passed"):
        report(store, consortium_id, "East", "South")
    with store.read() as session:
        assert accounts.authenticate(session, opened, "session") is None
    assert checked(store).ok


def test_only_an_entry_that_says_so_lets_the_log_go_back(sqlite_store, tmp_path, clock):
    consortium_id, _ = found(sqlite_store, NAMES)
    clock.move(hours=-3)
    report(sqlite_store, consortium_id, "South", "East")
    assert checked(sqlite_store).ok
    with sqlite_store.read() as session:
        *_, told, last = entries(session)
    told.details = '{"clock":"2026-01-01T10:00:00.000000Z"}'
    told.digest = digest_of(told)
    last.previous = told.digest
    tampered(
        tmp_path / "coordinator.db",
        f"UPDATE audit_log SET details='{told.details}', digest='{told.digest}' WHERE id={told.id}",
        f"UPDATE audit_log SET previous='{told.digest}', digest='{digest_of(last)}' "
        f"WHERE id={last.id}",
    )
    assert checked(sqlite_store).problems == (f"entry {last.id} is earlier than the one before it",)


def test_the_chain_by_hand(store):
    import hashlib

    found(store, ["North"])
    with store.read() as session:
        first, second = list(entries(session))[:2]
    content = [1, first.at, "manager m", "consortium created", '{"consortium":"Banks"}', BEGINNING]
    assert first.digest == hashlib.sha256(json.dumps(content).encode()).hexdigest()
    assert second.previous == first.digest
    assert digest_of(second) == second.digest


def test_the_database_itself_refuses_to_change_the_log(store):
    found(store, NAMES)
    for statement in ("UPDATE audit_log SET actor = 'x'", "DELETE FROM audit_log"):
        with pytest.raises(StoreError, match="can only be added to"), store.write() as session:
            session.execute(text(statement))
    assert checked(store).ok


def test_a_log_written_anew_does_not_have_the_head_that_was_noted(sqlite_store, tmp_path, clock):
    found(sqlite_store, NAMES)
    noted = checked(sqlite_store).head
    found(sqlite_store, NAMES, "Others")
    assert checked(sqlite_store, noted).ok
    clock.move(seconds=1)
    another = CoordinatorStore(f"sqlite:///{tmp_path / 'another.db'}", clock=clock)
    found(another, NAMES)
    assert not checked(another, noted).ok
    with another.read() as session:
        assert check_chain(session).ok
    another.close()
