"""Take the screenshots of the coordinator's pages for the documentation.

``python docs/images/draw_coordinator.py`` starts a coordinator on this machine, founds consortia of
6, 30, 100 and 300 members through `fedegoists.client`, and looks at its pages in Chromium.
"""

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from fedegoists.client import ManagedConsortium, ManagerClient, MemberClient, accept_invitation
from fedegoists.client.connection import ClientError

IMAGES = Path(__file__).parent
SIX = {
    "Alder": ["Birch", "Cedar", "Dogwood"],
    "Birch": ["Alder", "Dogwood", "Elm"],
    "Cedar": ["Alder", "Dogwood"],
    "Dogwood": ["Alder", "Birch", "Cedar"],
    "Elm": ["Birch", "Fir"],
    "Fir": ["Elm"],
}
"""Members, and those that their data benefits."""

GROUPS = {30: 6, 100: 12, 300: 20}
"""Number of groups of similar members, by the number of members."""


@contextmanager
def coordinator() -> Iterator[tuple[str, str]]:
    """Run a coordinator in an empty folder; give its address and the manager's one-time login."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed"
        command = [str(Path(sys.executable).with_name("fedegoists")), "serve", "--port", port]
        command += ["--data", f"{folder}/data", "--requests-per-minute", "1000000"]
        with printed.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603
        try:
            while not (found := re.search(r"http\S+#fe-invitation-\S+", printed.read_text())):
                if process.poll() is not None:
                    sys.exit(printed.read_text())
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}", found[0]
        finally:
            process.terminate()
            process.wait()


def joined(url: str, consortium: ManagedConsortium, names: list[str]) -> dict[str, MemberClient]:
    """Invite members, which join at once."""
    links = consortium.invite(names)
    return {name: MemberClient(url, accept_invitation(url, link)) for name, link in links.items()}


def six_banks(manager: ManagerClient) -> dict[str, MemberClient]:
    """Found a consortium of six banks, with a published decision."""
    consortium = manager.found("Six banks")
    members = joined(manager.url, consortium, list(SIX))
    members["Alder"].report(["Birch"])
    members["Elm"].report(["Cedar"])
    for name in ("Birch", "Cedar", "Dogwood", "Fir"):
        members[name].report([])
    consortium.close_reports()
    rng = np.random.default_rng(2)
    consortium.record_benefit(
        (source, target, round(float(rng.uniform(0.2, 0.7)), 2))
        for source, targets in SIX.items()
        for target in targets
    )
    consortium.publish(consortium.form(draft=True)["number"])
    return members


def hospitals(manager: ManagerClient, count: int) -> int:
    """Found a consortium of many members, of which those of one group benefit one another."""
    consortium = manager.found(f"{count} hospitals")
    names = [f"Hospital {k + 1}" for k in range(count)]
    members = joined(manager.url, consortium, names)
    rng = np.random.default_rng(count)
    group = rng.integers(GROUPS[count], size=count)
    for k, name in enumerate(names):
        rivals = rng.choice(count, size=int(rng.random() < 0.4), replace=False)
        members[name].report(names[other] for other in rivals if other != k)
    consortium.close_reports()
    alike = group[:, None] == group[None]
    given = rng.random((count, count)) < np.where(alike, 0.7, 0.5 / count)
    consortium.record_benefit(
        (names[a], names[b], round(float(rng.uniform(0.1, 1)), 3))
        for a, b in np.argwhere(given)
        if a != b
    )
    consortium.form(draft=True)
    return consortium.number


def signed_in(page: Page, url: str, token: str) -> None:
    """Sign in with a token."""
    page.goto(f"{url}/login")
    page.get_by_label("Token or invitation").fill(token)
    page.get_by_role("button", name="Sign in").click()


def drawn(page: Page, url: str, number: int) -> None:
    """Open the picture of a consortium."""
    page.goto(f"{url}/consortia/{number}#draft")
    page.locator("#workbench[data-ready]").wait_for()


def main() -> None:
    """Write all screenshots."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with coordinator() as (url, login), sync_playwright() as playwright:
        while True:
            try:
                token = accept_invitation(url, login)
                break
            except ClientError:  # it does not listen yet
                time.sleep(0.2)
        manager = ManagerClient(url, token)
        members = six_banks(manager)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        signed_in(page, url, token)
        drawn(page, url, 1)
        page.get_by_role("button", name="Why are they together or apart?").click()
        page.locator("#why-result").get_by_text("compete").wait_for()
        page.screenshot(path=IMAGES / "coordinator-overview-wide.png", full_page=True)
        page.locator(".frame").screenshot(path=IMAGES / "picture-6.png")
        for count in GROUPS:
            drawn(page, url, hospitals(manager, count))
            if count == max(GROUPS):
                page.locator("[data-region='0']").click()
            page.mouse.move(0, 0)
            page.locator(".frame").screenshot(path=IMAGES / f"picture-{count}.png")
        page.goto(f"{url}/audit-log?check=true")
        page.screenshot(path=IMAGES / "coordinator-audit-log-wide.png")
        small = browser.new_page(viewport={"width": 390, "height": 900})
        signed_in(small, url, members["Dogwood"].token)
        small.locator(".lead", has_text="You train").wait_for()
        small.screenshot(path=IMAGES / "coordinator-member-narrow.png", full_page=True)
        browser.close()
    for path in (*IMAGES.glob("coordinator-*.png"), *IMAGES.glob("picture-*.png")):
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main()
