"""Nothing is lost, nothing is altered unseen, and both databases behave the same."""

import itertools
import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from fedegoists.coordinator.coordinator_errors import (
    ConflictError,
    DamagedStoreError,
    FullStoreError,
    NotAllowedError,
    NotFoundError,
    StoreError,
)
from fedegoists.coordinator.domain import (
    accounts,
    coalition_decisions,
    competitor_reports,
    consortia,
)
from fedegoists.coordinator.domain.coalition_decisions import FormationOrder
from fedegoists.coordinator.runs import run_records, run_worker
from fedegoists.coordinator.runs.run_orders import RunOrder, RunPlan
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.audit_check import check_log, reports_digest
from fedegoists.coordinator.store.audit_log import BEGINNING, check_chain, digest_of, entries
from fedegoists.coordinator.store.backup import back_up, restore
from fedegoists.coordinator.store.database_tables import AccountRow, Base, RunRow
from fedegoists.coordinator.store.migrate import revision_of
from fedegoists.errors import FileError, GraphError, SettingsError
from tests.coordinator.consortia import found, report
from tests.coordinator.databases import database_url

NAMES = ["North", "South", "East"]
WEIGHTS = [[0, 2, 1], [1, 0, 2], [2, 1, 0]]

POSTGRES_KILLS = int(os.environ.get("FEDEGOISTS_KILLS", "60"))
"""With 200, as for SQLite, it takes longer than every change should wait for."""


def forms(store, consortium_id, **order):
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
    return coalition_decisions.Decider(store).form(
        "manager m", consortium_id, FormationOrder(**order)
    )


def checked(store, head=None):
    with store.read() as session:
        return check_log(session, head)


def test_migrations_make_the_tables_that_the_code_expects(store):
    with store.read() as session:
        context = MigrationContext.configure(session.connection())
        assert compare_metadata(context, Base.metadata) == []
        assert revision_of(session.connection()) == "0002"
    CoordinatorStore(store.url).close()  # again: nothing to do


def test_a_database_of_the_first_version_goes_on(store, monkeypatch):
    """Its decisions have no salt of their own; what the log says of them still holds."""
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "South", "East")
    with monkeypatch.context() as before:
        before.setattr(coalition_decisions, "_new_salt", lambda: None)
        before.setattr(coalition_decisions, "new_secret", lambda: b"s" * 32)
        hidden = (b"s" * 32).hex()
        before.setattr(
            coalition_decisions,
            "reports_digest",
            lambda _, reports: reports_digest(hidden, reports),
        )
        forms(store, consortium_id)
    with store.write() as session:
        session.execute(text("ALTER TABLE formations DROP COLUMN salt"))
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    store.close()
    again = CoordinatorStore(store.url, clock=store.clock)
    assert checked(again).ok
    assert forms(again, consortium_id).number == 2
    assert checked(again).ok
    again.close()


def test_a_database_of_a_later_version_is_left_alone(store):
    with store.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="later version"):
        CoordinatorStore(store.url)


def test_either_sides_report_counts_until_both_are_withdrawn(store):
    consortium_id, _ = found(store, NAMES)

    def pairs():
        with store.read() as session:
            consortium = consortia.consortium_with(session, consortium_id)
            return competitor_reports.competition_of(session, consortium).pairs

    report(store, consortium_id, "South", "East")
    assert pairs() == (("South", "East"),)
    report(store, consortium_id, "East", "South")
    report(store, consortium_id, "East", "South")
    assert pairs() == (("South", "East"),)
    report(store, consortium_id, "South", "East", withdraw=True)
    assert pairs() == (("South", "East"),)
    report(store, consortium_id, "East", "South", withdraw=True)
    report(store, consortium_id, "East", "South", withdraw=True)
    assert pairs() == ()
    assert checked(store).ok


