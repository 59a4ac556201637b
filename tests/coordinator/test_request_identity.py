"""Roles, sessions, forms and client certificates."""

from tests.coordinator.served import bearer, decided, founded, inside, signed_in


def test_nobody_gets_further_than_its_role(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    decided(client, manager, consortium)
    made = client.post(
        "/api/accounts", json={"role": "monitor", "label": "Prometheus"}, headers=bearer(manager)
    )
    accepted = client.post(
        "/api/invitations/accept", json={"invitation": made.json()["invitation"]}
    )
    monitor = accepted.json()["token"]
    for path, allowed in [
        ("/api/consortia", manager),
        (f"/api/consortia/{consortium}/graphs", manager),
        (f"/api/consortia/{consortium}/formations/1/certificate", manager),
        ("/api/audit-log", manager),
        ("/api/me", tokens["North"]),
        ("/api/me/decision", tokens["North"]),
    ]:
        for token in (manager, tokens["North"], monitor):
            status = client.get(path, headers=bearer(token)).status_code
            assert status == (200 if token == allowed else 403), path
        assert client.get(path).status_code == 401
        assert client.get(path, headers=bearer("fe-token-wrong")).status_code == 401
    metrics = client.get("/metrics", headers=bearer(monitor))
    assert "fedegoists_requests_total" in metrics.text
    assert client.get("/metrics", headers=bearer(tokens["North"])).status_code == 403
    assert client.get("/health").json() == {"status": "ok"}


def test_forms_need_what_their_page_gave_them(served):
    client, manager = served
    csrf = signed_in(client, manager)
    assert client.post("/consortia", data={"name": "A", "csrf": "0" * 64}).status_code == 403
    assert client.post("/api/consortia", json={"name": "A"}).status_code == 403
    elsewhere = {"Origin": "https://evil.example"}
    form = {"name": "A", "csrf": csrf}
    assert client.post("/consortia", data=form, headers=elsewhere).status_code == 403
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/login", data={"secret": manager}, headers=cross).status_code == 403
    assert client.get("/api/consortia").json() == []
    assert client.post("/consortia", data=form).status_code == 303
    made = client.post("/api/consortia", json={"name": "B"}, headers={"X-CSRF-Token": csrf})
    assert made.status_code == 201
    assert client.post("/logout", data={"csrf": csrf}).status_code == 303
    assert client.get("/consortia").headers["location"] == "/login"


def test_a_session_cookie_cannot_be_read_by_scripts_or_sent_by_others(served):
    client, manager = served
    cookie = client.post("/login", data={"secret": manager}).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert manager not in cookie


def test_over_https_no_other_host_can_set_the_session(served):
    """A host of the same domain could set a cookie, but not one with this prefix."""
    client, manager = served
    answer = client.post("https://testserver/login", data={"secret": manager})
    name, _, rest = answer.headers["set-cookie"].partition("=")
    secret = rest.partition(";")[0]
    assert name == "__Host-fedegoists_session"
    assert all(one in rest for one in ("HttpOnly", "Secure", "Path=/", "SameSite=strict"))
    assert "Domain" not in rest
    for given, status in ((name, 200), ("fedegoists_session", 303)):
        client.cookies.clear()
        headers = {"Cookie": f"{given}={secret}"}
        assert client.get("https://testserver/consortia", headers=headers).status_code == status
    assert (
        client.get(
            "http://testserver/consortia", headers={"Cookie": f"{name}={secret}"}
        ).status_code
        == 303
    )
    headers = {"Cookie": f"{name}={secret}"}
    page = client.get("https://testserver/consortia", headers=headers).text
    csrf = page.split('data-csrf="')[1].split('"')[0]
    out = client.post("https://testserver/logout", data={"csrf": csrf}, headers=headers)
    assert out.headers["set-cookie"].startswith(f'{name}="";')
    assert client.get("https://testserver/consortia", headers=headers).status_code == 303


def test_nobody_can_register_the_client_certificate_of_another(sqlite_store, tmp_path):
    """Its owner would then report its competitors under the name of whoever did."""
    with inside(sqlite_store, tmp_path) as (client, manager):
        _, tokens = founded(client, manager)
        body = {"sha256": "ab" * 32}
        path = "/api/me/client-certificate"
        refused = client.put(path, json=body, headers=bearer(tokens["East"]))
        assert refused.status_code == 403
        assert "on the connection" in refused.json()["detail"]
