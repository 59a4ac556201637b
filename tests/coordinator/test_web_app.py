"""The application as a whole: a decision from founding on, errors and headers."""

import logging

from sqlalchemy import text

from fedegoists.commitments import MemberCertificate, Opening
from fedegoists.coordinator.coordinator_errors import FullStoreError
from tests.coordinator.consortia import NAMES
from tests.coordinator.served import bearer, decided, founded, inside, names_competitors


def test_from_founding_to_a_checked_decision(store, tmp_path):
    with inside(store, tmp_path) as (client, manager):
        consortium, tokens = founded(client, manager)
        names_competitors(client, tokens["South"], "East")
        early = client.post(
            f"/api/consortia/{consortium}/formations", json={}, headers=bearer(manager)
        )
        assert early.status_code == 409
        assert "may still report" in early.json()["detail"]
        made = decided(client, manager, consortium)
        assert made["coalitions"] == [["North", "South"], ["East"]]
        late = client.put(
            "/api/me/reports", json={"competitors": []}, headers=bearer(tokens["South"])
        )
        assert late.status_code == 409
        mine = client.get("/api/me/decision", headers=bearer(tokens["South"])).json()
        assert mine["coalition"] == ["North", "South"]
        assert mine["contributors"] == {"North": 2.0}
        assert mine["beneficiaries"] == {"North": 1.0}
        assert mine["gain"] == 2.0
        text = client.get("/api/me/certificate", headers=bearer(tokens["South"])).text
        assert MemberCertificate.from_json(text).check(made["commitment"], ["East"]).ok
        api = f"/api/consortia/{consortium}/formations/1"
        opening = client.post(f"{api}/opening", headers=bearer(manager)).text
        assert Opening.from_json(opening).check(made["commitment"]).ok
        question = {"remove": [["East", "South"]]}
        answer = client.post(f"{api}/what-if", json=question, headers=bearer(manager)).json()
        assert answer["coalitions"] == [NAMES]
        assert answer["welfare_change"] == 6
        log = client.get("/api/audit-log", headers=bearer(manager)).json()
        assert [entry["action"] for entry in log[-2:]] == ["coalitions formed", "opened to auditor"]


def test_headers_are_on_every_answer(served):
    client, _ = served
    for path in ("/login", "/health", "/api/me", "/nowhere", "/static/picture.js", "/openapi.json"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


def test_no_secret_and_no_report_reaches_a_log(sqlite_store, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy.engine").setLevel(logging.INFO)
    try:
        with inside(sqlite_store, tmp_path) as (client, manager):
            _, tokens = founded(client, manager)
            caplog.clear()  # inviting names members; what follows must not
            names_competitors(client, tokens["South"], "East")
            client.get("/api/me/reports", headers=bearer(tokens["South"]))
            client.put(
                "/api/me/reports", json={"competitors": ["Nobody"]}, headers=bearer(tokens["South"])
            )
            client.post("/api/invitations/accept", json={"invitation": "fe-invitation-guess"})
            client.post("/login", data={"secret": tokens["South"]})
            client.get("/member")
            client.get("/api/me", headers=bearer("fe-token-guess"))
            with sqlite_store.engine.connect() as connection:
                secrets = connection.execute(text("SELECT salt FROM competition_reports")).all()
    finally:
        logging.getLogger("sqlalchemy.engine").setLevel(logging.NOTSET)
    written = "\n".join(
        record.getMessage() + str(record.args or "") + (record.exc_text or "")
        for record in caplog.records
        if not record.name.startswith(("httpx2", "asyncio"))  # of the client in this test
    )
    assert "competition_reports" in written  # the log is on
    assert "PUT /api/me/reports 200" in written
    for secret in (manager, *tokens.values(), "guess", *(salt for (salt,) in secrets)):
        assert secret not in written
    assert "South" not in written
    assert "East" not in written


def test_a_full_disk_and_a_lost_database_are_said_plainly(sqlite_store, tmp_path, monkeypatch):
    with inside(sqlite_store, tmp_path) as (client, manager):
        founded(client, manager)
        sqlite_store.engine.dispose()
        (tmp_path / "coordinator.db").rename(tmp_path / "gone.db")
        (tmp_path / "coordinator.db").mkdir()
        for name in ("coordinator.db-wal", "coordinator.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        lost = client.get("/api/consortia", headers=bearer(manager))
        assert lost.status_code == 503
        assert "its log says more" in lost.json()["detail"]
        assert "coordinator.db" not in lost.text
        assert str(tmp_path) not in lost.text
        assert client.get("/health").status_code == 503
        (tmp_path / "coordinator.db").rmdir()
        (tmp_path / "gone.db").rename(tmp_path / "coordinator.db")
        assert client.get("/api/consortia", headers=bearer(manager)).status_code == 200

        def full(*_, **__):
            raise FullStoreError("there is no room left on the disk")

        monkeypatch.setattr("fedegoists.coordinator.domain.consortia.create", full)
        made = client.post("/api/consortia", json={"name": "New"}, headers=bearer(manager))
        assert made.status_code == 507


def test_an_unexpected_error_is_dressed_and_counted_like_any_answer(served, monkeypatch, caplog):
    client, manager = served

    def broken(*_, **__):
        raise RuntimeError("a secret path")

    monkeypatch.setattr("fedegoists.coordinator.domain.consortia.create", broken)
    for path, more in (("/api/consortia", {"json": {"name": "A"}, "headers": bearer(manager)}),):
        answer = client.post(path, **more)
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
    metrics = client.get("/metrics", headers=bearer(manager)).text
    assert 'route="/api/consortia",status="500"} 1.0' in metrics
    assert "a secret path" in caplog.text  # for whoever runs it


def test_no_answer_names_the_host_of_the_request(served):
    client, _ = served
    for path in ("/login/", "/", "/api/me/", "//evil.example/", "/member", "/consortia"):
        answer = client.get(path, headers={"Host": "evil.example"})
        assert "evil.example" not in answer.headers.get("location", ""), path