def test_what_cannot_be_reported(store):
    consortium_id, _ = found(store, NAMES)
    with pytest.raises(ConflictError, match="its own competitor"):
        report(store, consortium_id, "South", "South")
    with pytest.raises(NotFoundError, match="no member 'West'"):
        report(store, consortium_id, "South", "West")
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        with pytest.raises(GraphError, match="control character"):
            consortia.invite(session, "manager m", consortium, "a\nb")
    with pytest.raises(ConflictError, match="already"):
        found(store, NAMES)


def test_a_deadline_freezes_reports_and_no_clock_undoes_it(store, clock):
    consortium_id, _ = found(store, NAMES)
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        at = "2026-01-01T13:00:00.000000Z"
        consortia.set_deadline(session, "manager m", consortium, at)
        with pytest.raises(ConflictError, match="in the past"):
            consortia.set_deadline(session, "manager m", consortium, "2025" + at[4:])
    report(store, consortium_id, "South", "East")
    clock.move(hours=2)
    with pytest.raises(ConflictError, match="deadline has passed"):
        report(store, consortium_id, "South", "North")
    consortia.close_due(store)
    clock.move(hours=-24)
    with pytest.raises(ConflictError, match="reporting is over"):
        report(store, consortium_id, "South", "North")
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.reopen_reports(session, "manager m", consortium)
    report(store, consortium_id, "South", "North")


def test_without_a_deadline_it_is_the_manager_who_closed_the_reports(sqlite_store):
    consortium_id, _ = found(sqlite_store, NAMES)
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
    for withdraw in (False, True):
        with pytest.raises(ConflictError, match="the manager has closed the reports"):
            report(sqlite_store, consortium_id, "South", "North", withdraw=withdraw)


@pytest.mark.parametrize("alike", ["BANK A", "bank a", "Bank  A", "Bank\u00a0A", "BankA", "bAnK a"])
def test_a_name_that_others_could_take_for_anothers_is_refused(sqlite_store, alike):
    consortium_id, _ = found(sqlite_store, ["Bank A", "Bank B"])

    def invite(name):
        with sqlite_store.write() as session:
            consortium = consortia.consortium_with(session, consortium_id)
            return consortia.invite(session, "manager m", consortium, name)[0].name

    with pytest.raises(ConflictError, match=r"from the member 'Bank A' only in .*tell apart"):
        invite(alike)
    assert invite("Bank C") == "Bank C"
    with sqlite_store.write() as session:  # as one whose name was mistyped
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.expel(session, "manager m", consortium, "Bank A")
    assert invite(alike) == alike


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
    assert accounts.first_manager(store) != invitation
    with store.write() as session:
        principal, _ = accounts.accept_invitation(session, access_again(session))
        opened = accounts.open_session(session, principal)
    clock.move(hours=13)
    with store.read() as session:
        assert accounts.authenticate(session, opened, "session") is None


def access_again(session):
    from sqlalchemy import select

    return accounts.new_invitation(session, session.scalar(select(AccountRow)))


def test_an_expelled_member_is_out_at_once_and_its_reports_count_no_more(store):
    consortium_id, tokens = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "East", "North")
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.expel(session, "manager m", consortium, "East")
    with store.read() as session:
        assert accounts.authenticate(session, tokens["East"], "token") is None
    record = forms(store, consortium_id)
    assert coalition_decisions.formation_of(record).coalitions == (("North", "South"),)
    assert checked(store).ok


def test_a_decision_needs_closed_reports_benefits_and_members(store):
    consortium_id, _ = found(store, NAMES)
    with pytest.raises(ConflictError, match="may still report"):
        coalition_decisions.Decider(store).form("manager m", consortium_id, FormationOrder())
    with pytest.raises(ConflictError, match="who benefits whom is not known"):
        forms(store, consortium_id)
    empty, _ = found(store, [], "Nobody")
    with pytest.raises(ConflictError, match="nobody has joined"):
        forms(store, empty)


