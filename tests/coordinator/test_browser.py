"""The whole story in a real browser: found, invite, report, decide, what if, run, read reports."""

import csv
import json
import re
import tempfile
from pathlib import Path

import pytest

from fedegoists import coordinator
from tests.coordinator.banks import BANKS, with_banks
from tests.coordinator.browsing import (
    PATIENCE,
    Person,
    beyond_the_keyboard,
    looked_at,
    opened_browser,
    serious_findings,
)
from tests.coordinator.served import running

try:
    from axe_playwright_python.sync_playwright import Axe
except ImportError:
    Axe = None

browser = opened_browser

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


class Story:
    """What is seen while a story is told."""

    def __init__(self) -> None:
        self.findings: list[object] = []
        self.dead: list[object] = []

    def look(self, page, name: str) -> None:
        looked_at(page, name)
        self.follow(page)
        if Axe is not None:
            self.findings += serious_findings(page, Axe())

    def follow(self, page) -> None:
        """Load whatever the page links to, without leaving it."""
        for link in set(page.evaluate("[...document.links].map((link) => link.href)")):
            target, _, anchor = link.partition("#")
            if target == page.url.partition("#")[0]:
                alive = not anchor or page.locator(f'[id="{anchor}"]').count() == 1
            else:
                alive = page.context.request.get(target).status == 200
            if not alive:
                self.dead.append((page.url, link))


@pytest.fixture(scope="module")
def story(browser):
    """The whole story, told once."""
    seen = Story()
    with tempfile.TemporaryDirectory() as folder:
        with_banks(Path(folder) / "data")
        limit = ("--requests-per-minute", "100000")
        with running(Path(folder) / "data", *limit, log=Path(folder) / "log") as service:
            tell(browser, service, seen)
            secrets = re.findall(r"fe-\w+-\S+", service.log.read_text())
    assert secrets == []
    return seen


@pytest.mark.usefixtures("story")
def test_the_story():
    """Nothing in it went wrong."""


def test_no_page_has_serious_findings(story):
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    assert story.findings == []


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ("<input>", "label"),
        ("<p style='color: #999; background: #fff'>pale</p>", "color-contrast"),
        ("<button></button>", "button-name"),
    ],
)
def test_serious_findings_are_found(browser, wrong, rule):
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    page = browser.new_page()
    page.set_content(f"<html lang='en'><title>Page</title><main><h1>Page</h1>{wrong}</main>")
    assert {found[2] for found in serious_findings(page, Axe())} == {rule}
    page.close()


def test_what_the_keyboard_cannot_do_is_found(browser):
    page = browser.new_page()
    style = "<style>:focus-visible { outline: 3px solid } .unseen { outline: none }</style>"
    offers = "<button>A</button><a href='/' tabindex='-1'>B</a><a class='unseen' href='/'>C</a>"
    page.set_content(style + offers)
    found = beyond_the_keyboard(page)
    assert [one[-5] for one in found] == ["B", "C"]
    page.close()


def test_no_link_is_dead(story):
    assert story.dead == []


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


