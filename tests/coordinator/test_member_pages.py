"""A member's page and its form: a report binds, so none is made by accident."""

import pytest

from tests.coordinator.consortia import NAMES
from tests.coordinator.served import bearer, decided, founded, signed_in


def reported(client, token):
    return client.get("/api/me/reports", headers=bearer(token)).json()["competitors"]


@pytest.fixture
def member(served):
    client, manager = served
    _, tokens = founded(client, manager)
    client.cookies.clear()
    token = tokens[NAMES[0]]
    return client, token, signed_in(client, token)


def test_a_competitor_is_reported_and_withdrawn(member):
    client, token, csrf = member
    form = {"csrf": csrf, "name": NAMES[1]}
    assert client.post("/member/reports", data={**form, "action": "report"}).status_code == 303
    assert reported(client, token) == [NAMES[1]]
    assert client.post("/member/reports", data={**form, "action": "withdraw"}).status_code == 303
    assert reported(client, token) == []


@pytest.mark.parametrize(
    "form",
    [{"name": NAMES[1], "action": "foo"}, {"name": NAMES[1]}, {"action": "report"}, {"name": ""}],
)
def test_a_form_that_says_nothing_clear_reports_nobody(member, form):
    client, token, csrf = member
    answer = client.post("/member/reports", data={"csrf": csrf, **form})
    assert answer.status_code == 404
    assert "load the page again" in answer.text
    assert reported(client, token) == []


@pytest.mark.parametrize(
    ("fewest", "words"), [(1, ""), (3, "at least 3 members"), (2, "at least 2")]
)
def test_a_member_sees_how_many_members_a_coalition_must_have(served, fewest, words):
    client, manager = served
    consortium, tokens = founded(client, manager)
    decided(client, manager, consortium)
    order = {"fewest_members": fewest}
    path = f"/api/consortia/{consortium}/formations"
    assert client.post(path, json=order, headers=bearer(manager)).status_code == 201
    client.cookies.clear()
    signed_in(client, tokens[NAMES[0]])
    page = client.get("/member").text
    assert ("at least" in page) == bool(words)
    assert words in page
    assert ("can hide a single one" in page) == (fewest > 2)
    told = client.get("/api/me/decision", headers=bearer(tokens[NAMES[0]])).json()
    assert told["fewest_members"] == fewest


def test_a_member_says_that_it_has_no_competitors(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    client.cookies.clear()
    csrf = signed_in(client, tokens[NAMES[0]])
    assert "I have no competitors" in client.get("/member").text
    form = {"csrf": csrf, "action": "finish"}
    assert client.post("/member/reports", data=form).status_code == 303
    page = client.get("/member").text
    assert "I have no competitors" not in page
    assert "you have finished" in page
    told = client.get(f"/api/consortia/{consortium}", headers=bearer(manager)).json()
    assert [one["finished_reporting"] for one in told["members"]] == [True, False, False]


def test_an_error_is_shown_beside_the_form_with_the_header(member):
    client, _, csrf = member
    form = {"csrf": csrf, "name": NAMES[0], "action": "report"}
    answer = client.post("/member/reports", data=form)
    assert answer.status_code == 409
    assert "its own competitor" in answer.text
    assert "Sign out" in answer.text
    assert "Report in confidence" in answer.text
    assert client.get("/member/reports").headers["location"] == "/member#reports"


def test_the_reasons_are_the_same_for_every_member(served):
    """Text about the reasons may depend on nothing but whether a member is alone."""
    client, manager = served
    consortium, tokens = founded(client, manager)
    decided(client, manager, consortium)
    told = set()
    for name in NAMES:
        client.cookies.clear()
        signed_in(client, tokens[name])
        page = client.get("/member").text
        told.add(page[page.index('id="why"') : page.index("</details>")])
    assert len(told) == 1
    assert "stays confidential" in told.pop()