def test_a_decision_is_kept_with_its_proof(store):
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "South", "East")
    record = forms(store, consortium_id)
    assert coalition_decisions.formation_of(record).coalitions == (("North", "South"), ("East",))
    with store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        commitment = coalition_decisions.commitment_for(consortium, record)
    assert commitment.digest == record.commitment
    assert commitment.member_certificate("South", ["East"]).check(record.commitment).ok
    assert commitment.opening().check(record.commitment).ok
    assert checked(store).ok


def test_log_and_opening_do_not_tell_which_side_reported(store):
    """Whoever is given both tries all ways in which the graph can have been reported."""
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "South", "East")
    record = forms(store, consortium_id)
    with store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        opening = json.loads(
            coalition_decisions.commitment_for(consortium, record).opening().to_json()
        )
        log = [value for entry in entries(session) for value in json.loads(entry.details).values()]
    ways = [{"South": ["East"]}, {"East": ["South"]}, {"South": ["East"], "East": ["South"]}]
    assert json.loads(record.reports) in ways
    assert record.salt not in json.dumps(opening)
    known = [value for value in opening.values() if isinstance(value, str)]
    assert record.secret in known
    tried = {
        reports_digest(value, json.dumps(way, ensure_ascii=False, sort_keys=True))
        for value in known
        for way in ways
    }
    assert tried.isdisjoint(log)
    assert reports_digest(record.salt, record.reports) in log


def test_nothing_is_trained_by_a_decision_that_later_reports_contradict(sqlite_store):
    consortium_id, _ = found(sqlite_store, NAMES, weights=WEIGHTS)
    record = forms(sqlite_store, consortium_id)
    assert coalition_decisions.formation_of(record).coalitions == (("North", "South", "East"),)

    def train():
        with sqlite_store.write() as session:
            consortium = consortia.consortium_with(session, consortium_id)
            plan = RunPlan(source="banks")
            return run_records.enqueue(
                session,
                "manager m",
                consortium,
                RunOrder(kind="training", engine="simulation", plan=plan),
            ).number

    assert train() == 1
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        with pytest.raises(ConflictError, match="run 1 relies on the reports"):
            consortia.reopen_reports(session, "manager m", consortium)
        run = session.numbered(RunRow, consortium, 1)
        run_records.cancel(session, "manager m", run)
        consortia.reopen_reports(session, "manager m", consortium)
    report(sqlite_store, consortium_id, "South", "East")
    with pytest.raises(ConflictError, match="form coalitions again"):
        train()
    forms(sqlite_store, consortium_id)
    assert train() == 2
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.expel(session, "manager m", consortium, "North")
    with pytest.raises(ConflictError, match="'North' was expelled"):
        train()
    with sqlite_store.read() as session:
        run = session.numbered(RunRow, consortium, 2)
    assert (run.state, run.error) == ("cancelled", "'North' was expelled")
    assert checked(sqlite_store).ok


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("kind", ["training", "benefit"])
def test_a_run_that_waited_is_checked_again_before_it_goes_on(
    sqlite_store, tmp_path, monkeypatch, kind, begun
):
    """Whatever way things changed meanwhile, such as by a version that let reports be reopened."""
    consortium_id, _ = found(sqlite_store, NAMES, weights=WEIGHTS)
    forms(sqlite_store, consortium_id)
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        plan = RunPlan(source="banks")
        run = run_records.enqueue(session, "manager m", consortium, RunOrder(kind=kind, plan=plan))
        run.started = run.created if begun else None
        consortium.state = "collecting"
    report(sqlite_store, consortium_id, "South", "East")
    for work in ("learn", "train"):
        monkeypatch.setattr(
            run_worker.decided_pipeline, work, lambda *_: pytest.fail("an engine was loaded")
        )
    run_worker.work_on(sqlite_store, run.id, tmp_path)
    with sqlite_store.read() as session:
        failed = session.get(RunRow, run.id)
    assert failed.state == "failed"
    wanted = "form coalitions again" if kind == "training" else "close the reports first"
    assert wanted in failed.error


