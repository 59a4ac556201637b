"""Backups: of either database, while runs write, and damaged ones."""

import hashlib
import io
import itertools
import json
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
from fedegoists.coordinator.store import CoordinatorStore, backup
from fedegoists.coordinator.store.backup import back_up, backup_key, restore
from fedegoists.coordinator.store.database_tables import FormationRow
from fedegoists.errors import FileError
from tests.coordinator.consortia import NAMES, WEIGHTS, checked, forms, found, report
from tests.coordinator.databases import database_url

KEY = bytes(range(32))


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_a_backup_is_restored_into_either_database(store, target, tmp_path, request):
    consortium_id, _ = found(store, NAMES, weights=WEIGHTS)
    report(store, consortium_id, "South", "East")
    forms(store, consortium_id)
    (tmp_path / "runs" / "run-1").mkdir(parents=True)
    (tmp_path / "runs" / "run-1" / "report.html").write_text("done")
    archive = tmp_path / "backup.tar.gz"
    check = back_up(store, archive, KEY, tmp_path / "runs")
    assert check.ok
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with pytest.raises(FileError, match="there already"):
        back_up(store, archive, KEY)
    (tmp_path / "new").mkdir()
    other = CoordinatorStore(database_url(target, tmp_path / "new", request), clock=store.clock)
    new = tmp_path / "new" / "runs"
    assert restore(archive, other, KEY, check.head, new).head == check.head
    assert (new / "run-1" / "report.html").read_text() == "done"
    assert stat.S_IMODE((new / "run-1").stat().st_mode) == 0o700
    assert stat.S_IMODE((new / "run-1" / "report.html").stat().st_mode) == 0o600
    found(other, NAMES, "After")  # new rows get new numbers
    assert checked(other, check.head).ok
    with pytest.raises(StoreError, match="not empty"):
        restore(archive, other, KEY, check.head)
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
            head = back_up(sqlite_store, tmp_path / f"{k}.tar.gz", KEY, tmp_path / "runs").head
    finally:
        done.set()
        writer.join()
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=sqlite_store.clock)
    restore(tmp_path / "14.tar.gz", other, KEY, head, tmp_path / "new" / "runs")
    assert (tmp_path / "new" / "runs" / "consortium-1" / "run-1" / "log.txt").is_file()
    other.close()


def test_a_backup_brings_back_no_credential(sqlite_store, tmp_path, clock):
    """They may have ended since it was made, such as by signing out or by a new invitation."""
    _, tokens = found(sqlite_store, NAMES)
    with sqlite_store.write() as session:
        invitation = accounts.invite_account(session, "m", "monitor", "Prometheus")
        login = accounts.invite_account(session, "m", "manager", "Ann")
        _, manager = accounts.accept_invitation(session, login)
        principal = accounts.authenticate(session, tokens["East"], "token")
        opened = accounts.open_session(session, principal)
        accounts.add_certificate(session, principal, "ab" * 32)
    head = back_up(sqlite_store, tmp_path / "backup.tar.gz", KEY).head
    assert accounts.first_manager(sqlite_store) is None
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    restore(tmp_path / "backup.tar.gz", other, KEY, head)
    secrets = {"invitation": invitation, "session": opened}
    with other.read() as session:
        for secret in (*tokens.values(), manager):
            assert accounts.authenticate(session, secret, "token") is None
        for kind, secret in secrets.items():
            assert accounts.authenticate(session, secret, kind) is None
        assert accounts.authenticate_certificate(session, "ab" * 32) is None
    assert checked(other, head).ok
    login = accounts.first_manager(other)  # the next start lets the manager in again
    with other.write() as session:
        accounts.accept_invitation(session, login)
    assert checked(other).ok
    other.close()


def rewritten(source, target, change=lambda name, content: content, more=()):
    """Copy an archive, as an attacker could who has it, but not the key."""
    with tarfile.open(source) as good, tarfile.open(target, "w:gz") as bad:
        for member in good:
            content = change(member.name, good.extractfile(member).read())
            if content is not None:
                _put(bad, member.name, content)
        for name, content in more:
            _put(bad, name, content)
    return target


