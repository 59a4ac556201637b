"""Whatever is altered in the tables shows against the audit log."""

import re

import pytest

from fedegoists.coordinator.domain import consortia
from fedegoists.coordinator.runs import run_records
from fedegoists.coordinator.runs.run_orders import RunOrder, RunPlan
from tests.coordinator.consortia import NAMES, WEIGHTS, checked, forms, found, report
from tests.coordinator.databases import tampered


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
        ("UPDATE competition_reports SET sealed = '2026'", "report .*something else"),
        (
            "INSERT INTO credentials (account_id, kind, digest, created) "
            "VALUES (1, 'token', 'ab', '2026')",
            "token of member North: in the tables, but not in the log",
        ),
        (
            "INSERT INTO credentials (account_id, kind, digest, created) "
            "VALUES (1, 'certificate', 'ab', '2026')",
            "certificate of member North: in the tables",
        ),
        (
            "UPDATE credentials SET ended = NULL WHERE kind = 'invitation' AND account_id = 1",
            "invitation of member North: in the tables",
        ),
        (
            "UPDATE credentials SET account_id = 2 WHERE kind = 'token' AND account_id = 1",
            "token of member South: in the tables",
        ),
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
