"""The picture as a browser draws it, for many random decisions and for large ones."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from fedegoists import BenefitGraph, CompetitionGraph, coordinator, form
from fedegoists.coalitions.drawing.scene import formation_scene
from fedegoists.coordinator.service.rendering import base_style
from tests.coalitions.drawing.test_scene import decision
from tests.coordinator.browsing import PATIENCE, looked_at, opened_browser

pytestmark = pytest.mark.slow

browser = opened_browser

STATIC = Path(coordinator.__file__).parent / "web" / "static"

DECISIONS, MOST_MEMBERS = 500, 40
WORDS = [
    "North",
    "Saint Mary's",
    "WWWWWW",
    "illicit",
    "MÜNCHEN",
    "東京大学病院",
    "a",
    "Credit & Loan",
]

MEASURE = (Path(__file__).parent / "measure_scenes.js").read_text()


def random_decision(rng):
    n = 1 + int(MOST_MEMBERS * rng.random() ** 3)  # few are large: these take most of the time
    names = [f"{WORDS[int(rng.integers(len(WORDS)))]} {k}" for k in range(n)]
    weights = np.where(rng.random((n, n)) < rng.random(), rng.random((n, n)), 0)
    np.fill_diagonal(weights, 0)
    upper = np.triu(rng.random((n, n)) < 0.6 * rng.random(), k=1)
    competition = CompetitionGraph.from_numpy(upper | upper.T, names)
    return form(BenefitGraph(weights, names), competition, "stable")


def shown(browser, body, told=None):
    """A page with the picture's scripts and styles."""
    context = browser.new_context(base_url="http://coordinator.test", accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    style = "".join(f'<link rel="stylesheet" href="/{name}.css">' for name in ("base", "static"))
    scripts = "".join(
        f'<script src="/{name}.js"></script>' for name in ("page", "scene", "picture")
    )
    html = f"<!DOCTYPE html>{style}{body}{scripts}"

    def answer(route):
        name = route.request.url.split("/")[-1].split("?")[0]
        if name == "page":
            route.fulfill(content_type="text/html", body=html)
        elif name == "picture.json":
            route.fulfill(json=told)
        elif name == "base.css":
            route.fulfill(content_type="text/css", body=base_style())
        else:
            route.fulfill(path=STATIC / {"static.css": "coordinator.css"}.get(name, name))

    page.route("**/*", answer)
    page.goto("/page")
    return page


@pytest.mark.parametrize("portrait", [False, True])
def test_lines_regions_and_labels_of_random_decisions(browser, portrait):
    """No line nearer to a third member than its dot; no overlap of coalitions or labels."""
    page = shown(browser, '<svg id="picture"></svg>')
    rng = np.random.default_rng(int(portrait))
    for _ in range(DECISIONS // 2 // 25):
        decisions = [random_decision(rng) for _ in range(25)]
        scenes = [asdict(formation_scene(one, portrait=portrait)) for one in decisions]
        for found in page.evaluate(MEASURE, scenes):
            assert (found["line"] or 9) >= 1, found  # infinite numbers arrive as None
            for name in ("regions", "labels", "dots", "inside"):
                assert (found[name] is None) or found[name] >= -0.5, found
    page.context.close()


@pytest.mark.parametrize("size", [6, 30, 100, 300])
def test_the_picture_as_it_is_drawn(browser, size, tmp_path):
    """Large consortia begin with a map of their coalitions, and all members can be found."""
    formation = decision(size, 0.3 if size < 50 else 0.05, 0.2 if size < 50 else 0.02, 3)
    told = {
        "participants": formation.participants,
        "number": 1,
        "current": True,
        "gains": dict(formation.utilities),
        "scene": asdict(formation_scene(formation)),
    }
    switches = "".join(
        f'<label id="members-switch"><input type="checkbox" id="show-{name}" checked></label>'
        for name in ("members", "used", "unused", "rivals")
    )
    body = (
        '<div id="workbench" data-consortium="1" data-formation=""><input id="find">'
        '<div class="frame" tabindex="0"><svg id="picture"></svg></div><p id="about"></p>'
        f'{switches}<button id="save-svg">SVG</button><button id="save-png">PNG</button></div>'
    )
    page = shown(browser, body, told)
    page.locator("#workbench[data-ready]").wait_for()
    assert page.locator("#picture.map").count() == (size > 6)  # 30 long names are too many, too
    if size > 6:
        looked_at(page, f"map-{size}")
        page.locator("[data-region='1']").focus()
        assert "Coalition 2: " in page.locator("#about").inner_text()
        page.keyboard.press("Enter")
        assert page.locator("#picture.map").count() == 0
    else:
        page.locator("[data-member='2']").focus()
        assert page.locator("#about").inner_text().startswith(formation.participants[2])
    page.locator("#find").fill(formation.participants[-1])
    found = page.locator("#about").inner_text()
    assert found.startswith(f"{formation.participants[-1]}, gain")
    page.locator("#find").fill("")
    looked_at(page, f"members-{size}")
    assert page.evaluate(MEASURE, [told["scene"]])[0]["line"] >= 1
    for kind, start in (("svg", b"<svg "), ("png", b"\x89PNG")):
        with page.expect_download() as download:
            page.locator(f"#save-{kind}").click()
        assert download.value.suggested_filename == f"coalitions.{kind}"
        content = download.value.path().read_bytes()
        assert content.startswith(start)
        assert kind == "png" or b"var(" not in content
    page.context.close()
