"""Decisions: what they need, their proof, and what-ifs."""

import json

import pytest

from fedegoists.coordinator.coordinator_errors import ConflictError, NotFoundError
from fedegoists.coordinator.domain import coalition_decisions, consortia
from fedegoists.coordinator.domain.coalition_decisions import FormationOrder, publish
from fedegoists.coordinator.domain.consortia import consortium_with, member_named
from fedegoists.coordinator.domain.member_view import member_decision
from fedegoists.coordinator.store.audit_check import reports_digest
from fedegoists.coordinator.store.audit_log import entries
from fedegoists.coordinator.store.database_tables import FormationRow
from tests.coordinator.consortia import NAMES, WEIGHTS, checked, forms, found, report


def test_a_decision_needs_closed_reports_benefits_and_members(store):
    consortium_id, _ = found(store, NAMES)
    with pytest.raises(ConflictError, match="may still report"):
        coalition_decisions.Decider(store).form("manager m", consortium_id, FormationOrder())
    with pytest.raises(ConflictError, match="there is no benefit graph yet"):
        forms(store, consortium_id)
    empty, _ = found(store, [], "Nobody")
    with pytest.raises(ConflictError, match="no member has joined"):
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


def test_a_decision_keeps_the_demanded_number_of_members(store):
    """North and South are best, but a pair; with East they would be three, but two compete."""
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "South", "East")
    forms(store, consortium_id)
    decider = coalition_decisions.Decider(store)
    record = decider.form("manager m", consortium_id, FormationOrder(fewest_members=3))
    formation = coalition_decisions.formation_of(record)
    assert formation.coalitions == (("North",), ("South",), ("East",))
    with store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        commitment = coalition_decisions.commitment_for(consortium, record)
        basis = coalition_decisions.what_if_basis(session, consortium, record.number)
    mine = commitment.member_certificate("South", ["East"])
    assert mine.check(record.commitment, fewest_members=3).ok
    assert not mine.check(record.commitment, fewest_members=2).ok
    without = coalition_decisions.quick_what_if(basis, remove=[("South", "East")])
    assert without.coalitions == (("North", "South", "East"),)
    assert coalition_decisions.quick_what_if(basis, leaves=["East"]).moved == ()
    order = FormationOrder(method="published", fewest_members=3)
    with pytest.raises(ConflictError, match="need the method 'best' or 'stable'"):
        decider.form("manager m", consortium_id, order)


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


def test_what_if_is_answered_from_the_decision(store):
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    forms(store, consortium_id)
    with store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        basis = coalition_decisions.what_if_basis(session, consortium, 1)
        assert coalition_decisions.what_if_basis(session, consortium, 1) is basis
        with pytest.raises(NotFoundError):
            coalition_decisions.what_if_basis(session, consortium, 2)
    result = coalition_decisions.quick_what_if(basis, add=[("South", "East")])
    assert not any({"South", "East"} <= set(group) for group in result.coalitions)
    assert (result.welfare, result.welfare_change) == (3, -6)
    left = coalition_decisions.quick_what_if(basis, leaves=["East"])
    assert (left.coalitions, left.welfare) == ((("North", "South"),), 3)


def test_members_see_a_decision_only_when_it_is_published(store):
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    draft = forms(store, consortium_id, draft=True)
    assert (draft.published, _seen(store, consortium_id)) == (None, None)
    with store.write() as session:
        consortium = consortium_with(session, consortium_id)
        publish(session, "manager m", consortium, draft.number)
        publish(session, "manager m", consortium, draft.number)  # again: nothing changes
    assert _seen(store, consortium_id) == 1
    forms(store, consortium_id, draft=True)
    assert _seen(store, consortium_id) == 1
    assert checked(store).ok
    with store.read() as session:
        told = [entry.action for entry in entries(session)]
    assert told.count("decision published") == 1


def test_an_outdated_draft_is_not_published(store):
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    first = forms(store, consortium_id, draft=True)
    forms(store, consortium_id, draft=True)
    with store.write() as session, pytest.raises(ConflictError, match="form coalitions again"):
        publish(session, "manager m", consortium_with(session, consortium_id), first.number)


def test_a_draft_that_was_published_in_the_tables_only_is_noticed(store):
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    forms(store, consortium_id, draft=True)
    with store.write() as session:
        consortium = consortium_with(session, consortium_id)
        session.latest(FormationRow, consortium).published = session.now()
    assert not checked(store).ok


def _seen(store, consortium_id):
    """Return the number of the decision that a member sees."""
    with store.read() as session:
        consortium = consortium_with(session, consortium_id)
        found_ = member_decision(session, member_named(session, consortium, NAMES[0]))
    return None if found_ is None else found_.number
