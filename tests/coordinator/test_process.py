"""The coordinator as it is run: a process that is killed, stopped and started again."""

import hashlib
import itertools
import json
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import time
from pathlib import Path

import httpx2 as httpx
import pytest
from pydantic import ValidationError

from fedegoists.benefit import ESTIMATOR_ENTRIES
from fedegoists.consortium.progress import SILENT
from fedegoists.coordinator import server
from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.domain import coalition_decisions, consortia
from fedegoists.coordinator.domain.coalition_decisions import FormationOrder
from fedegoists.coordinator.domain.worker_process import WorkerProcess
from fedegoists.coordinator.runs import decided_pipeline, run_records
from fedegoists.coordinator.runs.run_orders import Reach, RunOrder, RunPlan, RunTask
from fedegoists.coordinator.runs.run_queue import RunQueue
from fedegoists.coordinator.runs.run_worker import work_on
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.audit_check import check_log
from fedegoists.coordinator.store.database_tables import BenefitRow, RunRow
from fedegoists.errors import SettingsError
from fedegoists.graphs import CompetitionGraph
from tests.coordinator.consortia import found, report
from tests.coordinator.served import (
    Process,
    bearer,
    inside,
    invite_and_join,
    manager_token,
    running,
)

torch = pytest.importorskip("torch", reason="runs need the extra train")

BANKS = ["Alder", "Birch", "Cedar", "Dogwood", "Elm"]
PLAN = {"source": "banks", "methods": ["local", "fedegoists"], "seeds": 1, "steps": 40}


def with_banks(data: Path) -> None:
    """Put the example banks' files where the coordinator looks for them."""
    from fedegoists.consortium.example_files import init

    init(data / "example", "banks")
    (data / "silos").mkdir(parents=True)
    (data / "example" / "banks").rename(data / "silos" / "banks")


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
        until = time.monotonic() + 60
        while client.get(f"{api}/runs/1", headers=head).json()["state"] == "queued":
            assert time.monotonic() < until
            time.sleep(0.02)
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
    assert run("restore", str(tmp_path / "b.tar.gz"), "--data", str(tmp_path / "new"))[0] == 0
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
    code, _, err = run("restore", str(tmp_path / "b.tar.gz"), "--data", str(tmp_path / "new"))
    assert (code, "not empty" in err) == (2, True)


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


def test_a_run_over_flare_without_the_kit_says_so(sqlite_store, tmp_path):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    consortium_id, _ = found(sqlite_store, BANKS[:2])
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
        queued = run_records.enqueue(
            session,
            "manager m",
            consortium,
            RunOrder(kind="benefit", engine="flare", plan=RunPlan()),
            Reach(tmp_path, BANKS),
        )
    work_on(sqlite_store, queued.id, tmp_path)  # as if it was started again without --kit
    with sqlite_store.read() as session:
        failed = session.get(RunRow, queued.id)
    assert failed.state == "failed"
    assert "start it with the kit" in failed.error


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


def test_runs_learn_fail_with_a_reason_and_can_be_cancelled(sqlite_store, tmp_path, monkeypatch):
    with_banks(tmp_path)
    consortium_id, _ = found(sqlite_store, BANKS[:2])
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)

    def queued(**plan):
        with sqlite_store.write() as session:
            consortium = consortia.consortium_with(session, consortium_id)
            order = RunOrder(kind="benefit", plan=RunPlan(**plan))
            return run_records.enqueue(session, "manager m", consortium, order).id

    def after(run_id):
        work_on(sqlite_store, run_id, tmp_path)
        with sqlite_store.read() as session:
            return session.get(RunRow, run_id)

    learned = after(queued(source="banks", repeats=2, benefit_steps=5, threshold=0.0))
    assert learned.state == "finished", learned.error
    with sqlite_store.read() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        estimate = session.latest(BenefitRow, consortium)
        assert estimate.source == "learned by run 1"
        assert coalition_decisions.graph_of(estimate).participants == ("Alder", "Birch")
    failed = after(queued(source="nowhere"))
    assert failed.state == "failed"
    assert "nowhere" in failed.error
    missing = after(queued(source="synthetic-weak"))
    assert "no data of 'Alder'" in missing.error
    with pytest.raises(ValidationError):
        RunPlan(source="../../etc")
    shutil.copytree(tmp_path / "silos" / "banks", tmp_path / "elsewhere" / "private")
    monkeypatch.chdir(tmp_path / "elsewhere")  # as if the coordinator was started there
    outside = after(queued(source="private"))
    assert "no folder 'private' among the silos" in outside.error
    stopped = queued(source="banks")
    with sqlite_store.write() as session:
        run_records.cancel(session, "manager m", session.get(RunRow, stopped))
    assert after(stopped).state == "cancelled"
    with sqlite_store.read() as session:
        assert check_log(session).ok


