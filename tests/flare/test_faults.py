"""A real deployment in trouble: silos and servers that are killed, slow, or not who they say."""

import json
import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

import psutil
from typer.testing import CliRunner

from fedegoists.cli import app
from fedegoists.consortium import Consortium
from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.consortium.engine import SiloAccess
from fedegoists.deploy.flare_engine import FlareEngine, over_silos
from fedegoists.deploy.kit_process import KitProcess
from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Failure, Participant
from fedegoists.federation.flare.certificate_authority import read_authority, read_request
from fedegoists.federation.flare.job_operator import Operator, UnreachableError
from fedegoists.federation.flare.kit_identity import fingerprint, silo_identity, spoken
from fedegoists.federation.flare.seals import AnswerSeal, unsealed
from tests.flare.loopback import run_deployed
from tests.flare.test_deployed import NAMES, assert_same_model, assert_same_table, speaks

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("silo_secrets")]

SOUTH, EAST = Participant("South"), Participant("East")


class Heard:
    """Keeps messages, and passes progress on."""

    def __init__(self, told, progress=lambda *_: None):
        self.told, self.progress = told, progress

    def __call__(self, *what):
        self.progress(*what)

    def message(self, text, *, waiting=False):
        self.told.append(text)


def family(process: KitProcess):
    parent = psutil.Process(process.pid)
    return [*parent.children(recursive=True), parent]


def jobs(process: KitProcess):
    """Return a kit's processes for jobs."""
    return [
        p for p in family(process) if p.pid != process.pid and "_process" in " ".join(p.cmdline())
    ]


def kill(process: KitProcess):
    for one in family(process):
        one.kill()


def start(federation):
    request = Evaluate(parameters=federation.schema.drawn(0), split="test")
    return dict.fromkeys(federation.participants, request)


def test_silos_that_are_slow_or_killed_are_left_out_and_come_back(deployment):
    told = []
    access = SiloAccess("run", deployment.kit, progress=Heard(told))
    engine = FlareEngine(deployment.settings, access)
    try:
        federation = engine.federation("mlp")
        requests = start(federation)
        before = federation.call(requests)
        assert not any(isinstance(reply, Failure) for reply in before.values())

        # A round closes after its deadline, whoever is still at work.
        slow = jobs(deployment.processes["South"])
        for one in slow:
            one.send_signal(signal.SIGSTOP)
        replies = federation.call(requests, timeout=3.0)
        for one in slow:
            one.send_signal(signal.SIGCONT)
        assert replies[SOUTH] == Failure(SOUTH, "timeout", replies[SOUTH].detail)
        assert replies[EAST] == before[EAST]
        assert federation.call(requests, timeout=30.0) == before

        # A silo that is killed is named and left out, and rejoins by itself.
        kill(deployment.processes["East"])
        replies = federation.call(requests, timeout=60.0)
        assert isinstance(replies[EAST], Failure)
        assert replies[EAST].reason == "error"
        assert replies[SOUTH] == before[SOUTH]
        assert any("East is away" in text for text in told)
        began = time.monotonic()
        while isinstance(replies[EAST], Failure):
            assert time.monotonic() - began < 90, told
            time.sleep(0.5)
            replies = federation.call(requests, timeout=60.0)
        assert replies == before
        assert any("East is back" in text for text in told)
    finally:
        engine.close()


