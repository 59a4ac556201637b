"""Whether a run waits for its server, and when it is better to fail at once."""

import contextlib
import shutil
import threading
import time

import psutil
import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.consortium.engine import SiloAccess
from fedegoists.deploy.flare_engine import over_silos
from fedegoists.deploy.local_deployment import free_port
from fedegoists.federation.flare import job_operator, relay_connection
from fedegoists.federation.flare.job_operator import DeclinedError, JobLostError, UnreachableError
from tests.flare.test_deployed import NAMES
from tests.flare.test_faults import Heard, jobs

pytestmark = pytest.mark.slow


def described(deployment, kit, told, wait=60, **more):
    """Return whom a run reaches, and whether it was told to resume."""
    settings = read_settings(deployment.file, [f"deploy.wait={wait}"])
    access = SiloAccess("run", kit, progress=Heard(told), **more)
    return over_silos(settings, access, lambda e, again: (sorted(e.about), again))


@pytest.fixture
def killer(deployment):
    """Kill the server's processes for jobs as they start, until as many are dead as wanted."""
    dead, over = [], threading.Event()

    def watch(most, earlier):
        while not over.is_set() and len(dead) < most:
            with contextlib.suppress(psutil.NoSuchProcess):  # one may end while it is looked at
                for one in jobs(deployment.processes[""]):
                    if one.pid not in (*dead, *earlier):
                        one.kill()
                        dead.append(one.pid)
            time.sleep(0.05)

    def begin(most):
        earlier = [one.pid for one in jobs(deployment.processes[""])]  # of other tests
        threading.Thread(target=watch, args=(most, earlier), daemon=True).start()
        return dead

    yield begin
    over.set()


def test_a_first_job_that_dies_while_it_starts_is_tried_again(deployment, killer):
    told, dead = [], killer(1)
    # Nothing has begun, so there is nothing to resume.
    assert described(deployment, deployment.kit, told) == (sorted(NAMES), False)
    assert len(dead) == 1
    assert any("then trying again" in x for x in told), told


def test_jobs_that_die_again_and_again_end_the_run_after_its_patience(deployment, killer):
    told, dead = [], killer(1000)
    with pytest.raises(JobLostError):
        described(deployment, deployment.kit, told, patience=1.0)
    assert len(dead) >= 2
    assert sum("then trying again" in x for x in told) == 1


def test_a_wrong_address_fails_at_once(deployment, tmp_path, monkeypatch):
    monkeypatch.setattr(job_operator, "TO_CONNECT", 2.0)
    kit, told = tmp_path / "kit", []
    shutil.copytree(deployment.kit, kit, ignore=shutil.ignore_patterns("sockets", "*.log"))
    wrong = free_port()
    for path in kit.rglob("*.json"):
        path.write_text(path.read_text().replace(str(deployment.port), str(wrong)))
    with pytest.raises(UnreachableError, match=f":{wrong} does not answer"):
        described(deployment, kit, told, wait=1)
    assert not any("trying again" in x for x in told), told
    # A run that needs all silos belongs to a service, whose server may be restarted just now.
    with pytest.raises(UnreachableError, match=f":{wrong} does not answer"):
        described(deployment, kit, told, wait=1, required=True, patience=1.0)
    assert any("waiting for the server, then trying again" in x for x in told), told


def test_a_refused_job_fails_at_once(deployment, monkeypatch):
    written, told = relay_connection.write_job, []

    def without_sites(folder, *more):
        job = written(folder, *more)
        (job / "meta.json").write_text('{"name": "fedegoists"}')
        return job

    monkeypatch.setattr(relay_connection, "write_job", without_sites)
    with pytest.raises(DeclinedError):
        described(deployment, deployment.kit, told)
    assert not any("trying again" in x for x in told), told
