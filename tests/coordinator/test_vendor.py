"""What others wrote is in the package as they published it, and its pages find it."""

import hashlib
import re

from fedegoists.coordinator.service.login_pages import STATIC
from tests.coordinator.served import inside

VENDOR = STATIC / "vendor"


def test_every_vendored_script_has_the_hash_that_is_written_down():
    told = dict(re.findall(r"^\| `([^`]+)` .* `([0-9a-f]{64})` \|$", _readme(), re.MULTILINE))
    scripts = {path.name for path in VENDOR.glob("*.js")}
    assert told.keys() == scripts == {"cytoscape.min.js"}
    for name, expected in told.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == expected
        assert (VENDOR / f"{name.split('.')[0]}.LICENSE.txt").is_file()


def test_scripts_of_pages_are_served(sqlite_store, tmp_path):
    wanted = {
        address
        for template in (STATIC.parent / "templates").glob("*.j2")
        for address in re.findall(r'<script src="([^"]+)"', template.read_text())
    }
    assert "/static/vendor/cytoscape.min.js" in wanted
    with inside(sqlite_store, tmp_path) as (client, _):
        for address in wanted:
            assert client.get(address).status_code == 200


def _readme() -> str:
    return (VENDOR / "README.md").read_text()
