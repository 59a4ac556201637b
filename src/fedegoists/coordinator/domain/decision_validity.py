"""Whether a decision still is what would be decided about."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedegoists.coalitions import Formation
from fedegoists.coordinator.domain.competitor_reports import competition_of
from fedegoists.coordinator.store.tables import (
    AuditEntry,
    BenefitEstimate,
    ConsortiumRecord,
    FormationRecord,
)

__all__ = ["is_current"]

KEPT = 16


def is_current(
    session: Session, consortium: ConsortiumRecord, number: int, formation: Formation
) -> bool:
    """Whether a decision is the latest, and members, benefits and competition are as they were.

    Whatever changes them is written to the audit log, so its head says whether to look again.
    """
    head = session.scalar(select(AuditEntry.digest).order_by(AuditEntry.id.desc()).limit(1))
    key = str(head), consortium.id, number
    found = _CURRENT.get(key)
    if found is None:
        if len(_CURRENT) >= KEPT:
            _CURRENT.clear()
        found = _CURRENT[key] = _is_current(session, consortium, number, formation)
    return found


_CURRENT: dict[tuple[str, int, int], bool] = {}


def _is_current(
    session: Session, consortium: ConsortiumRecord, number: int, formation: Formation
) -> bool:
    of_it = BenefitEstimate.consortium_id == consortium.id
    latest = session.execute(
        select(FormationRecord.number, FormationRecord.benefit_id)
        .where(FormationRecord.consortium_id == consortium.id)
        .order_by(FormationRecord.number.desc())
        .limit(1)
    ).one()
    benefit_id = session.scalar(select(func.max(BenefitEstimate.id)).where(of_it))
    now = competition_of(session, consortium)
    return (
        tuple(latest) == (number, benefit_id)
        and now.participants == formation.participants
        and set(now.pairs) == set(formation.competition.pairs)
    )
