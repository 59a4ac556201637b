"""The queue of runs: preflight checks, troubles and deaths of workers."""

import re
import threading

import pytest

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain import coalition_decisions, consortia
from fedegoists.coordinator.domain.coalition_decisions import FormationOrder
from fedegoists.coordinator.domain.worker_process import WorkerProcess
from fedegoists.coordinator.runs import run_records
from fedegoists.coordinator.runs.run_orders import RunTask
from fedegoists.coordinator.runs.run_queue import STARTS, RunQueue
from fedegoists.coordinator.runs.run_worker import HELD_UP
from fedegoists.coordinator.store.audit_check import check_log
from fedegoists.coordinator.store.database_tables import RunRow
from fedegoists.graphs import CompetitionGraph
from tests.coordinator.banks import BANKS, PLAN, with_banks
from tests.coordinator.consortia import found
from tests.coordinator.served import bearer, decided, founded, inside

torch = pytest.importorskip("torch", reason="runs need the extra train")


def test_runs_go_on_after_something_unexpected(sqlite_store, tmp_path, monkeypatch, caplog):
    looked = threading.Event()
    troubles = [OSError("no room for a process"), RuntimeError("a bug")]

    def unfinished(_):
        if troubles:
            raise troubles.pop()
        looked.set()

    monkeypatch.setattr("fedegoists.coordinator.runs.run_queue.SECONDS_AFTER_TROUBLE", 0.0)
    monkeypatch.setattr("fedegoists.coordinator.runs.run_records.next_run", unfinished)
    queue = RunQueue(sqlite_store, tmp_path)
    queue.start()
    try:
        assert looked.wait(30)
        assert not queue.lost
    finally:
        queue.stop()
    assert "no room for a process" in caplog.text
    assert not queue.lost  # it was told to stop


@pytest.mark.usefixtures("any_plan")
def test_only_deaths_without_progress_count(sqlite_store, tmp_path):
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        plan = {"plan": {"source": "banks"}}
        client.post(f"/api/consortia/{consortium}/runs", json=plan, headers=bearer(manager))
    queue, seen = RunQueue(sqlite_store, tmp_path), []
    for stage, done in [("a", 1), ("a", 1), ("a", 2), ("a", 1), ("b", 0), ("a", 2), ("b", 0)]:
        run_records.note_progress(sqlite_store, 1, stage, done, 9, "")
        seen.append(queue._died(1))
    assert seen == [1, 2, 1, 2, 1, 2, 3]


@pytest.mark.usefixtures("any_plan")
def test_a_worker_that_stays_after_its_run_is_no_death(sqlite_store, tmp_path, monkeypatch, caplog):
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        plan = {"plan": {"source": "banks"}}
        client.post(f"/api/consortia/{consortium}/runs", json=plan, headers=bearer(manager))
    with sqlite_store.read() as session:
        run = run_records.next_run(session)
    run_records.finish(sqlite_store, run.id, error="for the test")
    stays = tmp_path / "stays"
    stays.write_text("#!/bin/sh\nexec sleep 600\n")
    stays.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(stays))
    caplog.set_level("INFO", "fedegoists.coordinator")
    RunQueue(sqlite_store, tmp_path)._do(run)
    assert "run 1 is failed; its worker did not leave and was ended" in caplog.text
    assert "ended with" not in caplog.text


@pytest.mark.usefixtures("any_plan")
def test_a_run_waits_for_room_on_the_disk(sqlite_store, tmp_path, monkeypatch):
    """As often as it takes: that is neither a death of its worker nor the end of the run."""
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        plan = {"plan": {"source": "banks"}}
        client.post(f"/api/consortia/{consortium}/runs", json=plan, headers=bearer(manager))
    with sqlite_store.read() as session:
        run = run_records.next_run(session)
    full = tmp_path / "full"
    full.write_text(f"#!/bin/sh\nread -r instructions\nexit {HELD_UP}\n")
    full.chmod(0o700)
    monkeypatch.setattr("fedegoists.coordinator.runs.run_queue.SECONDS_AFTER_TROUBLE", 0.0)
    monkeypatch.setattr("sys.executable", str(full))
    for _ in range(STARTS + 1):
        RunQueue(sqlite_store, tmp_path)._do(run)
    with sqlite_store.read() as session:
        assert run_records.next_run(session).id == run.id
        held_up = session.get(RunRow, run.id)
    assert (held_up.state, held_up.stage) == ("waiting", "waiting")
    assert "room on the disk" in held_up.remark


def test_a_plan_that_cannot_work_is_refused_when_it_is_asked_for(
    sqlite_store, tmp_path, monkeypatch
):
    with_banks(tmp_path)
    consortium_id, _ = found(sqlite_store, BANKS[:2], weights=[[0, 1], [1, 0]])
    other_id, _ = found(sqlite_store, ["Alder", "Zelkova"], "Others")
    with sqlite_store.write() as session:
        for one in (consortium_id, other_id):
            consortium = consortia.consortium_with(session, one)
            consortia.close_reports(session, "manager m", consortium)
    coalition_decisions.Decider(sqlite_store).form("manager m", consortium_id, FormationOrder())
    refused = [
        (consortium_id, "training", {"source": "nope"}, "no folder 'nope' among the silos"),
        (consortium_id, "training", {"methods": ["foo"]}, "unknown method 'foo'; methods are lo"),
        (consortium_id, "benefit", {"methods": ["local+ft"]}, "unknown method 'local+ft'"),
        (other_id, "benefit", {}, "has no data of 'Zelkova'"),
    ]
    if not torch.cuda.is_available():
        refused.append((consortium_id, "training", {"device": "cuda"}, "no usable GPU"))
    with inside(sqlite_store, tmp_path) as (client, manager):
        head = bearer(manager)
        api = f"/api/consortia/{consortium_id}/runs"
        assert client.post("/login", data={"secret": manager}).status_code == 303
        csrf = re.search(r'name="csrf" value="(\w+)"', client.get("/consortia/1").text)[1]
        form = {"csrf": csrf, "kind": "training", "source": "nope"}
        answer = client.post(f"/consortia/{consortium_id}/runs", data=form)
        assert (answer.status_code, "among the silos" in answer.text) == (409, True)
        # A process for each of the others would only take longer.
        monkeypatch.setattr(WorkerProcess, "call", lambda _, function, *asked: function(*asked))
        for one, kind, change, words in refused:
            body = {"kind": kind, "plan": {**PLAN, **change}}
            answer = client.post(f"/api/consortia/{one}/runs", json=body, headers=head)
            assert (answer.status_code, words in answer.text) == (409, True), answer.text
            assert client.get(f"/api/consortia/{one}/runs", headers=head).json() == []
        assert client.post(api, json={"plan": PLAN}, headers=head).status_code == 201
    assert not (tmp_path / "runs").exists()  # nothing was begun
    with sqlite_store.read() as session:
        assert check_log(session).ok


def test_what_nobody_expected_of_a_plan_is_said_and_logged(sqlite_store, tmp_path, caplog):
    names = tuple(BANKS[:2])
    competition = CompetitionGraph([], names)
    folders = (tmp_path, "run-1", tmp_path / "silos")
    task = RunTask(None, "simulation", competition, None, *folders)
    queue = RunQueue(sqlite_store, tmp_path)
    with pytest.raises(ConflictError, match="unexpected: AttributeError; see the log"):
        queue._check(task)
    assert "a run could not begin" in caplog.text
    with queue._one_preflight, pytest.raises(ConflictError, match="another run is being tried out"):
        queue._check(task)
    queue.stop()
    with pytest.raises(ConflictError, match="the coordinator stops"):
        queue._check(task)