def test_a_plan_that_cannot_work_is_refused_when_it_is_asked_for(
    sqlite_store, tmp_path, monkeypatch
):
    with_banks(tmp_path)
    consortium_id, _ = found(sqlite_store, BANKS[:2], weights=[[0, 1], [1, 0]])
    other_id, _ = found(sqlite_store, ["Alder", "Zelkova"], "Others")
    with sqlite_store.write() as session:
        for one in (consortium_id, other_id):
            consortium = consortia.consortium_with(session, one)
            consortia.close_reports(session, "manager m", consortium)
    coalition_decisions.Decider(sqlite_store).form("manager m", consortium_id, FormationOrder())
    refused = [
        (consortium_id, "training", {"source": "nope"}, "no folder 'nope' among the silos"),
        (consortium_id, "training", {"methods": ["foo"]}, "unknown method 'foo'; methods are lo"),
        (consortium_id, "benefit", {"methods": ["local+ft"]}, "unknown method 'local+ft'"),
        (other_id, "benefit", {}, "has no data of 'Zelkova'"),
    ]
    if not torch.cuda.is_available():
        refused.append((consortium_id, "training", {"device": "cuda"}, "no usable GPU"))
    with inside(sqlite_store, tmp_path) as (client, manager):
        head = bearer(manager)
        api = f"/api/consortia/{consortium_id}/runs"
        assert client.post("/login", data={"secret": manager}).status_code == 303
        csrf = re.search(r'name="csrf" value="(\w+)"', client.get("/consortia/1").text)[1]
        form = {"csrf": csrf, "kind": "training", "source": "nope"}
        answer = client.post(f"/consortia/{consortium_id}/runs", data=form)
        assert (answer.status_code, "among the silos" in answer.text) == (409, True)
        # A process for each of the others would only take longer.
        monkeypatch.setattr(WorkerProcess, "call", lambda _, function, *asked: function(*asked))
        for one, kind, change, words in refused:
            body = {"kind": kind, "plan": {**PLAN, **change}}
            answer = client.post(f"/api/consortia/{one}/runs", json=body, headers=head)
            assert (answer.status_code, words in answer.text) == (409, True), answer.text
            assert client.get(f"/api/consortia/{one}/runs", headers=head).json() == []
        assert client.post(api, json={"plan": PLAN}, headers=head).status_code == 201
    assert not (tmp_path / "runs").exists()  # nothing was begun
    with sqlite_store.read() as session:
        assert check_log(session).ok


def test_methods_are_checked_over_flare_too(tmp_path):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    names = tuple(BANKS[:2])

    def task(method):
        competition = CompetitionGraph([], names)
        plan = RunPlan(methods=(method,))
        folders = (tmp_path, "run-1", tmp_path / "silos")
        return RunTask(plan, "flare", competition, None, *folders)

    decided_pipeline.check(task("fedavg"))
    with pytest.raises(SettingsError, match="unknown method 'foo'"):
        decided_pipeline.check(task("foo"))


def test_a_helping_process_leaves_it_to_the_service_what_ctrl_c_means():
    process = WorkerProcess()
    assert process.call(signal.getsignal, signal.SIGINT) == signal.SIG_IGN
    process.close()


def test_what_nobody_expected_of_a_plan_is_said_and_logged(sqlite_store, tmp_path, caplog):
    names = tuple(BANKS[:2])
    competition = CompetitionGraph([], names)
    folders = (tmp_path, "run-1", tmp_path / "silos")
    task = RunTask(None, "simulation", competition, None, *folders)
    queue = RunQueue(sqlite_store, tmp_path)
    with pytest.raises(ConflictError, match="unexpected: AttributeError; see the log"):
        queue._check(task)
    assert "a run could not begin" in caplog.text
    with queue._one_preflight, pytest.raises(ConflictError, match="another run is being tried out"):
        queue._check(task)
    queue.stop()
    with pytest.raises(ConflictError, match="the coordinator stops"):
        queue._check(task)


MINGLING = [name for name, entry in ESTIMATOR_ENTRIES.items() if entry.mingles]


@pytest.mark.parametrize("competing", [False, True])
@pytest.mark.parametrize("estimator", ["auto", *ESTIMATOR_ENTRIES])
def test_benefits_are_learned_only_in_ways_that_keep_competitors_apart(
    sqlite_store, tmp_path, estimator, competing
):
    consortium_id, _ = found(sqlite_store, BANKS[:3])
    if competing:
        report(sqlite_store, consortium_id, BANKS[0], BANKS[1])
    plan = RunPlan(source="banks", estimator=estimator)
    with sqlite_store.write() as session:
        consortium = consortia.consortium_with(session, consortium_id)
        consortia.close_reports(session, "manager m", consortium)
        run = (
            session,
            "manager m",
            consortium,
            RunOrder(kind="benefit", engine="simulation", plan=plan),
        )
        if competing and estimator in MINGLING:
            with pytest.raises(ConflictError, match=f"{estimator}.* choose 'transfer', 'align"):
                run_records.enqueue(*run)
        else:
            assert run_records.enqueue(*run).state == "queued"


def test_a_run_that_would_show_competitors_each_others_data_is_refused_at_its_start_too(tmp_path):
    """Reports may have changed while it was queued, and what ``auto`` means must not tell."""
    names = tuple(BANKS[:3])

    def task(estimator, pairs):
        plan = RunPlan(source="banks", estimator=estimator)
        competition = CompetitionGraph(pairs, names)
        folders = (tmp_path, "run-1", tmp_path / "silos")
        return RunTask(plan, "flare", competition, None, *folders)

    for pairs in ([], [names[:2]]):
        settings = decided_pipeline.settings_of(task("auto", pairs))
        assert settings.benefit.estimator == "transfer"
    for estimator in MINGLING:
        with pytest.raises(ConflictError, match="also to competitors"):
            decided_pipeline.learn(task(estimator, [names[:2]]), SILENT)
