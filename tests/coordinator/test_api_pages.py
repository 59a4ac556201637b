"""The page about the HTTP interface: behind the login, complete, and by role."""

import html

import pytest

from fedegoists.coordinator.service.api_pages import PARTS
from tests.coordinator.served import founded, signed_in


@pytest.mark.parametrize("role", ["manager", "member"])
def test_every_route_is_described_to_those_who_may_use_it(served, role):
    client, manager = served
    _, tokens = founded(client, manager)
    client.cookies.clear()
    assert client.get("/docs").headers["location"] == "/login"
    signed_in(client, manager if role == "manager" else tokens["North"])
    page = html.unescape(client.get("/docs").text)
    described = client.get("/openapi.json").json()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            tag = operation["tags"][0]
            shown = f"<strong>{method.upper()}</strong> {path}<" in page
            assert shown == (role in PARTS[tag][1]), (method, path)
    assert "<code>finished</code>" in page
    assert "list of text" in page
