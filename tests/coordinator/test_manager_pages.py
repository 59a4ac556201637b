"""The manager's pages and their forms."""

import html
import re

import pytest
from fastapi.testclient import TestClient

from fedegoists.coordinator.runs.run_orders import Reach
from fedegoists.coordinator.service.coordinator_service import Service
from fedegoists.coordinator.service.web_app import create_app
from tests.coordinator.consortia import NAMES
from tests.coordinator.served import (
    EDGES,
    MANY,
    bearer,
    decided,
    founded,
    inside,
    invite_and_join,
    signed_in,
)


def test_pages_load_nothing_from_elsewhere(served):
    client, manager = served
    founded(client, manager)
    signed_in(client, manager)
    for path in ("/login", "/consortia", "/consortia/1"):
        page = client.get(path)
        assert page.status_code == 200, page.text
        assert "//" not in page.text.replace("<!DOCTYPE", "")
        assert " style=" not in page.text
        assert "onclick" not in page.text


def test_numbers_and_forms_that_make_no_sense_are_refused_on_pages_too(served):
    client, manager = served
    csrf = signed_in(client, manager)
    assert client.get(f"/consortia/{10**30}").status_code == 422
    assert client.get("/consortia/7").status_code == 404
    founded(client, manager)
    run = {"csrf": csrf, "kind": "benefit", "source": "../secrets"}
    refused = client.post("/consortia/1/runs", data=run)
    assert refused.status_code == 422
    assert "source" in refused.text
    late = {"csrf": csrf, "action": "deadline", "deadline": "tomorrow"}
    assert "not a date" in client.post("/consortia/1/reports", data=late).text


@pytest.mark.parametrize(
    "deadline",
    ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00", "9999-12-31"],
)
def test_deadlines_at_the_ends_of_the_calendar(served, deadline):
    client, manager = served
    consortium, _ = founded(client, manager)
    refused = deadline != "9999-12-31"  # far away, but a moment
    body = {"name": "Other", "deadline": deadline}
    made = client.post("/api/consortia", json=body, headers=bearer(manager))
    assert made.status_code in ((409, 422) if refused else (201,)), made.text
    api = f"/api/consortia/{consortium}/deadline"
    put = client.put(api, json={"deadline": deadline}, headers=bearer(manager))
    assert put.status_code in ((409, 422) if refused else (200,)), put.text
    form = {"csrf": signed_in(client, manager), "action": "deadline", "deadline": deadline}
    answer = client.post(f"/consortia/{consortium}/reports", data=form)
    assert answer.status_code in ((409, 422) if refused else (303,)), answer.text
    assert client.get(f"/consortia/{consortium}").status_code == 200


def test_names_are_text_and_nothing_else(served):
    client, manager = served
    name = "<script>alert(1)</script>"
    made = client.post("/api/consortia", json={"name": name}, headers=bearer(manager))
    invite_and_join(client, manager, made.json()["id"], [name, '"><img src=x>'])
    signed_in(client, manager)
    page = client.get("/consortia/1").text
    assert name not in page
    assert "<img" not in page


@pytest.mark.usefixtures("any_plan")
def test_a_deployment_is_offered_where_there_is_one(sqlite_store, tmp_path):
    app = create_app(Service(sqlite_store, tmp_path, MANY, Reach(tmp_path, NAMES)))
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
    client = TestClient(app, follow_redirects=False)
    csrf = signed_in(client, manager)
    assert 'value="flare"' in client.get(f"/consortia/{consortium}").text
    form = {"csrf": csrf, "kind": "training", "engine": "flare"}
    assert client.post(f"/consortia/{consortium}/runs", data=form).status_code == 303
    runs = client.get(f"/api/consortia/{consortium}/runs").json()
    assert [(run["engine"], run["state"]) for run in runs] == [("flare", "queued")]


def test_benefits_come_from_a_csv_on_the_page(served):
    client, manager = served
    consortium, _ = founded(client, manager)
    csrf = signed_in(client, manager)
    content = "source,target,weight\n" + "\n".join(f"{a},{b},{w}" for a, b, w in EDGES)
    answer = client.post(
        f"/consortia/{consortium}/benefit",
        data={"csrf": csrf},
        files={"file": ("benefit.csv", content)},
    )
    assert answer.status_code == 303
    graphs = client.get(f"/api/consortia/{consortium}/graphs", headers=bearer(manager)).json()
    assert len(graphs["benefit"]) == 6
    wrong = client.post(
        f"/consortia/{consortium}/benefit",
        data={"csrf": csrf},
        files={"file": ("benefit.csv", "source,target,weight\nNorth,Nobody,1\n")},
    )
    assert wrong.status_code == 422
    assert "Nobody" in wrong.text
    assert "/tmp" not in wrong.text


