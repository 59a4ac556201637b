"""FLARE's connection between a kit's process and its job processes, as a private Unix socket.

FLARE's own driver opens a TCP port without any authentication, to which every user of the machine
can connect. This one listens in a folder that only the kit's owner can enter, and asks the kernel
who is at the other end.
"""

import os
import secrets
import socket
import struct
import tempfile
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any
from urllib.parse import quote, unquote

from nvflare.fuel.f3.drivers.base_driver import BaseDriver
from nvflare.fuel.f3.drivers.driver import ConnectorInfo
from nvflare.fuel.f3.drivers.driver_params import DriverCap, DriverParams
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler, SocketConnection

PRIVATE_SOCKET = "private"
"""The scheme of these connections."""

LONGEST_PATH = 100
"""Bytes of a socket's path; systems allow 104 to 108."""


class PrivateSocketServer(ThreadingUnixStreamServer):
    """Accepts connections of the kit's own user."""

    daemon_threads = True
    ssl_context = None  # as FLARE's handler of connections expects

    def __init__(self, driver: "PrivateSocketDriver", connector: ConnectorInfo) -> None:
        self.driver, self.connector = driver, connector
        super().__init__(socket_path(connector), ConnectionHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Turn other users away."""
        return own_user_at(request)


class PrivateSocketDriver(BaseDriver):  # type: ignore[misc]
    """Listens at, and connects to, sockets in a private folder."""

    def __init__(self) -> None:
        super().__init__()
        self.server: PrivateSocketServer | None = None

    @staticmethod
    def supported_transports() -> list[str]:
        """Return the schemes of this driver."""
        return [PRIVATE_SOCKET]

    @staticmethod
    def capabilities() -> dict[str, Any]:
        """Return what FLARE must know of this driver."""
        return {DriverCap.SEND_HEARTBEAT.value: True, DriverCap.SUPPORT_SSL.value: False}

    def listen(self, connector: ConnectorInfo) -> None:
        """Accept connections until `shutdown`."""
        self.connector = connector
        self.server = PrivateSocketServer(self, connector)
        self.server.serve_forever()

    def connect(self, connector: ConnectorInfo) -> None:
        """Connect, and read until the connection ends."""
        self.connector = connector
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            end.connect(socket_path(connector))
            if not own_user_at(end):
                raise PermissionError("the socket is not of this user")
            connection = SocketConnection(end, connector, False)
            self.add_connection(connection)
            connection.read_loop()
            self.close_connection(connection)

    def shutdown(self) -> None:
        """End all connections, and remove the socket."""
        self.close_all()
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            Path(str(self.server.server_address)).unlink(missing_ok=True)

    @staticmethod
    def get_urls(scheme: str, resources: dict[str, Any]) -> tuple[str, str]:
        """Return the address for connecting and for listening: a new socket."""
        path = Path(resources["folder"]) / secrets.token_hex(8)
        if len(os.fsencode(path)) > LONGEST_PATH:
            path = Path(tempfile.mkdtemp(prefix="fedegoists-")) / "socket"
        address = f"{scheme}://0{quote(str(path))}"
        return address, address


def socket_path(connector: ConnectorInfo) -> str:
    """Return the path of a connector's socket."""
    return unquote(str(connector.params[DriverParams.PATH.value]))


def own_user_at(end: socket.socket) -> bool:
    """Return whether the process at the other end of a socket belongs to this user."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder's permissions have to do
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.getuid())
