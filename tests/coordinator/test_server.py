"""The coordinator as it is run: a process that is killed, stopped and started again."""

import hashlib
import itertools
import json
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest

from fedegoists.coordinator import server
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.audit_check import check_log
from tests.coordinator.banks import BANKS, PLAN, with_banks
from tests.coordinator.served import Process, bearer, invite_and_join, manager_token, running
from tests.coordinator.waiting import until

pytest.importorskip("torch", reason="runs need the extra train")


@pytest.mark.slow
def test_runs_survive_a_kill_and_leave_reports_to_those_they_are_for(tmp_path):
    data, log = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    with_banks(data)
    first = Process(data, log=log)
    with httpx.Client(base_url=first.url, timeout=60) as client:
        manager = manager_token(first)
        head = bearer(manager)
        founded = client.post("/api/consortia", json={"name": "Banks"}, headers=head)
        consortium = founded.json()["id"]
        api = f"/api/consortia/{consortium}"
        tokens = invite_and_join(client, manager, consortium, BANKS)
        client.put(
            "/api/me/reports", json={"competitors": ["Birch"]}, headers=bearer(tokens["Alder"])
        )
        client.post(f"{api}/reports/close", headers=head)
        edges = [[a, b, 1.0] for a, b in itertools.permutations(BANKS[:4], 2)]
        assert client.put(f"{api}/benefit", json={"edges": edges}, headers=head).status_code == 200
        formed = client.post(f"{api}/formations", json={}, headers=head)
        assert formed.status_code == 201, formed.text
        assert client.post(f"{api}/runs", json={"plan": PLAN}, headers=head).status_code == 201
        until(lambda: client.get(f"{api}/runs/1", headers=head).json()["state"] != "queued")
    first.kill()  # in the middle of training
    first.stop()

    with running(data, log=log) as second:
        assert "one-time login" not in second.said  # there is a manager
        with pytest.raises(AssertionError, match="another coordinator is running"):
            Process(data, log=tmp_path / "other-log").stop()
        with httpx.Client(base_url=second.url, timeout=60) as client:
            with client.stream("GET", f"{api}/runs/1/events", headers=head) as events:
                assert events.headers["content-type"].startswith("text/event-stream")
                lines = list(events.iter_lines())
            assert lines[-3:-1] == ["event: end", 'data: "finished"'], log.read_text()
            told = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            assert told[-1]["state"] == "finished"
            report = client.get(f"{api}/runs/1/report", headers=head)
            assert report.status_code == 200
            assert "script" not in report.headers["content-security-policy"]
            assert "default-src 'none'" in report.headers["content-security-policy"]
            pages = {}
            for name, token in tokens.items():
                own = client.get("/api/me/runs/1/report", headers=bearer(token))
                assert own.status_code == 200, own.text
                assert f"This page is for <bdi>{name}" in own.text.replace("\n", "")
                pages[name] = own.text
                model = client.get("/api/me/runs/1/model", headers=bearer(token))
                assert model.content[8:9] == b"{"  # as a safetensors file begins
            assert len(set(pages.values())) == len(BANKS)
            for address in (f"{api}/runs/1/report", f"{api}/runs/1/events"):
                assert client.get(address, headers=bearer(tokens["Elm"])).status_code == 403
            unknown = client.get("/api/me/runs/9/report", headers=bearer(tokens["Elm"]))
            assert unknown.status_code == 404
    written = log.read_text()
    for secret in (manager, *tokens.values()):
        assert secret not in written
    assert "Alder" not in written
    store = CoordinatorStore(f"sqlite:///{data / 'coordinator.db'}")
    with store.read() as session:
        assert check_log(session).ok
    store.close()


