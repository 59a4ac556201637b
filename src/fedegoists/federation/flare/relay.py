"""The component that FLARE runs at the server for a job: it carries messages to silos and back.

The run itself is another process on the coordinator's machine. It listens at a socket that only its
own user can open; the courier connects there, and ends its job when the run goes away.
"""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api.context import set_call_context
from nvflare.collab.api.exceptions import CollabCallError

from fedegoists.federation.flare.memory_release import Garbage
from fedegoists.federation.flare.relay_frames import receive_frame, send_frame

__all__ = ["Courier"]


class Courier:
    """Brings each message to the silo that it is for, all silos at once.

    Parameters
    ----------
    address : str
        The path of the run's socket.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    @collab.main  # type: ignore[untyped-decorator]
    def carry(self) -> None:
        """Carry messages until the run closes its socket."""
        sites = {client.name: client for client in collab.clients}
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self.address)
        writing = threading.Lock()
        context = collab.context
        garbage = Garbage()
        send_frame(connection, {"sites": sorted(sites)}, b"")

        def deliver(about: dict[str, Any], message: bytes) -> None:
            head: dict[str, Any] = {"number": about["number"], "site": about["site"]}
            answer = b""
            try:
                answer = ask(sites[about["site"]], context, about["timeout"], message)
            except CollabCallError as error:
                late = error.cause_type == "TimeoutError"
                head |= {"failed": "timeout" if late else "error", "detail": str(error)[:300]}
            except Exception as error:  # whatever happens to one silo is told, and stops no other
                head |= {"failed": "error", "detail": f"{type(error).__name__}: {error}"[:300]}
            with writing:
                send_frame(connection, head, answer)
            garbage.message_done()

        with connection, ThreadPoolExecutor(max_workers=100) as pool:
            while not context.is_aborted():
                frame = receive_frame(connection)
                if frame is None:
                    break
                pool.submit(deliver, *frame)


def ask(site: Any, context: Any, timeout: float, message: bytes) -> bytes:
    """Ask one silo; the context of the job's main function has to be set in every thread."""
    set_call_context(context)
    answer = site(timeout=timeout).ask(message)
    if not isinstance(answer, bytes):
        raise TypeError(f"a {type(answer).__name__} instead of a message")
    return answer
