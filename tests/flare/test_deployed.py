"""A real server and three silos on this machine with mutual TLS: runs, faults, refusals."""

import csv
import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

pytest.importorskip("nvflare", reason="the extra flare is not installed")


from fedegoists.cli import app
from fedegoists.consortium import Consortium
from fedegoists.consortium.consortium_settings import BenefitSection, read_settings
from fedegoists.consortium.engine import SiloAccess
from fedegoists.consortium.export import export, read_model
from fedegoists.consortium.progress import SILENT
from fedegoists.consortium.simulated_engine import SimulatedEngine
from fedegoists.consortium.stage_cache import StageStore
from fedegoists.deploy.flare_engine import over_silos
from fedegoists.deploy.local_deployment import join_all
from fedegoists.errors import FileError
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.federation.flare.approved_code import approve
from fedegoists.federation.flare.job_operator import DeclinedError, Operator, write_job
from fedegoists.federation.flare.kits import make_kits
from fedegoists.federation.flare.messages import Answers, Call
from fedegoists.federation.flare.wire import unpack
from fedegoists.federation.requests import OfModels
from fedegoists.files import write_bytes
from fedegoists.learning.own_models import file_digest
from fedegoists.methods.failed_rounds import FailedRunError
from fedegoists.methods.method_registry import METHOD_ENTRIES
from tests.flare.loopback import NOTE, PLANTED, run_deployed, write_tables
from tests.silos import FOR_NETWORKS

NAMES = ("North Bank", "South", "East")
FOR_LINEAR = [
    name
    for name in FOR_NETWORKS
    for entry in [METHOD_ENTRIES[name]]
    if not (entry.splits or entry.represents)
]
"""The methods that train linear models, which have no layers below their output layer."""
ALL = json.dumps(FOR_LINEAR)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("silo_secrets")]


@pytest.fixture(scope="module")
def full_run(deployment):
    """Benefit learning, formation and every method over the wire, with every message."""
    settings = read_settings(
        deployment.file, [f"training.methods={ALL}", 'output.folder="over-flare"']
    )
    messages = []
    run = run_deployed(settings, deployment.kit, record=lambda *one: messages.append(one))
    return run, messages


def rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def assert_same_table(one, other):
    left, right = rows(one), rows(other)
    assert len(left) == len(right) > 1
    for a, b in zip(left, right, strict=True):
        for x, y in zip(a, b, strict=True):
            try:
                assert float(x) == pytest.approx(float(y), rel=1e-4, abs=1e-5, nan_ok=True)
            except ValueError:
                assert x == y


def safe_names(path):
    """Return the names of the tensors in a file."""
    with safe_open(path, framework="pt") as file:
        return list(file.keys())