def test_the_commands_check_back_up_and_restore(tmp_path, run):
    with running(tmp_path / "data", log=tmp_path / "log") as process:
        manager_token(process)
        code, out, _ = run("backup", str(tmp_path / "b.tar.gz"), "--data", str(tmp_path / "data"))
        assert code == 0, out
        head = out.split()[-1]
        assert process.stop() in (0, -signal.SIGTERM)
    key = tmp_path / "data" / "backup.key"
    into = ("restore", str(tmp_path / "b.tar.gz"), "--data", str(tmp_path / "new"))
    assert run(*into, "--key", str(key))[0] == 2  # without a head
    code, _, err = run(*into, "--head", head)
    assert (code, "give the key" in err) == (2, True)
    code, out, err = run(*into, "--head", head, "--key", str(key))
    assert (code, "All tokens and sessions have ended" in out) == (0, True), err
    assert (tmp_path / "new" / "backup.key").read_bytes() == key.read_bytes()
    code, out, _ = run(
        "audit-log", "verify", "--data", str(tmp_path / "new"), "--head", head, "--json"
    )
    assert code == 0
    assert json.loads(out)["entries"] == 3
    assert run("audit-log", "verify", "--data", str(tmp_path / "new"), "--head", "0f" * 32)[0] == 1
    code, out, _ = run("audit-log", "show", "--data", str(tmp_path / "new"))
    assert json.loads(out.splitlines()[-1])["action"] == "restored from backup"
    code, _, err = run("audit-log", "verify", "--data", str(tmp_path / "nowhere"))
    assert (code, "no coordinator keeps its data here" in err) == (2, True)
    code, out, _ = run("manager-login", "--data", str(tmp_path / "new"))
    assert out.startswith("fe-invitation-")
    code, _, err = run(*into, "--head", head, "--key", str(key))
    assert (code, "not empty" in err) == (2, True)


def test_a_stopped_service_leaves_all_in_one_file_and_nothing_for_others(tmp_path):
    (tmp_path / "data" / "runs" / "consortium-1").mkdir(parents=True)
    log = tmp_path / "data" / "runs" / "consortium-1" / "log.txt"
    log.write_text("of an earlier version")
    log.chmod(0o644)
    with running(tmp_path / "data", log=tmp_path / "log") as process:
        manager = manager_token(process)
        for k in range(20):
            httpx.post(
                f"{process.url}/api/consortia", json={"name": f"{k}"}, headers=bearer(manager)
            )
        assert process.stop() in (0, -signal.SIGTERM)
    names = {path.name for path in (tmp_path / "data").iterdir() if "coordinator.db" in path.name}
    assert names == {"coordinator.db", "coordinator.db.lock"}
    for path in (tmp_path / "data").rglob("*"):
        assert not path.stat().st_mode & 0o077 or path.name == "data", path


def test_two_services_over_one_file_in_two_folders(tmp_path, starting, free_port):
    """The folders have their own locks; the file has one beside it."""
    database = f"sqlite:///{tmp_path / 'shared.db'}"
    store = CoordinatorStore(database)
    with store.alone():
        code, out, err = starting("--port", str(free_port), "--database", database)
    assert (code, out) == (2, "")
    assert "another coordinator is running over this database file" in err
    code, out, _ = starting("--port", str(free_port), "--database", database)
    assert (code, "one-time login" in out) == (0, True)
    store.close()


def test_a_kit_that_is_none_is_refused_at_the_start(tmp_path, run):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    code, _, err = run("serve", "--data", str(tmp_path / "data"), "--kit", str(tmp_path))
    assert (code, "not a coordinator's kit" in err) == (2, True)


@pytest.fixture
def starting(tmp_path, run, monkeypatch):
    """Return a function that starts a coordinator which stops when it would serve."""

    class Stopped:
        def __init__(self, *_):
            pass

        def run(self, sockets):
            assert all(one.fileno() >= 0 for one in sockets)

    monkeypatch.setattr(server, "_config", lambda *_: None)  # would change what tests log
    monkeypatch.setattr(server, "_Server", Stopped)
    monkeypatch.setattr(server, "_gate", lambda *_: None)
    monkeypatch.setattr("os.umask", lambda _: 0)
    return lambda *options: run("serve", "--data", str(tmp_path / "data"), *options)


@pytest.fixture
def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_port_that_is_in_use_is_said_before_any_login(tmp_path, starting, host):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, out, err = starting("--host", host, "--port", port)
    assert (code, out) == (2, "")
    assert err == f"error: port {port} is in use; choose another with --port\n"
    code, out, _ = starting("--host", host, "--port", port)
    assert (code, "one-time login" in out) == (0, True)
    with sqlite3.connect(tmp_path / "data" / "coordinator.db") as database:
        assert database.execute("select count(*) from credentials").fetchone() == (1,)


