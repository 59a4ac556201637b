"""The coordinator's line to all silos: a job at the FLARE server that carries messages.

A silo that goes away is left out; when it is back, the job is started anew with it. If the job or
the server itself is lost, `UnreachableError` says so, and the run goes on from its last checkpoint
over a new link.
"""

import contextlib
import queue
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedegoists.federation.flare.job_operator import Operator, UnreachableError, write_job
from fedegoists.federation.flare.relay_frames import receive_frame, send_frame
from fedegoists.federation.replies import Reason

__all__ = ["Link", "Lost"]

LOOK = 5.0
"""Seconds between two looks at who is there, while somebody is away or keeps others waiting."""

TO_START = 180.0
"""Seconds in which a job must have started."""


@dataclass(frozen=True)
class Lost:
    """Why a silo gave no answer."""

    reason: Reason
    detail: str


Recorder = Callable[[str, str, bytes], None]
"""Called with ``to`` or ``from``, the site, and the message."""


class Link:
    """Messages to silos and back.

    Parameters
    ----------
    operator : Operator
        Submits the job.
    sites : sequence of str
        The silos of the consortium, as their certificates call them.
    run : str
        The run's name.
    deadline : float
        Seconds that a silo has to answer where a call says nothing else.
    wait : float
        Seconds to wait for silos that are not there before starting without them.
    record : callable, optional
        Sees every message.
    """

    def __init__(
        self,
        operator: Operator,
        sites: Sequence[str],
        *,
        run: str = "run",
        deadline: float = 600.0,
        wait: float = 60.0,
        record: Recorder | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.operator, self.sites, self.run = operator, tuple(sites), run
        self.deadline, self.wait = deadline, wait
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.away: dict[str, float] = {}
        self._record, self.tell = record, tell
        self._number = 0
        self._looked = 0.0
        self._open: _OpenJob | None = None

    def open(self, wait: float | None = None) -> None:
        """Start a job with everybody who is there; who comes back while one waits is taken in.

        Parameters
        ----------
        wait : float, optional
            Seconds to wait for who is not there, if not those of the link.
        """
        deadline = time.monotonic() + (self.wait if wait is None else wait)
        while True:
            self.close()
            left = max(deadline - time.monotonic(), 0.0)
            missing = self.operator.wait_for_silos(self.sites, left, self.tell)
            present = [site for site in self.sites if site not in missing]
            if not present:
                raise UnreachableError("no silo is connected; have them start their kits")
            self._open = _OpenJob(self.operator, present)
            now = time.time()
            self.away = {site: now for site in self.sites if site not in self._open.sites}
            # The server still lists, for a while, a silo that has just been restarted.
            if not self.away or not self._back_before(deadline):
                break
        for site in self.away:
            self.tell(f"{site} is away and is left out until it is back")

    def _back_before(self, deadline: float) -> bool:
        """Wait for a silo that is away; return whether one came back."""
        while time.monotonic() < deadline:
            if self._returned():
                return True
            time.sleep(1.0)
        return False

    def _returned(self) -> list[str]:
        present = self.operator.status().silos
        return [site for site, since in self.away.items() if present.get(site, 0.0) > since]

    def close(self) -> None:
        """End the job."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def ask(
        self, messages: Mapping[str, bytes], timeout: float | None = None
    ) -> dict[str, bytes | Lost]:
        """Bring each site its message; return the answers, or why there is none."""
        if self._open is None:
            self.open()
        self._take_back()
        job = self._open
        assert job is not None
        seconds = self.deadline if timeout is None else timeout
        deadline = time.monotonic() + seconds
        answers: dict[str, bytes | Lost] = {}
        pending: dict[int, str] = {}
        for site, message in messages.items():
            if site in self.away:
                answers[site] = Lost("error", "the silo is away")
                continue
            self._number += 1
            pending[self._number] = site
            self.sent[site] += len(message)
            if self._record is not None:
                self._record("to", site, message)
            job.send({"number": self._number, "site": site, "timeout": seconds}, message)
        looked = time.monotonic()
        while pending:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            frame = job.next(min(left, LOOK))
            if frame is not None:
                head, message = frame
                asked = pending.pop(head["number"], None)
                if asked is not None:  # a late answer to an earlier call is nobody's
                    answers[asked] = self._received(asked, head, message)
            elif time.monotonic() - looked >= LOOK:
                looked = time.monotonic()
                for site in self._gone(job, pending.values()):
                    pending = {n: other for n, other in pending.items() if other != site}
                    answers[site] = self._left(site, "the silo went away")
        for site in pending.values():
            answers[site] = Lost("timeout", f"{seconds:g} s")
        return answers

    def _received(self, site: str, head: Mapping[str, Any], message: bytes) -> bytes | Lost:
        if "failed" in head:
            if head["failed"] == "timeout":
                return Lost("timeout", str(head.get("detail", ""))[:300])
            return self._left(site, str(head.get("detail", "")))
        self.received[site] += len(message)
        if self._record is not None:
            self._record("from", site, message)
        return message

    def _left(self, site: str, why: str) -> Lost:
        self.away[site] = time.time()
        self.tell(f"{site} is away and is left out until it is back")
        return Lost("error", why[:300])

    def _gone(self, job: "_OpenJob", sites: Any) -> list[str]:
        """Return which of some silos have no part in the job any more."""
        taking_part = self.operator.taking_part(job.number, list(sites))
        return [site for site in sites if site not in taking_part]

    def _take_back(self) -> None:
        """Start the job anew if somebody is back."""
        if not self.away or time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        back = self._returned()
        if back:
            self.tell(f"{', '.join(back)} is back; the job starts anew")
            self.open(0.0)  # nobody waits for who is still away


class _OpenJob:
    """A running job with the courier's end of the socket."""

    def __init__(self, operator: Operator, sites: Sequence[str]) -> None:
        self._operator = operator
        self._frames: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        # Only this user can look into the folder, and so nobody else can connect.
        self._folder = Path(tempfile.mkdtemp(prefix="fedegoists-"))
        address = self._folder / "courier"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
                listening.bind(str(address))
                listening.listen(1)
                job = write_job(self._folder, str(address), sites)
                self.number = operator.submit(job)
                self._connection = self._accepted(listening)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        first = receive_frame(self._connection)
        if first is None:
            self.close()
            raise UnreachableError("the job ended as it began; see the server's log")
        self.sites: list[str] = first[0]["sites"]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _accepted(self, listening: socket.socket) -> socket.socket:
        deadline = time.monotonic() + TO_START
        listening.settimeout(2.0)
        while True:
            try:
                return listening.accept()[0]
            except TimeoutError:
                state = self._operator.status().jobs.get(self.number, "unknown")
                if state not in ("running", "waiting", "unknown") or time.monotonic() > deadline:
                    self._operator.abort(self.number)
                    raise UnreachableError(
                        f"the job did not start ({state}); see the logs of server and silos"
                    ) from None

    def send(self, head: dict[str, Any], message: bytes) -> None:
        try:
            send_frame(self._connection, head, message)
        except OSError:
            raise UnreachableError("the connection to the server was lost") from None

    def next(self, seconds: float) -> tuple[dict[str, Any], bytes] | None:
        """Return the next frame, or nothing after some seconds."""
        try:
            frame = self._frames.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None
        if frame is None:
            self._frames.put(None)
            raise UnreachableError("the connection to the server was lost")
        return frame

    def _read(self) -> None:
        while True:
            frame = receive_frame(self._connection)
            self._frames.put(frame)
            if frame is None:
                return

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
