"""Bodies are read from those who are signed in, and in sizes that their route needs."""

import json
import threading

import httpx2 as httpx
import pytest

from fedegoists.coordinator.domain import accounts
from fedegoists.coordinator.service import manager_api
from fedegoists.coordinator.service.coordinator_service import Limits
from fedegoists.coordinator.service.request_bodies import ANONYMOUS_BYTES, USUAL_BYTES
from fedegoists.coordinator.service.request_identity import COOKIE
from tests.coordinator.consortia import NAMES, found
from tests.coordinator.listening import answer_of, listening
from tests.coordinator.served import EDGES, MANY, bearer, founded

LARGE = 14_000_000


def asked(client, method, path, headers=(), length=LARGE):
    """Send the header of a request with a body; return the answer and how often it was read."""
    reads, sent = [], []

    async def receive():
        reads.append(1)
        return {"type": "http.request", "body": b"x" * 1000, "more_body": len(reads) < 100}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"host", b"x"),
            (b"content-type", b"application/json"),
            (b"content-length", str(length).encode()),
            *((name.lower().encode(), value.encode()) for name, value in dict(headers).items()),
        ],
        "client": ("192.0.2.1", 1),
        "server": ("x", 80),
    }
    client.portal.call(client.app, scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), len(reads)


def operations(client):
    for path, item in client.app.openapi()["paths"].items():
        for method in item:
            filled = path.replace("{consortium_id}", "1").replace("{number}", "1")
            yield method.upper(), filled.replace("{name}", "East").replace("{label}", "East")


@pytest.mark.parametrize(
    "headers", [{}, bearer("fe-token-wrong"), {"Cookie": "fedegoists_session=x"}]
)
def test_nothing_is_read_of_a_stranger(served, headers):
    client, _ = served
    for method, path in [*operations(client), ("POST", "/member/reports"), ("POST", "/nowhere")]:
        status, answered, reads = asked(client, method, path, headers)
        secret = path == "/api/invitations/accept"
        api = path.startswith("/api/")
        assert (status, reads) == (413 if secret else 401 if api else 303, 0), (method, path)
        assert answered[b"connection"] == b"close"  # or the rest would be read as a request


