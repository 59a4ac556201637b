"""Who is asking, and whether it may."""

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request
from fastapi.security import APIKeyCookie, HTTPBearer

from fedegoists.coordinator.domain.access import (
    Principal,
    authenticate,
    authenticate_certificate,
    csrf_token,
)
from fedegoists.coordinator.service.state import Service, service_of

__all__ = [
    "COOKIE",
    "KNOWN",
    "TLS_EXTENSION",
    "WRONG",
    "AManager",
    "AMember",
    "AMonitor",
    "Asker",
    "TheService",
    "asker_of",
    "bearer_token",
    "check_origin",
    "shown_certificate",
]

COOKIE = "fedegoists_session"
TLS_EXTENSION = "fedegoists.client_certificate"
"""Under which name the server tells the SHA-256 of the client certificate of a connection."""

WRONG = "fedegoists.wrong"
"""Under which name a request's scope tells that it came with a token or session not known here."""

KNOWN = "fedegoists.known"
"""Under which name a request's scope tells that its token or session is somebody's."""

SAFE = ("GET", "HEAD", "OPTIONS")

bearer = HTTPBearer(auto_error=False, description="A token, as accepting an invitation gives it.")
cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="A browser's session.")

TheService = Annotated[Service, Depends(service_of)]


@dataclass(frozen=True)
class Asker:
    """Somebody known, and what its forms must send along."""

    principal: Principal
    csrf: str | None

    @property
    def actor(self) -> str:
        """How the audit log calls it."""
        return self.principal.actor


def check_origin(request: Request) -> None:
    """Refuse a form that another site sent, as far as the browser tells."""
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") or (
        origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise HTTPException(403, "this came from another site")


def shown_certificate(request: Request) -> str | None:
    """Return the SHA-256 of the client certificate that the connection has shown, if any."""
    found: str | None = request.scope.get("extensions", {}).get(TLS_EXTENSION)
    return found


def bearer_token(authorization: str) -> str | None:
    """Return the token in an ``Authorization`` header, however it is spelled.

    Examples
    --------
    >>> bearer_token("bearer   fe-token-x"), bearer_token("Basic x")
    ('fe-token-x', None)
    """
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def asker_of(request: Request, csrf: str | None = None) -> Asker | None:
    """Return who is asking by token, session or client certificate, if anybody known.

    `csrf` is what a form sent along; scripts send it in the header ``X-CSRF-Token``.
    """
    service = service_of(request)
    token = bearer_token(request.headers.get("authorization", ""))
    secret = request.cookies.get(COOKIE)
    fingerprint = shown_certificate(request)
    with service.store.read() as session:
        if token is not None:
            found = authenticate(service.store, session, token, ("token",))
            request.scope[WRONG], request.scope[KNOWN] = found is None, found is not None
            return None if found is None else Asker(found, None)
        if secret:
            found = authenticate(service.store, session, secret, ("session",))
            if found is not None:
                request.scope[KNOWN] = True
                expected = csrf_token(secret)
                if request.method not in SAFE:
                    check_origin(request)
                    if (csrf or request.headers.get("x-csrf-token")) != expected:
                        raise HTTPException(403, "the form is out of date; load the page again")
                return Asker(found, expected)
        if fingerprint:
            found = authenticate_certificate(service.store, session, fingerprint)
            if found is not None:
                if request.method not in SAFE:
                    check_origin(request)
                return Asker(found, None)
    request.scope[WRONG] = bool(secret)
    return None


def _required(request: Request) -> Asker:
    found = asker_of(request)
    if found is None:
        raise HTTPException(401, "a valid token is needed", {"WWW-Authenticate": "Bearer"})
    return found


def _with_role(*roles: str) -> Any:
    def check(
        request: Request,
        _bearer: Annotated[object, Depends(bearer)],
        _cookie: Annotated[object, Depends(cookie)],
    ) -> Asker:
        found = _required(request)
        if found.principal.role not in roles:
            raise HTTPException(403, f"this is for a {' or a '.join(roles)}")
        return found

    return Depends(check)


AManager = Annotated[Asker, _with_role("manager")]
AMember = Annotated[Asker, _with_role("member")]
AMonitor = Annotated[Asker, _with_role("manager", "monitor")]
