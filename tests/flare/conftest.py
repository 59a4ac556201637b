"""One deployment for all tests of this folder; at its end nothing of it may be left."""

import functools
from pathlib import Path

import pytest

NAMES = ("North Bank", "South", "East")


@pytest.fixture(scope="session")
def deployment(tmp_path_factory):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    from fedegoists.federation.flare import kits, relay_connection
    from tests.flare.loopback import Loopback

    folder = tmp_path_factory.mktemp("loopback")
    with pytest.MonkeyPatch.context() as patch:
        # Between processes of one machine, less waiting tells as much.
        patch.setattr(kits, "HEARTBEAT", 6)
        patch.setattr(relay_connection, "LOOK", 2.0)
        with Loopback(folder, NAMES) as running:
            yield running
    left = [path for path in Path("/proc").glob("[0-9]*") if _mentions(path, str(folder))]
    assert left == [], "processes are left"
    assert not _listening(running.port), "the server's port is still open"


@pytest.fixture
def silo_secrets(deployment, monkeypatch):
    """Let simulations draw batches as the deployed silos do, from the secrets in their kits."""
    from fedegoists.consortium import simulated_engine
    from fedegoists.federation.flare.silo_service import stream_secret
    from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings

    secrets = {
        name: stream_secret(load_silo(read_silo_settings(kit / "silo.toml")), kit / "state")
        for name in NAMES
        for kit in [deployment.silo(name)]
    }
    simulated = functools.partial(simulated_engine.SimulatedFederation, secrets=secrets)
    monkeypatch.setattr(simulated_engine, "SimulatedFederation", simulated)


def _mentions(process, text):
    try:
        return text.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def _listening(port):
    import psutil

    return any(
        one.status == psutil.CONN_LISTEN and one.laddr.port == port
        for one in psutil.net_connections("tcp")
    )