def test_a_run_goes_on_after_its_server_and_a_silo_were_killed(deployment):
    """Also with layers that silos keep to themselves: they go back to the checkpoint as well."""
    changes = [
        'training.methods=["fedavg", "fedegoists"]',
        'training.model="mlp"',
        'training.personal=["output."]',
        "training.steps=100",
        "training.seeds=1",
    ]
    settings = read_settings(deployment.file, [*changes, 'output.folder="over-flare"'])
    told, old, rounds = [], [], []

    def killing(stage, what, done, total, remark):
        if stage == "training" and what == "fedegoists":
            rounds.append(done)
        if len(rounds) == 4 and not old:
            operator = Operator(deployment.kit)
            old.extend(job for job, state in operator.status().jobs.items() if state == "running")
            operator.close()
            kill(deployment.processes[""])
            kill(deployment.processes["East"])

    run = run_deployed(settings, deployment.kit, "killed", progress=Heard(told, killing))
    assert any("going on from the last checkpoint" in text for text in told)
    assert json.loads((run.folder / "run.json").read_text())["state"] == "finished"
    settings = read_settings(deployment.file, [*changes, 'output.folder="simulated"'])
    simulated = Consortium(settings).run("not-killed")
    assert not run.outcomes["fedegoists"].failures
    for name in ("metrics.csv", "gains.csv", "benefit.csv"):
        if simulated.gains or name != "gains.csv":
            assert_same_table(run.folder / name, simulated.folder / name)
    # Everybody has its whole model, with the layers that never left.
    models = [deployment.silo(name) / "models" / "killed.safetensors" for name in NAMES]
    for name, delivered in zip(NAMES, models, strict=True):
        assert_same_model(delivered, simulated.folder / "models" / f"{name}.safetensors")
        kept = run.folder / "models" / f"{name}.safetensors"
        assert b"output.weight" not in kept.read_bytes()
        assert b"output.weight" in delivered.read_bytes()
    # The job that died with the server is not shown as running.
    operator = Operator(deployment.kit)
    jobs_now = operator.status().jobs
    operator.close()
    assert old
    assert all(jobs_now[job] not in ("running", "waiting") for job in old)
    # Who was away at the end gets its model when the same run is started again; nobody trains.
    expected = models[0].read_bytes()
    models[0].unlink()
    trained = trainings(deployment)
    settings = read_settings(deployment.file, [*changes, 'output.folder="over-flare"'])
    run_deployed(settings, deployment.kit, "killed")
    assert models[0].read_bytes() == expected
    assert trainings(deployment) == trained


def trainings(deployment):
    logs = [(deployment.silo(name) / "silo.log").read_text() for name in NAMES]
    return [log.count("train for run") for log in logs]


def test_nobody_can_take_anothers_name(deployment, tmp_path):
    """A silo with a certificate of its own that claims to be another is turned away."""
    thief = tmp_path / "thief"
    leave_out = shutil.ignore_patterns("sockets")
    shutil.copytree(deployment.silo("South"), thief, ignore=leave_out)
    config = thief / "startup" / "fed_client.json"
    config.write_text(config.read_text().replace('"South"', '"East"'))
    heard = []
    process = KitProcess("silo", thief, tell=heard.append)
    threading.Thread(target=process.run, daemon=True).start()
    turned_away = "authenticated as 'South' but claimed endpoint 'East'"
    try:
        deployment.wait_until(lambda: any(turned_away in text for text in deployment.lines[""]))
        assert not any("Successfully registered" in text for text in heard)
    finally:
        process.stop()


