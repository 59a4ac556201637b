"""Authentication of requests: the caller, its role, and its forms."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyCookie, HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from fedegoists.coordinator.domain.accounts import (
    AccountRole,
    Principal,
    authenticate,
    authenticate_certificate,
    csrf_token,
)
from fedegoists.coordinator.service.coordinator_service import Service, service_of
from fedegoists.graphs.participants import MAX_PARTICIPANTS

COOKIE = "fedegoists_session"
SECURE_PREFIX = "__Host-"
"""Over HTTPS, before the cookie's name: then no other host of the same domain can set it."""

TLS_EXTENSION = "fedegoists.client_certificate"
"""Key of the ASGI extension with the SHA-256 of the connection's client certificate."""

WRONG = "fedegoists.wrong"
"""Key in a request's scope: whether it came with an unknown token or session."""

KNOWN = "fedegoists.known"
"""Key in a request's scope: whether its token or session is valid."""

IDENTIFIED = "fedegoists.identified"
"""Key in the state of a request's scope: whether it is signed in, as its header shows."""

CALLER = "fedegoists.caller"
"""Key in a request's scope: the caller of a page, or the form that it sent."""

SAFE = ("GET", "HEAD", "OPTIONS")

bearer = HTTPBearer(auto_error=False, description="A token, as accepting an invitation gives it.")
cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="A browser's session.")

TheService = Annotated[Service, Depends(service_of)]
Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True)
class Caller:
    """The authenticated sender of a request to a service, and the CSRF token of its forms."""

    service: Service
    principal: Principal
    csrf: str | None

    @property
    def actor(self) -> str:
        """Its name in the audit log."""
        return self.principal.actor


def cookie_name(scheme: str) -> str:
    """Return the name of the session's cookie.

    A session that another host has set would be the session of another account, to which a member
    would report its competitors unknowingly.

    Examples
    --------
    >>> cookie_name("http"), cookie_name("https")
    ('fedegoists_session', '__Host-fedegoists_session')
    """
    return SECURE_PREFIX + COOKIE if scheme == "https" else COOKIE


def session_secret(request: Request) -> str:
    """Return the secret of a browser's session, or an empty text."""
    return request.cookies.get(cookie_name(request.url.scheme), "")


def check_origin(request: Request) -> None:
    """Refuse a form that another site sent, as far as the browser tells."""
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") or (
        origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise HTTPException(403, "this came from another site")


def shown_certificate(request: Request) -> str | None:
    """Return the SHA-256 of the connection's client certificate, if it has one."""
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


def principal_of(request: Request) -> Principal | None:
    """Return the account of a request's token, session or client certificate, if it has one.

    Only the header is looked at.
    """
    token = bearer_token(request.headers.get("authorization", ""))
    secret = session_secret(request)
    fingerprint = shown_certificate(request)
    found: Principal | None = None
    with service_of(request).store.read() as session:
        if token is not None:
            found = authenticate(session, token, "token")
        elif secret:
            found = authenticate(session, secret, "session")
        if found is None and token is None and fingerprint:
            found = authenticate_certificate(session, fingerprint)
    request.scope[WRONG] = found is None and (token is not None or bool(secret))
    # Shared with the connection, which is more patient with those who are signed in.
    request.scope.setdefault("state", {})[IDENTIFIED] = found is not None
    request.scope[KNOWN] = found is not None and found.kind != "certificate"
    return found


def caller_of(request: Request, csrf: str | None = None) -> Caller | None:
    """Return the caller by its token, session or client certificate; None if it has none.

    `csrf` is the token that a form sent; scripts send it in the header ``X-CSRF-Token``.
    """
    found = principal_of(request)
    if found is None:
        return None
    service, expected = service_of(request), None
    # A browser adds cookies and certificates by itself, also to requests of other sites.
    if found.kind != "token" and request.method not in SAFE:
        check_origin(request)
    if found.kind == "session":
        expected = csrf_token(session_secret(request))
        given = csrf or request.headers.get("x-csrf-token") or ""
        if request.method not in SAFE and not _same(given, expected):
            raise HTTPException(403, "the form is out of date; load the page again")
    return Caller(service, found, expected)


def _same(one: str, other: str) -> bool:
    """Whether two texts are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())


def _for_api(*roles: AccountRole) -> Any:
    def check(
        request: Request,
        _bearer: Annotated[object, Depends(bearer)],
        _cookie: Annotated[object, Depends(cookie)],
    ) -> Caller:
        found = caller_of(request)
        if found is None:
            raise HTTPException(401, "a valid token is needed", {"WWW-Authenticate": "Bearer"})
        if found.principal.role not in roles:
            raise HTTPException(403, f"this is for a {' or a '.join(roles)}")
        return found

    return Depends(check)


AManager = Annotated[Caller, _for_api("manager")]
AMember = Annotated[Caller, _for_api("member")]
AMonitor = Annotated[Caller, _for_api("manager", "monitor")]


def _signed_in(request: Request, roles: Sequence[AccountRole], csrf: str | None = None) -> Caller:
    """Return the caller of a page; without a session it is sent to the login."""
    found = caller_of(request, csrf)
    if found is None:
        raise HTTPException(303, "sign in first", {"Location": "/login"})
    request.scope[CALLER] = found  # for the header of an error page
    if found.principal.role not in roles:
        raise HTTPException(403, f"this page is for a {' or a '.join(roles)}")
    return found


def known_caller(request: Request) -> Caller | None:
    """Return the caller, or the form it sent, if the page's route has identified it."""
    found: Caller | None = request.scope.get(CALLER)
    return found


def _for_page(*roles: AccountRole) -> Any:
    def check(request: Request) -> Caller:
        return _signed_in(request, roles)

    return Depends(check)


@dataclass(frozen=True)
class SubmittedForm(Caller):
    """A submitted form, and the caller that it came from.

    Attributes
    ----------
    fields : mapping of str by name
        Of fields with the same name, the last.
    ticked : tuple of str
        Values of all ticked boxes, which have the name ``ticked``.
    """

    fields: Mapping[str, str]
    ticked: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> str:
        """Return a field, or an empty text."""
        return self.fields.get(name, "")

    def body(self, model: type[Body], *names: str, **more: object) -> Body:
        """Return fields, and more, as the body of an API request; empty ones take defaults.

        Raises
        ------
        RequestValidationError
            As the API's route would.
        """
        given = {**{name: self[name] for name in names}, **more}
        try:
            return model.model_validate({name: one for name, one in given.items() if one != ""})
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from None


def _for_form(role: AccountRole) -> Any:
    async def check(request: Request) -> SubmittedForm:
        # A box for each other member, and what else a form has.
        content = (await request.form(max_fields=MAX_PARTICIPANTS + 100)).multi_items()
        fields = {name: text.strip() for name, text in content if isinstance(text, str)}
        ticked = tuple(text for name, text in content if name == "ticked" and isinstance(text, str))
        caller = await run_in_threadpool(_signed_in, request, [role], fields.get("csrf"))
        form = SubmittedForm(caller.service, caller.principal, caller.csrf, fields, ticked)
        request.scope[CALLER] = form
        return form

    return Depends(check)


AnyPage = Annotated[Caller, _for_page("manager", "member", "monitor")]
ManagerPage = Annotated[Caller, _for_page("manager")]
ManagerForm = Annotated[SubmittedForm, _for_form("manager")]
MemberPage = Annotated[Caller, _for_page("member")]
MemberForm = Annotated[SubmittedForm, _for_form("member")]
