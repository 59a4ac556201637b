"""Workers: progress, learning, failures and cancellation."""

import errno
import itertools
import shutil

import pytest
from pydantic import ValidationError

from fedegoists.coordinator.coordinator_errors import FullStoreError
from fedegoists.coordinator.domain import coalition_decisions, consortia
from fedegoists.coordinator.runs import run_records, run_worker
from fedegoists.coordinator.runs.run_orders import Reach, RunOrder, RunPlan
from fedegoists.coordinator.runs.run_worker import is_passing, work_on
from fedegoists.coordinator.store.audit_check import check_log
from fedegoists.coordinator.store.database_tables import BenefitRow, RunRow
from fedegoists.errors import FedEgoistsError
from fedegoists.files import write_bytes
from tests.coordinator.banks import BANKS, with_banks
from tests.coordinator.consortia import found
from tests.coordinator.served import bearer, decided, founded, inside

pytest.importorskip("torch", reason="runs need the extra train")


@pytest.mark.usefixtures("any_plan")
def test_a_remark_without_progress_is_noted_at_once(sqlite_store, tmp_path, monkeypatch):
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        plan = {"plan": {"source": "banks"}}
        client.post(f"/api/consortia/{consortium}/runs", json=plan, headers=bearer(manager))
    noted = []

    def note(*told, waiting):
        noted.append((*told[2:], waiting))
        return True

    monkeypatch.setattr(run_records, "note_progress", note)
    now = itertools.count(step=0.1)
    progress = run_worker.RunProgress(sqlite_store, 1, lambda: next(now))
    for done, loss in [(1, 3), (2, 2), (2, 2)]:
        progress("training", "fedavg", done, 9, f"loss {loss}")
    progress.message("East is away")
    progress.message("waiting for the server", waiting=True)
    assert noted == [
        ("training: fedavg", 1, 9, "loss 3", False),
        ("training: fedavg", 2, 9, "East is away", False),
        ("waiting", 2, 9, "waiting for the server", True),
    ]


def test_a_run_over_flare_without_the_kit_says_so(sqlite_store, tmp_path):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    consortium_id, _ = found(sqlite_store, BANKS[:2])
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
        queued = run_records.enqueue(
            session,
            "manager m",
            consortium,
            RunOrder(kind="benefit", engine="flare", plan=RunPlan()),
            Reach(tmp_path, BANKS),
        )
    work_on(sqlite_store, queued.id, tmp_path)  # as if it was started again without --kit
    with sqlite_store.read() as session:
        failed = session.get(RunRow, queued.id)
    assert failed.state == "failed"
    assert "start it with the kit" in failed.error


def test_runs_learn_fail_with_a_reason_and_can_be_cancelled(sqlite_store, tmp_path, monkeypatch):
    with_banks(tmp_path)
    consortium_id, _ = found(sqlite_store, BANKS[:2])
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)

    def queued(**plan):
        with sqlite_store.write() as session:
            consortium = consortia.consortium_with(session, consortium_id)
            order = RunOrder(kind="benefit", plan=RunPlan(**plan))
            return run_records.enqueue(session, "manager m", consortium, order).id

    def after(run_id):
        work_on(sqlite_store, run_id, tmp_path)
        with sqlite_store.read() as session:
            return session.get(RunRow, run_id)

    learned = after(queued(source="banks", repeats=2, benefit_steps=5, threshold=0.0))
    assert learned.state == "finished", learned.error
    with sqlite_store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        estimate = session.latest(BenefitRow, consortium)
        assert estimate.source == "learned by run 1"
        assert coalition_decisions.graph_of(estimate).participants == ("Alder", "Birch")
    failed = after(queued(source="nowhere"))
    assert failed.state == "failed"
    assert "nowhere" in failed.error
    missing = after(queued(source="synthetic-weak"))
    assert "no data of 'Alder'" in missing.error
    with pytest.raises(ValidationError):
        RunPlan(source="../../etc")
    shutil.copytree(tmp_path / "silos" / "banks", tmp_path / "elsewhere" / "private")
    monkeypatch.chdir(tmp_path / "elsewhere")  # as if the coordinator was started there
    outside = after(queued(source="private"))
    assert "no folder 'private' among the silos" in outside.error
    stopped = queued(source="banks")
    with sqlite_store.write() as session:
        run_records.cancel(session, "manager m", session.get(RunRow, stopped))
    assert after(stopped).state == "cancelled"
    with sqlite_store.read() as session:
        assert check_log(session).ok


@pytest.mark.parametrize("name", ["the-disk", "a-file", "the-store"])
def test_a_full_disk_does_not_end_a_run(sqlite_store, tmp_path, monkeypatch, name):
    consortium_id, _ = found(sqlite_store, BANKS[:2])
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
        order = RunOrder(kind="benefit", plan=RunPlan(source="banks"))
        run_id = run_records.enqueue(session, "manager m", consortium, order).id

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def learn(_task, _progress):
        if name == "the-store":
            raise FullStoreError("there is no room left on the disk")
        if name == "the-disk":
            no_room()
        with monkeypatch.context() as full:
            full.setattr("os.fsync", no_room)
            write_bytes(tmp_path / "checkpoint", b"x")

    monkeypatch.setattr("fedegoists.coordinator.runs.decided_pipeline.learn", learn)
    with pytest.raises((OSError, FedEgoistsError)) as raised:
        work_on(sqlite_store, run_id, tmp_path)
    assert is_passing(raised.value)
    with sqlite_store.read() as session:
        assert session.get(RunRow, run_id).state == "running"
