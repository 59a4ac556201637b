"""The whole story in a real browser: found, invite, report, decide, what if, run, read reports.

Set FEDEGOISTS_SCREENSHOTS to a folder to keep pictures of the pages at two widths.
"""

import csv
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from fedegoists import coordinator
from fedegoists.coalitions.drawing.scene import formation_scene
from fedegoists.coordinator.service.rendering import base_style
from tests.coalitions.drawing.test_scene import decision
from tests.coordinator.banks import BANKS, with_banks
from tests.coordinator.served import running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed (apt-get install chromium)", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.slow

BENEFIT = """source,target,weight
Alder,Birch,0.4
Birch,Alder,0.3
Alder,Cedar,0.6
Cedar,Alder,0.5
Alder,Dogwood,0.3
Dogwood,Alder,0.35
Birch,Dogwood,0.5
Dogwood,Birch,0.3
Cedar,Dogwood,0.4
Dogwood,Cedar,0.45
Birch,Elm,0.6
Elm,Birch,0.7
Elm,Dogwood,0.2
Cedar,Elm,0.3
"""

WIDTHS = {"wide": 1280, "narrow": 390}
PATIENCE = 120_000
"""How many milliseconds to wait at most for something on a page."""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def service(tmp_path):
    with_banks(tmp_path / "data")
    with running(
        tmp_path / "data", "--requests-per-minute", "100000", log=tmp_path / "log"
    ) as process:
        yield process


class Person:
    """Somebody with a browser of its own, whose pages must not complain."""

    def __init__(self, browser, url, width=WIDTHS["wide"]):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, base_url=url)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.complaints = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", self._miss)

    def _hear(self, message):
        refused = (
            "409 (Conflict)" in message.text or "422 (" in message.text
        )  # which the story itself brings about
        if message.type in ("error", "warning") and not refused:
            self.complaints.append(message.text)

    def _miss(self, request):
        # What is still loading when a page is left is given up, such as an icon or a run's events.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed {request.url}: {request.failure}")

    def joins(self, link):
        """Follow an invitation; it is in the part of the address that is not sent."""
        self.page.goto(link)
        assert "#" not in self.page.url
        self.page.get_by_role("button", name="Sign in").click()
        self.page.reload()  # neither repeats anything nor loses the token
        assert self.page.locator("#token").inner_text().startswith("fe-token-")
        self.page.get_by_role("link", name="I have stored it").click()

    def signs_in(self, secret):
        self.page.goto("/login")
        self.page.get_by_label("Token or invitation").fill(secret)
        self.page.get_by_role("button", name="Sign in").click()
        if secret.startswith("fe-invitation-"):
            assert self.page.locator("#token").inner_text().startswith("fe-token-")
            self.page.get_by_role("link", name="I have stored it").click()


def pictured(page, name):
    """Keep the page at both widths; nothing may stick out at the narrow one."""
    folder = os.environ.get("FEDEGOISTS_SCREENSHOTS")
    for kind, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            "(width) => document.documentElement.scrollWidth <= width", arg=width, timeout=PATIENCE
        )
        for theme in ("light", "dark") if folder else ():
            page.emulate_media(color_scheme=theme)
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=f"{folder}/coordinator-{name}-{kind}-{theme}.png", full_page=True)
    page.set_viewport_size({"width": WIDTHS["wide"], "height": 900})


def contrast_of(page):
    """The lowest contrast between a text and what is behind it, by the rule of WCAG."""
    return page.evaluate(
        """() => {
          const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
          const light = ([r, g, b]) =>
            0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
          const parts = (text) => text.match(/[\\d.]+/g).map(Number);
          const behind = (element) => {
            for (let e = element; e; e = e.parentElement) {
              const c = parts(getComputedStyle(e).backgroundColor);
              if (c.length < 4 || c[3] > 0) return c;
            }
            return [255, 255, 255];
          };
          let worst = [99, ""];
          for (const e of document.querySelectorAll("body *")) {
            const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
            if (!own || !e.offsetParent || e.matches("[disabled], option, script")) continue;
            const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 120)];
          }
          return worst;
        }"""
    )