def _put(archive, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def with_token(name, content):
    """A token of an attacker's own for the manager, with all hashes in the archive set right."""
    row = {"id": 999, "account_id": 1, "kind": "token", "digest": "ab" * 32, "created": "2026"}
    if name == "tables/credentials.jsonl":
        return content + json.dumps({**row, "expires": None, "ended": None}).encode() + b"\n"
    return content


CHANGES = {
    "an added token": (with_token, ()),
    "a changed row": (
        lambda name, content: (
            content.replace(b"East", b"Eazt") if name == "tables/members.jsonl" else content
        ),
        (),
    ),
    "a changed file": (lambda name, content: b"x" if name.startswith("runs/") else content, ()),
    "a removed file": (lambda name, content: None if name.startswith("runs/") else content, ()),
    "an added file": (lambda _, content: content, [("runs/consortium-1/new.html", b"x")]),
    "a second file": (lambda _, content: content, [("runs/consortium-1/report.html", b"x")]),
    "a second manifest": (lambda _, content: content, [("manifest.json", b"{}")]),
    "no code": (lambda name, content: None if name == "manifest.hmac" else content, ()),
}


def hashes_set_right(change):
    """Change the archive, and then its manifest to fit, which only the key prevents."""
    hashes = {}

    def changed(name, content):
        content = change(name, content)
        if name == "manifest.json":
            manifest = json.loads(content)
            manifest["files"] = {**manifest["files"], **hashes}
            return json.dumps(manifest).encode()
        if content is not None:
            hashes[name] = hashlib.sha256(content).hexdigest()
        return content

    return changed


@pytest.fixture
def backed_up(sqlite_store, tmp_path):
    """An archive with a run, its head, and an empty store."""
    found(sqlite_store, NAMES)
    (tmp_path / "runs" / "consortium-1").mkdir(parents=True)
    (tmp_path / "runs" / "consortium-1" / "report.html").write_text("good")
    archive = tmp_path / "good.tar.gz"
    head = back_up(sqlite_store, archive, KEY, tmp_path / "runs").head
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=sqlite_store.clock)
    yield archive, head, other
    other.close()


@pytest.mark.parametrize("forged", [False, True], ids=["as it is", "with hashes set right"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_backup_is_refused(backed_up, tmp_path, name, forged):
    archive, head, other = backed_up
    change, more = CHANGES[name]
    change = hashes_set_right(change) if forged else change
    bad = rewritten(archive, tmp_path / "bad.tar.gz", change, more)
    with pytest.raises(StoreError, match=r"changed|not a backup"):
        restore(bad, other, KEY, head, tmp_path / "new" / "runs")
    assert checked(other).count == 0
    assert not (tmp_path / "new").exists()
    with pytest.raises(StoreError, match=r"has a code of authentication|not a backup|changed"):
        restore(bad, other, None, head)  # nor as one of an earlier version


def test_a_backup_needs_its_key_and_a_head_that_was_kept(backed_up, tmp_path):
    archive, head, other = backed_up
    with pytest.raises(StoreError, match="not written with this key"):
        restore(archive, other, b"x" * 32, head)
    with pytest.raises(StoreError, match="no entry has the hash"):
        restore(archive, other, KEY, "0f" * 32)
    with pytest.raises(StoreError, match="no entry has the hash"):
        restore(archive, other, KEY, "")
    assert checked(other).count == 0
    restore(archive, other, KEY, head, tmp_path / "new" / "runs")


def test_a_key_is_made_once_for_its_owner_only(tmp_path):
    key = backup_key(tmp_path)
    assert (len(key), backup_key(tmp_path)) == (32, key)
    assert stat.S_IMODE((tmp_path / "backup.key").stat().st_mode) == 0o600
    (tmp_path / "backup.key").write_text("abc")
    with pytest.raises(FileError, match="not a key of backups"):
        backup_key(tmp_path)


def test_a_backup_writes_nowhere_else(sqlite_store, tmp_path, clock):
    """Not even one that was made with the key."""
    found(sqlite_store, NAMES)
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive, sqlite_store.read() as session:
        writer = backup._Writer(archive)
        head = backup._write(session, writer).head
        writer.add("runs/../../outside", b"x")
        link = tarfile.TarInfo("runs/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        writer.close(KEY, revision="0003", head=head)
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    with pytest.raises(FileError, match="outside the folder"):
        restore(tmp_path / "bad.tar.gz", other, KEY, head, tmp_path / "new" / "runs")
    assert not (tmp_path / "new" / "runs" / "link").exists()
    assert not (tmp_path / "outside").exists()
    assert checked(other).count == 0
    other.close()


def test_a_damaged_backup_changes_nothing(sqlite_store, tmp_path, clock):
    found(sqlite_store, NAMES)
    archive = tmp_path / "backup.tar.gz"
    head = back_up(sqlite_store, archive, KEY).head
    content = archive.read_bytes()
    other = CoordinatorStore(f"sqlite:///{tmp_path / 'other.db'}", clock=clock)
    for broken in (b"", content[: len(content) // 2], b"nonsense" * 100):
        (tmp_path / "broken.tar.gz").write_bytes(broken)
        with pytest.raises((StoreError, FileError)):
            restore(tmp_path / "broken.tar.gz", other, KEY, head)
    with pytest.raises(FileError, match="no such file"):
        restore(tmp_path / "missing.tar.gz", other, KEY, head)
    assert checked(other).count == 0
    other.close()


EARLIER = Path(__file__).with_name("earlier_backup.tar.gz")
"""Of version 0.1.0, with the formats of tables and hashes that must stay readable."""

EARLIER_HEAD = "6f1c85c5634df2b02bc7aa5bb82d9dd793fb5e43ff850dcfc386470322edfc35"


def test_a_backup_of_an_earlier_version_is_restored_verified_and_its_runs_understood(
    store, tmp_path
):
    with pytest.raises(StoreError, match="add --unauthenticated"):
        restore(EARLIER, store, KEY, EARLIER_HEAD)
    assert restore(EARLIER, store, None, EARLIER_HEAD).head == EARLIER_HEAD
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
