"""A kit's processes: one set at a time, and none without its supervisor."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.deploy.kit_process import KitProcess
from fedegoists.deploy.local_deployment import LocalDeployment, free_port
from fedegoists.deploy.membership import revoke
from fedegoists.errors import FileError
from fedegoists.federation.flare import drivers
from fedegoists.federation.flare.kit_identity import REVOKED_FILE, IdentityError
from tests.flare.loopback import write_consortium

DRIVERS = [path.stem for path in Path(drivers.__file__).parent.glob("*_driver.py")]


@pytest.fixture
def silo(tmp_path):
    """The kit of a silo whose server is not there."""
    file = write_consortium(tmp_path, ("South", "East", "North Bank"), port=free_port())
    return LocalDeployment(read_settings(file), tmp_path / "deploy").silo("South")


def flare_processes(kit):
    """Return the FLARE processes of a kit."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(kit).encode() in command and b"nvflare" in command and state != "Z":
            found.append(int(path.name))
    return found


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError("waited in vain")


@pytest.fixture
def supervisor(silo):
    command = [sys.executable, "-m", "fedegoists", "deploy", "start", "silo", str(silo)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: flare_processes(silo))
        yield process
    finally:
        process.kill()
        process.wait()
        for pid in flare_processes(silo):
            os.kill(pid, signal.SIGKILL)


def test_a_killed_supervisor_leaves_no_flare_process(silo, supervisor):
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    wait_for(lambda: not flare_processes(silo))


def test_jobs_end_with_the_process_that_started_them(tmp_path):
    """FLARE starts a process for each job, in a session of its own."""
    (tmp_path / "starter.py").write_text(
        "import subprocess, sys\n"
        "job = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(job.pid, flush=True)\n"
        "job.wait()\n"
    )
    watched, lifeline = os.pipe()
    with (tmp_path / "lock").open("w") as lock:
        launcher = ["fedegoists.deploy.kit_launcher", str(watched), str(lock.fileno()), "starter"]
        process = subprocess.Popen(
            [sys.executable, "-m", *launcher],
            pass_fds=(watched, lock.fileno()),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
    os.close(watched)
    job = psutil.Process(int(process.stdout.readline()))
    try:
        os.close(lifeline)
        process.wait(60)
        wait_for(lambda: not job.is_running() or job.status() == psutil.STATUS_ZOMBIE)
    finally:
        process.kill()
        process.stdout.close()
        if job.is_running():
            job.kill()


def test_a_kit_cannot_be_started_twice(silo, supervisor):
    command = [sys.executable, "-m", "fedegoists", "deploy", "start", "silo", str(silo)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 2
    assert f"is in use already, by process {supervisor.pid}" in " ".join(second.stderr.split())


def test_a_kit_that_was_stopped_can_be_started_again(silo):
    first = KitProcess("silo", silo)
    with pytest.raises(FileError, match=f"is in use already, by process {os.getpid()}"):
        KitProcess("silo", silo)
    first.stop()
    KitProcess("silo", silo).stop()


def test_code_in_a_kit_is_not_imported_by_its_processes(silo):
    """An own model lies there before anybody has approved it."""
    (silo / "nvflare.py").write_text("raise SystemExit(77)\n")
    lines = []
    process = KitProcess("silo", silo, lines.append)
    thread = threading.Thread(target=process.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: (silo / "log.txt").exists() or any("ended with" in one for one in lines))
        assert not any("ended with 77" in one for one in lines)
    finally:
        process.stop()
        thread.join(30)


def test_flares_own_processes_load_no_pytorch():
    """FLARE gives a silo 15 seconds to load our drivers, which is little on a busy machine."""
    ours = "fedegoists.federation.flare"
    loaded = [f"{ours}.drivers.{name}" for name in DRIVERS]
    loaded += [f"{ours}.relay", "fedegoists.deploy.kit_guard", "fedegoists.deploy.kit_launcher"]
    code = f"import sys, {', '.join(loaded)}; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_a_silo_without_a_valid_certificate_is_told_what_to_do(silo):
    certificate = silo / "startup" / "client.crt"
    content = certificate.read_bytes()
    certificate.unlink()
    with pytest.raises(IdentityError, match="`fedegoists deploy install` writes it"):
        KitProcess("silo", silo)
    certificate.write_bytes(content)
    folder = silo.parents[1]
    revoke(folder, "South")
    revoked = (folder / "coordinator" / REVOKED_FILE).read_bytes()
    (silo / REVOKED_FILE).write_bytes(revoked)
    with pytest.raises(IdentityError, match="is revoked; make a new key with `fedegoists deploy"):
        KitProcess("silo", silo)


STARTING = """
import subprocess, sys, time
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(90)"
for _ in range(12):
    subprocess.Popen([sys.executable, "-c", stubborn, sys.argv[1]])
    time.sleep(0.2)
time.sleep(90)
"""


def test_jobs_that_start_while_the_parent_ends_do_not_stay(tmp_path):
    (tmp_path / "starting.py").write_text(STARTING)
    mark = f"job-of-{tmp_path.name}-{os.getpid()}"
    watched, lifeline = os.pipe()
    with (tmp_path / "lock").open("w") as lock:
        numbers = (watched, lock.fileno())
        command = [sys.executable, "-m", "fedegoists.deploy.kit_launcher", *map(str, numbers)]
        with subprocess.Popen(
            [*command, "starting", mark], pass_fds=numbers, cwd=tmp_path
        ) as launcher:
            os.close(watched)
            time.sleep(1.0)  # some jobs are there, and others will follow
            os.close(lifeline)
            launcher.wait(60)

    def jobs():
        return [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or ())]

    left = jobs()
    for process in left:
        process.kill()
    assert not left


ORPHANING = """
import os, subprocess, sys, time
job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(90)", sys.argv[1]])
time.sleep(0.5)
os.kill(os.getpid(), 9)
"""


def test_a_killed_flare_process_leaves_no_job(tmp_path):
    """The supervisor lives on, and would wait for the job's output otherwise."""
    (tmp_path / "orphaning.py").write_text(ORPHANING)
    mark = f"orphan-of-{tmp_path.name}-{os.getpid()}"
    watched, lifeline = os.pipe()
    with (tmp_path / "lock").open("w") as lock:
        numbers = (watched, lock.fileno())
        command = [sys.executable, "-m", "fedegoists.deploy.kit_guard", *map(str, numbers)]
        with subprocess.Popen(
            [*command, "orphaning", mark], pass_fds=numbers, cwd=tmp_path
        ) as guard:
            os.close(watched)
            code = guard.wait(60)
    os.close(lifeline)
    left = [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or ())]
    for process in left:
        process.kill()
    assert not left
    assert code == 128 + signal.SIGKILL


@pytest.mark.parametrize("killed", ["kit_guard", "kit_launcher"])
def test_what_is_killed_between_supervisor_and_jobs_is_started_again(silo, supervisor, killed):
    def there():
        return {
            pid
            for pid in flare_processes(silo)
            if killed.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        }

    wait_for(there)
    (first,) = there()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: there() - {first})
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    wait_for(lambda: not flare_processes(silo))


def test_a_kit_is_free_when_its_process_was_stopped_while_it_started(silo):
    for moment in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8):
        process = KitProcess("silo", silo)
        thread = threading.Thread(target=process.run, daemon=True)
        thread.start()
        wait_for(lambda started=process: started.pid is not None)
        time.sleep(moment)
        process.stop()
        assert not flare_processes(silo)
        thread.join(30)
