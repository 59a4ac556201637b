"""Unfinished requests and unread answers do not keep others from the service."""

import resource
import socket
import ssl
import subprocess

import httpx2 as httpx
import pytest

from fedegoists.coordinator.domain import accounts
from fedegoists.coordinator.service.coordinator_service import Limits
from tests.coordinator.consortia import NAMES, found
from tests.coordinator.listening import HALF_OPEN, answer_of, ended_by_server, listening
from tests.coordinator.served import bearer, running
from tests.coordinator.waiting import until

LOGIN = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
CLOSING = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_unfinished_requests_from_any_address_do_not_stop_a_member(sqlite_store, tmp_path, source):
    """Also from the member's own; none of them waits long enough to be ended by its time."""
    _, tokens = found(sqlite_store, NAMES)
    limits = {"connections": 60, "per_address": 40, "header_seconds": 600}
    with listening(sqlite_store, tmp_path, **limits) as service:
        held = [service.connect(HALF_OPEN, source) for _ in range(150)]
        until(lambda: len(service.gate) == 40)
        answers = [
            httpx.get(f"{service.url}/api/me", headers=bearer(tokens["East"])) for _ in range(5)
        ]
        assert [answer.status_code for answer in answers] == [200] * 5
        assert len(service.gate) <= 41
        assert service.ended("replaced") >= 110
        assert ended_by_server(held[0])


def test_many_addresses_share_the_places_there_are(sqlite_store, tmp_path):
    limits = {"connections": 30, "per_address": 10, "header_seconds": 600}
    with listening(sqlite_store, tmp_path, **limits) as service:
        for k in range(1, 90):
            service.connect(HALF_OPEN, f"127.0.1.{k}")
        until(lambda: service.ended("replaced") >= 59)
        assert len(service.gate) == 30
        assert b"200 OK" in answer_of(service.connect(CLOSING))


def test_a_place_in_use_is_not_given_away(sqlite_store, tmp_path):
    """Who reads an answer keeps its place; a newcomer is turned away instead."""
    limits = {"connections": 3, "per_address": 3, "body_seconds": 600}
    with listening(sqlite_store, tmp_path, **limits) as service:
        token, _ = _large(service, tmp_path)
        readers = [service.connect(_asks_for_it(token)) for _ in range(3)]
        for one in readers:
            assert one.recv(12) == b"HTTP/1.1 200"
        assert ended_by_server(service.connect(CLOSING))
        assert service.ended("no place") == 1
        readers.pop().close()
        until(lambda: len(service.gate) < 3)
        assert b"200 OK" in answer_of(service.connect(CLOSING))


def test_a_stranger_that_reads_slowly_gives_up_its_place(sqlite_store, tmp_path):
    """Anyone can ask for the pages' scripts, and read them as slowly as is just allowed."""
    asked = CLOSING.replace(b"/health", b"/static/picture.js")
    limits = {"connections": 10, "per_address": 10, "body_seconds": 600}
    with listening(sqlite_store, tmp_path, send_buffer=4096, **limits) as service:
        for _ in range(10):
            service.connect(asked, window=2048)
        until(lambda: sum(one.awaited == "reader" for one in list(service.gate._all)) == 10)
        assert b"200 OK" in answer_of(service.connect(CLOSING))
        assert service.ended("replaced") == 1


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "slow header"),
        (HALF_OPEN, "slow header"),
        (LOGIN + b"Content-Length: 20\r\n\r\nsec", "slow body"),
    ],
    ids=["nothing", "half a header", "half a body"],
)
def test_an_unfinished_request_is_ended(sqlite_store, tmp_path, sent, why):
    with listening(sqlite_store, tmp_path, header_seconds=0.3, body_seconds=0.3) as service:
        answer_of(service.connect(sent))
        assert service.ended(why) == 1
        until(lambda: not len(service.gate))


def test_an_unfinished_second_request_is_ended(sqlite_store, tmp_path):
    with listening(sqlite_store, tmp_path, header_seconds=0.3) as service:
        one = service.connect(CLOSING.replace(b"close", b"keep-alive"))
        seen = b""
        while not seen.endswith(b"}"):
            seen += one.recv(1000)
        one.sendall(b"GET")
        assert ended_by_server(one)
        assert service.ended("slow header") == 1


def test_more_of_an_unfinished_header_does_not_buy_time(sqlite_store, tmp_path):
    with listening(sqlite_store, tmp_path, header_seconds=0.5) as service:
        one = service.connect(HALF_OPEN)

        def refused():
            try:
                one.sendall(b"a")
            except OSError:
                return True
            return False

        until(refused)
        assert service.ended("slow header") == 1


