"""Health notices disks that are full, almost full or read-only."""

import os
import subprocess

import pytest

from fedegoists.coordinator.service.coordinator_service import Limits
from fedegoists.coordinator.service.disk_room import FEWEST_FILES, SECONDS, DiskRoom
from tests.coordinator.served import inside


class Seconds:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock_of_requests():
    return Seconds()


def mount(*arguments):
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a small file system cannot be mounted here")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", disk)
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_of_runs_shows_in_health(sqlite_store, small_disk, clock_of_requests):
    (small_disk / "runs").mkdir()
    limits = Limits(requests_per_minute=10**6, free_bytes=100_000)
    with inside(sqlite_store, small_disk, limits, clock_of_requests) as (client, _):
        assert client.get("/health").json() == {"status": "ok"}
        (small_disk / "large").write_bytes(b"x" * 960_000)
        clock_of_requests.now += SECONDS
        assert client.get("/health").json()["status"].startswith("the disk of the runs")
        with pytest.raises(OSError, match="No space"):
            (small_disk / "more").write_bytes(b"x" * 900_000)
        clock_of_requests.now += SECONDS
        answer = client.get("/health")
        assert answer.status_code == 503
        assert answer.json() == {"status": "the disk of the runs is full; make room"}
        assert str(small_disk) not in answer.text
        (small_disk / "large").unlink()
        (small_disk / "more").unlink()
        clock_of_requests.now += SECONDS
        assert client.get("/health").json() == {"status": "ok"}
        mount("-o", "remount,ro", small_disk)
        clock_of_requests.now += SECONDS
        answer = client.get("/health")
        assert (answer.status_code, "cannot be written to" in answer.text) == (503, True)
        assert not list(small_disk.glob(".room-*"))


def test_little_room_is_said_before_there_is_none(tmp_path, clock_of_requests):
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    folder = {"database": tmp_path / "not" / "yet"}
    assert DiskRoom(folder, 1, clock_of_requests).trouble() == ""
    little = DiskRoom(folder, 2 * free, clock_of_requests).trouble()
    assert little == "the disk of the database is almost full; make room"
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_for_files_is_noticed(small_disk, clock_of_requests):
    room = DiskRoom({"runs": small_disk}, 1, clock_of_requests)
    assert room.trouble() == ""
    mount("-o", f"remount,nr_inodes={FEWEST_FILES}", small_disk)
    clock_of_requests.now += SECONDS
    assert "almost no room for more files" in room.trouble()


def test_the_disk_is_not_tried_for_every_caller(tmp_path, clock_of_requests):
    room = DiskRoom({"runs": tmp_path / "runs"}, 1, clock_of_requests)
    (tmp_path / "runs").mkdir()
    assert room.trouble() == ""
    (tmp_path / "runs").rmdir()
    (tmp_path / "runs").write_text("no folder")
    assert room.trouble() == ""
    clock_of_requests.now += SECONDS
    assert "cannot be written to" in room.trouble()
