"""A small consortium inside a store, without the network."""

from fedegoists import BenefitGraph
from fedegoists.coordinator.domain import accounts, competitor_reports, consortia
from fedegoists.coordinator.domain.coalition_decisions import (
    Decider,
    FormationOrder,
    record_benefit,
)
from fedegoists.coordinator.store.audit_check import check_log

__all__ = ["NAMES", "WEIGHTS", "checked", "closed", "forms", "found", "report"]

NAMES = ["North", "South", "East"]
WEIGHTS = [[0, 2, 1], [1, 0, 2], [2, 1, 0]]


def found(store, names, name="Banks", weights=None):
    """A consortium whose members have joined; returns its id and the members' tokens."""
    tokens = {}
    with store.write() as session:
        consortium = consortia.create(session, "manager m", name)
        for member in names:
            _, invitation = consortia.invite(session, "manager m", consortium, member)
            _, tokens[member] = accounts.accept_invitation(session, invitation)
        if weights is not None:
            graph = BenefitGraph(weights, names)
            record_benefit(session, "manager m", consortium, graph, "test")
    return consortium.id, tokens


def report(store, consortium_id, reporter, competitor, *, withdraw=False):
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        member = consortia.member_named(session, consortium, reporter)
        act = competitor_reports.withdraw if withdraw else competitor_reports.report
        act(session, member, competitor)


def closed(store, consortium_id):
    """Close the reports."""
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)


def forms(store, consortium_id, **order):
    """Close the reports and decide."""
    closed(store, consortium_id)
    return Decider(store).form("manager m", consortium_id, FormationOrder(**order))


def checked(store, head=None):
    with store.read() as session:
        return check_log(session, head)
