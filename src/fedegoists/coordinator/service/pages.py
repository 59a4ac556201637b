"""Pages for people. Whatever can be done on them can be done through the interface too."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Form, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles

from fedegoists.coordinator import web
from fedegoists.coordinator.coordinator_errors import NotAllowedError
from fedegoists.coordinator.domain import access
from fedegoists.coordinator.service import log_api, manager_pages, member_pages
from fedegoists.coordinator.service.identity import COOKIE, Asker, asker_of, check_origin
from fedegoists.coordinator.service.rendering import base_style, page, see_other
from fedegoists.coordinator.service.state import service_of

__all__ = ["add_to", "error_page"]

router = APIRouter(include_in_schema=False)

STATIC = Path(web.__file__).parent / "static"

Field = Annotated[str, Form(max_length=300)]


def add_to(app: FastAPI) -> None:
    """Add all pages, and the files they need, to the application."""
    for own in (router, manager_pages.router, member_pages.router, log_api.pages):
        app.include_router(own)
    app.mount("/static", StaticFiles(directory=STATIC))


def error_page(request: Request, status: int, detail: str) -> Response:
    """Return a page that says what went wrong."""
    if status == 303:
        return see_other("/login")
    return page(request, "error.html.j2", None, status=status, code=status, detail=detail)


@router.get("/static/base.css")
def base_css() -> Response:
    """Return the style that pages share with reports."""
    return Response(base_style(), media_type="text/css")


@router.get("/")
def home(request: Request) -> RedirectResponse:
    """Send everybody to where it belongs."""
    found = asker_of(request)
    if found is None:
        return see_other("/login")
    return see_other(
        {"member": "/member", "manager": "/consortia"}.get(found.principal.role, "/login")
    )


@router.get("/login")
def login(request: Request) -> Response:
    """Ask for a token or an invitation."""
    return page(request, "login.html.j2", None, wrong=None)


@router.post("/login")
def sign_in(request: Request, secret: Field) -> Response:
    """Begin a session; an invitation is exchanged for a token, which is shown once."""
    check_origin(request)
    service, secret = service_of(request), secret.strip()
    token: str | None = None
    try:
        with service.store.write() as session:
            if secret.startswith("fe-invitation-"):
                principal, token = access.accept_invitation(service.store, session, secret)
            else:
                found = access.authenticate(service.store, session, secret, ("token",))
                if found is None:
                    raise NotAllowedError("this is no token that is known here")
                principal = found
            opened = access.open_session(service.store, session, principal)
    except NotAllowedError as error:
        return page(request, "login.html.j2", None, status=401, wrong=str(error))
    if token is None:
        response: Response = see_other("/")
    else:
        asker = Asker(principal, access.csrf_token(opened))
        response = page(request, "token.html.j2", asker, token=token)
    response.set_cookie(
        COOKIE,
        opened,
        max_age=access.SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.post("/logout")
def sign_out(request: Request, csrf: Field) -> Response:
    """End a session."""
    service = service_of(request)
    if asker_of(request, csrf) is not None:
        with service.store.write() as session:
            access.close_session(service.store, session, request.cookies.get(COOKIE, ""))
    response = see_other("/login")
    response.delete_cookie(COOKIE)
    return response