def test_what_if_is_answered_from_the_decision(store):
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    forms(store, consortium_id)
    with store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        trial = coalition_decisions.trial_of(session, consortium, 1)
        assert coalition_decisions.trial_of(session, consortium, 1) is trial
        with pytest.raises(NotFoundError):
            coalition_decisions.trial_of(session, consortium, 2)
    result = coalition_decisions.quick_what_if(trial, add=[("South", "East")])
    assert not any({"South", "East"} <= set(group) for group in result.coalitions)
    assert (result.welfare, result.welfare_change) == (3, -6)
    left = coalition_decisions.quick_what_if(trial, leaves=["East"])
    assert (left.coalitions, left.welfare) == ((("North", "South"),), 3)


# The audit log --------------------------------------------------------------------------------


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


def tampered(path, *statements):
    """Change a database behind the coordinator's back, as its owner could."""
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER IF EXISTS audit_log_no_update")
        connection.execute("DROP TRIGGER IF EXISTS audit_log_no_delete")
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit_log SET actor = 'nobody' WHERE id = 3", "entry 3 was changed"),
        ("UPDATE audit_log SET at = '2020' WHERE id = 3", "entry 3 was changed"),
        ("DELETE FROM audit_log WHERE id = 3", "entry 3 is missing"),
        ("DELETE FROM audit_log WHERE id = (SELECT max(id) FROM audit_log)", "not in the log"),
        ("DELETE FROM competition_reports", "report .*not in the tables"),
        ("UPDATE competition_reports SET withdrawn = '2026'", "report .*something else"),
        ("UPDATE competition_reports SET competitor_id = 1", "report .*not in the log"),
        ("UPDATE formations SET certificate = '{}'", "formation Banks, 1: the tables say"),
        ("UPDATE benefit_estimates SET graph = '{}'", "benefit estimate Banks, 1"),
        ("UPDATE consortia SET state = 'collecting'", "consortium Banks: the tables say"),
        ("UPDATE consortia SET deadline = '2027'", "consortium Banks: the tables say"),
        ("UPDATE members SET state = 'invited' WHERE name = 'East'", "member Banks, East"),
        ("UPDATE formations SET reports = '{}'", "formation Banks, 1: the tables say"),
        ("UPDATE accounts SET role = 'manager' WHERE label = 'East'", "account manager, East"),
        ("UPDATE accounts SET ended = '2026' WHERE label = 'East'", "account member, East"),
        (
            "INSERT INTO accounts (role, label, created) VALUES ('manager', 'Eve', '2026')",
            "account manager, Eve: in the tables, but not in the log",
        ),
        ("UPDATE runs SET state = 'finished'", "run Banks, 1: the tables say"),
        ("UPDATE runs SET plan = '{}'", "run Banks, 1: the tables say"),
        ("UPDATE runs SET kind = 'benefit'", "run Banks, 1: the tables say"),
        ("UPDATE runs SET formation_id = 2", "run Banks, 1: the tables say"),
        ("UPDATE runs SET formation_id = NULL", "run Banks, 1: the tables say"),
        ("UPDATE accounts SET member_id = 2 WHERE label = 'North'", "account member, North"),
        ("UPDATE formations SET certificate_digest = '00' WHERE number = 2", "formation Banks, 2"),
        ("UPDATE formations SET benefit_id = 2", "formation Banks, 1: the tables say"),
        ("UPDATE benefit_estimates SET digest = '00'", "benefit estimate Banks, 1: the tables say"),
        ("UPDATE benefit_estimates SET source = 'me'", "benefit estimate Banks, 1: the tables say"),
        ("DELETE FROM runs", "run Banks, 1: in the log, but not in the tables"),
    ],
)
def test_whatever_is_altered_shows(sqlite_store, tmp_path, statement, problem):
    consortium_id, _ = found(sqlite_store, NAMES, weights=WEIGHTS)
    report(sqlite_store, consortium_id, "South", "East")
    forms(sqlite_store, consortium_id)
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        plan = RunPlan(source="banks")
        run = (
            session,
            "manager m",
            consortium,
            RunOrder(kind="training", engine="simulation", plan=plan),
        )
        run_records.enqueue(*run)
    forms(sqlite_store, consortium_id)
    assert checked(sqlite_store).ok
    tampered(tmp_path / "coordinator.db", statement)
    check = checked(sqlite_store)
    assert not check.ok
    assert any(re.search(problem, line) for line in check.problems), check


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


