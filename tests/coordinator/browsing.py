"""People with a real browser, for tests of the pages.

Set FEDEGOISTS_SCREENSHOTS to a folder to keep pictures of all pages that are looked at.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.coordinator.served import Process

__all__ = [
    "PATIENCE",
    "WIDTHS",
    "Person",
    "beyond_the_keyboard",
    "looked_at",
    "opened_browser",
    "serious_findings",
]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = {"wide": 1280, "narrow": 390}
PATIENCE = 120_000
"""How many milliseconds to wait at most for something on a page."""


@pytest.fixture(scope="module")
def opened_browser():
    # Not while this module is imported: several modules import it, and only the first would skip.
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Person:
    """A browser of its own, whose pages must not complain, and hands that are counted.

    Attributes
    ----------
    clicks, fields, ticks : int
        Buttons and links that were clicked, fields that were typed into, boxes that were ticked.
    """

    def __init__(self, browser, service: Process, width=WIDTHS["wide"]):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            base_url=service.url,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.clicks = self.fields = self.ticks = 0
        self.complaints = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", self._miss)

    def _hear(self, message):
        # Which the story itself brings about.
        refused = any(status in message.text for status in ("401 (", "404 (", "409 (", "422 ("))
        if message.type in ("error", "warning") and not refused:
            self.complaints.append(message.text)

    def _miss(self, request):
        # What is still loading when a page is left is given up, such as an icon or a run's events.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed {request.url}: {request.failure}")

    def click(self, name, role="button"):
        """Click on a button or a link."""
        self.clicks += 1
        self.page.get_by_role(role, name=name, exact=True).click()

    def types(self, label, text):
        """Fill in a field."""
        self.fields += 1
        self.page.get_by_label(label, exact=True).fill(text)

    def tick(self, name):
        """Tick a box."""
        self.ticks += 1
        self.page.get_by_label(name, exact=True).check()

    def joins(self, link):
        """Follow an invitation; it is in the part of the address that is not sent."""
        self.page.goto(link)
        assert "#" not in self.page.url
        self.click("Sign in")
        token = self.page.locator("#token").inner_text()
        assert token.startswith("fe-token-")
        self.page.wait_for_load_state("load")  # the button needs the script, which is deferred
        self.page.bring_to_front()  # only the page in front may use the clipboard
        self.click("Copy it and continue")
        self.page.wait_for_url(lambda url: not url.endswith("/token"))
        assert self.page.evaluate("navigator.clipboard.readText()") == token


def looked_at(page, name):
    """Look at a page at both widths, where nothing may stick out; keep pictures on demand."""
    folder = os.environ.get("FEDEGOISTS_SCREENSHOTS")
    for kind, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            "(width) => document.documentElement.scrollWidth <= width"
            " && !document.querySelector('#workbench[data-ready=\"\"]')",
            arg=width,
            timeout=PATIENCE,
        )
        for theme in ("light", "dark") if folder else ():
            page.emulate_media(color_scheme=theme)
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=f"{folder}/coordinator-{name}-{kind}-{theme}.png", full_page=True)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": WIDTHS["wide"], "height": 900})


def serious_findings(page, axe):
    """Return what axe-core finds serious or critical, in light and dark colours."""
    found = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        for one in axe.run(page).response["violations"]:
            if one["impact"] in ("serious", "critical"):
                where = [node["html"][:150] for node in one["nodes"][:3]]
                found.append((page.url, theme, one["id"], where))
    page.emulate_media(color_scheme="light")
    return found


def beyond_the_keyboard(page):
    """Return what a page offers to the mouse that Tab does not reach, or reaches unseen."""
    count = page.evaluate(
        """() => {
          const offers = "a[href], button, input, select, textarea, summary, [tabindex='0']";
          const found = [...document.querySelectorAll(offers)].filter(
            (one) => one.checkVisibility() && !one.disabled && one.type !== "hidden");
          found.forEach((one, k) => (one.dataset.offer = k));
          document.activeElement.blur();
          window.scrollTo(0, 0);
          return found.length;
        }"""
    )
    reached = {}
    for _ in range(2 * count + 5):
        page.keyboard.press("Tab")
        offer, seen = page.evaluate(
            """() => {
              const one = document.activeElement;
              const dot = one.querySelector(":scope > circle");
              const marked = dot && parseFloat(getComputedStyle(dot).strokeWidth) >= 2.5;
              const style = getComputedStyle(one);
              const drawn = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
              return [one.dataset.offer, drawn || Boolean(marked)];
            }"""
        )
        if offer is not None:
            reached[int(offer)] = seen
        if len(reached) == count:
            break
    bad = [k for k in range(count) if not reached.get(k, False)]
    return [
        page.evaluate("(k) => document.querySelector(`[data-offer='${k}']`).outerHTML", k)[:150]
        for k in bad
    ]
