"""EgoMix's priors over messages: silos add them, and no label count leaves a silo for them."""

import json

import numpy as np
import pytest
import torch

from fedegoists.federation import (
    AddPrior,
    Describe,
    Participant,
    Personal,
    SimulatedFederation,
    TrainSettings,
)
from fedegoists.federation.flare.messages import Answers, Call
from fedegoists.federation.flare.silo_limits import SiloGuard
from fedegoists.federation.flare.silo_service import stream_secret
from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
from fedegoists.federation.flare.wire import unpack
from fedegoists.learning.datasets import load_own
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods import EgoMix, RunSettings, run
from tests.flare.masked_silos import NAMES, SITES, MaskedWire, write_kits
from tests.flare.silo_kit import kit

ROUNDS = 3
SETTINGS = TrainSettings(steps=5, batch_size=16, learning_rate=0.05, total_steps=5 * ROUNDS)
TABLE = {"features": 2, "outputs": 3}
SCHEMA = ParameterSchema.of(build_model("mlp", 0, **TABLE))
MODEL = SCHEMA.drawn(0)
BIAS = SCHEMA.mask(["output.bias"])
AT_HOME = Personal(prefixes=("",), slot="egomix", momentum_slot="egomix/momentum")
TOML = """target = "kind"
task = "classification"
classes = ["a", "b", "c"]
features = ["x", "y"]
"""


def write_classes(folder):
    """Kits whose silos have three classes, in other proportions each."""
    kits = write_kits(folder)
    data = folder / "data"
    (data / "schema.toml").write_text(TOML)
    for k, name in enumerate(NAMES):
        rng = np.random.default_rng(k)
        labels = rng.choice(3, 60 + 10 * k, p=np.roll([0.7, 0.2, 0.1], k))
        rows = rng.normal(size=(len(labels), 2)) + labels[:, None]
        lines = [f"{x!r},{y!r},{'abc'[c]}" for (x, y), c in zip(rows.tolist(), labels, strict=True)]
        (data / f"{name}.csv").write_text("\n".join(["x,y,kind", *lines]) + "\n")
    return kits


@pytest.fixture
def kits(tmp_path):
    return write_classes(tmp_path)


def settings_of(kits):
    return {
        name: read_silo_settings(kits[SITES[name]] / "silo.toml")
        for name in NAMES
        if SITES[name] in kits
    }


class InTheClear(SimulatedFederation):
    """A simulation that draws the batches on which silos under masks agree."""

    def call(self, requests, timeout=None):
        return super().call({n: self.as_agreed(n, one) for n, one in requests.items()}, timeout)


def in_the_clear(kits, as_agreed) -> SimulatedFederation:
    own = settings_of(kits)
    files = {name: one.data.file for name, one in own.items()}
    federation = InTheClear(
        load_own(files, own[NAMES[0]].data.schema_file),
        build_model("mlp", 0, **TABLE),
        secrets={
            name: stream_secret(load_silo(one), kits[SITES[name]] / "state")
            for name, one in own.items()
        },
    )
    federation.as_agreed = as_agreed
    return federation


def over_messages(wire, **more):
    return wire.federation(task="classification", options=TABLE, **more)


def trained(federation, groups=(NAMES,), **settings):
    coalitions = [tuple(map(Participant, group)) for group in groups]
    initial = MODEL.expand(len(federation.participants), -1)
    method = EgoMix(SETTINGS, **settings)
    return run(method, federation, coalitions, initial, RunSettings(rounds=ROUNDS, seed=0))


def log_shares(counts):
    counts = torch.tensor(counts).double()
    return ((counts + 1) / (counts.sum() + len(counts))).log().float()


@pytest.mark.parametrize("settings", [{}, {"alone": 0.34}, {"own": "layer"}])
def test_under_masks_it_is_the_training_in_the_clear(kits, settings):
    wire = MaskedWire(kits)
    masked = trained(over_messages(wire), **settings)
    plain = trained(in_the_clear(kits, wire.agreements.as_agreed), **settings)
    assert masked.failures == plain.failures == []
    assert masked.at_home
    values = [[row.value for row in one.rows] for one in (masked, plain)]
    np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-4)
    assert "add_prior" in wire.operations()
    assert "describe" not in wire.operations()


