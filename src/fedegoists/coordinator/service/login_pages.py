"""Pages to sign in and out, and the files that all pages need."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Form, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from pydantic import StringConstraints

from fedegoists.coordinator import web
from fedegoists.coordinator.coordinator_errors import NotAllowedError
from fedegoists.coordinator.domain import accounts
from fedegoists.coordinator.service import api_pages, manager_pages, member_pages
from fedegoists.coordinator.service.api_schemas import InvitationView
from fedegoists.coordinator.service.fresh_secrets import OWN_TOKEN
from fedegoists.coordinator.service.rendering import base_style, page, see_other
from fedegoists.coordinator.service.request_identity import (
    SubmittedForm,
    TheService,
    caller_of,
    check_origin,
    cookie_name,
    known_caller,
    session_secret,
)
from fedegoists.coordinator.store import Transaction

router = APIRouter(include_in_schema=False)

Field = Annotated[str, Form(max_length=300), StringConstraints(strip_whitespace=True)]

STATIC = Path(web.__file__).parent / "static"


def add_pages(app: FastAPI) -> None:
    """Add all pages, and the files they need, to the application."""
    for own in (router, api_pages.router, manager_pages.router, member_pages.router):
        app.include_router(own)
    app.mount("/static", StaticFiles(directory=STATIC))


def error_page(request: Request, status: int, detail: str) -> Response:
    """Return a page with an error, or the login instead of a missing session."""
    if status == 303:
        return see_other("/login")
    caller = known_caller(request)
    if isinstance(caller, SubmittedForm) and status < 500:
        managing = caller.principal.role == "manager"
        again = manager_pages.page_again if managing else member_pages.page_again
        found = again(request, caller, status, detail)
        if found is not None:
            return found
    return page(request, "error.html.j2", caller, status=status, code=status, detail=detail)


@router.get("/static/base.css")
def base_css() -> Response:
    """Return the style that pages share with reports."""
    return Response(base_style(), media_type="text/css")


@router.get("/")
def home(request: Request) -> RedirectResponse:
    """Redirect to the first page of the caller's role."""
    found = caller_of(request)
    if found is None:
        return see_other("/login")
    found.service.fresh.clear((found.csrf or "", OWN_TOKEN))  # its reader has stored it
    return see_other(
        {"member": "/member", "manager": "/consortia"}.get(found.principal.role, "/login")
    )


@router.get("/login")
def login(request: Request) -> Response:
    """Ask for a token or an invitation."""
    return page(request, "login.html.j2", None, wrong=None)


@router.post("/login")
def sign_in(request: Request, secret: Field, service: TheService) -> Response:
    """Open a session; an invitation is exchanged for a token, which is shown once."""
    check_origin(request)
    token: str | None = None
    try:
        with service.store.read() as session:  # strangers must not keep others from writing
            _principal(session, secret)
        with service.store.write() as session:
            principal = _principal(session, secret)
            if principal.kind == "invitation":
                principal, token = accounts.accept_invitation(session, secret)
            opened = accounts.open_session(session, principal)
    except NotAllowedError as error:
        return page(request, "login.html.j2", None, status=401, wrong=str(error))
    if token is not None:
        shown = InvitationView(label=principal.label, invitation=token)
        service.fresh.add((accounts.csrf_token(opened), OWN_TOKEN), [shown])
    response = see_other("/" if token is None else "/token")
    response.set_cookie(
        cookie_name(request.url.scheme),
        opened,
        max_age=accounts.SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.get("/token")
def token_page(request: Request) -> Response:
    """Show the token that an invitation has become; the page can be loaded again for a while."""
    found = caller_of(request)
    shown = [] if found is None else found.service.fresh.of((found.csrf or "", OWN_TOKEN))
    if not shown:
        return see_other("/")
    return page(request, "token.html.j2", found, token=shown[0].invitation)


def _principal(session: Transaction, secret: str) -> accounts.Principal:
    if secret.startswith("fe-invitation-"):
        return accounts.check_invitation(session, secret)
    found = accounts.authenticate(session, secret, "token")
    if found is None:
        raise NotAllowedError("this token is not known here")
    return found


@router.post("/logout")
def sign_out(request: Request, csrf: Field, service: TheService) -> Response:
    """Close a session."""
    if caller_of(request, csrf) is not None:
        with service.store.write() as session:
            accounts.close_session(session, session_secret(request))
    response = see_other("/login")
    response.delete_cookie(
        cookie_name(request.url.scheme), secure=request.url.scheme == "https", httponly=True
    )
    return response
