"""Unfinished runs, and how a run ends: by itself, or because its members or reports change."""

from sqlalchemy import select

from fedegoists.coordinator.store import Transaction
from fedegoists.coordinator.store.audit_check import ENDED
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.database_tables import ConsortiumRow, RunRow
from fedegoists.coordinator.store.moments import seconds_between


def unfinished_in(session: Transaction, consortium: ConsortiumRow) -> list[RunRow]:
    """Return the unfinished runs of a consortium, oldest first."""
    found = session.scalars(
        select(RunRow)
        .where(RunRow.consortium_id == consortium.id, RunRow.state.not_in(ENDED))
        .order_by(RunRow.number)
    )
    return list(found)


def end_run(session: Transaction, run: RunRow, state: str, error: str) -> None:
    """Record the end of a run; its worker notices."""
    run.state, run.error, run.ended = state, error[:2000], session.now()
    if run.started:
        run.seconds = seconds_between(run.started, run.ended)
    consortium = session.get_one(ConsortiumRow, run.consortium_id)
    number = run.number
    append(session, "coordinator", Action.RUN_ENDED, consortium, number=number, state=state)
