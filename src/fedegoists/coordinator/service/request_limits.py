"""Limits of rate and size, and security headers, around the whole application."""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from fastapi import Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedegoists.coordinator.service.coordinator_service import Service
from fedegoists.coordinator.service.request_bodies import (
    SECRETS_IN_BODY,
    has_body,
    largest_body,
)
from fedegoists.coordinator.service.request_identity import (
    KNOWN,
    WRONG,
    bearer_token,
    cookie_name,
    principal_of,
)
from fedegoists.coordinator.service.sender_address import address_group

log = logging.getLogger("fedegoists.coordinator")

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
TOO_LARGE = "the request is too large"
TWO_YEARS = 63_072_000
MAX_BUCKETS = 10_000


class TokenBuckets:
    """A token bucket for each of many callers, which refills steadily up to `most`.

    By default, `most` is the refill of ten seconds.

    Examples
    --------
    >>> buckets = TokenBuckets(60, clock=lambda: 0.0)
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

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def left(self, key: str) -> float:
        """Return the tokens left in a bucket."""
        amount, at = self._left.get(key, (self.most, 0.0))
        return min(self.most, amount + (self.clock() - at) * self.rate)

    def take(self, key: str) -> bool:
        """Take one from a bucket; return False if there is none left."""
        left = self.left(key)
        self.keep(key, left - 1 if left >= 1 else left)
        return left >= 1

    def keep(self, key: str, amount: float) -> None:
        """Set the tokens left in a bucket; the least recently used buckets are dropped."""
        self._left[key] = (amount, self.clock())
        self._left.move_to_end(key)
        while len(self._left) > MAX_BUCKETS:
            self._left.popitem(last=False)

    def remove(self, key: str) -> None:
        """Remove a bucket, if it exists."""
        self._left.pop(key, None)


class RequestLimits:
    """ASGI middleware that refuses requests beyond the limits, and counts all others."""

    def __init__(
        self, app: ASGIApp, service: Service, unexpected: Callable[[Request, Exception], Response]
    ) -> None:
        self.app, self.service, self.unexpected = app, service, unexpected
        limits, clock = service.limits, service.clock
        per_minute, failures = limits.requests_per_minute, limits.failures_per_minute
        # Only valid tokens and sessions have a bucket of their own.
        self.known = TokenBuckets(per_minute, clock=clock)
        self.unknown = TokenBuckets(per_minute / 5, clock=clock)
        self.addresses = TokenBuckets(per_minute * 20, clock=clock)  # however many tokens it tries
        self.failures = TokenBuckets(failures, most=failures, clock=clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = Headers(scope=scope)
        address = address_group((scope.get("client") or ("unknown", 0))[0])
        secret = _secret(headers, scope.get("scheme", "http"))
        metrics = self.service.metrics
        started, unread = False, has_body(headers)

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._dress(scope, message)
                status = message["status"]
                # The connection goes on neither with the body, nor with thousands of requests
                # that were sent at once.
                if unread or status == 429:
                    MutableHeaders(scope=message)["Connection"] = "close"
                if status == 401 or scope.get(WRONG):  # pages redirect instead of 401
                    self.failures.take(address)
                if secret is not None and scope.get(WRONG):
                    self.known.remove(secret)  # it has ended since
                if secret is not None and scope.get(KNOWN):
                    self.known.keep(secret, self.known.left(secret))
                route = getattr(scope.get("route"), "path", "other")
                # Any text can be sent as a method, and each would be kept for ever.
                method = scope["method"] if scope["method"] in METHODS else "other"
                metrics.requests.labels(method, route, str(status)).inc()
                seconds = time.perf_counter() - began
                metrics.seconds.labels(route).observe(seconds)
                # The route, not the path itself, which may name a member.
                kind = {"kind": f"{method} {route} {status}"}
                log.info("%s %s %s %.0f ms", method, route, status, seconds * 1e3, extra=kind)
            await send(message)

        refusal: Response | None = self._refusal(scope["path"], headers, address, secret)
        left = self.service.limits.body_bytes
        if refusal is None and unread:
            allowed = await self._allowed(scope)
            left = allowed if isinstance(allowed, int) else 0
            refusal = None if isinstance(allowed, int) else allowed
        if refusal is not None:
            metrics.refused.labels(str(refusal.status_code)).inc()
            await refusal(scope, receive, answer)
            return

        async def counted() -> Message:
            """Count the bytes of the body, whatever the header said."""
            nonlocal left, unread
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, TOO_LARGE)
            unread = unread and bool(message.get("more_body", False))
            return message

        try:
            await self.app(scope, counted, answer)
        except Exception as error:
            response = self.unexpected(Request(scope), error)
            if started:
                raise  # too late for another answer; the server closes the connection
            await response(scope, receive, answer)

    async def _allowed(self, scope: Scope) -> int | Response:
        """Return how many bytes of the body may be read, or the refusal to read any."""
        request, path = Request(scope), scope["path"]
        found = None
        if path not in SECRETS_IN_BODY:
            try:
                found = await run_in_threadpool(principal_of, request)
            except Exception as error:  # such as of the database
                return self.unexpected(request, error)
            if found is None and path.startswith("/api/"):
                needed = {"WWW-Authenticate": "Bearer"}
                return _said(401, "a valid token is needed", needed)
            if found is None:
                return RedirectResponse("/login", 303)
        most = largest_body(path, found, self.service.limits.body_bytes)
        # Its length was checked to be a number.
        if int(request.headers.get("content-length", "0")) > most:
            return _said(413, TOO_LARGE)
        return most

    def _refusal(
        self, path: str, headers: Headers, address: str, secret: str | None
    ) -> JSONResponse | None:
        known = secret is not None and secret in self.known
        # Invented tokens share the limit of their address, and do not lock out valid ones from
        # the same address, such as behind one proxy.
        if self.failures.left(address) < 1 and (not known or path in SECRETS_IN_BODY):
            return _said(429, "too many wrong tokens; wait a minute", {"Retry-After": "60"})
        allowed = self.known.take(str(secret)) if known else self.unknown.take(address)
        if not (allowed and self.addresses.take(address)):
            return _said(429, "too many requests; wait a moment", {"Retry-After": "10"})
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.service.limits.body_bytes:
            return _said(413, TOO_LARGE)
        return None

    @staticmethod
    def _dress(scope: Scope, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        if scope.get("scheme") == "https":
            headers.setdefault("Strict-Transport-Security", f"max-age={TWO_YEARS}")


def _secret(headers: Headers, scheme: str) -> str | None:
    """Return a hash of a request's token or session.

    It is of the secret itself, not of the header, which can be written in many ways.
    """
    secret = bearer_token(headers.get("authorization", ""))
    if secret is None:
        secret = cookie_parser(headers.get("cookie", "")).get(cookie_name(scheme))
    return hashlib.sha256(secret.encode()).hexdigest() if secret else None


def _said(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers)
