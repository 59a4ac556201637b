"""A page that describes the HTTP interface to those who are signed in.

It is made from the interface's own description, without scripts from other sites.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request, Response

from fedegoists.coordinator.domain.accounts import AccountRole
from fedegoists.coordinator.service.rendering import page
from fedegoists.coordinator.service.request_identity import AnyPage

router = APIRouter(include_in_schema=False)

Schema = Mapping[str, Any]

PARTS: dict[str, tuple[str, tuple[AccountRole, ...]]] = {
    "member": ("For members", ("member", "manager")),
    "manager": ("For managers: consortia, members and decisions", ("manager",)),
    "runs": ("For managers: runs", ("manager",)),
    "operations": ("For operation", ("member", "manager", "monitor")),
}
"""Headings by tag, and the roles that are shown the routes."""


@dataclass(frozen=True)
class ApiField:
    """A parameter, or a field of a body or an answer."""

    name: str
    kind: str
    required: bool


@dataclass(frozen=True)
class ApiRoute:
    """One route: what it does, what it takes, and what it answers."""

    method: str
    path: str
    words: list[str]
    parameters: list[ApiField]
    body: list[ApiField]
    answer: str
    answered: list[ApiField]


@router.get("/docs")
def api_page(request: Request, caller: AnyPage) -> Response:
    """Describe the interface, as far as it is for the caller's role."""
    parts = api_parts(request.app, caller.principal.role)
    return page(request, "api.html.j2", caller, parts=parts)


def api_parts(app: FastAPI, role: AccountRole) -> dict[str, list[ApiRoute]]:
    """Return the routes that a role may use, by heading."""
    described = app.openapi()
    parts: dict[str, list[ApiRoute]] = {
        heading: [] for heading, roles in PARTS.values() if role in roles
    }
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            heading = PARTS[operation["tags"][0]][0]
            if heading in parts:
                parts[heading].append(_route(described, method.upper(), path, operation))
    return {heading: found for heading, found in parts.items() if found}


def _route(described: Schema, method: str, path: str, operation: Schema) -> ApiRoute:
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema", {})
    answers = operation["responses"]
    good = next(answers[status] for status in ("200", "201", "204") if status in answers)
    answer = good.get("content", {}).get("application/json", {}).get("schema", {})
    text = operation.get("description") or operation.get("summary", "")
    return ApiRoute(
        method=method,
        path=path,
        words=[" ".join(part.split()) for part in text.split("\n\n")],
        parameters=[
            ApiField(one["name"], kind_words(one["schema"]), one.get("required", False))
            for one in operation.get("parameters", [])
            if one["in"] in ("path", "query")
        ],
        body=_fields(described, body),
        answer=kind_words(answer) if answer else "",
        answered=_fields(described, answer.get("items", answer)),
    )


def _fields(described: Schema, schema: Schema) -> list[ApiField]:
    """Return the fields of an object, or none if the schema is of something else."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = described["components"]["schemas"][name]
    needed = schema.get("required", [])
    return [
        ApiField(name, kind_words(one), name in needed)
        for name, one in schema.get("properties", {}).items()
    ]


def kind_words(schema: Schema) -> str:
    """Return a JSON schema in a few words.

    Examples
    --------
    >>> kind_words({"type": "array", "items": {"type": "string"}})
    'list of text'
    >>> kind_words({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    'whole number or null'
    """
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2].removesuffix("View").removesuffix("Body")
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(kind_words(one) for one in schema[several]))
    if "enum" in schema or "const" in schema:
        return " or ".join(json.dumps(one) for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array" and "prefixItems" in schema:
        return f"[{', '.join(kind_words(one) for one in schema['prefixItems'])}]"
    if kind == "array":
        return f"list of {kind_words(cast('Schema', schema.get('items', {})))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"{kind_words(schema['additionalProperties'])} by name"
    names = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    return names.get(str(kind), str(kind or "anything"))
