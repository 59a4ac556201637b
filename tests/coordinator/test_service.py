"""Roles, limits and protection of the service, on both databases."""

import asyncio
import itertools
import json
import logging
import threading
import time
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from fedegoists.commitments import MemberCertificate, Opening
from fedegoists.coordinator.coordinator_errors import FullStoreError
from fedegoists.coordinator.runs import run_records, run_worker
from fedegoists.coordinator.runs.run_orders import Reach
from fedegoists.coordinator.runs.run_queue import RunQueue
from fedegoists.coordinator.service.coordinator_service import Limits, Service
from fedegoists.coordinator.service.request_identity import COOKIE
from fedegoists.coordinator.service.web_app import create_app
from tests.coordinator.served import MANY, bearer, inside, invite_and_join

NAMES = ["North", "South", "East"]
EDGES = [
    [a, b, w]
    for a, row in zip(NAMES, [[0, 2, 1], [1, 0, 2], [2, 1, 0]], strict=True)
    for b, w in zip(NAMES, row, strict=True)
    if w
]


@pytest.fixture
def served(sqlite_store, tmp_path):
    with inside(sqlite_store, tmp_path) as both:
        yield both


@pytest.fixture
def any_plan(monkeypatch):
    """Plans are queued whether there is such data or not."""
    monkeypatch.setattr(RunQueue, "_check", lambda *_: None)


def founded(client, manager, name="Banks"):
    made = client.post("/api/consortia", json={"name": name}, headers=bearer(manager))
    assert made.status_code == 201, made.text
    consortium = made.json()["id"]
    return consortium, invite_and_join(client, manager, consortium, NAMES)


def decided(client, manager, consortium):
    api, head = f"/api/consortia/{consortium}", bearer(manager)
    assert client.put(f"{api}/benefit", json={"edges": EDGES}, headers=head).status_code == 200
    assert client.post(f"{api}/reports/close", headers=head).status_code == 200
    made = client.post(f"{api}/formations", json={}, headers=head)
    assert made.status_code == 201, made.text
    return made.json()


def names_competitors(client, token, *names):
    answer = client.put("/api/me/reports", json={"competitors": names}, headers=bearer(token))
    assert answer.status_code == 200, answer.text


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


def signed_in(client, token):
    answer = client.post("/login", data={"secret": token})
    assert answer.status_code == 303, answer.text
    page = client.get("/", follow_redirects=True)
    return page.text.split('data-csrf="')[1].split('"')[0]


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


def test_an_invitation_becomes_a_token_that_is_shown_once(served):
    client, manager = served
    made = client.post(
        "/api/accounts", json={"role": "manager", "label": "Bo"}, headers=bearer(manager)
    )
    page = client.post("/login", data={"secret": made.json()["invitation"]})
    token = page.text.split('<pre id="token">')[1].split("<")[0]
    assert client.get("/consortia").status_code == 200
    assert token not in client.get("/consortia").text
    assert client.post("/login", data={"secret": made.json()["invitation"]}).status_code == 401
    assert client.get("/api/consortia", headers=bearer(token)).status_code == 200