def test_the_story(browser, service):
    manager = Person(browser, service.url)
    page = manager.page
    manager.signs_in(service.invitation)
    page.get_by_label("Name").fill("Five banks")
    page.get_by_role("button", name="Found").click()
    assert page.locator("h1").inner_text() == "Five banks"

    page.get_by_label("Organisations, one a line").fill("\n".join(BANKS))
    page.get_by_role("button", name="Invite", exact=True).click()
    page.get_by_role("button", name="I have sent them").wait_for()
    page.reload()  # neither repeats anything nor loses them
    links = page.locator(".invitation").all_inner_texts()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all as CSV").click()
    written = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert [(one["organisation"], one["link"]) for one in written] == list(
        zip(BANKS, links, strict=True)
    )
    pictured(page, "invitations")
    page.get_by_role("button", name="I have sent them").click()
    members = {}
    for name, link in zip(BANKS, links, strict=True):
        members[name] = Person(browser, service.url)
        members[name].joins(link)
        assert members[name].page.locator("h1").inner_text() == name

    for reporter, competitor in (("Alder", "Birch"), ("Elm", "Cedar")):
        own = members[reporter].page
        own.get_by_label("Competitor", exact=True).select_option(competitor)
        own.get_by_role("button", name="Report in confidence").click()
        own.get_by_role("button", name=f"Withdraw {competitor}").wait_for()
        own.get_by_role("button", name="I have reported all of them").click()
        own.locator("#finished").wait_for()
    for name in ("Birch", "Cedar"):
        members[name].page.reload()
        assert "You have reported no competitors." in members[name].page.inner_text("main")
        members[name].page.get_by_role("button", name="I have no competitors").click()
        members[name].page.locator("#finished").wait_for()

    page.reload()
    assert "4 of 5 finished; waiting for Dogwood" in page.inner_text("#reports")
    pictured(page, "reports")
    page.goto("/consortia/1#draft")
    assert page.get_by_role("button", name="Form coalitions").is_disabled()
    page.get_by_role("button", name="Close now").click()
    members["Alder"].page.reload()
    assert members["Alder"].page.get_by_role("button", name="Report in confidence").count() == 0

    content = {"name": "benefit.csv", "mimeType": "text/csv", "buffer": b"source,target\n"}
    page.get_by_label("CSV file").set_input_files(content)
    page.get_by_role("button", name="Record benefits").click()
    assert "expected the header" in page.locator("#evidence #problem").inner_text()
    content = {"name": "benefit.csv", "mimeType": "text/csv", "buffer": BENEFIT.encode()}
    page.get_by_label("CSV file").set_input_files(content)
    page.get_by_role("button", name="Record benefits").click()
    page.get_by_role("button", name="Form coalitions").click()
    page.locator("#workbench[data-ready]").wait_for()
    coalitions = page.locator("details table tbody tr").count()
    assert coalitions == len(BANKS)
    members["Dogwood"].page.reload()
    assert "Nothing has been decided yet." in members["Dogwood"].page.inner_text("main")
    page.get_by_role("button", name="Publish decision 1").click()
    members["Dogwood"].page.reload()
    assert "You train" in members["Dogwood"].page.inner_text("main")
    page.get_by_label("One", exact=True).select_option("Alder")
    page.get_by_label("Other", exact=True).select_option("Birch")
    page.get_by_role("button", name="Why are they together or apart?").click()
    page.locator("#why-result", has_text="Alder and Birch compete").wait_for()

    # What if: by keyboard alone, then by drawing a line; nothing is kept.
    page.get_by_label("One", exact=True).focus()
    page.get_by_label("One", exact=True).select_option("Alder")
    page.get_by_label("Other", exact=True).select_option("Dogwood")
    page.get_by_role("button", name="Change their competition").focus()
    page.keyboard.press("Enter")
    page.locator("#whatif-result p").wait_for()
    assert "Alder and Dogwood compete" in page.inner_text("#whatif-changes")
    page.get_by_label("Find a member").fill("dog")
    assert page.locator("#about").inner_text().startswith("Dogwood, gain")
    page.get_by_label("Find a member").fill("")
    pictured(page, "overview")
    page.get_by_role("button", name="Start over").click()
    page.locator("#whatif-changes li").wait_for(state="detached")
    drags(page, "Birch", "Dogwood")
    page.locator("#whatif-result p").wait_for()
    assert "Birch and Dogwood compete" in page.inner_text("#whatif-changes")
    page.get_by_role("button", name="Undo: Birch and Dogwood compete").click()
    page.locator("#whatif-changes li").wait_for(state="detached")

    # Train, following it live, and read what came of it.
    step = page.locator("#train")
    assert step.get_by_label("Data").input_value() == "banks"  # the only one there is
    step.get_by_text("Settings").click()
    step.get_by_label("Methods").fill("local, fedegoists")
    step.get_by_label("Repetitions").fill("1")
    step.get_by_label("Steps").fill("40")
    step.get_by_role("button", name="Train", exact=True).click()
    page.locator('.timeline li[data-state="running"]').wait_for()
    page.get_by_role("link", name="Report of run 1").wait_for(timeout=4 * PATIENCE)
    page.goto("/consortia/1#train")
    page.get_by_role("link", name="Report", exact=True).wait_for()
    pictured(page, "runs")
    page.get_by_role("link", name="Report", exact=True).click()
    assert page.locator("h1").count() == 1
    assert page.locator("main a:not([href^='#'])").count() == 0  # files beside it are not served
    page.go_back()
    page.get_by_role("heading", name="Five banks").wait_for()  # still signed in

    # What was done is written down; check it, and take it away.
    page.get_by_role("link", name="Audit log").click()
    page.get_by_role("button", name="Check now").click()
    page.get_by_text("Nothing was altered.").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download all entries").click()
    last = json.loads(download.value.path().read_text().splitlines()[-1])
    assert last["digest"] == page.locator("#head").inner_text()
    assert "run ended" in page.inner_text("main")
    pictured(page, "audit-log")
    assert contrast_of(page)[0] >= 4.5, contrast_of(page)
    page.goto("/consortia/1")

    own = members["Dogwood"].page
    own.reload()
    with own.expect_download() as download:
        own.get_by_role("link", name="Download your certificate").click()
    check_with_command(download.value.path())
    pictured(own, "member")
    assert contrast_of(own)[0] >= 4.5, contrast_of(own)
    assert contrast_of(page)[0] >= 4.5, contrast_of(page)
    own.get_by_role("link", name="Your report").click()
    assert "Dogwood" in own.locator("h1").inner_text()
    own.go_back()
    own.get_by_role("heading", name="Training").wait_for()
    for name, person in members.items():
        person.page.reload()
        text = person.page.inner_text("main")
        assert "Your report" in text, name
        assert name in person.page.locator("h1").inner_text()
    for person in (manager, *members.values()):
        assert person.complaints == []