def test_a_run_over_silos_is_the_simulation_for_every_method(deployment, full_run):
    run, _ = full_run
    settings = read_settings(
        deployment.file, [f"training.methods={ALL}", 'output.folder="simulated"']
    )
    simulated = Consortium(settings).run(replace=True)
    assert set(map(frozenset, run.formation.coalitions)) == {
        frozenset({"North Bank", "South"}),
        frozenset({"East"}),
    }
    assert run.formation.coalitions == simulated.formation.coalitions
    for name in ("metrics.csv", "summary.csv", "gains.csv", "benefit.csv", "weights.csv"):
        assert_same_table(run.folder / name, simulated.folder / name)
    methods = {row[1] for row in rows(run.folder / "metrics.csv")[1:]}
    assert methods == set(FOR_LINEAR)

    def files(folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    # Intervals and the yardstick need single samples, which are seen at home only.
    here_only = {"intervals.csv", "trees-alone.csv"}
    assert files(run.folder) | here_only == files(simulated.folder) | here_only
    # Models of participants that train alone stay in their silos: the file has only the card.
    assert not safe_names(run.folder / "models" / "East.safetensors")
    assert safe_names(simulated.folder / "models" / "East.safetensors")
    assert "in its silo only" in (run.folder / "report.html").read_text()
    assert "East trains alone" in (run.folder / "report.html").read_text()


def sent(messages):
    """Return everything that was sent to each participant: operation, repetition, all vectors.

    Without the models that are delivered at the end, which have a test of their own.
    """
    found = {}
    for direction, site, message in messages:
        if direction == "to":
            for one in unpack(Call, message).asked:
                if one.request.operation != "deliver":
                    entry = (one.request.operation, one.repetition, vectors(one.request))
                    found.setdefault(site, []).append(entry)
    return found


def vectors(request):
    return list(request.tensors.values()) if isinstance(request, OfModels) else []


class Recording:
    """A simulated engine that records what it sends, in the same way."""

    local = False  # so that it draws decoys from the secret of the run over silos

    def __init__(self, settings):
        self.inner = SimulatedEngine(settings)
        self.data, self.absent = self.inner.data, ()
        self.sent = {}

    def federation(self, model, repetitions=None):
        federation = self.inner.federation(model, repetitions)
        federation.masks = lambda coalition: len(coalition) != 2  # as over silos
        call = federation.call

        def recorded(requests, timeout=None):
            for one, request in requests.items():
                entry = (request.operation, one.repetition, vectors(request))
                self.sent.setdefault(one.name, []).append(entry)
            return call(requests, timeout)

        federation.call = recorded
        return federation


def in_order(entries):
    """Repetitions of one call travel in one message here and one by one there."""
    by_repetition = {}
    for operation, repetition, numbers in entries:
        by_repetition.setdefault(repetition, []).append((operation, numbers))
    return by_repetition


def difference(one, other):
    """Return the largest difference between two sequences of what was sent."""
    one, other = in_order(one), in_order(other)
    assert one.keys() == other.keys()
    largest = 0.0
    for label, entries in one.items():
        assert [operation for operation, _ in entries] == [op for op, _ in other[label]]
        for (_, mine), (_, others) in zip(entries, other[label], strict=True):
            for a, b in zip(mine, others, strict=True):
                largest = max(largest, float((a - b).abs().max()))
    return largest


def test_no_message_tells_anybody_of_who_is_outside_its_coalition(deployment, full_run, tmp_path):
    """Whatever the data of one coalition had been, the others would have got the same messages.

    The messages of the run over the wire are compared with those of simulated runs in which the
    data of one coalition of the certificate is another. Messages inside must change, all others
    must not.
    """
    run, messages = full_run
    over_wire = sent(messages)
    benefit_calls = {
        site: [entry for entry in entries if entry[1] is None]
        for site, entries in over_wire.items()
    }
    training = {
        site: [entry for entry in entries if entry[1] is not None]
        for site, entries in over_wire.items()
    }
    sites = deployment.deployment.sites
    certificate = json.loads((run.folder / "certificate.json").read_text())
    coalitions = [frozenset(group) for group in certificate["coalitions"]]
    checked = 0
    for number, changed in enumerate(coalitions):
        folder = tmp_path / str(number)
        shutil.copytree(deployment.place / "data", folder / "data")
        write_tables(folder / "other", NAMES, seed=1)
        for name in changed:
            shutil.copyfile(folder / "other" / f"{name}.csv", folder / "data" / f"{name}.csv")
        shutil.copyfile(deployment.file, folder / "consortium.toml")
        settings = read_settings(folder / "consortium.toml", [f"training.methods={ALL}"])
        section = settings.benefit.model_copy(
            update={"estimator": "file", "file": str(run.folder / "benefit.csv")}
        )
        as_decided = settings.model_copy(update={"benefit": section})
        engine = Recording(as_decided)
        consortium = Consortium(as_decided, engine)
        consortium.train(consortium.form(consortium.learn_benefit()))
        for name, site in sites.items():
            mine, theirs = training[site], engine.sent[name]
            if name in changed:
                # Which of its models a silo keeps as the best depends on its own data.
                mine, theirs = ([one for one in ops if one[0] != "keep"] for ops in (mine, theirs))
            apart = difference(mine, theirs)
            # What is sent to a participant that is alone depends on no data: its model is at home.
            if name in changed and len(changed) > 1:
                assert apart > 1e-2
            else:
                assert apart < 1e-4
            checked += len(training[site])
        # Before there are coalitions, competitors alone must learn nothing of each other.
        engine = Recording(settings)
        consortium = Consortium(settings, engine)
        # What competitors are shown instead is drawn from the secret of a folder.
        secret = StageStore(run.folder.parent).secret().encode()
        write_bytes(consortium.store.folder / ".stages" / "secret", secret)
        consortium.learn_benefit()
        rivals = {frozenset(pair) for pair in consortium.competition.pairs}
        for name, site in sites.items():
            apart = difference(benefit_calls[site], engine.sent[name])
            if name in changed:
                assert apart > 1e-2
            elif all(frozenset((name, other)) in rivals for other in changed):
                assert apart < 1e-4
    assert checked > 1000


def seen(messages, site, repetition):
    """Return all models that went to a site and came from it in a repetition, but deliveries."""
    found = []
    for direction, where, message in messages:
        if where != site:
            continue
        if direction == "to":
            call = unpack(Call, message)
            asked = () if call.operation == "deliver" else call.asked
            parts = [one.request for one in asked if one.repetition == repetition]
        else:
            answered = unpack(Answers, message).answered
            parts = [one.reply for one in answered if one.repetition == repetition]
        models = [part.parameters for part in parts if hasattr(part, "parameters")]
        found += [model.reshape(-1, model.shape[-1]) for model in models]
    return torch.cat(found)


def test_everybody_gets_its_own_model_and_no_other(deployment, full_run):
    run, messages = full_run
    delivered = {}
    for direction, site, message in messages:
        if direction == "to" and unpack(Call, message).operation == "deliver":
            assert site not in delivered
            delivered[site] = unpack(Call, message).asked
    sites = deployment.deployment.sites
    assert set(delivered) == set(sites.values())
    participants = run.repetitions.federation.participants
    for name, site in sites.items():
        for repetition, request in ((one.repetition, one.request) for one in delivered[site]):
            place = participants.index(Participant(name, repetition))
            for row, candidate in zip(request.parameters, request.candidates, strict=True):
                assert torch.equal(row, run.outcomes[candidate.method].best[place])
                # Nothing that this silo had not seen before: it trained it, or measured it.
                assert (seen(messages, site, repetition) == row).all(1).any()
        log = (deployment.silo(name) / "silo.log").read_text()
        assert "deliver for run loopback" in log


def assert_same_model(one, other):
    """Compare two models' files, scaling of the inputs and everything else included."""
    (left, about), (right, expected) = read_model(one), read_model(other)
    for key, value in right.state_dict().items():
        torch.testing.assert_close(left.state_dict()[key], value, rtol=1e-4, atol=1e-5)
    assert about.model_dump() == expected.model_dump()  # which shows the fields that differ


def test_a_silo_has_the_model_of_the_simulation(deployment, full_run, tmp_path):
    run, _ = full_run
    settings = read_settings(
        deployment.file, [f"training.methods={ALL}", 'output.folder="simulated"']
    )
    simulated = Consortium(settings).run(replace=True)  # from its stages
    for name in NAMES:
        out = tmp_path / name
        result = CliRunner().invoke(
            app, ["deploy", "model", str(deployment.silo(name)), "--out", str(out)]
        )
        assert result.exit_code == 0, result.output
        model = out / "loopback.safetensors"
        assert_same_model(model, simulated.folder / "models" / f"{name}.safetensors")
    said = subprocess.run(
        [sys.executable, "example.py"], cwd=out, capture_output=True, text=True, check=True
    )
    assert "tensor" in said.stdout
    with pytest.raises(FileError, match="there, use `fedegoists deploy model KIT`"):
        export(run.folder, "South")


def needles():
    """Return a planted record in every form in which it could travel."""
    text = [repr(value).encode() for value in PLANTED] + [NOTE.encode()]
    return text + [struct.pack(f"{order}3{kind}", *PLANTED) for order in "<>" for kind in "fd"]


def standardised(deployment):
    """Return the planted records as the silos' networks see them."""
    data = SimulatedEngine(read_settings(deployment.file)).samples
    first = [data.samples.inputs[0][silo.all.min()] for silo in data.silos]
    assert all(np.argmax(record) == np.argmax(PLANTED) for record in first)
    return [struct.pack("<3f", *record.tolist()) for record in first]


def test_no_planted_record_leaves_a_silo(deployment, full_run):
    run, messages = full_run
    wanted = [*needles(), *standardised(deployment)]
    own = (deployment.place / "data" / "South.csv").read_bytes()
    assert any(needle in own for needle in wanted)  # the search finds what is there
    for _, _, message in messages:
        assert not any(needle in message for needle in wanted)
    files = [
        path
        for folder in (deployment.kit, run.folder, run.folder.parent)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    assert len(files) > 50
    for path in files:
        content = path.read_bytes()
        assert not any(needle in content for needle in wanted), path


def test_the_certificates_of_others_are_not_taken(deployment, tmp_path):
    authority = json.loads((deployment.folder / "authority" / "cert.json").read_text())
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    kits = make_kits(stranger, NAMES, name="loopback", host="localhost", port=deployment.port)
    join_all(stranger, kits)
    own = deployment.silo("South") / "startup"
    other = stranger / "silos" / "South" / "startup"
    expired = tmp_path / "expired"
    expired.mkdir()
    write_certificate(authority, "South", expired, days=(-30, -1))
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    write_certificate(authority, "South", fresh, days=(-30, 30))
    assert speaks(deployment, own / "client.crt", own / "client.key")
    assert speaks(deployment, fresh / "client.crt", fresh / "client.key")
    assert not speaks(deployment, other / "client.crt", other / "client.key")
    assert not speaks(deployment, expired / "client.crt", expired / "client.key")
    assert not speaks(deployment, None, None)
    with socket.create_connection(("localhost", deployment.port), 5) as plain:
        plain.settimeout(5)
        plain.sendall(PREFACE)
        assert not greeted(plain)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def greeted(connection):
    """Return whether a server answers an HTTP/2 greeting with its settings."""
    try:
        answer = connection.recv(9)
    except (OSError, ssl.SSLError):
        return False
    return len(answer) == 9 and answer[3] == 4


def speaks(deployment, certificate, key):
    """Return whether the server speaks with the owner of a certificate."""
    context = ssl.create_default_context(
        cafile=str(deployment.silo("South") / "startup" / "rootCA.pem")
    )
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(str(certificate), str(key))
    with socket.create_connection(("localhost", deployment.port), 5) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(PREFACE)
                return greeted(connection)
        except (OSError, ssl.SSLError):
            return False


def write_certificate(authority, name, folder, days):
    """Issue a certificate with the consortium's own authority for some days from now."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    root = x509.load_pem_x509_certificate(authority["root_cert"].encode())
    root_key = serialization.load_pem_private_key(authority["root_pri_key"].encode(), None)
    key = rsa.generate_private_key(65537, 2048)
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .sign(root_key, hashes.SHA256())
    )
    (folder / "client.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "client.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def test_a_job_with_code_or_other_components_does_not_run(deployment, tmp_path):
    touch = f"from pathlib import Path\nPath({str(tmp_path / 'touched')!r}).touch()\n"
    operator = Operator(deployment.kit)
    try:
        for name, path, arguments in (
            ("code", "evil.Evil", {}),
            ("component", "subprocess.Popen", {"args": ["touch", str(tmp_path / "touched")]}),
        ):
            job = write_job(tmp_path / name, "/nowhere", "00", ["South"])
            config = job / "app_silo" / "config" / "config_fed_client.json"
            content = json.loads(config.read_text())
            content["components"][0] |= {"path": path, "args": arguments}
            config.write_text(json.dumps(content))
            if name == "code":
                (job / "app_silo" / "custom").mkdir()
                evil = job / "app_silo" / "custom" / "evil.py"
                evil.write_text(f"{touch}class Evil:\n    pass\n")
            assert outcome(operator, job, deployment) not in ("running", "completed")
            assert not (tmp_path / "touched").exists()
    finally:
        operator.close()
    told = "\n".join(deployment.lines["South"] + deployment.lines[""])
    assert "byoc" in told.lower()
    assert "subprocess.Popen" in told


def outcome(operator, job, deployment):
    """Return what became of a job."""
    try:
        number = operator.submit(job)
    except DeclinedError:
        return "declined"

    def over():
        return operator.status().jobs.get(number) not in ("waiting", "running", None)

    deployment.wait_until(over)
    return operator.status().jobs[number]


OWN_MODEL = """\
from torch import nn

def build(data):
    body = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6)).requires_grad_(False)
    model = nn.Sequential(body, nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 1))
    return {"model": model, "weights": "w.safetensors"}
