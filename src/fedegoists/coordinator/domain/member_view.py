"""A decision as one member sees it: its own coalition, and nothing about other reports."""

import json
from dataclasses import dataclass

from fedegoists.coalitions import usage_graph
from fedegoists.commitments import MemberCertificate
from fedegoists.coordinator.domain.coalition_decisions import (
    commitment_for,
    formation_of,
    published_formation,
)
from fedegoists.coordinator.domain.competitor_reports import shown_at
from fedegoists.coordinator.domain.consortia import participants_of
from fedegoists.coordinator.store import Transaction
from fedegoists.coordinator.store.database_tables import MemberRow


@dataclass(frozen=True)
class MemberDecision:
    """A decision as one member sees it.

    Attributes
    ----------
    current : bool
        Whether reports are closed, and all of the coalition still members. More, such as whether
        reports changed since, would reveal the reports of others.
    coalition : tuple of str
        The members that train together, itself included.
    contributors, beneficiaries : dict of float by name
        Benefits that it receives and gives, inside the coalition.
    gain : float
        The sum of the benefits that it receives.
    fewest_members : int
        The smallest coalition that could be decided on, besides members that are alone.
    """

    number: int
    current: bool
    made: str
    commitment: str
    coalition: tuple[str, ...]
    contributors: dict[str, float]
    beneficiaries: dict[str, float]
    gain: float
    fewest_members: int


def member_decision(session: Transaction, member: MemberRow) -> MemberDecision | None:
    """Return the latest published decision as a member sees it; None if it was not part of it."""
    consortium = member.consortium
    record = published_formation(session, consortium)
    if record is None:
        return None
    formation = formation_of(record)
    if member.name not in formation.participants:
        return None  # it joined after the decision
    coalition = formation.coalition_of(member.name)
    present = set(participants_of(session, consortium))
    own = usage_graph(formation).nodes[member.name]
    benefit = formation.benefit.benefit
    return MemberDecision(
        number=record.number,
        current=consortium.state == "closed" and present.issuperset(coalition),
        made=record.created,
        commitment=record.commitment,
        coalition=coalition,
        contributors={name: benefit(name, member.name) for name in own["contributors"]},
        beneficiaries={name: benefit(member.name, name) for name in own["beneficiaries"]},
        gain=formation.utilities[member.name],
        fewest_members=formation.fewest_members,
    )


def member_certificate(session: Transaction, member: MemberRow) -> MemberCertificate | None:
    """Return a member's certificate of the latest published decision."""
    record = published_formation(session, member.consortium)
    if record is None or member.name not in formation_of(record).participants:
        return None
    reports: dict[str, list[str]] = json.loads(record.reports)  # at the time of the decision
    shown = shown_at(session, member, record.created)
    reported = [name for name in reports.get(member.name, []) if name in shown]
    return commitment_for(member.consortium, record).member_certificate(member.name, reported)