def test_nothing_of_a_prior_leaves_a_silo_under_masks(kits):
    wire = MaskedWire(kits)
    trained(over_messages(wire))
    answers = [m for way, _, what, m in wire.record if (way, what) == ("from", "add_prior")]
    assert len(answers) == len(NAMES)
    for message in answers:
        (one,) = unpack(Answers, message).answered
        assert not one.reply.parameters.any()


def test_a_pair_shows_its_priors_with_its_models(kits):
    wire = MaskedWire(kits)
    trained(over_messages(wire, consenting=NAMES), (NAMES[:2], NAMES[2:]))
    shown = {
        site: unpack(Answers, message).answered[0].reply.parameters
        for way, site, what, message in wire.record
        if (way, what) == ("from", "add_prior")
    }
    for name, own in settings_of(kits).items():
        data = load_silo(own)
        counts = np.bincount(data.samples.targets[data.silos[0].train], minlength=3)
        added = shown[SITES[name]] - MODEL
        if name in NAMES[:2]:
            torch.testing.assert_close(added[BIAS], log_shares(counts), rtol=1e-4, atol=1e-5)
            assert not added[~BIAS].any()
        else:
            assert not shown[SITES[name]].any()


def limited(kits, **limits):
    """Write limits, and noise on counts, into every silo.toml."""
    for folder in kits.values():
        path = folder / "silo.toml"
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in limits.items())
        path.write_text(f"{path.read_text()}\n[limits]\n{lines}")


@pytest.mark.parametrize("personal", [None, AT_HOME])
def test_silos_that_describe_nothing_still_add_priors_to_models_that_stay(kits, personal):
    limited(kits, operations=["train", "evaluate", "keep"], single_updates=True)
    wire = MaskedWire(kits)
    federation = over_messages(wire)
    request = AddPrior(parameters=MODEL, personal=personal)
    answers = federation.call(dict.fromkeys(federation.participants, request))
    for name, one in answers.items():
        if personal is None:
            assert one.detail == "add_prior is not among the operations allowed here", name
        else:
            assert not one.parameters.any()


def test_counts_behind_a_prior_have_the_noise_of_described_ones_and_are_accounted_for(tmp_path):
    more = '[privacy]\nlevel = "standard"\n[limits]\nsingle_updates = false\n'
    settings = read_silo_settings(kit(tmp_path, more) / "silo.toml")
    guard = SiloGuard(settings, tmp_path / "state", {"train": 40, "validation": 10, "test": 10})
    for personal in (None, AT_HOME):
        request = guard.clipped(AddPrior(parameters=MODEL, personal=personal))
        assert request.noise == guard.clipped(Describe()).noise == 3.0
        before = guard.ledger.accounts()["train"].spent
        guard.charge([request])
        assert guard.ledger.accounts()["train"].spent > before


def test_a_call_for_priors_is_one_operation(kits):
    wire = MaskedWire(kits)
    over_messages(wire).call({Participant(NAMES[0]): AddPrior(parameters=MODEL, personal=AT_HOME)})
    ((_, _, operation, message),) = [one for one in wire.record if one[0] == "to"]
    call = unpack(Call, message)
    assert operation == call.operation == "add_prior"
    assert call.asked[0].request.stays


def test_a_prior_that_is_added_again_changes_nothing(kits):
    """Otherwise repeated calls would blow up the shares, until predictions tell them."""
    folder = next(iter(kits.values())).parent / "data"
    one = Participant(NAMES[0])
    found = []
    for calls in (1, 3):
        federation = SimulatedFederation(load_own(folder), build_model("mlp", 0, **TABLE))
        for _ in range(calls):
            federation.call({one: AddPrior(parameters=MODEL, personal=AT_HOME)})
        found.append(federation.silo_memory(one).slots["egomix"])
    assert not torch.equal(found[0][BIAS], MODEL[BIAS])
    assert torch.equal(*found)