"""


def test_an_own_model_with_weights_trains_over_silos_as_in_a_simulation(deployment):
    """Only its output layer travels; each silo's operator has approved code and weights."""
    frozen = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.BatchNorm1d(6))
    tensors = {f"0.{name}": own.clone() for name, own in frozen.state_dict().items()}
    (deployment.place / "model.py").write_text(OWN_MODEL)
    save_file(tensors, deployment.place / "w.safetensors")
    settings = read_settings(
        deployment.file,
        [
            'training.model="model.py:build"',
            'training.methods=["local", "fedavg"]',
            "training.seeds=1",
            'benefit.estimator="everybody"',
            'output.folder="own-model"',
        ],
    )
    with pytest.raises(FailedRunError, match=r"model.py is not in this kit; get it from the coo"):
        run_deployed(settings, deployment.kit, "refused")
    for name in NAMES:
        for file in ("model.py", "w.safetensors"):
            here = deployment.silo(name) / file
            here.write_bytes((deployment.place / file).read_bytes())
            approve(deployment.silo(name), file, file_digest(here))
    messages = []
    run = run_deployed(settings, deployment.kit, "own", record=lambda *one: messages.append(one))
    simulated = Consortium(settings).run("own-simulated")
    assert_same_table(run.folder / "metrics.csv", simulated.folder / "metrics.csv")
    assert run.repetitions.federation.schema.size == 7
    trained = [one for entries in sent(messages).values() for one in entries if one[2]]
    assert {vector.shape[-1] for _, _, vectors in trained for vector in vectors} == {7}


