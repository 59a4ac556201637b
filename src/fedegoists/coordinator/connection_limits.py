"""Limits of connections: how many there are, and how long each may keep the service waiting.

A request that is never finished, or an answer that is never read, costs its sender nothing. The
server under the service, uvicorn, waits for both without end; this module does not.
"""

import asyncio
import contextlib
import hashlib
import ssl
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import h11
from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedegoists.coordinator.service.request_identity import IDENTIFIED, TLS_EXTENSION
from fedegoists.coordinator.service.sender_address import address_group


class ConnectionLimits(BaseModel):
    """Limits of connections.

    Attributes
    ----------
    connections : int
        Open connections in all.
    per_address : int or None
        Open connections from one address; for IPv6, from one network of 64 bits. None behind a
        proxy, from which all connections come.
    header_seconds : float
        From the beginning of a connection, or of a request, to the end of the request's header.
    body_seconds : float
        For the body of a request that is not signed in; and the interval in which the rate of
        other bodies, and of answers, is measured.
    bytes_per_second : float
        Least rate of a signed-in request's body, and of reading an answer.
    linger_bytes : int
        Bytes of a refused body that are read and thrown away, so that its sender reads the answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    connections: PositiveInt = 500
    per_address: PositiveInt | None = 100
    header_seconds: PositiveFloat = 10.0
    body_seconds: PositiveFloat = 10.0
    bytes_per_second: PositiveFloat = 1000.0
    linger_bytes: PositiveInt = 1024 * 1024


class ConnectionGate:
    """Counts the connections; a new one takes the place of one that keeps the service waiting.

    So a member gets in also while another sender at its address holds all places with unfinished
    requests: its own connection waits for no longer than its header takes to arrive.

    Parameters
    ----------
    closed : callable
        Called with the reason for every connection that is ended or turned away.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        tls: ssl.SSLContext | None = None,
        closed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.limits, self.tls, self.closed = limits, tls, closed
        # By address, in the order of arrival.
        self._groups: defaultdict[str, dict[GuardedProtocol, None]] = defaultdict(dict)
        self._all: dict[GuardedProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, new: "GuardedProtocol", address: str) -> bool:
        """Count a new connection, or return False if there is no place for it."""
        group, limits = address_group(address), self.limits
        if limits.per_address is not None and not self._room(
            self._groups.get(group, {}), limits.per_address
        ):
            return False
        if not self._room(self._all, limits.connections):
            return False
        new.group = group
        self._groups[group][new] = None
        self._all[new] = None
        return True

    def leave(self, one: "GuardedProtocol") -> None:
        """Forget a connection; a second time changes nothing."""
        self._all.pop(one, None)
        group = self._groups.get(one.group)
        if group is not None:
            group.pop(one, None)
            if not group:
                del self._groups[one.group]

    def _room(self, places: "dict[GuardedProtocol, None]", most: int) -> bool:
        """Make room for one more, at the cost of the one that waited longest for its sender."""
        while len(places) >= most:
            for idle in ("header", "body", "reader"):
                found = next((one for one in places if one.awaited == idle), None)
                if found is not None:
                    break
            else:
                return False
            found.end("replaced")
        return True