def test_an_address_that_is_not_here_is_said(starting, free_port):
    code, out, err = starting("--host", "192.0.2.1", "--port", str(free_port))
    assert (code, out, "cannot be listened on" in err) == (2, "", True)
    code, out, err = starting("--host", "no.such.host.invalid", "--port", str(free_port))
    assert (code, out, "no such address" in err) == (2, "", True)
    code, out, err = starting("--host", "no..such", "--port", str(free_port))
    assert (code, out, "no such address" in err) == (2, "", True)


def test_an_address_that_this_machine_lacks_does_not_keep_others_from_it(
    starting, free_port, monkeypatch
):
    stream = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    addresses = [
        (socket.AF_INET6, *stream, ("2001:db8::1", free_port, 0, 0)),
        (socket.AF_INET, *stream, ("127.0.0.1", free_port)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    code, out, _ = starting("--host", "localhost", "--port", str(free_port))
    assert (code, "one-time login" in out) == (0, True)


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ("--host 0.0.0.0", True),
        ("--host 0.0.0.0 --behind-proxy", False),
        ("--host 0.0.0.0 --certificate c.pem --key c.key", False),
        ("--host localhost", False),
        ("", False),
    ],
)
def test_unencrypted_connections_of_others_are_warned_of(
    tmp_path, starting, free_port, options, warned
):
    for name in ("c.pem", "c.key"):
        (tmp_path / name).touch()
    code, out, err = starting("--port", str(free_port), *options.split())
    assert (code, "one-time login" in out) == (0, True)
    assert "warning" not in out
    if warned:
        assert err.startswith("warning: logins and reports of competitors cross")
        assert "--certificate" in err
        assert "--behind-proxy" in err
    else:
        assert err == ""


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, cwd=folder, capture_output=True)


def test_a_member_can_show_a_client_certificate(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    for name, more in (
        ("server", ["-addext", "subjectAltName=IP:127.0.0.1"]),
        ("member", ["-addext", "basicConstraints=critical,CA:TRUE"]),
    ):
        openssl(
            tmp_path, "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem",
            "-subj", f"/CN={name}", *more,
        )  # fmt: skip
    options = ["--certificate", "server.pem", "--key", "server.key", "--client-ca", "member.pem"]
    options = [str(tmp_path / part) if "." in part else part for part in options]
    trust = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
    shows = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
    shows.load_cert_chain(tmp_path / "member.pem", tmp_path / "member.key")
    pem = (tmp_path / "member.pem").read_text()
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    with (
        running(tmp_path / "data", *options, scheme="https", log=tmp_path / "log") as process,
        httpx.Client(base_url=process.url, verify=trust) as client,
    ):
        manager = manager_token(process, verify=trust)
        made = client.post("/api/consortia", json={"name": "B"}, headers=bearer(manager))
        assert "strict-transport-security" in made.headers
        token = invite_and_join(client, manager, made.json()["id"], ["North"])["North"]
        with httpx.Client(base_url=process.url, verify=shows) as other:
            assert other.get("/api/me").status_code == 401  # not registered yet
            path, body = "/api/me/client-certificate", {"sha256": fingerprint}
            # Whoever registers it must have it, or another member could.
            assert client.put(path, json=body, headers=bearer(token)).status_code == 403
            added = other.put(path, json=body, headers=bearer(token))
            assert added.status_code == 204, added.text
            assert other.put(path, json=body, headers=bearer(token)).status_code == 409
            assert other.get("/api/me").json()["member"] == "North"
            assert other.get("/api/consortia").status_code == 403
            again = client.post(
                f"/api/consortia/{made.json()['id']}/members/North/invitation",
                headers=bearer(manager),
            )
            assert other.get("/api/me").status_code == 401  # it ended with the token
            accepted = client.post(
                "/api/invitations/accept", json={"invitation": again.json()["invitation"]}
            )
            token = accepted.json()["token"]
            assert other.put(path, json=body, headers=bearer(token)).status_code == 204
            assert other.get("/api/me").json()["member"] == "North"
        assert client.get("/api/me").status_code == 401


def test_the_service_does_not_load_what_training_needs():
    code = f"import sys, {server.__name__}; print({{'torch', 'nvflare'}} & {{*sys.modules}})"
    seen = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert seen.stdout.strip() == "set()"
