"""What a member may see of a decision: its own coalition, and nothing that tells on others."""

import json
from dataclasses import dataclass

from sqlalchemy.orm import Session

from fedegoists.coalitions import usage_graph
from fedegoists.commitments import MemberCertificate
from fedegoists.coordinator.domain.coalition_decisions import (
    commitment_for,
    formation_of,
    latest_formation,
)
from fedegoists.coordinator.domain.consortia import consortium_of, participants_of
from fedegoists.coordinator.store.tables import FormationRecord

__all__ = ["MemberDecision", "member_certificate", "member_decision"]


@dataclass(frozen=True)
class MemberDecision:
    """A decision as one member sees it.

    Attributes
    ----------
    current : bool
        Whether reports are still closed, and all in the coalition still members. More, such as
        whether somebody reported otherwise since, would tell on others.
    coalition : names
        With whom it trains, itself included.
    contributors, beneficiaries : mappings
        Whose data benefits it and who benefits from its data, inside the coalition, and how much.
    gain : float
        The sum of what it gets.
    """

    number: int
    current: bool
    made: str
    commitment: str
    coalition: tuple[str, ...]
    contributors: dict[str, float]
    beneficiaries: dict[str, float]
    gain: float


def member_decision(session: Session, member_id: int) -> MemberDecision | None:
    """Return the latest decision as a member sees it; None before it was part of one."""
    consortium, member = consortium_of(session, member_id)
    record = latest_formation(session, consortium)
    if record is None:
        return None
    formation = formation_of(record)
    if member.name not in formation.participants:
        return None  # it joined after the decision
    coalition = formation.coalition_of(member.name)
    present = {other.name for other in participants_of(session, consortium)}
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
    )


def member_certificate(session: Session, member_id: int) -> MemberCertificate | None:
    """Return the proof of the latest decision for a member."""
    consortium, member = consortium_of(session, member_id)
    record = latest_formation(session, consortium)
    if record is None or member.name not in formation_of(record).participants:
        return None
    reported = _reported_then(record, member.name)
    return commitment_for(consortium, record).member_certificate(member.name, reported)


def _reported_then(record: FormationRecord, name: str) -> list[str]:
    """Return whom a member had reported when the decision was made."""
    reports: dict[str, list[str]] = json.loads(record.reports)
    return reports.get(name, [])
