"""Members and deadlines: names, expulsion, and clocks that go back."""

import pytest

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain import accounts, coalition_decisions, consortia
from tests.coordinator.consortia import NAMES, WEIGHTS, checked, forms, found, report


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
