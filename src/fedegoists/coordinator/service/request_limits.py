"""What every request passes before anything looks at it: limits of rate and size, and headers."""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser

from fedegoists.coordinator.service.identity import COOKIE, KNOWN, WRONG, bearer_token
from fedegoists.coordinator.service.state import Service

__all__ = ["Buckets", "Guard"]

log = logging.getLogger("fedegoists.coordinator")

Scope = Any
Receive = Callable[[], Any]
Send = Callable[[Any], Any]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, forms would not say where they are from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
SECRETS_IN_BODY = ("/login", "/api/invitations/accept")
"""Where another secret is tried than the one a request comes with."""

TOO_LARGE = "the request is too large"
TWO_YEARS = 63_072_000
MAX_BUCKETS = 10_000


class Buckets:
    """How much each of many askers has left; it refills steadily up to `most`.

    Without `most`, that is what ten seconds bring.

    Examples
    --------
    >>> buckets = Buckets(60, clock=lambda: 0.0)
    >>> [buckets.take("a") for _ in range(11)].count(True), buckets.take("b")
    (10, True)
    """

    def __init__(
        self,
        per_minute: float,
        most: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = per_minute / 60
        self.most = max(1.0, 10 * self.rate if most is None else most)
        self.clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, key: str) -> float:
        """Return how much one has left."""
        amount, at = self._left.get(key, (self.most, 0.0))
        return min(self.most, amount + (self.clock() - at) * self.rate)

    def take(self, key: str) -> bool:
        """Take one, or return False if there is none."""
        left = self.left(key)
        allowed = left >= 1
        self._left[key] = (left - 1 if allowed else left, self.clock())
        self._left.move_to_end(key)
        while len(self._left) > MAX_BUCKETS:
            self._left.popitem(last=False)
        return allowed


class Guard:
    """An ASGI application around the service."""

    def __init__(
        self, app: Any, service: Service, unexpected: Callable[[Request, Exception], Response]
    ) -> None:
        self.app = app
        self.service = service
        self.unexpected = unexpected
        self.recognised: OrderedDict[str, None] = OrderedDict()
        limits = service.limits
        self.known = Buckets(limits.requests_per_minute)
        self.unknown = Buckets(limits.requests_per_minute / 5)
        self.addresses = Buckets(limits.requests_per_minute * 20)  # however many tokens it tries
        self.failures = Buckets(limits.failures_per_minute, most=limits.failures_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = Headers(scope=scope)
        address = (scope.get("client") or ("unknown", 0))[0]
        secret = _secret(headers)
        metrics = self.service.metrics
        started = False

        async def answer(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._dress(scope, message)
                status = message["status"]
                if status == 401 or scope.get(WRONG):  # pages send to the login instead of 401
                    self.failures.take(address)
                if scope.get(WRONG) and secret is not None:
                    self.recognised.pop(secret, None)  # it ended since it was recognised
                if scope.get(KNOWN) and secret is not None:
                    self._recognise(secret)
                route = getattr(scope.get("route"), "path", "other")
                # Anything can be sent as a method, and every new one would be kept for ever.
                method = scope["method"] if scope["method"] in METHODS else "other"
                metrics.requests.labels(method, route, str(status)).inc()
                seconds = time.perf_counter() - began
                metrics.seconds.labels(route).observe(seconds)
                # The route, not the address itself, which may name somebody.
                log.info("%s %s %s %.0f ms", method, route, status, seconds * 1e3)
            await send(message)

        refusal = self._refusal(scope["path"], headers, address, secret)
        if refusal is not None:
            metrics.refused.labels(str(refusal.status_code)).inc()
            await refusal(scope, receive, answer)
            return
        body = _Body(receive, self.service.limits.body_bytes)
        try:
            await self.app(scope, body.receive, answer)
        except Exception as error:
            response = self.unexpected(Request(scope), error)
            if started:
                raise  # too late to say anything else; the server closes the connection
            await response(scope, receive, answer)

    def _recognise(self, secret: str) -> None:
        """Remember that somebody has this token or session; only then has it a limit of its own."""
        self.recognised[secret] = None
        self.recognised.move_to_end(secret)
        while len(self.recognised) > MAX_BUCKETS:
            self.recognised.popitem(last=False)

    def _refusal(
        self, path: str, headers: Headers, address: str, secret: str | None
    ) -> JSONResponse | None:
        known = secret is not None and secret in self.recognised
        # Whoever invents tokens shares the limit of those who have none, and does not keep out
        # others at the same address, such as behind one proxy, who are known here.
        if self.failures.left(address) < 1 and (not known or path in SECRETS_IN_BODY):
            return _said(429, "too many wrong tokens; wait a minute", {"Retry-After": "60"})
        allowed = self.known.take(str(secret)) if known else self.unknown.take(address)
        if not (allowed and self.addresses.take(address)):
            return _said(429, "too many requests; wait a moment", {"Retry-After": "10"})
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.service.limits.body_bytes:
            return _said(413, TOO_LARGE)
        return None

    @staticmethod
    def _dress(scope: Scope, message: Any) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        if scope.get("scheme") == "https":
            headers.setdefault("Strict-Transport-Security", f"max-age={TWO_YEARS}")


class _Body:
    """Counts what comes in, whatever its length was said to be."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._left = receive, most

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise HTTPException(413, TOO_LARGE)
        return message


def _secret(headers: Headers) -> str | None:
    """Return a hash of the token or session that a request comes with.

    It is of the secret itself, not of the header: that can be written in many ways.
    """
    secret = bearer_token(headers.get("authorization", ""))
    if secret is None:
        secret = cookie_parser(headers.get("cookie", "")).get(COOKIE)
    return hashlib.sha256(secret.encode()).hexdigest() if secret else None


def _said(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers)
