"""A small consortium inside a store, without the network."""

from fedegoists import BenefitGraph
from fedegoists.coordinator.domain import (
    accounts,
    coalition_decisions,
    competitor_reports,
    consortia,
)

__all__ = ["found", "report"]


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
            coalition_decisions.record_benefit(session, "manager m", consortium, graph, "test")
    return consortium.id, tokens


def report(store, consortium_id, reporter, competitor, *, withdraw=False):
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        member = consortia.member_named(session, consortium, reporter)
        act = competitor_reports.withdraw if withdraw else competitor_reports.report
        act(session, member, competitor)
