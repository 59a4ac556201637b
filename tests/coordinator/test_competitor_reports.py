"""Reports of competitors: either side's counts, and only while they are open."""

import json

import pytest

from fedegoists.coordinator.coordinator_errors import ConflictError, NotFoundError
from fedegoists.coordinator.domain import competitor_reports, consortia
from fedegoists.coordinator.store.audit_log import entries
from fedegoists.errors import GraphError
from tests.coordinator.consortia import NAMES, checked, found, report


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


def test_without_a_deadline_it_is_the_manager_who_closed_the_reports(sqlite_store):
    consortium_id, _ = found(sqlite_store, NAMES)
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
    for withdraw in (False, True):
        with pytest.raises(ConflictError, match="the manager has closed the reports"):
            report(sqlite_store, consortium_id, "South", "North", withdraw=withdraw)


def test_reports_before_a_new_invitation_count_and_are_sealed(store):
    consortium_id, _ = found(store, NAMES)
    report(store, consortium_id, "South", "East")
    report(store, consortium_id, "South", "North")
    report(store, consortium_id, "South", "North", withdraw=True)

    def seen():
        with store.read() as session:
            consortium = consortia.consortium_with(session, consortium_id)
            south = consortia.member_named(session, consortium, "South")
            graph = competitor_reports.competition_of(session, consortium).pairs
            active = competitor_reports.active_reports(session, consortium)
            return competitor_reports.reported_by(session, south), graph, active

    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.invite_again(session, "manager m", consortium, "South")
    counted = (("South", "East"),), {"South": ["East"]}
    assert seen() == ((), *counted)
    count = checked(store).count
    report(store, consortium_id, "South", "East")  # as if there were none
    assert checked(store).count == count + 1
    assert seen() == (("East",), *counted)
    report(store, consortium_id, "South", "East", withdraw=True)
    assert seen() == ((), *counted)
    assert checked(store).ok


def finish(store, consortium_id, name):
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        competitor_reports.finish_reporting(
            session, consortia.member_named(session, consortium, name)
        )


def test_to_have_finished_looks_alike_with_and_without_competitors(store):
    consortium_id, _ = found(store, NAMES)
    report(store, consortium_id, "South", "East")
    for name in ("South", "North", "North"):
        finish(store, consortium_id, name)
    with store.read() as session:
        told = [
            json.loads(entry.details)
            for entry in entries(session)
            if entry.action == "reporting finished"
        ]
    assert told == [{"consortium": "Banks", "member": name} for name in ("South", "North")]
    report(store, consortium_id, "North", "East")  # one may still change one's mind
    assert checked(store).ok


def test_after_reopening_all_have_to_finish_again(store):
    consortium_id, _ = found(store, NAMES)
    finish(store, consortium_id, "South")
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
    with pytest.raises(ConflictError, match="can no longer be changed"):
        finish(store, consortium_id, "North")
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.reopen_reports(session, "manager m", consortium)
        assert {one.reported for one in consortia.members_of(session, consortium)} == {None}
    finish(store, consortium_id, "North")
    assert checked(store).ok


def test_a_changed_flag_is_noticed(store):
    consortium_id, _ = found(store, NAMES)
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.member_named(session, consortium, "South").reported = session.now()
    assert "reporting Banks, South: in the tables, but not in the log" in checked(store).problems
