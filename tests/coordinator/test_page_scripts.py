"""Pages find their scripts, and all of these are our own."""

import re

from fedegoists.coordinator.service.login_pages import STATIC
from tests.coordinator.served import inside


def test_scripts_of_pages_are_served(sqlite_store, tmp_path):
    wanted = {
        address
        for template in (STATIC.parent / "templates").glob("*.j2")
        for address in re.findall(r'<script src="([^"]+)"', template.read_text())
    }
    assert {f"/static/{path.name}" for path in STATIC.rglob("*.js")} == wanted
    with inside(sqlite_store, tmp_path) as (client, _):
        for address in wanted:
            assert client.get(address).status_code == 200