# Backups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_a_backup_is_restored_into_either_database(store, target, tmp_path, request):
    consortium_id, tokens = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "South", "East")
    forms(store, consortium_id)
    (tmp_path / "runs" / "run-1").mkdir(parents=True)
    (tmp_path / "runs" / "run-1" / "report.html").write_text("done")
    archive = tmp_path / "backup.tar.gz"
    check = back_up(store, archive, tmp_path / "runs")
    assert check.ok
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with pytest.raises(FileError, match="there already"):
        back_up(store, archive)
    (tmp_path / "new").mkdir()
    other = CoordinatorStore(database_url(target, tmp_path / "new", request), clock=store.clock)
    assert restore(archive, other, tmp_path / "new" / "runs").head == check.head
    assert (tmp_path / "new" / "runs" / "run-1" / "report.html").read_text() == "done"
    with other.read() as session:
        assert accounts.authenticate(session, tokens["East"], "token").label == "East"
    found(other, NAMES, "After")  # new rows get new numbers
    assert checked(other, check.head).ok
    with pytest.raises(StoreError, match="not empty"):
        restore(archive, other)
    other.close()


def test_a_backup_while_a_run_writes_files(sqlite_store, tmp_path):
    """Files that grow, are replaced or vanish meanwhile do not make it fail."""
    found(sqlite_store, NAMES)
    folder = tmp_path / "runs" / "consortium-1" / "run-1"
    folder.mkdir(parents=True)
    done = threading.Event()

    def write():
        for k in itertools.count():
            if done.is_set():
                return
            (folder / f".new-{k % 7}").write_bytes(b"x" * (k % 50_000))
            (folder / f".new-{k % 7}").replace(folder / f"checkpoint-{k % 5}")
            with (folder / "log.txt").open("a") as log:
                log.write("a line\n" * 50)
            (folder / f"checkpoint-{(k + 3) % 5}").unlink(missing_ok=True)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for k in range(15):
            back_up(sqlite_store, tmp_path / f"{k}.tar.gz", tmp_path / "runs")
    finally:
        done.set()
        writer.join()
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=sqlite_store.clock)
    restore(tmp_path / "14.tar.gz", other, tmp_path / "new" / "runs")
    assert (tmp_path / "new" / "runs" / "consortium-1" / "run-1" / "log.txt").is_file()
    other.close()


def test_a_backup_brings_back_no_session_and_no_invitation(sqlite_store, tmp_path, clock):
    """They may have ended since it was made: a session by signing out, an invitation by use."""
    _, tokens = found(sqlite_store, NAMES)
    with sqlite_store.write() as session:
        invitation = accounts.invite_account(session, "m", "monitor", "Prometheus")
        principal = accounts.authenticate(session, tokens["East"], "token")
        opened = accounts.open_session(session, principal)
    back_up(sqlite_store, tmp_path / "backup.tar.gz")
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    restore(tmp_path / "backup.tar.gz", other)
    with other.read() as session:
        for secret, kind in ((invitation, "invitation"), (opened, "session")):
            assert accounts.authenticate(session, secret, kind) is None
        assert accounts.authenticate(session, tokens["East"], "token") is not None
    other.close()


