"""Runs are ordered and resumed only by decisions that still fit."""

import pytest

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain import coalition_decisions, consortia
from fedegoists.coordinator.runs import run_records, run_worker
from fedegoists.coordinator.runs.run_orders import RunOrder, RunPlan
from fedegoists.coordinator.store.database_tables import RunRow
from tests.coordinator.consortia import NAMES, WEIGHTS, checked, forms, found, report


def test_nothing_is_trained_by_a_decision_that_later_reports_contradict(sqlite_store):
    consortium_id, _ = found(sqlite_store, NAMES, weights=WEIGHTS)
    record = forms(sqlite_store, consortium_id)
    assert coalition_decisions.formation_of(record).coalitions == (("North", "South", "East"),)

    def train():
        with sqlite_store.write() as session:
            consortium = consortia.consortium_with(session, consortium_id)
            plan = RunPlan(source="banks")
            return run_records.enqueue(
                session,
                "manager m",
                consortium,
                RunOrder(kind="training", engine="simulation", plan=plan),
            ).number

    assert train() == 1
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        with pytest.raises(ConflictError, match="run 1 relies on the reports"):
            consortia.reopen_reports(session, "manager m", consortium)
        run = session.numbered(RunRow, consortium, 1)
        run_records.cancel(session, "manager m", run)
        consortia.reopen_reports(session, "manager m", consortium)
    report(sqlite_store, consortium_id, "South", "East")
    with pytest.raises(ConflictError, match="form coalitions again"):
        train()
    forms(sqlite_store, consortium_id)
    assert train() == 2
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.expel(session, "manager m", consortium, "North")
    with pytest.raises(ConflictError, match="'North' was expelled"):
        train()
    with sqlite_store.read() as session:
        run = session.numbered(RunRow, consortium, 2)
    assert (run.state, run.error) == ("cancelled", "'North' was expelled")
    assert checked(sqlite_store).ok


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("kind", ["training", "benefit"])
def test_a_run_that_waited_is_checked_again_before_it_goes_on(
    sqlite_store, tmp_path, monkeypatch, kind, begun
):
    """Whatever way things changed meanwhile, such as by a version that let reports be reopened."""
    consortium_id, _ = found(sqlite_store, NAMES, weights=WEIGHTS)
    forms(sqlite_store, consortium_id)
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        plan = RunPlan(source="banks")
        run = run_records.enqueue(session, "manager m", consortium, RunOrder(kind=kind, plan=plan))
        run.started = run.created if begun else None
        consortium.state = "collecting"
    report(sqlite_store, consortium_id, "South", "East")
    for work in ("learn", "train"):
        monkeypatch.setattr(
            run_worker.decided_pipeline, work, lambda *_: pytest.fail("an engine was loaded")
        )
    run_worker.work_on(sqlite_store, run.id, tmp_path)
    with sqlite_store.read() as session:
        failed = session.get(RunRow, run.id)
    assert failed.state == "failed"
    wanted = "form coalitions again" if kind == "training" else "close the reports first"
    assert wanted in failed.error
