"""Runs that come to an end, by themselves or because what they rely on changes."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.replay import ENDED
from fedegoists.coordinator.store.tables import ConsortiumRecord, RunRecord
from fedegoists.coordinator.store.times import from_moment

__all__ = ["end_run", "unfinished_in"]


def unfinished_in(session: Session, consortium: ConsortiumRecord) -> list[RunRecord]:
    """Return the runs of a consortium that are not over, the first one first."""
    found = session.scalars(
        select(RunRecord)
        .where(RunRecord.consortium_id == consortium.id, RunRecord.state.not_in(ENDED))
        .order_by(RunRecord.number)
    )
    return list(found)


def end_run(store: Store, session: Session, run: RunRecord, state: str, error: str) -> None:
    """Write down that a run is over; whoever works on it notices."""
    run.state, run.error, run.ended = state, error[:2000], store.now(session)
    if run.started:
        passed = from_moment(run.ended) - from_moment(run.started)
        run.seconds = passed.total_seconds()
    consortium = session.get(ConsortiumRecord, run.consortium_id)
    assert consortium is not None
    details = {"consortium": consortium.name, "number": run.number, "state": state}
    append(store, session, "coordinator", Action.RUN_ENDED, details)
