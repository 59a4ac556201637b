"""The local connection to the relay: only the relay of this run gets through."""

import queue
import threading
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Client
from types import SimpleNamespace

import pytest

from fedegoists.federation.flare import relay_connection
from fedegoists.federation.flare.job_operator import UnreachableError
from fedegoists.federation.flare.relay_messages import Errand, ErrandResult, Present


class Jobs:
    """An operator whose submitted job is the relay itself, after some others have knocked."""

    def __init__(self, knocks):
        self.knocks, self.ends = knocks, queue.SimpleQueue()

    def submit(self, job):
        threading.Thread(target=self._connect, args=job, daemon=True).start()
        return "job"

    def _connect(self, address, key):
        for knock in self.knocks:
            knock(address)
        end = Client(address, "AF_UNIX", authkey=bytes.fromhex(key))
        Present(sites=["north"]).send(end)
        self.ends.put(end)

    def status(self):
        return SimpleNamespace(jobs={"job": "running"})


def wrong_key(address):
    with pytest.raises(AuthenticationError):
        Client(address, "AF_UNIX", authkey=b"wrong")


def hangs_up(address):
    Client(address, "AF_UNIX").close()  # without any handshake


@pytest.fixture
def opened(monkeypatch):
    monkeypatch.setattr(relay_connection, "write_job", lambda _, address, key, __: (address, key))

    def open_(*knocks):
        jobs = Jobs(knocks)
        return relay_connection._OpenJob(jobs, ["north"]), jobs.ends.get(timeout=30)

    return open_


@pytest.mark.parametrize("knocks", [(), (wrong_key,), (hangs_up,), (hangs_up, wrong_key)])
def test_strangers_do_not_keep_the_relay_out(opened, knocks):
    job, relay = opened(*knocks)
    assert job.sites == ["north"]
    job.send(Errand(number=1, site="north", timeout=1.0), b"question")
    assert Errand.receive(relay) == (Errand(number=1, site="north", timeout=1.0), b"question")
    ErrandResult(number=1).send(relay, b"answer")
    assert job.next(10.0) == (ErrandResult(number=1), b"answer")
    job.close()
    relay.close()


def test_what_no_relay_says_is_a_lost_connection(opened):
    job, relay = opened()
    relay.send_bytes(b'{"number": "many"}')
    relay.send_bytes(b"")
    with pytest.raises(UnreachableError, match="was lost"):
        job.next(10.0)
    job.close()
    relay.close()


@pytest.mark.parametrize("head", [b"", b"[]", b'{"sites": [], "more": 1}', b"\x80\x04."])
def test_a_head_that_is_not_one_is_refused(head):
    here, there = Pipe()
    there.send_bytes(head)
    there.send_bytes(b"")
    with pytest.raises(OSError, match="not a message of a relay"):
        Present.receive(here)
