"""Runs in the store: asking for one, and noting how far it has come."""

from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from fedegoists.coordinator.coordinator_errors import ConflictError, NotFoundError
from fedegoists.coordinator.domain.coalition_decisions import (
    formation_of,
    latest_formation,
    record_benefit,
)
from fedegoists.coordinator.domain.competitor_reports import competition_of
from fedegoists.coordinator.domain.consortia import (
    consortium_with,
    is_closed,
    participants_of,
)
from fedegoists.coordinator.domain.run_endings import end_run
from fedegoists.coordinator.runs.run_plan import RunPlan
from fedegoists.coordinator.runs.run_task import (
    LOCAL_ONLY,
    Reach,
    RunKind,
    RunTask,
    check_engine,
)
from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.audit_log import Action, append
from fedegoists.coordinator.store.replay import ENDED, text_digest
from fedegoists.coordinator.store.tables import ConsortiumRecord, FormationRecord, RunRecord
from fedegoists.graphs import BenefitGraph

__all__ = [
    "ENDED",
    "cancel",
    "check_may_go_on",
    "enqueue",
    "finish",
    "note_progress",
    "run_folder",
    "run_numbered",
    "runs_of",
    "task_for",
    "unfinished",
    "wished",
]


def enqueue(
    store: Store,
    session: Session,
    by: str,
    consortium: ConsortiumRecord,
    kind: RunKind,
    engine: str,
    plan: RunPlan,
    reach: Reach = LOCAL_ONLY,
) -> RunRecord:
    """Ask for a run: to learn benefits, or to train by the latest decision."""
    run = _wished(store, session, consortium, kind, engine, plan, reach)
    session.add(run)
    session.flush()
    formation = _formation_record(session, run)
    details = {
        "consortium": consortium.name,
        "number": run.number,
        "kind": kind,
        "engine": engine,
        "plan": text_digest(run.plan),
        "formation": formation.number if formation else None,
    }
    append(store, session, by, Action.RUN_QUEUED, details)
    return run


def wished(
    store: Store,
    session: Session,
    consortium: ConsortiumRecord,
    kind: RunKind,
    engine: str,
    plan: RunPlan,
    data: Path,
    reach: Reach = LOCAL_ONLY,
) -> RunTask:
    """Return what an engine would need to know of a run, without asking for it yet."""
    run = _wished(store, session, consortium, kind, engine, plan, reach)
    return task_for(session, run, data, reach.kit)


def _wished(
    store: Store,
    session: Session,
    consortium: ConsortiumRecord,
    kind: RunKind,
    engine: str,
    plan: RunPlan,
    reach: Reach,
) -> RunRecord:
    """Return a run that is not in the store, if it fits the state things are in."""
    formation = latest_formation(session, consortium) if kind == "training" else None
    if kind == "training" and formation is None:
        raise ConflictError("nothing has been decided yet; form coalitions first")
    joined = tuple(member.name for member in participants_of(session, consortium))
    if not joined:
        raise ConflictError("nobody has joined yet")
    # Whoever joined after the decision does not take part in training by it.
    check_engine(engine, plan, reach, formation_of(formation).participants if formation else joined)
    _check_may_begin(store, session, consortium, formation)
    if kind == "benefit":
        plan.check_among(competition_of(session, consortium))
    last = select(func.max(RunRecord.number)).where(RunRecord.consortium_id == consortium.id)
    return RunRecord(
        consortium_id=consortium.id,
        number=1 + (session.scalar(last) or 0),
        formation_id=formation.id if formation else None,
        kind=kind,
        engine=engine,
        plan=plan.model_dump_json(),
        state="queued",
        created=store.now(session),
    )


def check_may_go_on(store: Store, session: Session, run: RunRecord) -> None:
    """Refuse to begin, or to go on with, a run that could not be asked for any more.

    Raises
    ------
    ConflictError
        If members or reports changed since it was asked for.
    """
    consortium = consortium_with(session, run.consortium_id)
    _check_may_begin(store, session, consortium, _formation_record(session, run))


def _check_may_begin(
    store: Store,
    session: Session,
    consortium: ConsortiumRecord,
    formation: FormationRecord | None,
) -> None:
    if formation is not None:
        _check_still_fits(session, consortium, formation)
    elif not is_closed(store, session, consortium):
        raise ConflictError(
            "benefits are learned by showing models to others, but not to competitors: "
            "close the reports first, or wait for the deadline"
        )