def test_a_login_is_read_and_is_small(served):
    client, _ = served
    status, _, reads = asked(client, "POST", "/api/invitations/accept", length=ANONYMOUS_BYTES)
    assert (status, reads) == (413, ANONYMOUS_BYTES // 1000 + 1)  # it sent more than it announced
    assert client.post("/login", data={"secret": "x"}).status_code == 401
    assert client.post("/login", data={"secret": "x" * ANONYMOUS_BYTES}).status_code == 413


def test_a_body_without_a_length_is_counted(served):
    client, manager = served

    def long():
        for _ in range(200):
            yield b"x" * 1000

    assert client.post("/api/invitations/accept", content=long()).status_code == 413
    assert client.post("/api/consortia", content=long()).status_code == 401
    head = bearer(manager)
    assert client.post("/api/consortia", content=long(), headers=head).status_code == 413


def test_large_bodies_are_for_the_benefit_graphs_of_managers(served):
    client, manager = served
    consortium, tokens = founded(client, manager)
    api = f"/api/consortia/{consortium}"
    member = bearer(tokens["East"])
    for path, method, headers, status in (
        (f"{api}/benefit", "PUT", bearer(manager), 413),  # after reading what it sent
        (f"{api}/benefit", "PUT", member, 413),
        (f"{api}/runs", "POST", bearer(manager), 413),
        ("/api/me/reports", "PUT", member, 413),
    ):
        large = path.endswith("benefit") and headers != member
        answer, _, reads = asked(client, method, path, headers)
        if large:
            assert (answer, reads) == (422, 100)
        else:
            assert (answer, reads) == (status, 0), path
    # Those of usual size are read.
    for length, answer in ((USUAL_BYTES, 409), (USUAL_BYTES + 1, 413)):
        body = json.dumps({"name": "Banks"}).ljust(length)
        assert client.post("/api/consortia", content=body, headers=bearer(manager)).status_code in (
            (answer,) if answer == 413 else (409, 422)
        )
    names = {"competitors": ["North"] * 5000}
    assert client.put("/api/me/reports", json=names, headers=member).status_code == 200


def test_a_graph_of_the_largest_size_is_recorded_and_a_wrong_one_is_explained(served):
    client, manager = served
    consortium, _ = founded(client, manager)
    path, head = f"/api/consortia/{consortium}/benefit", bearer(manager)
    spaced = json.dumps({"edges": EDGES}).ljust(LARGE)
    assert client.put(path, content=spaced, headers=head).json()["edges"] == len(EDGES)
    for body in (b"nonsense", b"", json.dumps({"edges": [["North", "South", -1]]}).encode()):
        wrong = client.put(path, content=body, headers=head)
        assert wrong.status_code == 422
        assert wrong.json()["detail"][0]["loc"][0] == "body"
    schema = client.get("/openapi.json").json()["paths"]["/api/consortia/{consortium_id}/benefit"]
    described = schema["put"]["requestBody"]["content"]["application/json"]["schema"]
    assert described["required"] == ["edges"]


def test_a_member_is_answered_while_strangers_post_large_bodies(sqlite_store, tmp_path):
    """They are refused by their header; on a real connection, and none of the body is awaited."""
    _, tokens = found(sqlite_store, NAMES)
    head = f"PUT /api/me/reports HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGE}\r\n\r\n".encode()
    with listening(sqlite_store, tmp_path) as service:
        for _ in range(20):
            one = service.connect(head + b"x" * 100_000)  # the rest never comes
            assert answer_of(one).startswith(b"HTTP/1.1 401")
            answer = httpx.get(f"{service.url}/api/me", headers=bearer(tokens["East"]))
            assert answer.status_code == 200


def test_a_refusal_reaches_a_sender_that_is_still_sending(sqlite_store, tmp_path):
    with listening(sqlite_store, tmp_path) as service:
        for _ in range(5):
            refused = httpx.put(f"{service.url}/api/me/reports", content=b"x" * 900_000)
            assert refused.status_code == 401


def test_an_endless_body_is_cut_off(sqlite_store, tmp_path):
    head = b"PUT /api/me/reports HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with listening(sqlite_store, tmp_path, header_seconds=600) as service:
        one = service.connect(head)
        with pytest.raises(ConnectionError):
            one.sendall(chunk * 1000)
        assert service.ended("refused body") == 1


def test_a_member_is_answered_while_a_large_graph_is_parsed(sqlite_store, tmp_path, monkeypatch):
    """Parsing ends only after the member was answered, so it is not in the member's way."""
    _, tokens = found(sqlite_store, NAMES)
    answered = threading.Event()
    begun = threading.Event()
    parse = manager_api.BenefitBody.model_validate_json

    def patient(content):
        begun.set()
        assert answered.wait(60)
        return parse(content)

    monkeypatch.setattr(manager_api.BenefitBody, "model_validate_json", patient)
    with listening(sqlite_store, tmp_path) as service:
        with sqlite_store.write() as session:
            _, manager = accounts.accept_invitation(session, service.invitation)
        results = []

        def upload():
            body = json.dumps({"edges": EDGES}).ljust(LARGE)
            url = f"{service.url}/api/consortia/1/benefit"
            results.append(httpx.put(url, content=body, headers=bearer(manager), timeout=60))

        thread = threading.Thread(target=upload)
        thread.start()
        try:
            assert begun.wait(60)
            answer = httpx.get(f"{service.url}/api/me", headers=bearer(tokens["East"]))
        finally:
            answered.set()
            thread.join()
    assert answer.status_code == 200
    assert results[0].status_code == 200


def test_a_failing_database_is_said_before_a_body_is_read(served, sqlite_store, tmp_path):
    client, manager = served
    sqlite_store.engine.dispose()
    (tmp_path / "coordinator.db").write_bytes(b"nonsense" * 1000)
    status, _, reads = asked(client, "PUT", "/api/me/reports", bearer(manager))
    assert (status, reads) == (503, 0)


def test_strangers_share_their_limit_with_bodies_too(sqlite_store, tmp_path):
    with listening(sqlite_store, tmp_path, Limits(failures_per_minute=3)) as service:
        url = f"{service.url}/api/me/reports"
        seen = [httpx.put(url, content=b"x").status_code for _ in range(5)]
    assert seen == [401] * 3 + [429] * 2
    assert MANY.failures_per_minute > 3


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b"abc"),
        ("multipart/form-data; boundary=b", b"--b\r\n" * 500),
        (
            "multipart/form-data; boundary=b; charset=nope",
            b'--b\r\nContent-Disposition: form-data; name="secret"\r\n\r\nx\r\n--b--\r\n',
        ),
        ("application/x-www-form-urlencoded", b"secret=%ED%A0%80"),
        ("application/x-www-form-urlencoded", b"secret=" + b"&secret=" * 400),
        ("application/json", b'{"invitation": "\\ud800"}'),
        ("application/json", b"[" * 4000),
        ("application/json", b'{"invitation": ' + b"9" * 4000),
    ],
)
@pytest.mark.parametrize("path", ["/login", "/api/invitations/accept"])
def test_nonsense_to_sign_in_with_is_refused(served, path, kind, body):
    client, _ = served
    answer = client.post(path, content=body, headers={"Content-Type": kind})
    assert 400 <= answer.status_code < 500


@pytest.mark.parametrize("name", ["Authorization", "Cookie", "X-CSRF-Token", "Origin", "Host"])
def test_nonsense_in_headers_is_refused(served, name):
    client, manager = served
    session = client.post("/login", data={"secret": manager}).cookies[COOKIE]
    client.cookies.clear()
    kind = {"Authorization": b"Bearer ", "Cookie": COOKIE.encode() + b"="}.get(name, b"")
    headers = {"Cookie": f"{COOKIE}={session}".encode(), name: kind + b"\xff\xfe\x80"}
    for method, path in (("GET", "/api/me"), ("POST", "/consortia"), ("PUT", "/api/me/reports")):
        answer = client.request(method, path, content=b"{}", headers=headers)
        assert answer.status_code in (303, 401, 403), (method, path)
