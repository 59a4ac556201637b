"""The process that forms large coalitions ends when it should, and a lost one is said plainly."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain.worker_process import WorkerProcess
from tests.coordinator.waiting import until

MAKER = """
import sys
from tests.coordinator.test_worker_process import sleeps_in
from fedegoists.coordinator.domain.worker_process import WorkerProcess

if __name__ == "__main__":
    WorkerProcess().call(sleeps_in, sys.argv[1])
"""


def sleeps_in(folder):
    (Path(folder) / "new").write_text(str(os.getpid()))
    (Path(folder) / "new").rename(Path(folder) / "pid")
    threading.Event().wait()  # until it is ended


def pid_in(folder):
    until((folder / "pid").exists)
    return int((folder / "pid").read_text())


def ends(pid):
    """Wait until a process is gone; one that nobody has waited for yet is."""

    def gone():
        try:
            os.kill(pid, 0)
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    return until(gone)


def asked(process, folder):
    """Ask in a thread, as a request does; returns the thread and what is said."""
    said = []

    def ask():
        try:
            process.call(sleeps_in, folder)
        except ConflictError as error:
            said.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, said


def test_closing_ends_what_is_being_worked_on(tmp_path):
    process = WorkerProcess()
    thread, said = asked(process, tmp_path)
    pid = pid_in(tmp_path)
    process.close()
    thread.join(60)
    assert ends(pid)
    assert "has ended" in said[0]
    with pytest.raises(ConflictError, match="the coordinator stops"):
        process.call(os.getpid)


def test_a_process_that_was_killed_is_said_and_replaced(tmp_path):
    process = WorkerProcess()
    try:
        thread, said = asked(process, tmp_path)
        os.kill(pid_in(tmp_path), signal.SIGKILL)
        thread.join(60)
        assert "nothing was decided" in said[0]
        second = process.call(os.getpid)
        assert second not in (os.getpid(), pid_in(tmp_path))
        os.kill(second, signal.SIGKILL)  # while nobody asks
        assert ends(second)
        process._pool._executor_manager_thread.join(60)  # which notices it
        assert process.call(os.getpid) != second
    finally:
        process.close()


def test_it_rests_until_it_is_needed_again():
    process = WorkerProcess()
    try:
        first = process.call(os.getpid)
        process.rest()
        assert ends(first)
        process.rest()
        assert process.call(os.getpid) != first
    finally:
        process.close()


def test_it_does_not_outlive_who_asked(tmp_path):
    (tmp_path / "maker.py").write_text(MAKER)
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    maker = subprocess.Popen(
        [sys.executable, tmp_path / "maker.py", tmp_path], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        pid = pid_in(tmp_path)
    finally:
        maker.kill()
        maker.wait()
    assert ends(pid)


def test_a_helping_process_leaves_it_to_the_service_what_ctrl_c_means():
    process = WorkerProcess()
    assert process.call(signal.getsignal, signal.SIGINT) == signal.SIG_IGN
    process.close()
