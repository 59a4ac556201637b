"""The coordinator service of an instance, and what it has acknowledged so far."""

import re
import socket
import time
from pathlib import Path

import httpx2 as httpx

from benchmarks.chaos.machine import Forked, Running, marked, wait_until
from benchmarks.chaos.tally import Tally

__all__ = ["CoordinatorProgram", "bearer"]

TO_START = 120.0


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _free_port(host: str) -> int:
    with socket.socket() as free:
        free.bind((host if host == "127.0.0.1" else "0.0.0.0", 0))
        return int(free.getsockname()[1])


class CoordinatorProgram:
    """A coordinator that is started, asked, killed and started again."""

    def __init__(
        self,
        data: Path,
        mark: str,
        tally: Tally,
        *options: object,
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] | None = None,
    ) -> None:
        self.data, self.mark, self.tally = data, mark, tally
        self.port = _free_port(host)
        self.log = data.parent / "service.log"
        arguments = ["serve", "--data", data, "--host", host, "--port", self.port]
        limit = ["--requests-per-minute", 1_000_000]
        whole = [*arguments, *limit, *options]
        self.program: Running | Forked = (
            Forked(whole, mark, self.log)
            if prefix is None
            else Running(whole, mark, self.log, prefix)
        )
        self.client = httpx.Client(base_url=f"http://{host}:{self.port}", timeout=30)
        self.head = ""

    @property
    def alive(self) -> bool:
        """Whether its process lives."""
        return self.program.pid is not None

    def start(self) -> bool:
        """Start it and wait until it answers; return whether it does."""
        self.program.start()

        def answers() -> bool:
            if not self.alive:
                return True
            try:
                self.client.get("/health", timeout=5)
            except httpx.TransportError:
                return False
            return True

        wait_until(answers, TO_START, 0.05)
        return self.alive

    def invitation(self) -> str:
        """Return the one-time login of the first manager."""
        found = re.findall(r"fe-invitation-\S+", self.log.read_text())
        assert found, self.log.read_text()[-2000:]
        return str(found[0])

    def accept(self, invitation: str) -> str:
        """Exchange an invitation for a token."""
        answer = self.client.post("/api/invitations/accept", json={"invitation": invitation})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    def kill(self, kind: str = "coordinator service") -> None:
        """Kill the service, and none of its workers."""
        if self.program.kill():
            self.tally.killed(kind)

    def check_log(self, manager: str) -> None:
        """Check the audit log, and that the hash noted last is still in it."""
        query = {"head": self.head} if self.head else {}
        answer = self.client.get("/api/audit-log/check", params=query, headers=bearer(manager))
        if self.tally.check("audit log answers", answer.status_code == 200, answer.text):
            found = answer.json()
            self.tally.check("audit log verifies, with the head noted before", found["ok"], found)
            self.head = found["head"]

    def end(self) -> None:
        """Stop it; nothing of the instance may be left."""
        self.program.close()
        self.client.close()
        gone = wait_until(lambda: not marked(self.mark), 30)
        left = [] if gone else [" ".join(one.cmdline())[-200:] for one in marked(self.mark)]
        self.tally.check("no process is left at the end", not left, left)
        for one in marked(self.mark):
            one.kill()

    def get(self, address: str, token: str, seconds: float = 60.0) -> httpx.Response:
        """Ask until there is an answer, as a member does whose coordinator is just restarted."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.client.get(address, headers=bearer(token))
            except httpx.TransportError:
                if time.monotonic() > end or not self.alive:
                    raise
                time.sleep(0.1)
