"""A member's page and its form: a report binds, so none is made by accident."""

import pytest

from fedegoists.coordinator.store.audit_log import entries, entry_line
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


def test_ticked_competitors_are_reported_and_all_others_withdrawn(member):
    client, token, csrf = member
    form = {"csrf": csrf, "action": "save"}
    for ticked in ([NAMES[1]], [NAMES[2], NAMES[1]], [NAMES[2]], []):
        answer = client.post("/member/reports", data={**form, "ticked": ticked})
        assert answer.status_code == 303
        assert sorted(reported(client, token)) == sorted(ticked)
        assert client.get("/member").text.count(" checked>") == len(ticked)
    finished = client.get("/api/me/reports", headers=bearer(token)).json()["finished"]
    assert not finished  # it saved only


@pytest.mark.parametrize("form", [{"action": "foo"}, {}, {"action": "report"}])
def test_a_form_that_says_nothing_clear_reports_nobody(member, form):
    client, token, csrf = member
    answer = client.post("/member/reports", data={"csrf": csrf, "ticked": NAMES[1], **form})
    assert answer.status_code == 404
    assert "load the page again" in answer.text
    assert reported(client, token) == []


def test_the_form_says_what_the_manager_sees(member):
    """The competition graph, and in the audit log that something was reported, but not whom."""
    client, _, csrf = member
    page = client.get("/member").text
    assert "which members compete, but not which of the two reported it" in page
    assert "notes that you changed your reports" in page
    form = {"csrf": csrf, "action": "finish", "ticked": NAMES[1]}
    assert client.post("/member/reports", data=form).status_code == 303
    with client.app.state.service.store.read() as session:
        log = [entry_line(entry) for entry in entries(session)]
    assert sum("competitor reported" in line for line in log) == 1
    assert not any(NAMES[1] in line for line in log if "reported" in line)


def test_one_wrong_tick_reports_nobody_and_the_form_stays_filled_in(member):
    client, token, csrf = member
    form = {"csrf": csrf, "action": "finish", "ticked": [NAMES[1], "Nobody"]}
    answer = client.post("/member/reports", data=form)
    assert answer.status_code == 404
    assert "Nothing was changed." in answer.text
    assert answer.text.count(" checked>") == 1
    assert reported(client, token) == []
    assert not client.get("/api/me/reports", headers=bearer(token)).json()["finished"]


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
    assert "you have finished." not in client.get("/member").text
    form = {"csrf": csrf, "action": "finish"}
    assert client.post("/member/reports", data=form).status_code == 303
    assert "you have finished." in client.get("/member").text
    told = client.get(f"/api/consortia/{consortium}", headers=bearer(manager)).json()
    assert [one["finished_reporting"] for one in told["members"]] == [True, False, False]


def test_an_error_is_shown_beside_the_form_with_the_header(member):
    client, _, csrf = member
    form = {"csrf": csrf, "ticked": NAMES[0], "action": "save"}
    answer = client.post("/member/reports", data=form)
    assert answer.status_code == 409
    assert "its own competitor" in answer.text
    assert "Sign out" in answer.text
    assert "Send in confidence" in answer.text
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
