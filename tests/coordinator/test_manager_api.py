"""The manager's API: decisions that go out of date, accounts, and the audit log."""

import json
import re
from urllib.parse import quote

from tests.coordinator.served import (
    EDGES,
    bearer,
    decided,
    founded,
    invite_and_join,
    names_competitors,
    signed_in,
)


def test_a_decision_says_when_it_is_out_of_date(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    decided(client, manager, consortium)
    api, head = f"/api/consortia/{consortium}", bearer(manager)

    def current():
        """As the manager is told four times, and each member."""
        signed_in(client, manager)
        told = {
            client.get(f"{api}/formations/1", headers=head).json()["current"],
            client.post(f"{api}/formations/1/what-if", json={}, headers=head).json()["current"],
            client.get(f"/consortia/{consortium}/picture.json").json()["current"],
            'id="out-of-date"' not in client.get(f"/consortia/{consortium}").text,
        }
        client.cookies.clear()
        members = {
            client.get("/api/me/decision", headers=bearer(tokens[name])).json()["current"]
            for name in ("North", "South")
        }
        assert len(told) == len(members) == 1
        return told.pop(), members.pop()

    assert current() == (True, True)
    client.post(f"{api}/reports/reopen", headers=head)
    assert current() == (True, False)
    names_competitors(client, tokens["South"], "East")
    assert current() == (False, False)
    client.post(f"{api}/reports/close", headers=head)
    assert current() == (False, True)  # what others reported shows in nothing a member sees
    client.post(f"{api}/reports/reopen", headers=head)
    names_competitors(client, tokens["South"])
    client.post(f"{api}/reports/close", headers=head)
    assert current() == (True, True)
    client.put(f"{api}/benefit", json={"edges": EDGES[:3]}, headers=head)
    assert current() == (False, True)
    client.post(f"{api}/formations", json={}, headers=head)
    assert [one["current"] for one in client.get(f"{api}/formations", headers=head).json()] == [
        True,
        False,
    ]


def test_an_expelled_member_is_refused_at_once(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    path = f"/api/consortia/{consortium}/members/East"
    assert client.delete(path, headers=bearer(manager)).status_code == 204
    assert client.get("/api/me", headers=bearer(tokens["East"])).status_code == 401
    assert client.delete(path, headers=bearer(manager)).status_code == 404


def test_a_new_invitation_ends_the_old_token(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    path = f"/api/consortia/{consortium}/members/East/invitation"
    again = client.post(path, headers=bearer(manager)).json()["invitation"]
    assert client.get("/api/me", headers=bearer(tokens["East"])).status_code == 401
    accepted = client.post("/api/invitations/accept", json={"invitation": again})
    assert client.get("/api/me", headers=bearer(accepted.json()["token"])).status_code == 200


def test_a_new_invitation_says_to_both_that_earlier_reports_are_sealed(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    names_competitors(client, tokens["East"], "North")
    csrf = signed_in(client, manager)
    form = {"csrf": csrf, "name": "East", "again": "yes"}
    assert client.post(f"/consortia/{consortium}/invite", data=form).status_code == 303
    answer = client.get(f"/consortia/{consortium}")
    assert "count as before, but are sealed" in answer.text
    (invitation,) = re.findall(r"fe-invitation-[^<]+", answer.text)
    client.cookies.clear()
    token = client.post("/api/invitations/accept", json={"invitation": invitation}).json()["token"]
    own = client.get("/api/me/reports", headers=bearer(token)).json()
    assert own["competitors"] == []
    assert own["sealed"] is not None
    signed_in(client, token)
    page = client.get("/member").text
    assert "You were invited again on" in page
    assert "you have no further competitors" in page
    client.cookies.clear()
    graphs = client.get(f"/api/consortia/{consortium}/graphs", headers=bearer(manager)).json()
    assert graphs["competition"] == [["North", "East"]]


def test_names_with_a_slash_are_names_in_every_address(served):
    client, manager = served
    made = client.post("/api/consortia", json={"name": "A/S"}, headers=bearer(manager))
    names = ["Nord A/S", "x/invitation"]
    tokens = invite_and_join(client, manager, made.json()["id"], names)
    for name in names:
        path = f"/api/consortia/{made.json()['id']}/members/{quote(name, safe='')}"
        again = client.post(f"{path}/invitation", headers=bearer(manager))
        assert (again.status_code, again.json()["label"]) == (201, name)
        assert client.get("/api/me", headers=bearer(tokens[name])).status_code == 401
        assert client.delete(path, headers=bearer(manager)).status_code == 204
        assert client.delete(path, headers=bearer(manager)).status_code == 404
    body = {"role": "monitor", "label": "a/b"}
    client.post("/api/accounts", json=body, headers=bearer(manager))
    assert client.delete("/api/accounts/a%2Fb", headers=bearer(manager)).status_code == 204


def test_a_lost_token_of_a_manager_can_be_ended(served):
    client, manager = served
    invited = client.post(
        "/api/accounts", json={"role": "manager", "label": "manager"}, headers=bearer(manager)
    )
    accepted = client.post(
        "/api/invitations/accept", json={"invitation": invited.json()["invitation"]}
    )
    new = accepted.json()["token"]
    signed_in(client, manager)
    assert client.delete("/api/accounts/manager", headers=bearer(new)).status_code == 204
    assert client.get("/api/consortia", headers=bearer(manager)).status_code == 401
    assert client.get("/api/consortia").status_code == 401  # nor does its session
    assert client.get("/api/consortia", headers=bearer(new)).status_code == 200
    assert client.delete("/api/accounts/manager", headers=bearer(new)).status_code == 404


def test_the_log_can_be_read_checked_and_taken_away(served):
    client, manager = served
    founded(client, manager)
    signed_in(client, manager)
    page = client.get("/audit-log").text
    assert "member joined" in page
    assert "Nothing was altered" not in page
    checked = client.get("/audit-log?check=true").text
    assert "Nothing was altered" in checked
    verdict = client.get("/api/audit-log/check").json()
    assert verdict["ok"]
    assert verdict["head"] in checked
    assert client.get(f"/api/audit-log/check?head={verdict['head']}").json()["ok"]
    other = client.get("/api/audit-log/check", params={"head": "0f" * 32}).json()
    assert (other["ok"], "truncated or rewritten" in other["problems"][0]) == (False, True)
    assert "Something was altered" in client.get(f"/audit-log?check=true&head={'0f' * 32}").text
    lines = client.get("/api/audit-log/file").text.splitlines()
    assert len(lines) == verdict["entries"]
    assert json.loads(lines[-1])["digest"] == verdict["head"]
    assert "Earlier entries" not in page
    assert "entries 1 to 3" in client.get("/audit-log?before=4").text.lower()