def test_a_backup_writes_nowhere_else(sqlite_store, tmp_path, clock):
    found(sqlite_store, NAMES)
    back_up(sqlite_store, tmp_path / "good.tar.gz")
    with (
        tarfile.open(tmp_path / "good.tar.gz") as good,
        tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as bad,
    ):
        for member in good:
            bad.addfile(member, good.extractfile(member))
        link = tarfile.TarInfo("runs/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        bad.addfile(link)
        bad.addfile(tarfile.TarInfo("runs/../../outside"))
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    with pytest.raises(FileError, match="outside the folder"):
        restore(tmp_path / "bad.tar.gz", other, tmp_path / "new" / "runs")
    assert not (tmp_path / "new" / "runs" / "link").exists()
    assert not (tmp_path / "outside").exists()
    assert checked(other).count == 0
    other.close()


def test_a_damaged_backup_changes_nothing(sqlite_store, tmp_path, clock):
    found(sqlite_store, NAMES)
    archive = tmp_path / "backup.tar.gz"
    back_up(sqlite_store, archive)
    content = archive.read_bytes()
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    for broken in (b"", content[: len(content) // 2], b"nonsense" * 100):
        (tmp_path / "broken.tar.gz").write_bytes(broken)
        with pytest.raises((StoreError, FileError)):
            restore(tmp_path / "broken.tar.gz", other)
    with pytest.raises(FileError, match="no such file"):
        restore(tmp_path / "missing.tar.gz", other)
    assert checked(other).count == 0
    other.close()


# Trouble --------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_only(sqlite_store, tmp_path):
    assert stat.S_IMODE((tmp_path / "coordinator.db").stat().st_mode) == 0o600


def test_a_damaged_file_is_said_plainly_and_left_as_it_is(sqlite_store, tmp_path):
    found(sqlite_store, NAMES)
    sqlite_store.close()
    path = tmp_path / "coordinator.db"
    content = bytearray(path.read_bytes())
    content[100:4000] = b"\xff" * 3900
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError, match=r"damaged.*restore a backup"):
        CoordinatorStore(f"sqlite:///{path}")
    assert path.read_bytes() == content
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(DamagedStoreError, match="restore a backup"):
        CoordinatorStore(f"sqlite:///{path}")


def test_damage_in_the_middle_is_found_on_opening(sqlite_store, tmp_path):
    consortium_id, _ = found(sqlite_store, [f"m{k}" for k in range(100)])
    for k in range(99):
        report(sqlite_store, consortium_id, f"m{k}", f"m{k + 1}")
    sqlite_store.close()
    path = tmp_path / "coordinator.db"
    content = bytearray(path.read_bytes())
    assert len(content) > 20 * 4096
    for page in range(5, 15):
        content[page * 4096 : page * 4096 + 64] = os.urandom(64)
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError):
        CoordinatorStore(f"sqlite:///{path}")


def fill_until_full(store):
    consortium_id, _ = found(store, [f"m{k}" for k in range(40)])
    kept = []
    for a, b in itertools.permutations(range(40), 2):
        try:
            report(store, consortium_id, f"m{a}", f"m{b}")
        except FullStoreError:
            break
        kept.append((f"m{a}", f"m{b}"))
    assert 0 < len(kept) < 40 * 39, "the disk was full too early or never"
    return consortium_id, kept


def reports_in(store, consortium_id):
    with store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        reports = competitor_reports.active_reports(session, consortium)
    return [
        (a, b) for a, others in sorted(reports.items(), key=lambda i: int(i[0][1:])) for b in others
    ]


def test_without_room_nothing_is_half_written_and_all_goes_on_with_room(sqlite_store):
    sqlite_store.close()

    def limit(pages):
        from sqlalchemy import event

        @event.listens_for(sqlite_store.engine, "connect")
        def _(connection, _record):
            connection.execute(f"PRAGMA max_page_count={pages}")

    limit(90)
    consortium_id, kept = fill_until_full(sqlite_store)
    assert reports_in(sqlite_store, consortium_id) == kept
    assert checked(sqlite_store).ok
    sqlite_store.close()
    limit(100_000)
    report(sqlite_store, consortium_id, "m39", "m0")
    assert len(reports_in(sqlite_store, consortium_id)) == len(kept) + 1
    assert checked(sqlite_store).ok


def test_a_full_disk(tmp_path):
    """On a file system of two megabytes, where one can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        store = CoordinatorStore(f"sqlite:///{disk / 'coordinator.db'}")
        with (disk / "ballast").open("wb") as ballast:
            ballast.write(b"0" * 1_200_000)
        consortium_id, kept = fill_until_full(store)
        assert reports_in(store, consortium_id) == kept
        (disk / "ballast").unlink()
        report(store, consortium_id, "m39", "m0")
        assert checked(store).ok
        store.close()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_full_disk_under_postgresql(new_postgres_database):
    """A database in a table space of sixteen megabytes, where one can be mounted."""
    import psycopg

    address = new_postgres_database()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        disk = Path(folder) / "disk"
        disk.mkdir()
        options = f"size=16m,mode=0700,uid={new_postgres_database.owner}"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip("a small file system cannot be mounted here")
        try:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
                connection.execute("CREATE DATABASE small TABLESPACE small")
            store = CoordinatorStore(address.rsplit("/", 1)[0] + "/small")
            free = shutil.disk_usage(disk).free
            (disk / "ballast").write_bytes(b"0" * (free - 250_000))
            consortium_id, kept = fill_until_full(store)
            assert reports_in(store, consortium_id) == kept
            (disk / "ballast").unlink()
            report(store, consortium_id, "m39", "m0")
            assert checked(store).ok
            store.close()
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("DROP DATABASE small")
                connection.execute("DROP TABLESPACE small")
        finally:
            subprocess.run(["umount", disk], check=True)


def test_damage_under_postgresql_is_said_plainly(new_postgres_database):
    import psycopg

    address = new_postgres_database()
    store = CoordinatorStore(address)
    consortium_id, _ = found(store, [f"m{k}" for k in range(40)])
    store.close()
    with psycopg.connect(address, autocommit=True) as connection:
        row = connection.execute("SELECT pg_relation_filepath('members')").fetchone()
        connection.execute("CHECKPOINT")
    path = new_postgres_database.cluster / row[0]
    content = path.read_bytes()
    path.write_bytes(b"\xff" * 64 + content[64:])
    new_postgres_database.restart()  # so that nothing is read from memory
    with pytest.raises(DamagedStoreError, match=r"damaged.*Restore a backup"):
        report(store, consortium_id, "m1", "m2")
    store.close()
    path.write_bytes(content)
    new_postgres_database.restart()
    report(store, consortium_id, "m1", "m2")
    assert checked(store).ok
    store.close()


def test_one_service_at_a_time_over_a_postgresql_database(new_postgres_database):
    address = new_postgres_database()
    one, other = CoordinatorStore(address), CoordinatorStore(address)
    with one.alone():
        found(one, NAMES)  # others work on as before
        with pytest.raises(StoreError, match="another coordinator"), other.alone():
            pass
    with other.alone():
        pass
    one.close()
    other.close()


def test_an_unreachable_database_and_a_wrong_address_show_no_password():
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="does not answer") as caught:
        CoordinatorStore("postgresql://user:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError, match="expected sqlite") as caught:
        CoordinatorStore("hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError, match="not mysql"):
        CoordinatorStore("mysql://u:p@h/d")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 200), ("postgresql", POSTGRES_KILLS)])
def test_killed_in_the_middle_of_writes_again_and_again(kind, kills, tmp_path, request):
    """A process of its own forks writers and kills them with signal 9; see killed_writers.py."""
    script = Path(__file__).with_name("killed_writers.py")
    done = subprocess.run(
        [sys.executable, script, database_url(kind, tmp_path, request), str(kills)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == kills
    assert told["lost"] == 0
    assert told["problems"] == []
    assert told["acknowledged"] > kills
