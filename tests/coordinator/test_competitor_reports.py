"""Reports of competitors: either side's counts, and only while they are open."""

import pytest

from fedegoists.coordinator.coordinator_errors import ConflictError, NotFoundError
from fedegoists.coordinator.domain import competitor_reports, consortia
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
