"""The web application: its routes, and errors as responses."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from fedegoists.coordinator.coordinator_errors import (
    ConflictError,
    FullStoreError,
    NotAllowedError,
    NotFoundError,
    StoreError,
)
from fedegoists.coordinator.service import health, manager_api, member_api, runs_api
from fedegoists.coordinator.service.api_schemas import ErrorView
from fedegoists.coordinator.service.coordinator_service import Service
from fedegoists.coordinator.service.login_pages import add_pages, error_page
from fedegoists.coordinator.service.request_limits import RequestLimits
from fedegoists.errors import FedEgoistsError, FileError
from fedegoists.version import __version__

log = logging.getLogger("fedegoists.coordinator")

STATUS: tuple[tuple[type[FedEgoistsError], int], ...] = (
    (NotFoundError, 404),
    (ConflictError, 409),
    (NotAllowedError, 403),
    (FullStoreError, 507),
    (StoreError, 503),
    (FileError, 503),
    (FedEgoistsError, 422),
)

TROUBLE = {
    503: "the coordinator's database or files do not work; its log says more",
    507: "there is no room left on the coordinator's disk; nothing of this was kept",
}

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorView, "description": description}
    for status, description in {
        401: "no valid token",
        403: "not for this role",
        404: "does not exist, or is not for the caller",
        409: "conflicts with the current state",
        413: "too large",
        429: "too often",
        503: "the database does not answer",
        507: "the disk is full",
    }.items()
}


def create_app(service: Service) -> FastAPI:
    """Return the ASGI application over a service, which it starts and stops."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.queue.start()
        try:
            yield
        finally:
            service.stopping.set()
            service.queue.stop()
            service.decider.close()

    app = FastAPI(
        title="FedEgoists coordinator",
        version=__version__,
        description="Decides who trains with whom, in confidence.",
        lifespan=lifespan,
        docs_url=None,  # it would load scripts from another site
        redoc_url=None,
        redirect_slashes=False,  # it would redirect to the host that the request names
    )
    app.state.service = service
    for part in (health, member_api, manager_api, runs_api):
        app.include_router(part.router, responses=REFUSALS)
    add_pages(app)
    app.add_exception_handler(FedEgoistsError, _told)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(RequestLimits, service=service, unexpected=_unexpected)
    return app


def _told(request: Request, error: Exception) -> Response:
    status = next(code for kind, code in STATUS if isinstance(error, kind))
    if status < 500:
        return _answer(request, status, str(error))
    # Errors of the database or the disk may name files and machines, so members do not see them.
    log.error("%s: %s", type(error).__name__, error)
    return _answer(request, status, TROUBLE[status])


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(request, error.status_code, str(error.detail), dict(error.headers or {}))


def _invalid(request: Request, error: Exception) -> Response:
    """Return the errors of a request without its values, which may be secret."""
    assert isinstance(error, RequestValidationError)
    found = [
        {"loc": list(one["loc"]), "msg": one["msg"], "type": one["type"]} for one in error.errors()
    ]
    if request.url.path.startswith("/api/"):
        return JSONResponse({"detail": found}, 422)
    first = found[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    return _answer(request, 422, ": ".join([*map(str, first["loc"][-1:]), message]))


def _unexpected(request: Request, error: Exception) -> Response:
    if isinstance(error, FedEgoistsError):  # of the middleware, which has no other handler
        return _told(request, error)
    # Neither path nor body is logged: they may be confidential.
    log.error("unexpected %s", type(error).__name__, exc_info=error)
    return _answer(request, 500, "something went wrong here; the log says more")


def _answer(
    request: Request, status: int, detail: str, headers: dict[str, str] | None = None
) -> Response:
    if request.url.path.startswith(("/api/", "/health", "/metrics")):
        return JSONResponse({"detail": detail}, status, headers)
    return error_page(request, status, detail)
