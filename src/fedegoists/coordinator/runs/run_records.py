"""Runs in the store: ordering them, and recording their progress and their end."""

from pathlib import Path

from sqlalchemy import select

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain.coalition_decisions import (
    formation_of,
    published_formation,
    record_benefit,
)
from fedegoists.coordinator.domain.competitor_reports import competition_of
from fedegoists.coordinator.domain.consortia import consortium_with, is_closed, participants_of
from fedegoists.coordinator.domain.unfinished_runs import end_run
from fedegoists.coordinator.runs.run_orders import LOCAL_ONLY, Reach, RunOrder, RunPlan, RunTask
from fedegoists.coordinator.store import CoordinatorStore, Transaction
from fedegoists.coordinator.store.audit_check import ENDED, text_digest
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.database_tables import ConsortiumRow, FormationRow, RunRow
from fedegoists.graphs import BenefitGraph


def enqueue(
    session: Transaction,
    by: str,
    consortium: ConsortiumRow,
    order: RunOrder,
    reach: Reach = LOCAL_ONLY,
) -> RunRow:
    """Queue a run: to learn benefits, or to train by the latest decision."""
    run = ordered_run(session, consortium, order, reach)
    session.add(run)
    session.flush()
    formation = _formation_of_run(session, run)
    append(
        session,
        by,
        Action.RUN_QUEUED,
        consortium,
        number=run.number,
        kind=run.kind,
        engine=run.engine,
        plan=text_digest(run.plan),
        formation=formation.number if formation else None,
    )
    return run


def ordered_run(
    session: Transaction, consortium: ConsortiumRow, order: RunOrder, reach: Reach
) -> RunRow:
    """Return a run that is not in the store yet, if it can be started now.

    Raises
    ------
    ConflictError
        If it lacks a decision, participants, closed reports, silos or data, or would show
        competitors models of one another's data.
    """
    training = order.kind == "training"
    formation = published_formation(session, consortium) if training else None
    if training and formation is None:
        raise ConflictError(
            "nothing has been decided yet; form coalitions first, and publish the decision"
        )
    joined = participants_of(session, consortium)
    if not joined:
        raise ConflictError("no member has joined yet; invite members first")
    # Members that joined after the decision do not take part in training by it.
    reach.check(order, formation_of(formation).participants if formation else joined)
    run = RunRow(
        consortium_id=consortium.id,
        number=session.next_number(RunRow, consortium),
        formation_id=formation.id if formation else None,
        kind=order.kind,
        engine=order.engine,
        plan=order.plan.model_dump_json(),
        state="queued",
        created=session.now(),
    )
    check_may_begin(session, run)
    if order.kind == "benefit":
        order.plan.check_among(competition_of(session, consortium))
    return run


def check_may_begin(session: Transaction, run: RunRow) -> None:
    """Refuse to begin or resume a run that could not be ordered now.

    Raises
    ------
    ConflictError
        If reports are open, or members or reports changed since the decision that it follows.
    """
    consortium = consortium_with(session, run.consortium_id)
    record = _formation_of_run(session, run)
    if record is None:
        if not is_closed(session, consortium):
            raise ConflictError(
                "benefits are learned by showing models to others, but not to competitors: "
                "close the reports first, or wait for the deadline"
            )
        return
    formation = formation_of(record)
    gone = set(formation.participants).difference(participants_of(session, consortium))
    if gone:
        raise ConflictError(f"{min(gone)!r} was expelled after the decision; form coalitions again")
    for one, other in competition_of(session, consortium).pairs:
        if one in formation.participants and other in formation.coalition_of(one):
            raise ConflictError(
                "competitors were reported after the decision that it brings together; "
                "form coalitions again"
            )


def _formation_of_run(session: Transaction, run: RunRow) -> FormationRow | None:
    return None if run.formation_id is None else session.get_one(FormationRow, run.formation_id)


def runs_of(session: Transaction, consortium: ConsortiumRow) -> list[RunRow]:
    """Return all runs, the latest first."""
    found = session.scalars(
        select(RunRow).where(RunRow.consortium_id == consortium.id).order_by(RunRow.number.desc())
    )
    return list(found)


def next_run(session: Transaction) -> RunRow | None:
    """Return the run to work on next; an interrupted one comes first."""
    return session.scalar(
        select(RunRow)
        .where(RunRow.state.not_in(ENDED))
        .order_by(RunRow.state.desc(), RunRow.id)  # waiting, then running, then queued
        .limit(1)
    )


def run_folder(data: Path, run: RunRow) -> tuple[Path, str]:
    """Return the folder of the consortium's runs, and the name of this one's folder in it."""
    return data / "runs" / f"consortium-{run.consortium_id}", f"run-{run.number}"


def task_for(session: Transaction, run: RunRow, data: Path, kit: Path | None = None) -> RunTask:
    """Return everything an engine must know of a run."""
    consortium = consortium_with(session, run.consortium_id)
    folder, name = run_folder(data, run)
    record = _formation_of_run(session, run)
    formation = None if record is None else formation_of(record)
    competition = formation.competition if formation else competition_of(session, consortium)
    return RunTask(
        plan=RunPlan.model_validate_json(run.plan),
        engine=run.engine,
        competition=competition,
        formation=formation,
        folder=folder,
        name=name,
        silos=data / "silos",
        kit=kit,
        begun=run.started is not None,
    )


def note_progress(
    store: CoordinatorStore,
    run_id: int,
    stage: str,
    done: int,
    total: int,
    remark: str,
    *,
    waiting: bool = False,
) -> bool:
    """Record the progress of a run; return False if the run is to stop."""
    with store.write() as session:
        run = session.get(RunRow, run_id)
        if run is None or run.state in ENDED:
            return False
        if run.started is None:
            run.started = session.now()
        run.state = "waiting" if waiting else "running"
        run.stage, run.done, run.total, run.remark = stage[:200], done, total, remark[:200]
    return True


def finish(
    store: CoordinatorStore,
    run_id: int,
    *,
    error: str | None = None,
    learned: BenefitGraph | None = None,
) -> None:
    """Record the end of a run, with the benefit graph if it learned one."""
    with store.write() as session:
        run = session.get(RunRow, run_id)
        if run is None or run.state in ENDED:
            return
        consortium = consortium_with(session, run.consortium_id)
        if learned is not None:
            source = f"learned by run {run.number}"
            record_benefit(session, "coordinator", consortium, learned, source)
        end_run(session, run, "failed" if error is not None else "finished", error or "")


def cancel(session: Transaction, by: str, run: RunRow) -> None:
    """Cancel a run."""
    if run.state in ENDED:
        raise ConflictError(f"the run is {run.state} already")
    end_run(session, run, "cancelled", f"by {by}")