def test_a_page_follows_one_run_at_a_time(browser):
    """With many unfinished runs no connection would be left for anything else."""
    states = ["queued"] * 8 + ["running", "finished"]
    items = "".join(
        f'<li data-run="{10 - k}" data-consortium="1" data-state="{state}"><span class="state">'
        '</span><span class="stage"></span><progress></progress><span class="remark"></span></li>'
        for k, state in enumerate(states)
    )
    script = Path(coordinator.__file__).parent / "web" / "static" / "runs.js"
    body = f'<input autofocus><ol class="timeline">{items}</ol><script src="/runs.js"></script>'
    followed = []

    def events(route):
        followed.append(route.request.url)
        over = len(followed) < 3
        run = {"state": "finished" if over else "running", "stage": "", "remark": ""}
        told = f"data: {json.dumps({**run, 'total': 1, 'done': 1})}\n\n"
        told += 'event: end\ndata: "finished"\n\n' if over else ""
        route.fulfill(content_type="text/event-stream", body=told)

    context = browser.new_context(base_url="http://coordinator.test")
    page = context.new_page()
    page.route("**/page", lambda route: route.fulfill(content_type="text/html", body=body))
    page.route("**/runs.js", lambda route: route.fulfill(path=script))
    page.route("**/events", events)
    page.goto("/page")
    page.locator('li[data-run="4"][data-state="running"]').wait_for()
    context.close()
    # The one that runs; as a field is being filled in, the next one, without loading the page.
    api = "http://coordinator.test/api/consortia/1/runs"
    assert followed[:3] == [f"{api}/{number}/events" for number in (2, 3, 4)]
    assert set(followed[3:]) <= {f"{api}/4/events"}  # a stream that broke off is opened again