def _formation_record(session: Session, run: RunRecord) -> FormationRecord | None:
    if run.formation_id is None:
        return None
    found = session.get(FormationRecord, run.formation_id)
    assert found is not None
    return found


def _check_still_fits(
    session: Session, consortium: ConsortiumRecord, record: FormationRecord
) -> None:
    """Refuse a decision that would bring together whom reports since then keep apart."""
    formation = formation_of(record)
    gone = set(formation.participants) - {m.name for m in participants_of(session, consortium)}
    if gone:
        raise ConflictError(f"{min(gone)!r} was expelled after the decision; form coalitions again")
    for one, other in competition_of(session, consortium).pairs:
        if one in formation.participants and other in formation.coalition_of(one):
            raise ConflictError(
                "competitors were reported after the decision that it brings together; "
                "form coalitions again"
            )


def runs_of(session: Session, consortium: ConsortiumRecord) -> list[RunRecord]:
    """Return all runs, the latest first."""
    found = session.scalars(
        select(RunRecord)
        .where(RunRecord.consortium_id == consortium.id)
        .order_by(RunRecord.number.desc())
    )
    return list(found)


def run_numbered(session: Session, consortium: ConsortiumRecord, number: int) -> RunRecord:
    """Return one run."""
    found = session.scalar(
        select(RunRecord).where(
            RunRecord.consortium_id == consortium.id, RunRecord.number == number
        )
    )
    if found is None:
        raise NotFoundError("there is no such run")
    return found


def unfinished(session: Session) -> RunRecord | None:
    """Return the run to work on next; one that was interrupted goes first."""
    return session.scalar(
        select(RunRecord)
        .where(RunRecord.state.not_in(ENDED))
        .order_by(RunRecord.state.desc(), RunRecord.id)  # waiting, then running, then queued
        .limit(1)
    )


def run_folder(data: Path, run: RunRecord) -> tuple[Path, str]:
    """Return where the consortium's runs are, and this one's name in it."""
    return data / "runs" / f"consortium-{run.consortium_id}", f"run-{run.number}"


def task_for(session: Session, run: RunRecord, data: Path, kit: Path | None = None) -> RunTask:
    """Return what an engine needs to know of a run."""
    consortium = consortium_with(session, run.consortium_id)
    folder, name = run_folder(data, run)
    record = _formation_record(session, run)
    formation = None if record is None else formation_of(record)
    competition = formation.competition if formation else competition_of(session, consortium)
    return RunTask(
        plan=RunPlan.model_validate_json(run.plan),
        engine=run.engine,
        participants=competition.participants,
        competition=competition,
        formation=formation,
        folder=folder,
        name=name,
        silos=data / "silos",
        kit=kit,
        begun=run.started is not None,
    )


def note_progress(
    store: Store,
    run_id: int,
    stage: str,
    done: int,
    total: int,
    remark: str,
    *,
    waiting: bool = False,
) -> bool:
    """Note how far a run has come, and whether it only waits; return False if it is to stop."""
    with store.write() as session:
        run = session.get(RunRecord, run_id)
        if run is None or run.state in ENDED:
            return False
        if run.started is None:
            run.started = store.now(session)
        run.state = "waiting" if waiting else "running"
        run.stage, run.done, run.total, run.remark = stage[:200], done, total, remark[:200]
    return True


def finish(
    store: Store,
    run_id: int,
    *,
    error: str | None = None,
    learned: BenefitGraph | None = None,
) -> None:
    """Note that a run came to its end, with what was learned."""
    with store.write() as session:
        run = session.get(RunRecord, run_id)
        if run is None or run.state in ENDED:
            return
        consortium = consortium_with(session, run.consortium_id)
        if learned is not None:
            source = f"learned by run {run.number}"
            record_benefit(store, session, "coordinator", consortium, learned, source)
        end_run(store, session, run, "failed" if error is not None else "finished", error or "")


def cancel(store: Store, session: Session, by: str, run: RunRecord) -> None:
    """Have a run stop."""
    if run.state in ENDED:
        raise ConflictError(f"the run is {run.state} already")
    end_run(store, session, run, "cancelled", f"by {by}")
