"""Backups: of either database, while runs write, and damaged ones."""

import itertools
import stat
import tarfile
import threading
from pathlib import Path

import pytest

from fedegoists.coordinator.coordinator_errors import StoreError
from fedegoists.coordinator.domain import accounts, consortia
from fedegoists.coordinator.domain.coalition_decisions import formation_of
from fedegoists.coordinator.runs import run_records
from fedegoists.coordinator.runs.run_orders import RunPlan
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.backup import back_up, restore
from fedegoists.coordinator.store.database_tables import FormationRow
from fedegoists.errors import FileError
from tests.coordinator.consortia import NAMES, WEIGHTS, checked, forms, found, report
from tests.coordinator.databases import database_url


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_a_backup_is_restored_into_either_database(store, target, tmp_path, request):
    consortium_id, tokens = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "South", "East")
    forms(store, consortium_id)
    (tmp_path / "runs" / "run-1").mkdir(parents=True)
    (tmp_path / "runs" / "run-1" / "report.html").write_text("done")
    archive = tmp_path / "backup.tar.gz"
    check = back_up(store, archive, tmp_path / "runs")
    assert check.ok
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with pytest.raises(FileError, match="there already"):
        back_up(store, archive)
    (tmp_path / "new").mkdir()
    other = CoordinatorStore(database_url(target, tmp_path / "new", request), clock=store.clock)
    assert restore(archive, other, tmp_path / "new" / "runs").head == check.head
    assert (tmp_path / "new" / "runs" / "run-1" / "report.html").read_text() == "done"
    with other.read() as session:
        assert accounts.authenticate(session, tokens["East"], "token").label == "East"
    found(other, NAMES, "After")  # new rows get new numbers
    assert checked(other, check.head).ok
    with pytest.raises(StoreError, match="not empty"):
        restore(archive, other)
    other.close()


def test_a_backup_while_a_run_writes_files(sqlite_store, tmp_path):
    """Files that grow, are replaced or vanish meanwhile do not make it fail."""
    found(sqlite_store, NAMES)
    folder = tmp_path / "runs" / "consortium-1" / "run-1"
    folder.mkdir(parents=True)
    done = threading.Event()

    def write():
        for k in itertools.count():
            if done.is_set():
                return
            (folder / f".new-{k % 7}").write_bytes(b"x" * (k % 50_000))
            (folder / f".new-{k % 7}").replace(folder / f"checkpoint-{k % 5}")
            with (folder / "log.txt").open("a") as log:
                log.write("a line\n" * 50)
            (folder / f"checkpoint-{(k + 3) % 5}").unlink(missing_ok=True)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for k in range(15):
            back_up(sqlite_store, tmp_path / f"{k}.tar.gz", tmp_path / "runs")
    finally:
        done.set()
        writer.join()
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=sqlite_store.clock)
    restore(tmp_path / "14.tar.gz", other, tmp_path / "new" / "runs")
    assert (tmp_path / "new" / "runs" / "consortium-1" / "run-1" / "log.txt").is_file()
    other.close()


def test_a_backup_brings_back_no_session_and_no_invitation(sqlite_store, tmp_path, clock):
    """They may have ended since it was made: a session by signing out, an invitation by use."""
    _, tokens = found(sqlite_store, NAMES)
    with sqlite_store.write() as session:
        invitation = accounts.invite_account(session, "m", "monitor", "Prometheus")
        principal = accounts.authenticate(session, tokens["East"], "token")
        opened = accounts.open_session(session, principal)
    back_up(sqlite_store, tmp_path / "backup.tar.gz")
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    restore(tmp_path / "backup.tar.gz", other)
    with other.read() as session:
        for secret, kind in ((invitation, "invitation"), (opened, "session")):
            assert accounts.authenticate(session, secret, kind) is None
        assert accounts.authenticate(session, tokens["East"], "token") is not None
    other.close()


def test_a_backup_writes_nowhere_else(sqlite_store, tmp_path, clock):
    found(sqlite_store, NAMES)
    back_up(sqlite_store, tmp_path / "good.tar.gz")
    with (
        tarfile.open(tmp_path / "good.tar.gz") as good,
        tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as bad,
    ):
        for member in good:
            bad.addfile(member, good.extractfile(member))
        link = tarfile.TarInfo("runs/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        bad.addfile(link)
        bad.addfile(tarfile.TarInfo("runs/../../outside"))
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    with pytest.raises(FileError, match="outside the folder"):
        restore(tmp_path / "bad.tar.gz", other, tmp_path / "new" / "runs")
    assert not (tmp_path / "new" / "runs" / "link").exists()
    assert not (tmp_path / "outside").exists()
    assert checked(other).count == 0
    other.close()


def test_a_damaged_backup_changes_nothing(sqlite_store, tmp_path, clock):
    found(sqlite_store, NAMES)
    archive = tmp_path / "backup.tar.gz"
    back_up(sqlite_store, archive)
    content = archive.read_bytes()
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    for broken in (b"", content[: len(content) // 2], b"nonsense" * 100):
        (tmp_path / "broken.tar.gz").write_bytes(broken)
        with pytest.raises((StoreError, FileError)):
            restore(tmp_path / "broken.tar.gz", other)
    with pytest.raises(FileError, match="no such file"):
        restore(tmp_path / "missing.tar.gz", other)
    assert checked(other).count == 0
    other.close()


EARLIER = Path(__file__).with_name("earlier_backup.tar.gz")
"""Of version 0.1.0, with the formats of tables and hashes that must stay readable."""

EARLIER_HEAD = "6f1c85c5634df2b02bc7aa5bb82d9dd793fb5e43ff850dcfc386470322edfc35"


def test_a_backup_of_an_earlier_version_is_restored_verified_and_its_runs_understood(
    store, tmp_path
):
    assert restore(EARLIER, store).head == EARLIER_HEAD
    assert checked(store, EARLIER_HEAD).ok
    with store.read() as session:
        consortium = consortia.consortium_with(session, 1)
        formation = formation_of(session.latest(FormationRow, consortium))
        assert formation.coalitions == (("North", "South"), ("East",))
        plans = {
            run.number: run_records.task_for(session, run, tmp_path).plan
            for run in run_records.runs_of(session, consortium)
        }
    assert plans[1] == RunPlan(source="banks", methods=("local",), seeds=2, steps=7)
    assert plans[2] == RunPlan(source="banks", repeats=3)
