"""Nothing is lost: damage, full disks, unreachable servers, killed writers."""

import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text

from fedegoists.coordinator.coordinator_errors import DamagedStoreError, FullStoreError, StoreError
from fedegoists.coordinator.domain import competitor_reports, consortia
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.errors import SettingsError
from tests.coordinator.consortia import NAMES, checked, found, report
from tests.coordinator.databases import database_url

POSTGRES_KILLS = int(os.environ.get("FEDEGOISTS_KILLS", "60"))
"""With 200, as for SQLite, it takes longer than every change should wait for."""


def test_the_file_is_for_its_owner_only(sqlite_store, tmp_path):
    assert stat.S_IMODE((tmp_path / "coordinator.db").stat().st_mode) == 0o600


def test_a_damaged_file_is_said_plainly_and_left_as_it_is(sqlite_store, tmp_path):
    found(sqlite_store, NAMES)
    sqlite_store.close()
    path = tmp_path / "coordinator.db"
    content = bytearray(path.read_bytes())
    content[100:4000] = b"\xff" * 3900
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError, match=r"damaged.*restore a backup"):
        CoordinatorStore(f"sqlite:///{path}")
    assert path.read_bytes() == content
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(DamagedStoreError, match="restore a backup"):
        CoordinatorStore(f"sqlite:///{path}")


def test_damage_in_the_middle_is_found_on_opening(sqlite_store, tmp_path):
    consortium_id, _ = found(sqlite_store, [f"m{k}" for k in range(100)])
    for k in range(99):
        report(sqlite_store, consortium_id, f"m{k}", f"m{k + 1}")
    sqlite_store.close()
    path = tmp_path / "coordinator.db"
    content = bytearray(path.read_bytes())
    assert len(content) > 20 * 4096
    for page in range(5, 15):
        content[page * 4096 : page * 4096 + 64] = os.urandom(64)
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError):
        CoordinatorStore(f"sqlite:///{path}")


def test_a_second_service_over_the_same_database_is_refused(store, tmp_path):
    """By whichever name it is reached."""
    url = store.url
    if store.is_sqlite:
        (tmp_path / "link").symlink_to(tmp_path / "coordinator.db")
        url = f"sqlite:///{tmp_path / 'link'}"
    other = CoordinatorStore(url, clock=store.clock)
    with store.alone():
        with pytest.raises(StoreError, match="another coordinator is running over this database"):
            other.alone().__enter__()
        assert checked(other).ok  # reading and single changes go on
    with other.alone():
        pass
    other.close()


def test_tables_are_not_changed_under_a_service(store):
    with store.alone():
        with store.write() as session:
            session.execute(text("ALTER TABLE competition_reports DROP COLUMN sealed"))
            session.execute(text("ALTER TABLE members DROP COLUMN invited_again"))
            session.execute(text("ALTER TABLE formations DROP COLUMN published"))
            session.execute(text("ALTER TABLE members DROP COLUMN reported"))
            session.execute(text("UPDATE alembic_version SET version_num = '0002'"))
        with pytest.raises(StoreError, match="another coordinator is running"):
            CoordinatorStore(store.url)
    again = CoordinatorStore(store.url)
    assert checked(again).ok
    again.close()


def fill_until_full(store):
    consortium_id, _ = found(store, [f"m{k}" for k in range(40)])
    kept = []
    for a, b in itertools.permutations(range(40), 2):
        try:
            report(store, consortium_id, f"m{a}", f"m{b}")
        except FullStoreError:
            break
        kept.append((f"m{a}", f"m{b}"))
    assert 0 < len(kept) < 40 * 39, "the disk was full too early or never"
    return consortium_id, kept


def reports_in(store, consortium_id):
    with store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        reports = competitor_reports.active_reports(session, consortium)
    return [
        (a, b) for a, others in sorted(reports.items(), key=lambda i: int(i[0][1:])) for b in others
    ]


