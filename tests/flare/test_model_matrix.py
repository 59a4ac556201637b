"""Every kind of model with every kind of method on every engine.

Over FLARE, everything is real but the transport: kits with certificates, signed calls, the wire
format, masked sums, limits, approved code, and each silo's own service. `tests/flare/test_deployed`
has the transport. The result must be that of a simulation with the same batches.
"""

import functools

import pytest
import torch

from fedegoists.deploy.flare_engine import described
from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation, TrainSettings
from fedegoists.federation.flare.approved_code import approve
from fedegoists.federation.flare.flare_federation import FlareFederation, ask_about
from fedegoists.federation.flare.signed_calls import CallSigner
from fedegoists.federation.flare.silo_gate import SiloGate
from fedegoists.federation.flare.silo_service import SiloService, stream_secret
from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
from fedegoists.learning.datasets.dataset_registry import DATASETS, load
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.models import build_model
from fedegoists.learning.own_models import file_digest, is_own, model_parts
from fedegoists.methods import METHODS, RunSettings, run
from fedegoists.methods.failed_rounds import FailedRunError
from tests.flare.authorities import new_authority, write_identities
from tests.flare.masked_silos import Agreements, forget_uploads
from tests.model_matrix import CODE, DATA, METHODS_IN_MATRIX, ROWS

SETTINGS = TrainSettings(steps=3, batch_size=16, learning_rate=0.05)
NAMES = ("s0", "s1", "s2")


@pytest.fixture(scope="module", autouse=True)
def _data():
    with pytest.MonkeyPatch.context() as patch:
        for entry in DATA.values():
            patch.setitem(DATASETS, entry.name, entry)
        yield