def tell(browser, service, seen):
    manager = Person(browser, service)
    page = manager.page
    page.goto("/login")
    seen.look(page, "login")
    page.get_by_label("Token or invitation").fill("fe-token-wrong")
    page.get_by_role("button", name="Sign in").click()
    assert "not known here" in page.get_by_role("alert").inner_text()
    page.goto(f"{service.url}/login#{service.invitation}")
    page.get_by_role("button", name="Sign in").click()
    page.reload()  # neither repeats anything nor loses the token
    seen.look(page, "token")
    page.get_by_role("link", name="I have stored it").click()
    seen.look(page, "consortia")
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
    seen.look(page, "invitations")
    page.get_by_role("button", name="I have sent them").click()
    members = {}
    for name, link in zip(BANKS, links, strict=True):
        members[name] = Person(browser, service)
        members[name].joins(link)
        assert members[name].page.locator("h1").inner_text() == name

    for reporter, competitor in (("Alder", "Birch"), ("Elm", "Cedar")):
        members[reporter].tick(competitor)
        members[reporter].click("Send in confidence")
        members[reporter].page.locator("#finished").wait_for()
        assert members[reporter].page.get_by_label(competitor).is_checked()
    for name in ("Birch", "Cedar"):
        members[name].page.reload()
        assert members[name].page.locator("input:checked").count() == 0
        members[name].click("Send in confidence")
        members[name].page.locator("#finished").wait_for()
    seen.look(members["Elm"].page, "member-reports")
    assert beyond_the_keyboard(members["Elm"].page) == []
    for role, own in (("manager", page), ("member", members["Elm"].page)):
        own.get_by_role("link", name="API").click()
        seen.look(own, f"api-{role}")

    page.goto("/consortia/1")
    assert "4 of 5 finished; waiting for Dogwood" in page.inner_text("#reports")
    seen.look(page, "reports")
    page.goto("/consortia/1#draft")
    assert page.get_by_role("button", name="Form coalitions").is_disabled()
    page.get_by_role("button", name="Close now").click()
    members["Alder"].page.reload()
    assert members["Alder"].page.get_by_role("button", name="Send in confidence").count() == 0

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
    page.get_by_text("Gains of all members").click()
    page.get_by_role("link", name="Why Alder is there").click()
    seen.look(page, "explain")
    page.get_by_role("link", name="Back to the decision").click()
    page.locator("#workbench[data-ready]").wait_for()
    page.goto("/consortia/7")
    assert "Sign out" in page.inner_text("header")
    seen.look(page, "error")
    page.goto("/consortia/1#join")
    page.locator("summary", has_text="Expel …").first.click()
    assert "This cannot be undone." in page.inner_text("#join")
    seen.look(page, "expel")
    page.goto("/consortia/1#draft")
    page.locator("#workbench[data-ready]").wait_for()

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
    for kind in ("SVG", "PNG"):  # what the page may load, it may also export
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save as {kind}").click()
        assert download.value.path().stat().st_size > 1000
    seen.look(page, "overview")
    assert beyond_the_keyboard(page) == []
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
    seen.look(page, "runs")
    page.get_by_role("link", name="Report", exact=True).click()
    assert page.locator("h1").count() == 1
    assert page.locator("main a:not([href^='#'])").count() == 0  # files beside it are not served
    seen.look(page, "report")
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
    seen.look(page, "audit-log")
    assert contrast_of(page)[0] >= 4.5, contrast_of(page)
    page.goto("/consortia/1")

    own = members["Dogwood"].page
    own.reload()
    with own.expect_download() as download:
        own.get_by_role("link", name="Download your certificate").click()
    check_with_command(download.value.path())
    seen.look(own, "member")
    assert contrast_of(own)[0] >= 4.5, contrast_of(own)
    assert contrast_of(page)[0] >= 4.5, contrast_of(page)
    own.get_by_role("link", name="Your report").click()
    assert "Dogwood" in own.locator("h1").inner_text()
    seen.look(own, "member-report")
    own.go_back()
    own.get_by_role("heading", name="Training").wait_for()
    for name, person in members.items():
        person.page.goto("/member")
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
        run = {"state": "finished" if over else "running", "stage": "", "remark": "", "words": ""}
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


def test_a_form_that_takes_long_shows_that_it_works(browser):
    """The first forming takes some seconds longer, while a library is compiled."""
    static = Path(coordinator.__file__).parent / "web" / "static"
    # Into a frame, so that the page stays for the test to look at.
    form = "<form method='post' action='/form' target='answer' data-busy='Forming'>"
    body = f"{form}<button>Form</button></form><iframe name='answer'></iframe>"
    page = browser.new_page(base_url="http://coordinator.test")
    html = f"{body}<script src='/page.js'></script>"
    page.route("**/page", lambda route: route.fulfill(content_type="text/html", body=html))
    page.route("**/page.js", lambda route: route.fulfill(path=static / "page.js"))
    page.route("**/form", lambda route: route.fulfill(content_type="text/html", body="formed"))
    page.goto("/page")
    page.get_by_role("button", name="Form", exact=True).click()
    page.frame_locator("iframe").get_by_text("formed").wait_for()
    button = page.get_by_role("button", name="Forming")
    assert button.is_disabled()  # not sent twice
    assert button.get_attribute("aria-busy") == "true"
    page.close()


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