def test_without_room_nothing_is_half_written_and_all_goes_on_with_room(sqlite_store):
    sqlite_store.close()

    def limit(pages):
        from sqlalchemy import event

        @event.listens_for(sqlite_store.engine, "connect")
        def _(connection, _record):
            connection.execute(f"PRAGMA max_page_count={pages}")

    limit(90)
    consortium_id, kept = fill_until_full(sqlite_store)
    assert reports_in(sqlite_store, consortium_id) == kept
    assert checked(sqlite_store).ok
    sqlite_store.close()
    limit(100_000)
    report(sqlite_store, consortium_id, "m39", "m0")
    assert len(reports_in(sqlite_store, consortium_id)) == len(kept) + 1
    assert checked(sqlite_store).ok


def test_a_full_disk(tmp_path):
    """On a file system of two megabytes, where one can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        store = CoordinatorStore(f"sqlite:///{disk / 'coordinator.db'}")
        with (disk / "ballast").open("wb") as ballast:
            ballast.write(b"0" * 1_200_000)
        consortium_id, kept = fill_until_full(store)
        assert reports_in(store, consortium_id) == kept
        (disk / "ballast").unlink()
        report(store, consortium_id, "m39", "m0")
        assert checked(store).ok
        store.close()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_full_disk_under_postgresql(new_postgres_database):
    """A database in a table space of sixteen megabytes, where one can be mounted."""
    import psycopg

    address = new_postgres_database()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        disk = Path(folder) / "disk"
        disk.mkdir()
        options = f"size=16m,mode=0700,uid={new_postgres_database.owner}"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip("a small file system cannot be mounted here")
        try:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
                connection.execute("CREATE DATABASE small TABLESPACE small")
            store = CoordinatorStore(address.rsplit("/", 1)[0] + "/small")
            free = shutil.disk_usage(disk).free
            (disk / "ballast").write_bytes(b"0" * (free - 250_000))
            consortium_id, kept = fill_until_full(store)
            assert reports_in(store, consortium_id) == kept
            (disk / "ballast").unlink()
            report(store, consortium_id, "m39", "m0")
            assert checked(store).ok
            store.close()
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("DROP DATABASE small")
                connection.execute("DROP TABLESPACE small")
        finally:
            subprocess.run(["umount", disk], check=True)


def test_damage_under_postgresql_is_said_plainly(new_postgres_database):
    import psycopg

    address = new_postgres_database()
    store = CoordinatorStore(address)
    consortium_id, _ = found(store, [f"m{k}" for k in range(40)])
    store.close()
    with psycopg.connect(address, autocommit=True) as connection:
        row = connection.execute("SELECT pg_relation_filepath('members')").fetchone()
        connection.execute("CHECKPOINT")
    path = new_postgres_database.cluster / row[0]
    content = path.read_bytes()
    path.write_bytes(b"\xff" * 64 + content[64:])
    new_postgres_database.restart()  # so that nothing is read from memory
    with pytest.raises(DamagedStoreError, match=r"damaged.*Restore a backup"):
        report(store, consortium_id, "m1", "m2")
    store.close()
    path.write_bytes(content)
    new_postgres_database.restart()
    report(store, consortium_id, "m1", "m2")
    assert checked(store).ok
    store.close()


def test_one_service_at_a_time_over_a_postgresql_database(new_postgres_database):
    address = new_postgres_database()
    one, other = CoordinatorStore(address), CoordinatorStore(address)
    with one.alone():
        found(one, NAMES)  # others work on as before
        with pytest.raises(StoreError, match="another coordinator"), other.alone():
            pass
    with other.alone():
        pass
    one.close()
    other.close()


def test_an_unreachable_database_and_a_wrong_address_show_no_password():
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="does not answer") as caught:
        CoordinatorStore("postgresql://user:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError, match="expected sqlite") as caught:
        CoordinatorStore("hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError, match="not mysql"):
        CoordinatorStore("mysql://u:p@h/d")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 200), ("postgresql", POSTGRES_KILLS)])
def test_killed_in_the_middle_of_writes_again_and_again(kind, kills, tmp_path, request):
    """A process of its own forks writers and kills them with signal 9; see killed_writers.py."""
    script = Path(__file__).with_name("killed_writers.py")
    done = subprocess.run(
        [sys.executable, script, database_url(kind, tmp_path, request), str(kills)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == kills
    assert told["lost"] == 0
    assert told["problems"] == []
    assert told["acknowledged"] > kills
