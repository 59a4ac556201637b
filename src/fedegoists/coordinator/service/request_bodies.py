"""Bodies of requests: from whom they are read, and how large they may be.

Both are decided by the header alone, before anything of the body is read.
"""

import re
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers

from fedegoists.coordinator.domain.accounts import Principal

SECRETS_IN_BODY = ("/login", "/api/invitations/accept")
"""Paths whose body holds another secret than the request's header: anyone may send one."""

ANONYMOUS_BYTES = 4 * 1024
USUAL_BYTES = 64 * 1024
LIST_BYTES = 1024 * 1024

LISTS = re.compile(r"(/api/me|/member)/reports|/api/consortia/[0-9]+/formations/[0-9]+/what-if")
"""Paths whose body may be a list of many members."""

GRAPHS = re.compile(r"(/api)?/consortia/[0-9]+/benefit")
"""Paths whose body may be a benefit graph, from a manager."""

Model = TypeVar("Model", bound=BaseModel)


def has_body(headers: Headers) -> bool:
    """Whether a request announces a body.

    Examples
    --------
    >>> has_body(Headers({"content-length": "0"})), has_body(Headers({"content-length": "9"}))
    (False, True)
    """
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def largest_body(path: str, principal: Principal | None, graph_bytes: int) -> int:
    """Return how many bytes of a request's body are read.

    Examples
    --------
    >>> largest_body("/login", None, 10**7)
    4096
    >>> manager = Principal(1, "manager", "m", None, "token")
    >>> largest_body("/api/consortia/3/benefit", manager, 10**7)
    10000000
    """
    if path in SECRETS_IN_BODY:
        return min(ANONYMOUS_BYTES, graph_bytes)
    if principal is None:
        return 0
    if principal.role == "manager" and GRAPHS.fullmatch(path):
        return graph_bytes
    return min(LIST_BYTES if LISTS.fullmatch(path) else USUAL_BYTES, graph_bytes)


async def _content(request: Request) -> bytes:
    return await request.body()


LargeBody = Annotated[bytes, Depends(_content)]
"""A body that the route's own thread parses: the event loop answers others meanwhile."""


def parsed(model: type[Model], content: bytes) -> Model:
    """Return a body of JSON as a model.

    Raises
    ------
    RequestValidationError
        As for a body that FastAPI parses.
    """
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError(
            [{**one, "loc": ("body", *one["loc"])} for one in found]
        ) from None


def described_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the description of a body, for the interface's description."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}