@pytest.fixture(autouse=True)
def _installed(number):
    pytest.importorskip(ROWS[number].needs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The coordinator's folder, with the file of own models and silos' kits for each data set."""
    place, authority = tmp_path_factory.mktemp("matrix"), new_authority()
    write_code(place)
    for kind, entry in DATA.items():
        kits = {name: place / kind / name for name in NAMES}
        for name, kit in kits.items():
            kit.mkdir(parents=True)
            (kit / "silo.toml").write_text(
                f'participant = "{name}"\n[data]\nsource = "{entry.name}"\n'
                '[limits]\nsingle_updates = true\n[privacy]\nlevel = "none"\n'
            )
            write_code(kit)
            for file in CODE:
                approve(kit, file, file_digest(kit / file))
        write_identities(authority, place / kind / "coordinator", kits)
    return place


def write_code(place):
    for file, text in CODE.items():
        (place / file).write_text(text)


class SignedWire:
    """Brings signed calls to silos in this process, and their signed answers back."""

    run = "matrix"

    def __init__(self, place):
        self.kits = {name: place / name for name in NAMES}
        forget_uploads(self.kits)
        self.gates = {
            name: SiloGate(kit, SiloService(kit).answer) for name, kit in self.kits.items()
        }
        self.signer = CallSigner(place / "coordinator", self.run)
        self.agreements, self.calls = Agreements(), 0

    def tell(self, text, **_):
        raise AssertionError(text)

    def ask(self, messages, timeout=None):
        answers = {}
        for site, message in messages.items():
            gate = self.gates[site]
            if not self.signer.knows(site):
                answer = gate.answer("server", self.signer.greeting(site, 60.0))
                self.signer.greeted(site, answer)
            self.agreements.note(message)
            answer = gate.answer("server", self.signer.call(site, message, 60.0))
            answers[site] = self.signer.opened(site, answer)
            self.calls += 1
        return answers

    def federation(self, model):
        about = ask_about(self, {name: name for name in NAMES})
        data = described("matrix", about)
        return FlareFederation(
            self,
            {name: name for name in NAMES},
            model=model,
            options=model_options(data, model),
            task=data.task,
            parts=model_parts(data, model) if is_own(model) else None,
            samples={name: one.sizes[0] for name, one in about.items()},
            consenting=[name for name, one in about.items() if one.single_updates],
        )


class AsDeployed(SimulatedFederation):
    """A simulation that draws the batches of deployed silos, from their secrets."""

    agreements = Agreements()

    def call(self, requests, timeout=None):
        own = {name: self.agreements.as_agreed(name, one) for name, one in requests.items()}
        return super().call(own, timeout)


def trained(method, federation, model, data):
    names = federation.participants
    pairs = tuple((a, b) for a in names for b in names if a != b)
    own = {
        "fedegoists": {"benefit": pairs},
        "egomix": {"benefit": pairs},
    }.get(method, {})
    start = federation.schema.flatten(
        build_model(model, 1, **model_options(data, model)).state_dict()
    )
    outcome = run(
        METHODS[method](SETTINGS, **own),
        federation,
        [names],
        start.expand(len(names), -1).clone(),
        RunSettings(rounds=2, seed=0),
    )
    assert not outcome.failures
    return outcome


def assert_same_training(one, other):
    assert len(one.rows) == len(other.rows) > 0
    for left, right in zip(one.rows, other.rows, strict=True):
        places = [(r.participant, r.round, r.split, r.metric) for r in (left, right)]
        assert places[0] == places[1]
        assert left.value == pytest.approx(right.value, rel=1e-3, abs=1e-4)


@functools.cache
def looped(row_number, method, place):
    row = ROWS[row_number]
    data, model = load(DATA[row.data].name), row.model_in(place)
    silos = SimulatedFederation(data, model_parts(data, model), execution="looped")
    return trained(method, silos, model, data)


def refuses(row, method, train):
    if method not in row.refused:
        return False
    with pytest.raises((FailedRunError, SettingsError), match=row.refused[method]):
        train()
    return True


EVERY = pytest.mark.parametrize(
    ("number", "method"),
    [
        pytest.param(number, method, id=f"{row.name}-{method}")
        for number, row in enumerate(ROWS)
        for method in METHODS_IN_MATRIX
    ],
)


@EVERY
def test_one_silo_at_a_time(folder, number, method):
    row = ROWS[number]
    if refuses(row, method, lambda: looped(number, method, folder)):
        return
    outcome = looped(number, method, folder)
    assert outcome.state.parameters.isfinite().all()
    losses = {
        k: [r.value for r in outcome.rows if (r.round, r.split, r.metric) == (k, "test", "loss")]
        for k in (0, 2)
    }
    assert len(losses[0]) == len(losses[2]) == 3
    assert losses[0] != losses[2]


@EVERY
def test_all_silos_at_once(folder, number, method):
    row = ROWS[number]
    data, model = load(DATA[row.data].name), row.model_in(folder)
    if row.not_stacked:
        with pytest.raises(SettingsError, match=f"cannot be stacked.*{row.not_stacked}"):
            SimulatedFederation(data, model_parts(data, model), execution="stacked")
        return
    silos = SimulatedFederation(data, model_parts(data, model), execution="stacked")
    if refuses(row, method, lambda: trained(method, silos, model, data)):
        return
    assert_same_training(trained(method, silos, model, data), looped(number, method, folder))


@EVERY
def test_over_signed_calls(folder, number, method):
    row = ROWS[number]
    data, model = load(DATA[row.data].name), row.model_in(folder)
    wire = SignedWire(folder / row.data)
    if refuses(row, method, lambda: trained(method, wire.federation(model), model, data)):
        return
    deployed = trained(method, wire.federation(model), model, data)
    assert wire.calls > 0
    silos = AsDeployed(
        data,
        model_parts(data, model),
        execution="looped",
        secrets={
            name: stream_secret(load_silo(read_silo_settings(kit / "silo.toml")), kit / "state")
            for name, kit in wire.kits.items()
        },
    )
    silos.agreements = wire.agreements
    expected = trained(method, silos, model, data)
    assert_same_training(deployed, expected)
    # The batches are those of the silos' secrets, not those that a coordinator could draw.
    usual = looped(number, method, folder)
    values = [row.value for row in deployed.rows]
    assert torch.tensor(values).sub(torch.tensor([row.value for row in usual.rows])).abs().max() > 0


OF_CLASSES = next(k for k, row in enumerate(ROWS) if row.name == "CNN with group norm")


@pytest.mark.parametrize("method", ["feddbe", "fedpac"])
@pytest.mark.parametrize("number", [OF_CLASSES], ids=["CNN with group norm"])
def test_methods_that_work_on_representations(folder, number, method):
    """Whose requests carry more than vectors of the model's length."""
    test_one_silo_at_a_time(folder, number, method)
    test_all_silos_at_once(folder, number, method)
    test_over_signed_calls(folder, number, method)