@pytest.mark.parametrize("size", [6, 30, 100, 300])
def test_the_picture_as_it_is_drawn(browser, size):
    """No line is drawn nearer to a third member than its dot, and all can be found."""
    formation = decision(size, 0.3 if size < 50 else 0.05, 0.2 if size < 50 else 0.02, 3)
    told = {
        "participants": formation.participants,
        "number": 1,
        "current": True,
        "gains": dict(formation.utilities),
        "scene": asdict(formation_scene(formation)),
    }
    static = Path(coordinator.__file__).parent / "web" / "static"
    switches = "".join(
        f'<label id="members-switch"><input type="checkbox" id="show-{name}" checked></label>'
        for name in ("members", "used", "unused", "rivals")
    )
    body = (
        '<link rel="stylesheet" href="/base.css"><link rel="stylesheet" href="/static.css">'
        '<div id="workbench" data-consortium="1" data-formation="">'
        '<input id="find"><div class="frame"><svg id="picture"></svg></div><p id="about"></p>'
        f'{switches}</div><script src="/picture.js"></script>'
    )
    context = browser.new_context(base_url="http://coordinator.test")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.route("**/page", lambda route: route.fulfill(content_type="text/html", body=body))
    page.route("**/picture.js", lambda route: route.fulfill(path=static / "picture.js"))
    page.route("**/static.css", lambda route: route.fulfill(path=static / "coordinator.css"))
    style = {"content_type": "text/css", "body": base_style()}
    page.route("**/base.css", lambda route: route.fulfill(**style))
    page.route("**/picture.json", lambda route: route.fulfill(json=told))
    page.goto("/page")
    page.locator("#workbench[data-ready]").wait_for()
    assert page.locator("#picture.map").count() == (size > 30)
    if size > 30:
        pictured(page, f"map-{size}")
    page.locator("#find").fill(formation.participants[-1])
    found = page.locator("#about").inner_text()
    assert found.startswith(f"{formation.participants[-1]}, gain")
    page.locator("#find").fill("")
    pictured(page, f"members-{size}")
    nearest = page.evaluate(
        """() => {
          const dots = [...document.querySelectorAll(".member")].map((member) => {
            const circle = member.querySelector("circle");
            const of = (name) => circle[name].baseVal.value;
            return { x: of("cx"), y: of("cy"), r: of("r") };
          });
          let least = Infinity;
          for (const line of document.querySelectorAll(".line")) {
            const drawn = line.matches("path") ? line : line.querySelector(".dashes");
            const [a, b] = [Number(line.dataset.a), Number(line.dataset.b)];
            const length = drawn.getTotalLength();
            for (let k = 0; k <= 60; k++) {
              const { x, y } = drawn.getPointAtLength((length * k) / 60);
              dots.forEach((dot, p) => {
                if (p === a || p === b) return;
                least = Math.min(least, Math.hypot(dot.x - x, dot.y - y) / dot.r);
              });
            }
          }
          return least;
        }"""
    )
    assert nearest >= 1
    context.close()


def drags(page, one, other):
    """Draw a line in the picture from one member to another."""
    page.locator("#picture").scroll_into_view_if_needed()
    places = []
    for name in (one, other):
        dot = page.locator(f'.member[aria-label^="{name},"] circle').bounding_box()
        assert dot is not None
        places.append((dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2))
    (x, y), (u, v) = places
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move((x + u) / 2, (y + v) / 2, steps=5)
    page.mouse.move(u, v, steps=5)
    page.mouse.up()


def check_with_command(path):
    from typer.testing import CliRunner

    from fedegoists.cli import app

    result = CliRunner().invoke(app, ["verify", str(path)])
    assert result.exit_code == 0, result.output
