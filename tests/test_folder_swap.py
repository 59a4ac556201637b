"""Folders of results: the old one or the new one, never a mixture, whenever a process is killed."""

import fcntl
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedegoists import folder_swap
from fedegoists.errors import FileError
from fedegoists.folder_swap import discard, exchange, swap_in, write_folder

NAMES = ("a.csv", "deep/b.csv", "c.json")

WRITER = """
import itertools, sys
from pathlib import Path
from fedegoists.folder_swap import write_folder
print("ready", flush=True)
for number in itertools.count(1):
    content = str(number).encode() * 1000
    write_folder(Path(sys.argv[1]), dict.fromkeys(sys.argv[2:], content), replace=True)
"""


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("exists", [False, True])
def test_files_are_written_all_at_once_and_private(tmp_path, exists):
    folder = tmp_path / "out"
    if exists:
        folder.mkdir()
    write_folder(folder, dict.fromkeys(NAMES, b"new"))
    assert contents(folder) == dict.fromkeys(NAMES, b"new")
    assert {(folder / name).stat().st_mode & 0o777 for name in NAMES} == {0o600}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_earlier_files_are_replaced_only_on_demand_and_others_stay(tmp_path):
    folder = tmp_path / "out"
    write_folder(folder, dict.fromkeys(NAMES, b"old"))
    (folder / "deep" / "notes.txt").write_bytes(b"mine")
    (folder / "link").symlink_to("deep")
    (folder / "empty").mkdir()
    with pytest.raises(FileError, match=r"exists already.*add --replace"):
        write_folder(folder, dict.fromkeys(NAMES, b"new"))
    assert contents(folder)["a.csv"] == b"old"
    write_folder(folder, {"a.csv": b"new", "deep/b.csv": b"new"}, replace=True)
    kept = {"deep/notes.txt": b"mine", "c.json": b"old"}
    assert contents(folder) == {"a.csv": b"new", "deep/b.csv": b"new", **kept}
    assert (folder / "link").is_symlink()
    assert (folder / "empty").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_current_folder_stays_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = Path().stat().st_ino
    write_folder(".", {"a.csv": b"old"})
    write_folder(".", {"a.csv": b"new"}, replace=True)
    assert Path().stat().st_ino == before
    assert [path.name for path in Path().iterdir()] == ["a.csv"]


def test_a_folder_that_cannot_be_written_is_named_as_it_was_given(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match=r"file/out.*cannot be written"):
        write_folder(tmp_path / "file" / "out", {"a.csv": b""})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_results_of_the_old_folder_are_not_kept(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    write_folder(old, {"models/a.bin": b"", "report.html": b"", "notes": b""})
    write_folder(new, {"report.html": b"new"})
    swap_in(new, old, ["models/*", "report.html"])
    assert contents(old) == {"report.html": b"new", "notes": b""}


@pytest.mark.parametrize("atomic", [True, False])
def test_two_folders_change_places(tmp_path, monkeypatch, atomic):
    if not atomic:
        monkeypatch.setattr(folder_swap, "_exchanged", lambda *_: False)
    one, other = tmp_path / "one", tmp_path / "other"
    write_folder(one, {"a": b"1"})
    write_folder(other, {"a": b"2"})
    exchange(one, other)
    assert (contents(one), contents(other)) == ({"a": b"2"}, {"a": b"1"})
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_discarded_is_removed_with_leftovers(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / ".gone-0123").mkdir()
    discard(tmp_path / "one")
    discard(tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_a_kill_at_any_moment_leaves_a_whole_result(tmp_path):
    folder, draw = tmp_path / "out", random.Random(0)
    write_folder(folder, dict.fromkeys(NAMES, b"0" * 1000))
    (folder / "notes.txt").write_bytes(b"mine")
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), *NAMES], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(draw.uniform(0, 0.1))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = contents(folder)
        assert found.pop("notes.txt") == b"mine"
        assert set(found) == set(NAMES)
        assert len(set(found.values())) == 1


def test_parts_of_an_earlier_result_without_a_successor_do_not_stay(tmp_path):
    place = tmp_path / "result"
    write_folder(place, {"certificate.json": b"old", "picture.png": b"old"})
    (place / "notes.txt").write_bytes(b"mine")
    write_folder(place, {"certificate.json": b"new"}, replace=True, gone=["picture.png"])
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {
        "certificate.json": b"new",
        "notes.txt": b"mine",
    }


def test_processes_that_add_to_one_folder_at_once_lose_nothing(tmp_path):
    """A file that one adds between the other's linking and exchange would be gone."""
    folder, each = tmp_path / "out", 40
    write_folder(folder, {"first": b""})

    def add(who):
        for number in range(each):
            write_folder(folder, {f"{who}-{number}": b"x"})

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=add, args=(who,)) for who in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    wanted = {"first", *(f"{who}-{number}" for who in "ab" for number in range(each))}
    assert {path.name for path in folder.iterdir()} == wanted


def test_a_folder_that_another_process_holds_is_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_swap, "LONGEST_WAIT", 0.1)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(FileError, match="another process has locked this folder"):
            write_folder(tmp_path / "out", {"a": b""})
    finally:
        os.close(descriptor)
    write_folder(tmp_path / "out", {"a": b""})


def test_a_private_file_stays_private_when_others_may_read_the_rest(tmp_path):
    write_folder(tmp_path / "out", {"a": b"1"})
    write_folder(tmp_path / "out", {"a": b"2", "b": b""}, replace=True, private=False)
    assert (tmp_path / "out/a").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "out/b").stat().st_mode & 0o444 == 0o444