class GuardedProtocol(H11Protocol):
    """HTTP protocol that ends connections which keep it waiting, and shows client certificates.

    TLS is begun here rather than by the event loop: there, connections whose handshake is not
    finished would be counted by no limit.
    """

    gate: ConnectionGate

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = ""
        self._raw: asyncio.Transport | None = None
        self._begun = False
        self._early = b""
        self._timer: asyncio.TimerHandle | None = None
        self._phase = ""
        self._received = self._counted = 0
        self._unsent = 0
        self._write_timer: asyncio.TimerHandle | None = None
        self._lingering = False
        self._left = False

    # Connections ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count a new connection, and begin TLS or HTTP on it."""
        self._raw = transport
        peer = transport.get_extra_info("peername")
        if not self.gate.admit(self, str(peer[0]) if peer else "unknown"):
            self._left = True
            self.gate.closed("no place")
            transport.abort()
            return
        self._wait_for("header")
        if self.gate.tls is None:
            self._begin(transport)
        else:
            self._handshake = self.loop.create_task(self._secured(transport, self.gate.tls))

    async def _secured(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        """Shake hands, within the time for a header."""
        try:
            transport = await self.loop.start_tls(
                raw,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self.gate.limits.header_seconds,
            )
        except (TimeoutError, OSError):  # errors of TLS are among them
            transport = None
        if transport is None or self._left:
            raw.abort()
            self._leave()
            return
        self._begin(transport)
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._begun = True
        self.transport = _LingeringTransport(transport, self)  # type: ignore[assignment]
        secured = transport.get_extra_info("ssl_object")
        shown = secured.getpeercert(binary_form=True) if secured is not None else None
        if shown:
            self.app = _with_certificate(self.app, hashlib.sha256(shown).hexdigest())

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up the place of a connection."""
        self._leave()
        if self._begun:
            super().connection_lost(exc)

    def _leave(self) -> None:
        self._left = True
        self._stop_waiting()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self.gate.leave(self)

    def end(self, why: str) -> None:
        """End the connection now, whatever is still to be sent."""
        self.gate.closed(why)
        self._leave()
        if self._raw is not None:
            self._raw.abort()

    @property
    def awaited(self) -> str:
        """What the other side owes: a header, a body, to read an answer; or nothing.

        Its place may then be given to another, unless its request is signed in.
        """
        if self._lingering or self._phase == "header":
            return "header"
        # Between two requests nothing is being awaited, nor is anything worth keeping.
        if self._begun and self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            return "header"
        if self._identified:
            return ""
        return self._phase or ("reader" if self._write_timer is not None else "")

    @property
    def _identified(self) -> bool:
        return bool(self.scope and self.scope.get("state", {}).get(IDENTIFIED))

    # Requests ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what arrived, and note what is awaited next."""
        if not self._begun:  # the task that began TLS has not gone on yet
            self._early += data
            return
        if self._left:
            return
        self._received += len(data)
        if self._lingering:
            if self._received > self.gate.limits.linger_bytes:
                self.end("refused body")
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Note what is awaited after an answer."""
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        """Note what is awaited now, after something arrived or was answered."""
        if self._left or self._lingering:
            return
        theirs = self.conn.their_state
        if theirs is h11.SEND_BODY:
            self._wait_for("body")
        elif theirs is h11.IDLE and self.timeout_keep_alive_task is None:
            self._wait_for("header")  # of which something has arrived
        else:
            self._stop_waiting()

    def _wait_for(self, phase: str) -> None:
        if phase == self._phase:
            return  # more of the same does not buy more time
        self._stop_waiting()
        self._phase = phase
        if phase == "header":
            self._timer = self.loop.call_later(
                self.gate.limits.header_seconds, self.end, "slow header"
            )
        else:
            self._counted = self._received
            self._timer = self.loop.call_later(self.gate.limits.body_seconds, self._look_at_body)

    def _stop_waiting(self) -> None:
        self._phase = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at_body(self) -> None:
        """End a body that is not signed in and still arrives, or that arrives too slowly."""
        limits = self.gate.limits
        arrived, self._counted = self._received - self._counted, self._received
        enough = arrived >= limits.bytes_per_second * limits.body_seconds
        # Where reading is paused, the sender waits for us.
        if self._identified and (enough or self.flow.read_paused):
            self._timer = self.loop.call_later(limits.body_seconds, self._look_at_body)
        else:
            self.end("slow body")

    # Answers ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Watch the receiver of an answer that is larger than the buffers."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Stop watching the receiver, which has read enough."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_reader(self) -> None:
        """Look again later whether the receiver has read enough of what waits to be sent."""
        self._unsent = self._unsent_now()
        if self._write_timer is not None:
            self._write_timer.cancel()
        later = self.gate.limits.body_seconds
        self._write_timer = self.loop.call_later(later, self._look_at_reader)

    def _unsent_now(self) -> int:
        assert self._raw is not None
        own = self.transport.get_write_buffer_size()
        # Under TLS, what is encrypted already waits in the transport below.
        return own + (0 if self.gate.tls is None else self._raw.get_write_buffer_size())

    def _look_at_reader(self) -> None:
        limits = self.gate.limits
        read = self._unsent - self._unsent_now()
        if read < limits.bytes_per_second * limits.body_seconds:
            self.end("slow reader")
        else:
            self._watch_reader()

    def closing(self) -> None:
        """Watch the rest of an answer after the transport was told to close."""
        if not self._left and self._unsent_now() and self._write_timer is None:
            self._watch_reader()

    # Refused bodies ---------------------------------------------------------------------------

    def linger(self, transport: asyncio.Transport) -> None:
        """Close after an answer to a body that was not read, so that its sender sees the answer.

        A socket that is closed with unread bytes resets the connection, and the answer is lost.
        """
        self._stop_waiting()
        self._lingering, self._received = True, 0
        if transport.can_write_eof():
            with contextlib.suppress(OSError):
                transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(
            self.gate.limits.header_seconds, self.end, "refused body"
        )

    @property
    def unread_body(self) -> bool:
        """Whether a body still arrives."""
        return self.conn.their_state is h11.SEND_BODY


class _LingeringTransport:
    """A transport that, when closed while a body still arrives, reads on for a moment."""

    def __init__(self, transport: asyncio.Transport, protocol: GuardedProtocol) -> None:
        self._transport, self._protocol = transport, protocol
        self._closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether it is closed, or will be after a moment."""
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        """Close it, at once unless a body still arrives."""
        if self._closing:
            return
        self._closing = True
        if self._protocol.unread_body and not self._transport.is_closing():
            self._protocol.linger(self._transport)
        else:
            self._transport.close()
            self._protocol.closing()


def _with_certificate(app: ASGIApp, fingerprint: str) -> ASGIApp:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {**scope.get("extensions", {}), TLS_EXTENSION: fingerprint}
        await app({**scope, "extensions": extensions}, receive, send)

    return application
