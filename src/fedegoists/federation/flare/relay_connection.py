"""The coordinator's connection to all silos: a job at the FLARE server that relays messages.

A silo that goes away is left out; when it is back, the job is restarted with it. If the job or the
server is lost, `UnreachableError` is raised, and the run continues from its last checkpoint over a
new connection.
"""

import queue
import secrets
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path

from fedegoists.federation.flare.job_operator import Operator, UnreachableError, write_job
from fedegoists.federation.flare.kit_identity import IdentityError
from fedegoists.federation.flare.relay_messages import Errand, ErrandResult, Present
from fedegoists.federation.flare.signed_calls import CallSigner, SessionOverError, is_old
from fedegoists.federation.reasons import Reason

LOOK = 5.0
"""Seconds between two queries for connected silos, while a silo is away or late."""

TO_START = 180.0
"""Seconds for a job to start."""


@dataclass(frozen=True)
class Lost:
    """The reason why a silo gave no answer."""

    reason: Reason
    detail: str


Recorder = Callable[[str, str, bytes], None]
"""Called with ``to`` or ``from``, the site, and the message."""


class RelayConnection:
    """The connection to all silos: messages go out, answers come back.

    Parameters
    ----------
    operator : Operator
        Submits the job.
    sites : sequence of str
        The silos of the consortium, as their certificates call them.
    signer : CallSigner
        Signs calls, and checks who answers.
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
        signer: CallSigner,
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
        self._record, self.tell, self._signer = record, tell, signer
        self._number = 0
        self._looked = 0.0
        self._open: _OpenJob | None = None

    def open(self, wait: float | None = None) -> None:
        """Start a job with all silos that are connected, also with those that connect meanwhile.

        Parameters
        ----------
        wait : float, optional
            Seconds to wait for silos that are away; by default those of the connection.
        """
        deadline = time.monotonic() + (self.wait if wait is None else wait)
        while True:
            self.close()
            left = max(deadline - time.monotonic(), 0.0)
            missing = self.operator.wait_for_silos(self.sites, left, self.tell)
            present = [site for site in self.sites if site not in missing]
            if not present:
                raise UnreachableError("no silo is connected; have them start their kits")
            self._signer.forget()
            self._open = _OpenJob(self.operator, present)
            now = time.time()
            self.away = {site: now for site in self.sites if site not in self._open.sites}
            # For a while the server still lists a silo that has just been restarted.
            if not self.away or not self._back_before(deadline):
                break
        for site in self.away:
            self.tell(f"{site} is away and is left out until it is back")

    def _back_before(self, deadline: float) -> bool:
        """Wait for silos that are away; return whether one came back."""
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
        """Send each site its message; return the answers, or the reasons why there are none."""
        if self._open is None:
            self.open()
        self._take_back()
        seconds = self.deadline if timeout is None else timeout
        deadline = time.monotonic() + seconds
        answers: dict[str, bytes | Lost] = {}
        for site, message in messages.items():
            if site in self.away:
                answers[site] = Lost("error", "the silo is away")
            elif self._record is not None:
                self._record("to", site, message)
        # A silo that was restarted has forgotten the session, and is greeted once more.
        for attempt in (1, 2):
            left = {site: message for site, message in messages.items() if site not in answers}
            answers |= self._signed_exchange(left, deadline, seconds, last=attempt == 2)
        for site, answer in answers.items():
            if self._record is not None and isinstance(answer, bytes):
                self._record("from", site, answer)
        return answers

    def _signed_exchange(
        self, messages: Mapping[str, bytes], deadline: float, seconds: float, *, last: bool
    ) -> dict[str, bytes | Lost]:
        """Greet silos where needed, and send each its message; return checked answers.

        Silos that have to be greeted again are left out, unless this is the `last` attempt.
        """
        answers: dict[str, bytes | Lost] = {}
        strangers = [site for site in messages if not self._signer.knows(site)]
        greetings = {site: self._signer.greeting(site, seconds) for site in strangers}
        for site, answer in self._exchange(greetings, deadline, seconds).items():
            try:
                if isinstance(answer, bytes) and not is_old(answer):
                    self._signer.greeted(site, answer)
                else:
                    answers[site] = answer
            except IdentityError as error:
                answers[site] = Lost("error", str(error)[:300])
        calls = {
            site: self._signer.call(site, message, seconds)
            for site, message in messages.items()
            if site not in answers
        }
        for site, answer in self._exchange(calls, deadline, seconds).items():
            try:
                if isinstance(answer, bytes):
                    answer = self._signer.opened(site, answer)
                answers[site] = answer
            except SessionOverError as error:
                if last:
                    answers[site] = Lost("error", str(error)[:300])
            except IdentityError as error:
                answers[site] = Lost("error", str(error)[:300])
        return answers

    def _exchange(
        self, messages: Mapping[str, bytes], deadline: float, seconds: float
    ) -> dict[str, bytes | Lost]:
        """Have the relay carry messages; return what came back."""
        job = self._open
        assert job is not None
        answers: dict[str, bytes | Lost] = {}
        pending: dict[int, str] = {}
        for site, message in messages.items():
            self._number += 1
            pending[self._number] = site
            self.sent[site] += len(message)
            left = max(deadline - time.monotonic(), 0.0)
            job.send(Errand(number=self._number, site=site, timeout=left), message)
        looked = time.monotonic()
        while pending:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            received = job.next(min(left, LOOK))
            if received is not None:
                outcome, message = received
                asked = pending.pop(outcome.number, None)
                if asked is not None:  # a late answer to an earlier call is dropped
                    answers[asked] = self._received(asked, outcome, message)
            elif time.monotonic() - looked >= LOOK:
                looked = time.monotonic()
                for site in self._gone(job, pending.values()):
                    pending = {n: other for n, other in pending.items() if other != site}
                    answers[site] = self._left(site, "the silo went away")
        for site in pending.values():
            answers[site] = Lost("timeout", f"{seconds:g} s")
        return answers

    def _received(self, site: str, outcome: ErrandResult, message: bytes) -> bytes | Lost:
        if outcome.failed == "timeout":
            return Lost("timeout", outcome.detail)
        if outcome.failed is not None:
            return self._left(site, outcome.detail)
        self.received[site] += len(message)
        return message

    def _left(self, site: str, why: str) -> Lost:
        self.away[site] = time.time()
        self.tell(f"{site} is away and is left out until it is back")
        return Lost("error", why[:300])

    def _gone(self, job: "_OpenJob", sites: Collection[str]) -> list[str]:
        """Return those of some silos that are no longer part of the job."""
        taking_part = self.operator.taking_part(job.number, list(sites))
        return [site for site in sites if site not in taking_part]

    def _take_back(self) -> None:
        """Restart the job if a silo is back."""
        if not self.away or time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        back = self._returned()
        if back:
            self.tell(f"{', '.join(back)} is back; the job is restarted")
            self.open(0.0)  # without waiting for silos that are still away


class _OpenJob:
    """A running job, and the connection to its relay."""

    def __init__(self, operator: Operator, sites: Sequence[str]) -> None:
        self._operator = operator
        key = secrets.token_bytes(32)
        # Only this user can open the folder, so no other user can connect.
        self._folder = Path(tempfile.mkdtemp(prefix="fedegoists-"))
        address = str(self._folder / "relay")
        try:
            with Listener(address, "AF_UNIX", authkey=key) as listener:
                self.number = operator.submit(write_job(self._folder, address, key.hex(), sites))
                self._connection = self._accepted(listener)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            self.sites = Present.receive(self._connection)[0].sites
        except (EOFError, OSError):
            self.close()
            raise UnreachableError("the job ended as it began; see the server's log") from None

    def _accepted(self, listener: Listener) -> Connection:
        deadline = time.monotonic() + TO_START
        accepted: queue.SimpleQueue[Connection] = queue.SimpleQueue()

        def accept() -> None:
            while True:
                try:
                    accepted.put(listener.accept())
                except (AuthenticationError, EOFError, ConnectionError):
                    continue  # not the relay, which is still expected
                except OSError:
                    pass  # the listener was closed
                return

        # In a thread, since a listener has no timeout.
        threading.Thread(target=accept, daemon=True).start()
        while True:
            try:
                return accepted.get(timeout=2.0)
            except queue.Empty:
                state = self._operator.status().jobs.get(self.number, "unknown")
                if state not in ("running", "waiting", "unknown") or time.monotonic() > deadline:
                    self._operator.abort(self.number)
                    raise UnreachableError(
                        f"the job did not start ({state}); see the logs of server and silos"
                    ) from None

    def send(self, errand: Errand, message: bytes) -> None:
        try:
            errand.send(self._connection, message)
        except OSError:
            raise UnreachableError("the connection to the server was lost") from None

    def next(self, seconds: float) -> tuple[ErrandResult, bytes] | None:
        """Return the next outcome with its message, or nothing after some seconds."""
        try:
            if not self._connection.poll(max(seconds, 0.001)):
                return None
            return ErrandResult.receive(self._connection)
        except (EOFError, OSError):
            raise UnreachableError("the connection to the server was lost") from None

    def close(self) -> None:
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