def restart_south(deployment, operator, how, hears, monkeypatch):
    """Start South anew with the code of a folder on its path that does more than it should."""
    deployment.processes["South"].stop()
    monkeypatch.setenv("SOUTH_HEARS", str(hears))
    paths = [str(Path(__file__).parent / how), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    deployment.start("South")
    deployment.wait_until(lambda: deployment.processes["South"].pid is not None)
    monkeypatch.undo()
    now = time.time()
    deployment.wait_until(lambda: operator.status().silos.get("South", 0.0) > now)


def test_a_silo_cannot_ask_another_silo(deployment, tmp_path, monkeypatch):
    """South is started as a curious one: it asks the others of the job for what they know."""
    operator = Operator(deployment.kit)
    restart_south(deployment, operator, "curious", tmp_path, monkeypatch)
    operator.close()
    engine = FlareEngine(deployment.settings, SiloAccess("run", deployment.kit))
    try:
        federation = engine.federation("mlp")
        replies = federation.call(start(federation), timeout=60.0)
        assert not any(isinstance(reply, Failure) for reply in replies.values())
    finally:
        engine.close()
    answers = {path.name: unsealed(AnswerSeal, path.read_bytes()) for path in tmp_path.iterdir()}
    assert set(answers) == {"North-Bank", "East"}
    for answer in answers.values():
        assert answer.message == b""
        assert "a call for South in loopback" in answer.seal.refused
    log = (deployment.silo("East") / "silo.log").read_text()
    assert "refused a message of South before reading it: a call for South" in log


def test_a_silo_cannot_reach_into_a_job_of_others(deployment, tmp_path, monkeypatch):
    """South is no part of the job of East and North Bank, and asks there under several names."""
    operator = Operator(deployment.kit)
    restart_south(deployment, operator, "outsider", tmp_path, monkeypatch)
    sent = []
    engine = FlareEngine(
        deployment.settings,
        SiloAccess("run", deployment.kit, ("East", "North Bank")),
        record=lambda way, site, message: sent.append((way, site, message)),
    )
    log = deployment.silo("East") / "silo.log"
    try:
        federation = engine.federation("mlp")
        replies = federation.call(start(federation), timeout=60.0)
        assert not any(isinstance(reply, Failure) for reply in replies.values())
        message = next(m for way, site, m in reversed(sent) if (way, site) == ("to", "East"))
        before = log.read_text()
        job = engine.link._open.number  # jobs of other tests may still be ending
        asked = {"job": job, "message": message.hex()}  # what East has just answered
        (tmp_path / "unfinished").write_text(json.dumps(asked))
        (tmp_path / "unfinished").rename(tmp_path / "asked")
        deployment.wait_until((tmp_path / "heard").exists)
        # The job goes on, and nobody answered South or noticed a question in its own name.
        replies = federation.call(start(federation), timeout=60.0)
        assert not any(isinstance(reply, Failure) for reply in replies.values())
    finally:
        engine.close()
        operator.close()
    heard = json.loads((tmp_path / "heard").read_text())
    assert len(heard) == 6
    assert {payload for _, payload in heard.values()} == {"None"}
    assert {code for code, _ in heard.values()} <= {"comm_error", "timeout"}
    told = "\n".join(deployment.lines[""])  # the server's log
    for claimed in ("South", f"South.{job}"):
        assert f"rejected Collab call from {claimed}: origin is not a participant" in told
    assert f"bound to origin South, not message origin server.{job}" in told
    assert log.read_text().removeprefix(before).count("evaluate") == 1


def deploy(*arguments):
    result = CliRunner().invoke(app, ["deploy", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def connected(operator, site, since):
    """Return whether a site has been heard of since a time."""
    return operator.status().silos.get(site, 0.0) > since


def signed_again(deployment, name, folder):
    """Let a silo make a new key, and return the certificate that the manager issues for it."""
    kit = deployment.silo(name)
    deploy("renew", kit)
    digits = spoken(fingerprint(read_request(kit / f"{name}.csr")))
    sign = ("sign", kit / f"{name}.csr", "--out", deployment.folder, "--fingerprint", digits)
    deploy(*sign, "--certificate", folder / f"{name}.crt")
    return folder / f"{name}.crt"


@pytest.mark.long
def test_a_silo_renews_its_key_while_a_run_goes_on(deployment, tmp_path):
    """Only this silo connects again; the others answer meanwhile."""
    kit, told = deployment.silo("East"), []
    before = silo_identity(kit)
    others = {name: deployment.processes[name].pid for name in ("", "North Bank")}
    access = SiloAccess("run", deployment.kit, progress=Heard(told))
    engine = FlareEngine(deployment.settings, access)
    try:
        federation = engine.federation("mlp")
        requests = start(federation)
        expected = federation.call(requests, timeout=60.0)
        certificate = signed_again(deployment, "East", tmp_path)
        assert federation.call(requests, timeout=60.0) == expected  # with the old key
        deploy("install", certificate, kit)
        deployment.wait_until(lambda: any("new certificate" in x for x in deployment.lines["East"]))
        replies = federation.call(requests, timeout=60.0)
        assert replies[SOUTH] == expected[SOUTH]
        # It comes back by itself, with the new key, into the same run.
        deployment.wait_until(
            lambda: federation.call(requests, timeout=60.0) == expected, seconds=120.0
        )
    finally:
        engine.close()
    after = silo_identity(kit)
    assert after.certificate.public_key() != before.certificate.public_key()
    assert others == {name: deployment.processes[name].pid for name in others}
    # The old key may have been stolen: it alone is revoked, and the silo stays.
    deploy("revoke", "East", "--keep-newest", "--out", deployment.folder)
    assert speaks(deployment, kit / "startup" / "client.crt", kit / "startup" / "client.key")
    operator = Operator(deployment.kit)
    try:
        now = time.time()
        deployment.wait_until(lambda: connected(operator, "East", now))
    finally:
        operator.close()


@pytest.mark.long  # test_signed_calls and test_membership check revocation without processes
def test_a_revoked_silo_comes_back_only_with_a_new_certificate(deployment, tmp_path):
    kit = str(deployment.kit)
    operator = Operator(deployment.kit)
    try:
        assert operator.wait_for_silos(["South", "East", "North-Bank"], 60.0) == []
        assert deploy("status", "--kit", kit).count("connected") == 3
        engine = FlareEngine(deployment.settings, SiloAccess("run", deployment.kit))
        try:
            federation = engine.federation("mlp")
            requests = start(federation)
            assert not isinstance(federation.call(requests, timeout=60.0)[SOUTH], Failure)
            deploy("revoke", "South", "--out", deployment.folder)
            # At once, though its connection may still be open for a moment.
            replies = federation.call(requests, timeout=60.0)
            assert isinstance(replies[SOUTH], Failure)
            assert not isinstance(replies[EAST], Failure)
        finally:
            engine.close()
        ended = "a connection is ended: refused South: its certificate is revoked"
        deployment.wait_until(lambda: any(ended in text for text in deployment.lines[""]))
        deployment.wait_until(lambda: "South" not in operator.status().silos, seconds=90.0)
        # Restarted, it is refused as well: by the server, whatever its own kit knows.
        known = deployment.silo("South") / "revoked.pem"
        deployment.processes["South"].stop()
        known.write_bytes(read_authority(deployment.folder / "authority").revocation_list([], 1))
        log, refused = deployment.kit / "log.txt", "refused South: its certificate is revoked"
        before = log.read_text().count(refused)
        deployment.start("South")
        deployment.wait_until(lambda: log.read_text().count(refused) > before)
        assert "South" not in operator.status().silos
        assert "revoked" in deploy("status", "--kit", kit)
    finally:
        operator.close()
    # A run that needs it does not wait for what waiting cannot mend.
    access = SiloAccess("run", deployment.kit, required=True)
    with pytest.raises(SettingsError, match="certificate of 'South' is revoked"):
        over_silos(deployment.settings, access, lambda *_: None)
    # A run that does not need it leaves out who stays away, and names it.
    changes = ["deploy.wait=1", "training.seeds=1", "training.steps=20"]
    changes += ['training.methods=["local", "fedavg"]', 'output.folder="over-flare"']
    run = run_deployed(read_settings(deployment.file, changes), deployment.kit, "without-south")
    assert run.data.participants == ("East", "North Bank")
    assert "South: did not answer and is left out" in (run.folder / "log.txt").read_text()
    report = (run.folder / "report.html").read_text()
    assert re.search(r"<li>data: .*South.*, did not answer and was left out</li>", report)
    # The manager may admit it again, with a new key, and a run that needs it waits for it.
    a_run_waits(deployment, signed_again(deployment, "South", tmp_path))


def a_run_waits(deployment, certificate):
    """Have a run wait for South, and South come back with a certificate."""
    settings = read_settings(deployment.file, ["deploy.wait=1"])
    told, reached = [], []
    impatient = SiloAccess("run", deployment.kit, required=True, patience=2.0)
    with pytest.raises(UnreachableError, match="the silo of 'South' does not answer"):
        over_silos(settings, impatient, lambda *_: None)
    access = SiloAccess("run", deployment.kit, required=True, progress=Heard(told))

    def run():
        reached.extend(over_silos(settings, access, lambda engine, _: engine.about))

    waiting = threading.Thread(target=run, daemon=True)
    waiting.start()
    # Longer than a single look for silos takes.
    deployment.wait_until(lambda: any("then trying again" in text for text in told))
    assert "waiting for the silo of South" in told
    deploy("install", certificate, deployment.silo("South"))
    waiting.join(120.0)
    assert sorted(reached) == sorted(NAMES)
