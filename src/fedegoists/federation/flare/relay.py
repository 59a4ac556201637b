"""The component that FLARE runs at the server for a job: it relays messages to silos and back.

The run itself is another process on the coordinator's machine. It listens at a socket that only its
own user can open; the relay connects there, and ends its job when the run goes away.
"""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client
from typing import Protocol

from nvflare.collab import collab
from nvflare.collab.api.context import set_call_context
from nvflare.collab.api.exceptions import CollabCallError

from fedegoists.federation.flare.memory_release import MemoryRelease
from fedegoists.federation.flare.relay_messages import Errand, ErrandResult, Present

FLARES_CALLS = "nvflare.collab.runtime.cell_dispatcher"
"""FLARE's log of calls: two long lines for every message, in three files. The run has its own."""


class Relay:
    """Brings each message to the silo that it is for, all silos at once.

    Parameters
    ----------
    address : str
        The path of the run's socket.
    key : str
        The secret by which the run knows its relay, in hexadecimal digits.
    """

    def __init__(self, address: str, key: str) -> None:
        self.address, self.key = address, key

    @collab.main  # type: ignore[untyped-decorator]
    def carry(self) -> None:
        """Carry messages until the run closes its socket."""
        logging.getLogger(FLARES_CALLS).setLevel(logging.WARNING)
        sites = {client.name: client for client in collab.clients}
        writing = threading.Lock()
        context = collab.context
        memory = MemoryRelease()

        def deliver(errand: Errand, message: bytes) -> None:
            answer, outcome = b"", ErrandResult(number=errand.number)
            try:
                answer = ask(sites[errand.site], context, errand.timeout, message)
            except CollabCallError as error:
                late = error.cause_type == "TimeoutError"
                outcome = ErrandResult(
                    number=errand.number,
                    failed="timeout" if late else "error",
                    detail=str(error)[:300],
                )
            except Exception as error:  # whatever happens to one silo stops no other
                detail = f"{type(error).__name__}: {error}"[:300]
                outcome = ErrandResult(number=errand.number, failed="error", detail=detail)
            with writing:
                outcome.send(connection, answer)
            memory.message_done()

        with (
            Client(self.address, authkey=bytes.fromhex(self.key)) as connection,
            ThreadPoolExecutor(max_workers=100) as pool,
        ):
            Present(sites=sorted(sites)).send(connection)
            while not context.is_aborted():
                try:
                    received = Errand.receive(connection)
                except (EOFError, OSError):
                    break
                pool.submit(deliver, *received)


class Site(Protocol):
    """A silo as FLARE presents it to a job."""

    def __call__(self, *, timeout: float) -> "Site":
        """Return the silo with a timeout for its answers."""

    def ask(self, message: bytes) -> object:
        """Return the silo's answer to a message."""


def ask(site: Site, context: object, timeout: float, message: bytes) -> bytes:
    """Ask one silo; the context of the job's main function has to be set in every thread."""
    set_call_context(context)
    answer = site(timeout=timeout).ask(message)
    if not isinstance(answer, bytes):
        raise TypeError(f"a {type(answer).__name__} instead of a message")
    return answer
