"""Signing in with an invitation."""

from tests.coordinator.served import bearer


def test_an_invitation_becomes_a_token_that_is_shown_once(served):
    client, manager = served
    made = client.post(
        "/api/accounts", json={"role": "manager", "label": "Bo"}, headers=bearer(manager)
    )
    answer = client.post("/login", data={"secret": made.json()["invitation"]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/token")
    client.get("/token")  # it can be loaded again, until its reader goes on
    page = client.get("/token")
    token = page.text.split('<pre id="token">')[1].split("<")[0]
    client.get("/")
    assert client.get("/token").headers["location"] == "/"
    assert client.get("/consortia").status_code == 200
    assert token not in client.get("/consortia").text
    assert client.post("/login", data={"secret": made.json()["invitation"]}).status_code == 401
    assert client.get("/api/consortia", headers=bearer(token)).status_code == 200
