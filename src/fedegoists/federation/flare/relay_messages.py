"""Messages between a run and its relay, over a local socket.

The relay is a process of the FLARE server, which needs no PyTorch, so nothing here imports it.
"""

from multiprocessing.connection import Connection
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fedegoists.federation.reasons import Reason


class _Head(BaseModel):
    """Header of a message between a run and its relay."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def send(self, connection: Connection, message: bytes = b"") -> None:
        """Send this and a message."""
        connection.send_bytes(self.model_dump_json().encode())
        connection.send_bytes(message)

    @classmethod
    def receive(cls, connection: Connection) -> tuple[Self, bytes]:
        """Receive such a head and a message.

        Raises
        ------
        EOFError, OSError
            If the other side is gone, or does not speak this protocol.
        """
        head, message = connection.recv_bytes(), connection.recv_bytes()
        try:
            return cls.model_validate_json(head), message
        except ValidationError:
            raise OSError("not a message of a relay") from None


class Present(_Head):
    """The sites that have a part in the relay's job."""

    sites: list[str]


class Errand(_Head):
    """A message to bring to a site."""

    number: int
    site: str
    timeout: float


class ErrandResult(_Head):
    """The outcome of an errand: an answer, or the reason why there is none."""

    number: int
    failed: Reason | None = None
    detail: str = ""
