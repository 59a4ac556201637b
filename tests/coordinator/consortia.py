"""A small consortium inside a store, without the network."""

from fedegoists import BenefitGraph
from fedegoists.coordinator.domain import access, consortia
from fedegoists.coordinator.domain import coalition_decisions as deciding
from fedegoists.coordinator.domain import competitor_reports as reporting

__all__ = ["found", "report"]


def found(store, names, name="Banks", weights=None):
    """A consortium whose members have joined; returns its id and the members' tokens."""
    tokens = {}
    with store.write() as session:
        consortium = consortia.create(store, session, "manager m", name)
        for member in names:
            _, invitation = consortia.invite(store, session, "manager m", consortium, member)
            _, tokens[member] = access.accept_invitation(store, session, invitation)
        if weights is not None:
            graph = BenefitGraph(weights, names)
            deciding.record_benefit(store, session, "manager m", consortium, graph, "test")
    return consortium.id, tokens


def report(store, consortium_id, reporter, competitor, *, withdraw=False):
    with store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        member = consortia.member_named(session, consortium, reporter)
        act = reporting.withdraw if withdraw else reporting.report
        act(store, session, consortium, member, competitor)
