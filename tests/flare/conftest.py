"""One deployment for all tests of this folder; at its end nothing of it may be left."""

from pathlib import Path

import pytest

NAMES = ("North Bank", "South", "East")


@pytest.fixture(scope="session")
def deployment(tmp_path_factory):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    from tests.flare.loopback import Loopback

    folder = tmp_path_factory.mktemp("loopback")
    with Loopback(folder, NAMES) as running:
        yield running
    left = [path for path in Path("/proc").glob("[0-9]*") if _mentions(path, str(folder))]
    assert left == [], "processes are left"
    assert not _listening(running.port), "the server's port is still open"


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
