"""Six members from nothing to models, and what it asks of people's hands."""

import pytest

from tests.coordinator.banks import BANKS, with_banks
from tests.coordinator.browsing import PATIENCE, Person, opened_browser
from tests.coordinator.served import running

pytestmark = pytest.mark.slow

browser = opened_browser

SIX = [*BANKS, "Fir"]
MOST_CLICKS, MOST_FIELDS, MOST_MEMBER_CLICKS = 25, 8, 4


def shortens(page):
    """Make the runs short, behind the back of the manager, who would leave all settings alone."""
    page.evaluate(
        """() => {
          for (const field of document.querySelectorAll("[name=steps]")) field.value = "20";
          for (const field of document.querySelectorAll("[name=seeds]")) field.value = "1";
        }"""
    )


@pytest.fixture
def service(tmp_path):
    with_banks(tmp_path / "data")
    limit = ("--requests-per-minute", "100000")
    with running(tmp_path / "data", *limit, log=tmp_path / "log") as process:
        yield process


def test_clicks_and_fields(browser, service):
    manager = Person(browser, service)
    page = manager.page
    manager.joins(f"{service.url}/login#{service.invitation}")
    manager.types("Name", "Six banks")
    manager.click("Found")
    manager.types("Organisations, one a line", "\n".join(SIX))
    manager.click("Invite")
    page.get_by_role("button", name="I have sent them").wait_for()
    links = page.locator(".invitation").all_inner_texts()
    with page.expect_download():
        manager.click("Download all as CSV")
    manager.click("I have sent them")

    members = {}
    for name, link in zip(SIX, links, strict=True):
        members[name] = Person(browser, service)
        members[name].joins(link)
        if name == "Alder":
            members[name].tick("Birch")
        members[name].click("Send in confidence")
        members[name].page.locator("#finished").wait_for()

    page.goto("/consortia/1")
    assert "all 6 finished" in page.inner_text("#reports")
    manager.click("Close now")
    shortens(page)
    manager.click("Learn benefits")
    page.locator("#evidence .timeline li").wait_for()
    page.locator("#draft[open]").wait_for(timeout=4 * PATIENCE)
    manager.click("Form coalitions")
    manager.click("Publish decision 1")
    page.locator("#train[open]").wait_for()
    shortens(page)
    manager.click("Train")
    page.get_by_role("link", name="Report of run 2").wait_for(timeout=4 * PATIENCE)
    manager.click("Report of run 2", "link")
    assert page.locator("h1").count() == 1

    for name, person in members.items():
        person.page.reload()
        with person.page.expect_download() as download:
            person.click("Your model", "link")
        assert download.value.suggested_filename == "model.safetensors"
        assert download.value.path().stat().st_size > 0
        assert person.clicks <= MOST_MEMBER_CLICKS, name  # and one tick for each competitor
        assert person.ticks == (name == "Alder")
        assert person.fields == 0
    most = max(person.clicks for person in members.values())
    print(f"manager: {manager.clicks} clicks, {manager.fields} fields; a member: {most} clicks")
    assert manager.clicks <= MOST_CLICKS
    assert manager.fields <= MOST_FIELDS
    for person in (manager, *members.values()):
        assert person.complaints == []