def test_headers_are_on_every_answer(served):
    client, _ = served
    for path in ("/login", "/health", "/api/me", "/nowhere", "/static/picture.js", "/openapi.json"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


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


def test_too_many_and_too_large_requests_are_refused(sqlite_store, tmp_path):
    limits = Limits(requests_per_minute=60, failures_per_minute=3, body_bytes=1000)
    with inside(sqlite_store, tmp_path, limits) as (client, manager):
        head = bearer(manager)
        assert client.get("/api/consortia", headers=head).status_code == 200  # now it is known
        large = client.post("/api/consortia", content=b"x" * 2000, headers=head)
        assert large.status_code == 413

        def endless():
            for _ in range(10):
                yield b"x" * 200

        assert (
            client.post("/api/consortia", content=endless(), headers=bearer(manager)).status_code
            == 413
        )
        # Ten at once and one more for every second that passes: many, on a slow machine.
        began, seen = time.monotonic(), [200]
        while seen[-1] == 200 and len(seen) < 500:
            seen.append(client.get("/api/consortia", headers=bearer(manager)).status_code)
        assert seen[-1] == 429
        assert len(seen) <= 12 + time.monotonic() - began
    with inside_again(sqlite_store, tmp_path, Limits(failures_per_minute=3)) as client:
        wrong = [client.get("/api/me", headers=bearer(f"w{k}")).status_code for k in range(5)]
        assert wrong[:3] == [401] * 3
        assert wrong[-1] == 429


def test_a_limit_is_for_a_token_however_it_is_written(sqlite_store, tmp_path):
    limits = Limits(requests_per_minute=60)
    with inside(sqlite_store, tmp_path, limits) as (client, manager):
        seen = [
            client.get(
                "/api/consortia",
                headers={"Authorization": f"Bearer{' ' * k}{manager}", "Cookie": f"other={k}"},
            ).status_code
            for k in range(1, 16)
        ]
        assert seen[0] == 200
        assert seen[-1] == 429
    with inside_again(sqlite_store, tmp_path, limits) as client:  # a cookie of another kind
        seen = [client.get("/login", headers={"Cookie": f"a={k}"}).status_code for k in range(15)]
        assert seen[-1] == 429


@pytest.mark.parametrize("header", ["Authorization", "Cookie"])
def test_wrong_tokens_are_counted_on_pages_too(sqlite_store, tmp_path, header):
    kind = "Bearer " if header == "Authorization" else f"{COOKIE}="
    limits = Limits(failures_per_minute=3)
    with inside_again(sqlite_store, tmp_path, limits) as client:
        seen = [
            client.get("/", headers={header: f"{kind}w{k}"}, follow_redirects=False).status_code
            for k in range(5)
        ]
    assert seen == [303] * 3 + [429] * 2


def test_wrong_tokens_do_not_keep_out_who_is_known(sqlite_store, tmp_path):
    limits = Limits(failures_per_minute=3)
    with inside(sqlite_store, tmp_path, limits) as (client, manager):
        consortium, tokens = founded(client, manager)
        head = bearer(tokens["East"])
        assert client.get("/api/me", headers=head).status_code == 200  # now it is known
        for k in range(3):
            assert client.get("/api/me", headers=bearer(f"w{k}")).status_code == 401
        assert client.get("/api/me", headers=bearer("w")).status_code == 429
        assert client.get("/api/me", headers=head).status_code == 200
        guess = client.post("/api/invitations/accept", json={"invitation": "w"}, headers=head)
        assert guess.status_code == 429
        path = f"/api/consortia/{consortium}/members/East"
        assert client.delete(path, headers=bearer(manager)).status_code == 204
        assert client.get("/api/me", headers=head).status_code == 401
        assert client.get("/api/me", headers=head).status_code == 429  # it is known no more


def test_invented_methods_do_not_fill_the_metrics(served):
    client, manager = served
    for k in range(5):
        assert client.request(f"INVENTED{k}", "/health").status_code == 405
    metrics = client.get("/metrics", headers=bearer(manager)).text
    assert "INVENTED" not in metrics
    assert 'method="other"' in metrics


def test_nobody_can_register_the_client_certificate_of_another(sqlite_store, tmp_path):
    """Its owner would then report its competitors under the name of whoever did."""
    with inside(sqlite_store, tmp_path) as (client, manager):
        _, tokens = founded(client, manager)
        body = {"sha256": "ab" * 32}
        path = "/api/me/client-certificate"
        refused = client.put(path, json=body, headers=bearer(tokens["East"]))
        assert refused.status_code == 403
        assert "on the connection" in refused.json()["detail"]


@contextmanager
def inside_again(store, data, limits):
    client = TestClient(create_app(Service(store, data, limits)))
    yield client
    client.close()


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


def test_invented_sessions_share_the_limit_of_strangers(sqlite_store, tmp_path):
    limits = Limits(requests_per_minute=600, failures_per_minute=10**6)  # 20 strangers at once
    with inside(sqlite_store, tmp_path, limits) as (client, manager):
        for path in ("/login", "/api/me"):
            seen = [
                client.get(path, headers={"Cookie": f"{COOKIE}=w{k}"}).status_code
                for k in range(40)
            ]
            assert seen[-1] == 429, path
        # Whoever is known is not kept out by that, once it was seen.
    with inside_again(sqlite_store, tmp_path, limits) as client:
        head = bearer(manager)
        assert client.get("/api/consortia", headers=head).status_code == 200
        while client.get("/login").status_code == 200:
            pass
        assert client.get("/api/consortia", headers=head).status_code == 200


@pytest.mark.usefixtures("any_plan")
def test_no_more_follow_runs_than_may(sqlite_store, tmp_path):
    """They ask at the same moment, so that all would see room before any is counted."""
    limits = MANY.model_copy(update={"streams": 3})
    with inside(sqlite_store, tmp_path, limits) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        api = f"/api/consortia/{consortium}/runs"
        plan = {"plan": {"source": "banks"}}
        assert client.post(api, json=plan, headers=bearer(manager)).status_code == 201
        service = client.app.state.service

        async def follow(statuses, gate):
            async def receive():
                await gate.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                    if len(statuses) == 8:
                        gate.set()

            head = [(b"authorization", f"Bearer {manager}".encode())]
            scope = {
                "type": "http", "method": "GET", "path": f"{api}/1/events", "headers": head,
                "query_string": b"", "raw_path": b"", "root_path": "", "scheme": "http",
                "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("testserver", 80),
            }  # fmt: skip
            await client.app(scope, receive, send)

        async def all_at_once():
            statuses, gate = [], asyncio.Event()
            await asyncio.gather(*(follow(statuses, gate) for _ in range(8)))
            return statuses

        statuses = client.portal.call(all_at_once)
        assert sorted(statuses) == [200] * 3 + [503] * 5
        assert service.streams == 0


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


def test_a_run_over_flare_needs_a_deployment(served):
    client, manager = served
    consortium, _ = founded(client, manager)
    decided(client, manager, consortium)
    assert client.get("/api/engines", headers=bearer(manager)).json() == ["simulation"]
    wanted = {"engine": "flare", "plan": {}}
    api = f"/api/consortia/{consortium}/runs"
    refused = client.post(api, json=wanted, headers=bearer(manager))
    assert refused.status_code == 409
    assert "--kit" in refused.json()["detail"]
    csrf = signed_in(client, manager)
    assert 'name="engine"' not in client.get(f"/consortia/{consortium}").text
    form = {"csrf": csrf, "kind": "training", "engine": "flare"}
    refused = client.post(f"/consortia/{consortium}/runs", data=form)
    assert (refused.status_code, "--kit" in refused.text) == (409, True)


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


@pytest.mark.usefixtures("any_plan")
def test_training_needs_only_the_kits_of_those_who_were_decided_about(sqlite_store, tmp_path):
    app = create_app(Service(sqlite_store, tmp_path, MANY, Reach(tmp_path, NAMES)))
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        invite_and_join(client, manager, consortium, ["Late"])
    client = TestClient(app)
    api = f"/api/consortia/{consortium}/runs"
    wanted = {"engine": "flare", "plan": {}}
    made = client.post(api, json=wanted, headers=bearer(manager))
    assert made.status_code == 201, made.text
    refused = client.post(api, json={**wanted, "kind": "benefit"}, headers=bearer(manager))
    assert (refused.status_code, "no kit of 'Late'" in refused.text) == (409, True)


def test_a_clock_behind_the_log_shows_in_health(sqlite_store, tmp_path, clock):
    with inside(sqlite_store, tmp_path) as (client, manager):
        founded(client, manager)
        clock.move(hours=-1)
        assert "clock is behind" in client.get("/health").json()["status"]


def test_runs_go_on_after_something_unexpected(sqlite_store, tmp_path, monkeypatch, caplog):
    looked = threading.Event()
    troubles = [OSError("no room for a process"), RuntimeError("a bug")]

    def unfinished(_):
        if troubles:
            raise troubles.pop()
        looked.set()

    monkeypatch.setattr("fedegoists.coordinator.runs.run_queue.SECONDS_AFTER_TROUBLE", 0.0)
    monkeypatch.setattr("fedegoists.coordinator.runs.run_records.next_run", unfinished)
    queue = RunQueue(sqlite_store, tmp_path)
    queue.start()
    try:
        assert looked.wait(30)
        assert not queue.lost
    finally:
        queue.stop()
    assert "no room for a process" in caplog.text
    assert not queue.lost  # it was told to stop


@pytest.mark.usefixtures("any_plan")
def test_only_deaths_without_progress_count(sqlite_store, tmp_path):
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        plan = {"plan": {"source": "banks"}}
        client.post(f"/api/consortia/{consortium}/runs", json=plan, headers=bearer(manager))
    queue, seen = RunQueue(sqlite_store, tmp_path), []
    for stage, done in [("a", 1), ("a", 1), ("a", 2), ("a", 1), ("b", 0), ("a", 2), ("b", 0)]:
        run_records.note_progress(sqlite_store, 1, stage, done, 9, "")
        seen.append(queue._died(1))
    assert seen == [1, 2, 1, 2, 1, 2, 3]


@pytest.mark.usefixtures("any_plan")
def test_a_remark_without_progress_is_noted_at_once(sqlite_store, tmp_path, monkeypatch):
    with inside(sqlite_store, tmp_path) as (client, manager):
        consortium, _ = founded(client, manager)
        decided(client, manager, consortium)
        plan = {"plan": {"source": "banks"}}
        client.post(f"/api/consortia/{consortium}/runs", json=plan, headers=bearer(manager))
    noted = []

    def note(*told, waiting):
        noted.append((*told[2:], waiting))
        return True

    monkeypatch.setattr(run_records, "note_progress", note)
    now = itertools.count(step=0.1)
    progress = run_worker.RunProgress(sqlite_store, 1, lambda: next(now))
    for done, loss in [(1, 3), (2, 2), (2, 2)]:
        progress("training", "fedavg", done, 9, f"loss {loss}")
    progress.message("East is away")
    progress.message("waiting for the server", waiting=True)
    assert noted == [
        ("training: fedavg", 1, 9, "loss 3", False),
        ("training: fedavg", 2, 9, "East is away", False),
        ("waiting", 2, 9, "waiting for the server", True),
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lost_queue_of_runs_shows_in_health(sqlite_store, tmp_path, monkeypatch):
    def ends(_):
        raise SystemExit

    with inside(sqlite_store, tmp_path) as (client, _):
        assert client.get("/health").json() == {"status": "ok"}
        queue = client.app.state.service.queue
        monkeypatch.setattr("fedegoists.coordinator.runs.run_queue.close_due", ends)
        queue.start()
        queue._thread.join(30)
        answer = client.get("/health")
    assert (answer.status_code, "not worked on" in answer.json()["status"]) == (503, True)


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
