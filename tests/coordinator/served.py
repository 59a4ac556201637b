"""The service inside a test, and as a process of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient

from fedegoists.coordinator.domain.accounts import first_manager
from fedegoists.coordinator.service.coordinator_service import Limits, Service
from fedegoists.coordinator.service.web_app import create_app
from fedegoists.coordinator.store import CoordinatorStore
from tests.coordinator.consortia import NAMES, WEIGHTS
from tests.coordinator.waiting import until

__all__ = [
    "EDGES",
    "MANY",
    "Process",
    "bearer",
    "decided",
    "founded",
    "inside",
    "inside_again",
    "invite_and_join",
    "manager_token",
    "names_competitors",
    "running",
    "signed_in",
]

MANY = Limits(requests_per_minute=1_000_000, failures_per_minute=1_000_000)


EDGES = [
    [a, b, w]
    for a, row in zip(NAMES, WEIGHTS, strict=True)
    for b, w in zip(NAMES, row, strict=True)
    if w
]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def inside(
    store: CoordinatorStore, data: Path, limits: Limits = MANY, clock=time.monotonic
) -> Iterator[tuple[TestClient, str]]:
    """The application over a store, without its run queue; yields a client, the manager's token."""
    app = create_app(Service(store, data, limits, clock=clock))
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    invitation = first_manager(store)
    assert invitation is not None
    with start_blocking_portal() as client.portal:  # else every request would start a thread
        accepted = client.post("/api/invitations/accept", json={"invitation": invitation})
        yield client, accepted.json()["token"]
    client.close()


@contextmanager
def inside_again(store, data, limits=MANY, clock=time.monotonic) -> Iterator[TestClient]:
    """Another application over the same store, which knows no caller yet."""
    client = TestClient(create_app(Service(store, data, limits, clock=clock)))
    yield client
    client.close()


def invite_and_join(client, manager: str, consortium: int, names) -> dict[str, str]:
    """Invite members and have them join; returns their tokens."""
    tokens = {}
    for name in names:
        invited = client.post(
            f"/api/consortia/{consortium}/members", json={"name": name}, headers=bearer(manager)
        )
        assert invited.status_code == 201, invited.text
        accepted = client.post(
            "/api/invitations/accept", json={"invitation": invited.json()["invitation"]}
        )
        tokens[name] = accepted.json()["token"]
    return tokens


def founded(client, manager, name="Banks"):
    made = client.post("/api/consortia", json={"name": name}, headers=bearer(manager))
    assert made.status_code == 201, made.text
    consortium = made.json()["id"]
    return consortium, invite_and_join(client, manager, consortium, NAMES)


def decided(client, manager, consortium):
    api, head = f"/api/consortia/{consortium}", bearer(manager)
    assert client.put(f"{api}/benefit", json={"edges": EDGES}, headers=head).status_code == 200
    assert client.post(f"{api}/reports/close", headers=head).status_code == 200
    made = client.post(f"{api}/formations", json={}, headers=head)
    assert made.status_code == 201, made.text
    return made.json()


def names_competitors(client, token, *names):
    answer = client.put("/api/me/reports", json={"competitors": names}, headers=bearer(token))
    assert answer.status_code == 200, answer.text


def signed_in(client, token):
    answer = client.post("/login", data={"secret": token})
    assert answer.status_code == 303, answer.text
    page = client.get("/", follow_redirects=True)
    return page.text.split('data-csrf="')[1].split('"')[0]


class Process:
    """A coordinator that was started with `fedegoists serve`."""

    def __init__(self, data: Path, *options: str, scheme: str = "http", log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.log = log
        program = Path(sys.executable).with_name("fedegoists")
        command = [program, "serve", "--data", data, "--port", str(self.port), *options]
        self._output = log.with_name(f"{log.name}-{self.port}")
        with log.open("ab") as errors, self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the coordinator ended: {self.said}{self.log.read_text()}")
            try:
                httpx.get(f"{self.url}/health", verify=False, timeout=60)
            except httpx.TransportError:
                return False
            return True

        until(answers)

    @property
    def said(self) -> str:
        """What it printed, apart from its log."""
        return self._output.read_text()

    @property
    def invitation(self) -> str:
        found = re.search(r"fe-invitation-\S+", self.said)
        assert found, self.said
        return found[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode


@contextmanager
def running(data: Path, *options: str, scheme: str = "http", log: Path) -> Iterator[Process]:
    process = Process(data, *options, scheme=scheme, log=log)
    try:
        yield process
    finally:
        process.stop()


def manager_token(process: Process, **more) -> str:
    """Accept the manager's one-time login."""
    answer = httpx.post(
        f"{process.url}/api/invitations/accept",
        json={"invitation": process.invitation},
        **more,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["token"]