@pytest.mark.parametrize(
    ("form", "fields", "method", "route", "body"),
    [
        ("", {"name": ""}, "POST", "", {}),
        ("", {"name": "a\u0007b"}, "POST", "", {"name": "a\u0007b"}),
        ("", {"name": "Banks"}, "POST", "", {"name": "Banks"}),
        ("/1/invite", {"names": "North"}, "POST", "/1/invitations", {"names": ["North"]}),
        ("/1/invite", {"names": ""}, "POST", "/1/invitations", {"names": []}),
        ("/1/publish", {"number": "7"}, "POST", "/1/formations/7/publish", None),
        ("/1/expel", {"name": "West"}, "DELETE", "/1/members/West", None),
        ("/9/expel", {"name": "West"}, "DELETE", "/9/members/West", None),
        ("/1/reports", {"action": "reopen"}, "POST", "/1/reports/reopen", None),
        (
            "/1/reports",
            {"action": "deadline", "deadline": "2020-01-01"},
            "PUT",
            "/1/deadline",
            {"deadline": "2020-01-01"},
        ),
        ("/1/form", {"time_limit": "61"}, "POST", "/1/formations", {"time_limit": 61}),
        ("/1/form", {"fewest_members": "0"}, "POST", "/1/formations", {"fewest_members": 0}),
        ("/1/form", {}, "POST", "/1/formations", {}),
        (
            "/1/runs",
            {"kind": "training", "seeds": "0", "source": "banks"},
            "POST",
            "/1/runs",
            {"plan": {"seeds": 0, "source": "banks"}},
        ),
        ("/1/runs", {"kind": "training"}, "POST", "/1/runs", {"plan": {}}),
        ("/1/runs/7/cancel", {}, "POST", "/1/runs/7/cancel", None),
    ],
)
def test_a_form_is_refused_as_the_interface_refuses_it(served, form, fields, method, route, body):
    client, manager = served
    founded(client, manager)
    csrf = signed_in(client, manager)
    page = client.post(f"/consortia{form}", data={"csrf": csrf, **fields})
    api = client.request(
        method, f"/api/consortia{route}", json=body, headers={"X-CSRF-Token": csrf}
    )
    assert page.status_code == api.status_code >= 400
    detail = api.json()["detail"]
    said = detail if isinstance(detail, str) else detail[0]["msg"].removeprefix("Value error, ")
    assert said in html.unescape(page.text)
    assert client.get("/api/consortia").json()[0]["reports"] == "open"


def test_several_are_invited_at_once_and_the_page_can_be_loaded_again(served):
    client, manager = served
    client.post("/api/consortia", json={"name": "Banks"}, headers=bearer(manager))
    csrf = signed_in(client, manager)
    form = {"csrf": csrf, "names": "North\r\n\r\n South \nEast"}
    answer = client.post("/consortia/1/invite", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/consortia/1#invite")
    for _ in range(2):
        page = client.get("/consortia/1").text
        assert page.count("fe-invitation-") == 3
    secret = re.search(r"fe-invitation-[^<]+", page)[0]
    assert client.post("/api/invitations/accept", json={"invitation": secret}).status_code == 200
    client.cookies.clear()
    other = signed_in(client, manager)  # another session of the same manager
    assert "fe-invitation-" not in client.get("/consortia/1").text
    assert other != csrf


def test_invitations_are_forgotten_when_they_were_sent(served):
    client, manager = served
    client.post("/api/consortia", json={"name": "Banks"}, headers=bearer(manager))
    csrf = signed_in(client, manager)
    client.post("/consortia/1/invite", data={"csrf": csrf, "names": "North"})
    assert client.post("/consortia/1/sent", data={"csrf": csrf}).status_code == 303
    assert "fe-invitation-" not in client.get("/consortia/1").text


def test_of_several_names_all_are_invited_or_none(served):
    client, manager = served
    founded(client, manager)
    csrf = signed_in(client, manager)
    answer = client.post("/consortia/1/invite", data={"csrf": csrf, "names": "West\nNorth"})
    assert answer.status_code == 409
    assert "West\nNorth</textarea>" in answer.text  # what was entered is still there
    assert "Sign out" in answer.text
    assert answer.text.count('role="alert"') == 1
    members = client.get("/api/consortia/1").json()["members"]
    assert [one["name"] for one in members] == NAMES
    assert client.get("/consortia/1/invite").headers["location"] == "/consortia/1#invite"
    assert client.get("/consortia/1/nothing").status_code == 404


def test_a_decision_of_the_page_is_a_draft_until_it_is_published(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    decided(client, manager, consortium)
    csrf = signed_in(client, manager)
    assert client.post("/consortia/1/form", data={"csrf": csrf}).status_code == 303
    page = client.get("/consortia/1").text
    assert "Publish decision 2" in page
    own = bearer(tokens[NAMES[0]])
    client.cookies.clear()
    assert client.get("/api/me/decision", headers=own).json()["number"] == 1
    csrf = signed_in(client, manager)
    form = {"csrf": csrf, "number": "2"}
    assert client.post("/consortia/1/publish", data=form).status_code == 303
    client.cookies.clear()
    assert client.get("/api/me/decision", headers=own).json()["number"] == 2


def test_what_cannot_be_undone_says_so_first(served):
    client, manager = served
    founded(client, manager)
    signed_in(client, manager)
    page = client.get("/consortia/1").text
    for name in NAMES:
        before, after = page.split(f"Expel {name} for good")
        assert "This cannot be undone." in before[before.rindex("<details") :]
        assert after


def test_the_manager_is_told_why(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    decided(client, manager, consortium)
    signed_in(client, manager)
    assert "/explain?member=North" in client.get("/consortia/1").text
    page = client.get("/consortia/1/explain", params={"member": "North"})
    assert page.status_code == 200
    assert "<strong>South</strong>" in page.text
    assert client.get("/consortia/1/explain", params={"member": "Nobody"}).status_code == 422
    api = "/api/consortia/1/formations/1/explanations"
    (one,) = client.get(api, params={"member": "North", "other": "South"}).json()
    assert (one["member"], one["other"]) == ("North", "South")
    assert one["sentence"] in html.unescape(page.text)
    client.cookies.clear()
    refused = client.get(api, params={"member": "North"}, headers=bearer(tokens["North"]))
    assert refused.status_code == 403
