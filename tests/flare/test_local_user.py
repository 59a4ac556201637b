"""Another user of the machine cannot speak to a silo in the server's name."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.consortium.engine import SiloAccess
from fedegoists.deploy.flare_engine import FlareEngine
from fedegoists.federation import Failure
from fedegoists.federation.flare import drivers
from fedegoists.federation.flare.messages import Call, RepeatedRequest
from fedegoists.federation.flare.wire import pack, schema_digest
from fedegoists.federation.requests import Candidate, Deliver, Gradient
from tests.flare.test_faults import family, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user"),
]

ATTACK = Path(__file__).parent / "local_user" / "attack.py"
NOBODY = pwd.getpwnam("nobody").pw_uid


def listening(process):
    """Return the TCP ports at which a kit's processes listen."""
    return {
        one.laddr.port
        for member in family(process)
        for one in member.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }


def sockets(kit):
    """Return the addresses of a kit's private sockets."""
    found = sorted((kit / "sockets").glob("*"))
    return [f"private://0{quote(str(path.resolve()))}" for path in found]


def attack(user, job, messages, addresses):
    """Let another user send the silo South messages as the server; return what it heard."""
    result = subprocess.run(
        [sys.executable, str(ATTACK), str(user), "South", job, str(messages), *addresses],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd="/",
        env={**os.environ, "DRIVERS": str(Path(drivers.__file__).parent)},
    )
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture
def in_a_job(deployment):
    """A running job with South, and its number."""
    engine = FlareEngine(deployment.settings, SiloAccess("run", deployment.kit))
    try:
        federation = engine.federation("mlp")
        replies = federation.call(start(federation), timeout=60.0)
        assert not any(isinstance(reply, Failure) for reply in replies.values())
        yield federation, engine.link._open.number  # jobs of other tests may still be ending
    finally:
        engine.close()


def unsigned(federation, folder):
    """Write a request for a gradient and a delivery, as the server could ask them."""
    folder.mkdir()
    model = federation.schema.drawn(0)
    for request in (
        Gradient(parameters=model[None], batch_size=8, seed=1, step=0),
        Deliver(parameters=model[None], candidates=(Candidate(method="fedavg", round=1),)),
    ):
        call = Call(
            operation=request.operation,
            run="attack",
            model="mlp",
            schema_is=schema_digest(federation.schema),
            asked=(RepeatedRequest(request=request),),
        )
        (folder / request.operation).write_bytes(pack(call))
    return folder


def test_another_user_of_the_machine_cannot_speak_as_the_server(deployment, in_a_job, tmp_path):
    federation, job = in_a_job
    messages = unsigned(federation, tmp_path / "messages")
    kit, log = deployment.silo("South"), deployment.silo("South") / "silo.log"
    ports = listening(deployment.processes["South"])
    addresses = [*(f"tcp://localhost:{port}" for port in ports), *sockets(kit)]
    assert addresses, "there is nothing to attack"
    before = log.read_text()
    heard = attack(NOBODY, job, messages, addresses)
    told = log.read_text().removeprefix(before)
    for operation in ("loss_and_gradient", "deliver"):
        assert f"{operation} for run attack" not in told, heard
    assert not (kit / "models" / "attack.safetensors").exists()
    # No port of this machine leads into a kit: the server's own is behind mutual TLS.
    assert ports == set()
    assert listening(deployment.processes[""]) == {deployment.port}
    assert told == ""  # it did not even get so far as to be refused


def test_the_kits_own_user_needs_the_coordinators_key_as_well(deployment, in_a_job, tmp_path):
    """As the FLARE process could: it gets through to the silo, which refuses."""
    federation, job = in_a_job
    messages = unsigned(federation, tmp_path / "messages")
    kit, log = deployment.silo("South"), deployment.silo("South") / "silo.log"
    before = log.read_text()
    heard = attack(os.getuid(), job, messages, sockets(kit))
    told = log.read_text().removeprefix(before)
    assert told.count("refused a message of server before reading it: a message without a seal") > 0
    assert "for run attack" not in told, heard
    assert not (kit / "models" / "attack.safetensors").exists()