def test_expected_gains_over_silos_are_those_of_the_simulation(deployment, monkeypatch):
    """The automatic estimator is ``curves``; parts of silos' samples are drawn from their secrets.

    Nothing that a silo is sent depends on the data of a competitor; see
    `tests.benefit.test_curves` for that.
    """
    settings = read_settings(deployment.file, ['output.folder="gains"', "training.seeds=1"])
    settings = settings.model_copy(update={"benefit": BenefitSection(repeats=2, steps=40)})
    access = SiloAccess("gains", deployment.kit)

    def learned(engine, _):
        consortium = Consortium(settings, engine)
        return consortium.chosen, consortium.learn_benefit().estimate, engine.hindrance(10**9)

    chosen, estimate, hindrance = over_silos(settings, access, learned)
    assert (chosen.name, hindrance) == ("curves", "")
    assert not estimate.failures
    monkeypatch.setattr(SimulatedFederation, "deployed", True)  # without a trial coalition
    simulated = Consortium(settings, SimulatedEngine(settings))
    own = simulated._learned(
        simulated._learn_settings(SILENT), simulated.competition.pairs, "", SILENT
    )
    for name in ("samples", "slopes", "rates", "rate_errors"):
        there, here = getattr(estimate.values, name), getattr(own.values, name)
        np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-5, err_msg=name)
