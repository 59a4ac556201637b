"""The service on a real port inside a test, and raw connections to it."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from fedegoists.coordinator import server
from fedegoists.coordinator.connection_limits import ConnectionLimits
from fedegoists.coordinator.domain.accounts import first_manager
from fedegoists.coordinator.server import ServerSettings
from fedegoists.coordinator.service.coordinator_service import Service
from fedegoists.coordinator.store import CoordinatorStore
from tests.coordinator.served import MANY
from tests.coordinator.waiting import until

__all__ = ["HALF_OPEN", "Listening", "answer_of", "ended_by_server", "listening"]

HALF_OPEN = b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: "

PATIENT = 60
"""Seconds until a test gives up; none ends by it unless it fails."""


class Listening:
    """A service that listens on a port of this machine."""

    def __init__(self, service: Service, gate, port: int) -> None:
        self.service, self.gate, self.port = service, gate, port
        self.url = f"http://127.0.0.1:{port}"
        self.invitation = first_manager(service.store) or ""
        self.connections: list[socket.socket] = []

    def connect(
        self, sent: bytes = b"", source: str = "127.0.0.1", window: int | None = None
    ) -> socket.socket:
        """Connect and send; with a window, the system takes only so many bytes ahead."""
        one = socket.socket()
        self.connections.append(one)
        one.settimeout(PATIENT)
        if window is not None:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        one.bind((source, 0))
        one.connect(("127.0.0.1", self.port))
        if sent:
            one.sendall(sent)
        return one

    def ended(self, why: str) -> int:
        """How many connections were ended for a reason."""
        return int(self.service.metrics.ended.labels(why)._value.get())


@contextmanager
def listening(
    store: CoordinatorStore, data: Path, limits=MANY, *, send_buffer: int = 0, **connections
) -> Iterator[Listening]:
    """Serve a store on a free port, by the same server as `fedegoists serve`, in a thread.

    The system takes `send_buffer` bytes of an answer ahead of its receiver, if it is given.
    """
    settings = ServerSettings(data=data, limits=limits, connections=ConnectionLimits(**connections))
    service = Service(store, data, limits)
    gate = server._gate(settings, service)
    with server._listening("127.0.0.1", 0) as sockets, patch.dict(server.LOGGING, clear=True):
        server.LOGGING["version"] = 1  # else it would change what other tests log
        server.LOGGING["disable_existing_loggers"] = False
        config = server._config(settings, service)
        running = server._Server(config, service, gate)
        if send_buffer:
            sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        thread = threading.Thread(target=running.run, args=(sockets,))
        thread.start()
        port = sockets[0].getsockname()[1]
        served = Listening(service, gate, port)
        try:
            until(lambda: running.started or not thread.is_alive())
            yield served
        finally:
            for one in served.connections:
                one.close()
            service.stopping.set()
            running.should_exit = True
            thread.join()
    logging.getLogger("fedegoists.coordinator").setLevel(logging.NOTSET)


def ended_by_server(one: socket.socket) -> bool:
    """Wait until the server has ended a connection; False if it answered on it."""
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


def answer_of(one: socket.socket) -> bytes:
    """Everything that the server sends until it closes the connection."""
    parts = []
    while True:
        try:
            part = one.recv(65536)
        except ConnectionError:
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)
