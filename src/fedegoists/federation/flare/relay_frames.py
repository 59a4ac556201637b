"""Frames on the socket between a run and its courier, both on the coordinator's machine."""

import json
import socket
import struct
from typing import Any

__all__ = ["receive_frame", "send_frame"]


def send_frame(connection: socket.socket, head: dict[str, Any], body: bytes) -> None:
    """Write a frame: two lengths, a head as JSON, a body."""
    text = json.dumps(head).encode()
    connection.sendall(struct.pack("<IQ", len(text), len(body)) + text)
    connection.sendall(body)


def receive_frame(connection: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """Read a frame; nothing where the other side has gone."""
    lengths = _exactly(connection, 12)
    if lengths is None:
        return None
    head, body = struct.unpack("<IQ", lengths)
    text, content = _exactly(connection, head), _exactly(connection, body)
    return None if text is None or content is None else (json.loads(text), content)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    content = bytearray(count)
    view, start = memoryview(content), 0
    while start < count:
        try:
            got = connection.recv_into(view[start:])
        except OSError:
            return None
        if not got:
            return None
        start += got
    return bytes(content)
