"""The folder of a run: who can read its log, and what becomes of a finished run."""

import json
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedegoists import folder_swap
from fedegoists.cli import main
from fedegoists.consortium import Consortium
from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.consortium.example_files import init
from fedegoists.consortium.progress import SILENT
from fedegoists.consortium.run_folder import RunFolder
from fedegoists.consortium.run_list import read_runs
from fedegoists.errors import FileError

QUICK = ["training.steps=40", "benefit.repeats=2", "benefit.steps=20", "training.methods=['local']"]


def test_the_log_of_a_run_is_for_its_owner_only(tmp_path):
    folder = RunFolder(tmp_path, SILENT)
    folder.log("one")
    folder.log("two")
    log = tmp_path / "log.txt"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert [line.split(" ", 2)[2] for line in log.read_text().splitlines()] == ["one", "two"]


def begun(place: Path, *, resume: bool = False, replace: bool = False) -> RunFolder:
    folder = RunFolder(place, SILENT)
    folder.begin("", "data", resume=resume, replace=replace)
    return folder


def finished(place: Path, content: str, **how: bool) -> None:
    folder = begun(place, **how)
    folder.write({"report.html": content.encode(), "models/a.safetensors": content.encode()})
    folder.finish()


def content(place: Path) -> str:
    """Return what a whole finished run contains."""
    assert json.loads((place / "run.json").read_text())["state"] == "finished"
    (found,) = {(place / name).read_text() for name in ("report.html", "models/a.safetensors")}
    return found


@pytest.mark.parametrize("resume", [False, True])
def test_a_finished_run_is_left_as_it_is(tmp_path, resume):
    finished(tmp_path / "run", "old")
    with pytest.raises(FileError, match=r"finished run, which is left.*--replace"):
        begun(tmp_path / "run", resume=resume)
    assert content(tmp_path / "run") == "old"


def test_a_finished_run_stays_until_its_replacement_is_finished(tmp_path):
    place = tmp_path / "run"
    finished(place, "old")
    (place / "notes.txt").write_text("mine")
    folder = begun(place, replace=True)
    folder.write({"report.html": b"new", "models/a.safetensors": b"new"})
    assert content(place) == "old"
    assert [run.name for run in read_runs(tmp_path)] == ["run"]
    with pytest.raises(FileError, match=r"--resume to go on with that, --replace to begin"):
        begun(place)
    finished(place, "newer", resume=True)  # the replacement was asked for at its beginning
    assert content(place) == "newer"
    assert (place / "notes.txt").read_text() == "mine"
    finished(place, "newest", replace=True)
    assert content(place) == "newest"
    assert not list((tmp_path / ".replacing").iterdir())


def test_an_interrupted_run_is_resumed_or_begun_again_in_its_place(tmp_path):
    place = tmp_path / "run"
    begun(place)
    with pytest.raises(FileError, match=r"was interrupted; add --resume"):
        begun(place)
    assert begun(place, resume=True).path == begun(place, replace=True).path == place
    (place / "run.json").write_text("{")  # a damaged marker is no sign of a finished run
    with pytest.raises(FileError, match=r"was interrupted"):
        begun(place)


@pytest.mark.parametrize("replace", [False, True])
def test_what_a_killed_process_was_writing_is_removed(tmp_path, replace):
    place = tmp_path / "run"
    if replace:
        finished(place, "old")
    folder = begun(place, replace=replace)
    (folder.path / ".gains.csv.0123456789abcdef").write_text("half of")
    (folder.path / ".mine").write_text("a note")
    finished(place, "new", resume=True)
    assert content(place) == "new"
    assert sorted(path.name for path in place.glob(".*")) == [".mine"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_an_exchange_that_was_killed_is_finished_by_the_next_run(tmp_path, monkeypatch, moment):
    place = tmp_path / "run"
    finished(place, "old")

    def killed(one: Path, other: Path) -> None:
        if moment == "after":
            folder_swap._exchanged(one, other)
        if moment == "between":
            other.rename(tmp_path / "away")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(folder_swap, "exchange", killed)
        with pytest.raises(Killed):
            finished(place, "new", replace=True)
    with pytest.raises(FileError, match="finished run"):
        begun(place)
    assert content(place) == "new"
    finished(place, "newer", replace=True)
    assert content(place) == "newer"


KILLED = """
import sys
from fedegoists.consortium import Consortium
consortium = Consortium.read(sys.argv[1], sys.argv[2:])
print("ready", flush=True)
consortium.run(resume=True, replace=True)
"""


@pytest.mark.slow
def test_a_run_killed_at_any_moment_leaves_the_old_result_or_the_new_one(tmp_path):
    file, draw = tmp_path / "consortium.toml", random.Random(1)
    init(tmp_path, "synthetic")
    place = Consortium.read(file, QUICK).run().folder
    whole = {path.relative_to(place) for path in place.rglob("*") if path.is_file()}
    before = 0
    for seed in range(1, 5):
        changed = [*QUICK, f"formation.seed={seed}"]  # later stages are computed again
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(file), *changed], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert {path.relative_to(place) for path in place.rglob("*") if path.is_file()} == whole
        assert json.loads((place / "run.json").read_text())["state"] == "finished"
        made = read_settings(place / "config.toml").formation.seed
        assert before <= made <= seed
        before = made


def test_the_command_says_how_to_replace_a_finished_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    init(tmp_path, "synthetic")
    command = ["fedegoists", "run", "consortium.toml", *(f"--set={one}" for one in QUICK)]
    monkeypatch.setattr(sys, "argv", command)
    main_(0)
    report = next(tmp_path.glob("runs/*/report.html"))
    before = report.stat().st_ino
    main_(2)
    assert "--replace" in capsys.readouterr().err
    assert report.stat().st_ino == before
    monkeypatch.setattr(sys, "argv", [*command, "--replace"])
    main_(0)
    assert report.stat().st_ino != before


def main_(code: int) -> None:
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == code