def test_a_slow_body_of_a_member_is_read_and_a_stopped_one_is_not(sqlite_store, tmp_path):
    _, tokens = found(sqlite_store, NAMES)
    body = b'{"competitors": ["North"]}'
    head = (
        f"PUT /api/me/reports HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {tokens['East']}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    limits = {"body_seconds": 4.0, "bytes_per_second": 0.5}
    with listening(sqlite_store, tmp_path, **limits) as service:
        one = service.connect(head)
        for byte in body:
            one.sendall(bytes([byte]))
            until(_again(10))  # in all, longer than the four seconds of a body that stops
        assert b"200 OK" in answer_of(one)  # after more time than a stranger has
        two = service.connect(head + body[:5])
        assert ended_by_server(two)
        assert service.ended("slow body") == 1


def _again(times):
    """A condition that holds after some looks."""
    left = iter([False] * times + [True])
    return lambda: next(left)


def _large(service, folder):
    """The manager's token, and a run whose report is larger than what sockets hold."""
    from fedegoists.coordinator.domain.consortia import close_reports, consortium_with
    from fedegoists.coordinator.runs import run_records
    from fedegoists.coordinator.runs.run_orders import RunOrder, RunPlan

    store = service.service.store
    consortium_id, _ = found(store, NAMES, weights=[[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    with store.write() as session:
        _, token = accounts.accept_invitation(session, service.invitation)
        consortium = consortium_with(session, consortium_id)
        close_reports(session, "m", consortium)
        order = RunOrder(kind="benefit", plan=RunPlan(source="banks"))
        run = run_records.ordered_run(session, consortium, order, service.service.reach)
        run.state = "finished"
        session.add(run)
    runs, name = run_records.run_folder(folder, run)
    (runs / name).mkdir(parents=True)
    (runs / name / "report.html").write_bytes(b"x" * 30_000_000)
    return token, "/api/consortia/1/runs/1/report"


def _asks_for_it(token):
    return (
        "GET /api/consortia/1/runs/1/report HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()


def test_an_answer_that_is_not_read_is_ended_and_one_that_is_read_slowly_is_not(
    sqlite_store, tmp_path
):
    limits = {"body_seconds": 0.5, "bytes_per_second": 10_000}
    with listening(sqlite_store, tmp_path, **limits) as service:
        token, _ = _large(service, tmp_path)
        service.connect(_asks_for_it(token))
        until(lambda: service.ended("slow reader") == 1)
        slow = service.connect(_asks_for_it(token))
        got = 0
        while got < 30_000_000:
            part = slow.recv(1_000_000)
            assert part
            got += len(part)
            until(_again(1))
        assert service.ended("slow reader") == 1


def test_an_answer_that_is_left_unread_after_the_end_of_a_connection_is_ended(
    sqlite_store, tmp_path
):
    """It waits in the server's memory, though the server has closed the connection."""
    limits = {"body_seconds": 0.3, "bytes_per_second": 1e9}
    with listening(sqlite_store, tmp_path, **limits) as service:
        token, _ = _large(service, tmp_path)
        asked = _asks_for_it(token).replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n")
        service.connect(asked)
        until(lambda: service.ended("slow reader") == 1 and not len(service.gate))


def test_requests_beyond_a_limit_end_their_connection(sqlite_store, tmp_path):
    """So thousands of them, sent at once, cost one answer."""
    asked = CLOSING.replace(b"close", b"keep-alive")
    with listening(sqlite_store, tmp_path, Limits(requests_per_minute=60)) as service:
        seen = answer_of(service.connect(asked * 500))
    assert seen.count(b"HTTP/1.1 429") == 1
    assert seen.count(b"HTTP/1.1 ") <= 5


def test_web_sockets_are_not_served(sqlite_store, tmp_path):
    asked = CLOSING.replace(b"close", b"upgrade, close") + b""
    asked = asked.replace(b"\r\n\r\n", b"\r\nUpgrade: websocket\r\n\r\n")
    with listening(sqlite_store, tmp_path) as service:
        assert answer_of(service.connect(asked)).startswith(b"HTTP/1.1 200")


def test_eleven_hundred_half_open_requests_do_not_stop_a_member_nor_fill_the_log(tmp_path):
    """The process itself, with the limits that it has, and no more files than usual."""
    log = tmp_path / "log"
    with running(tmp_path / "data", log=log) as process:
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        before = log.stat().st_size
        held = []
        for _ in range(1100):
            one = socket.create_connection(("127.0.0.1", process.port), timeout=60)
            one.sendall(HALF_OPEN)
            held.append(one)
        seen = [httpx.get(f"{process.url}/health").status_code for _ in range(10)]
        assert seen == [200] * 10  # with those at the start, fewer than a stranger may send
        until(lambda: "connection was ended: replaced" in log.read_text())
        for one in held:
            one.close()
        assert process.stop() in (0, -15)
    written = log.stat().st_size - before
    assert written < 20_000, log.read_text()[-2000:]
    assert "more lines in the last period like: fedegoists.coordinator: connection ended" in (
        log.read_text()
    )


def test_unfinished_handshakes_are_counted_too(tmp_path):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout",
         "k.pem", "-out", "c.pem", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    options = ["--certificate", str(tmp_path / "c.pem"), "--key", str(tmp_path / "k.pem")]
    trust = ssl.create_default_context(cafile=str(tmp_path / "c.pem"))
    with running(tmp_path / "data", *options, scheme="https", log=tmp_path / "log") as process:
        held = [
            socket.create_connection(("127.0.0.1", process.port), timeout=60) for _ in range(300)
        ]
        assert httpx.get(f"{process.url}/health", verify=trust).status_code == 200
        assert ended_by_server(held[0])
        for one in held:
            one.close()
