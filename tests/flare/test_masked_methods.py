"""Methods over masked sums: training as in the clear, and no single model at the server."""

import json
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load

from fedegoists.federation import Participant, SimulatedFederation, TrainSettings
from fedegoists.federation.flare.silo_service import stream_secret
from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
from fedegoists.federation.secure_sums.fixed_point import as_ring, encode
from fedegoists.learning.datasets import load_own
from fedegoists.learning.models import build_model
from fedegoists.methods import METHOD_ENTRIES, METHODS
from fedegoists.methods.method_run import Callbacks, RunSettings, StoppedError, run
from tests.flare.masked_silos import NAMES, SITES, MaskedWire, forget_uploads, write_kits

ROUNDS = 4
SETTINGS = TrainSettings(steps=5, batch_size=16, learning_rate=0.05, total_steps=5 * ROUNDS)
MASKED = tuple(name for name, one in METHOD_ENTRIES.items() if one.server_sees == "sums")


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return write_kits(tmp_path_factory.mktemp("kits"))


@pytest.fixture(autouse=True)
def _first_run(kits):
    """All tests begin with the same model, and with other weights silos would add noise."""
    forget_uploads(kits)


class Witness(SimulatedFederation):
    """A simulation in the clear that remembers all models that silos trained."""

    def call(self, requests, timeout=None):
        own = {name: self.as_agreed(name, request) for name, request in requests.items()}
        replies = super().call(own, timeout)
        for reply in replies.values():
            for vector in (getattr(reply, "parameters", None), getattr(reply, "momentum", None)):
                if vector is not None:
                    self.models.append(vector)
        return replies


def witness(kits, as_agreed, names=NAMES):
    """The silos of some kits, with the secrets and agreements from which they draw batches."""
    own = {
        settings.participant: (settings, kit)
        for kit in kits.values()
        for settings in [read_silo_settings(kit / "silo.toml")]
    }
    files = {name: own[name][0].data.file for name in names}
    data = load_own(files, own[names[0]][0].data.schema_file)
    federation = Witness(
        data,
        build_model("mlp", 0, features=3, outputs=1),
        secrets={
            name: stream_secret(load_silo(settings), kit / "state")
            for name, (settings, kit) in own.items()
        },
    )
    federation.models, federation.as_agreed = [], as_agreed
    return federation


def trained(name, federation, *, rounds=ROUNDS, callbacks=None):
    method = METHODS[name](settings=SETTINGS)
    coalition = [tuple(federation.participants)]
    initial = federation.schema.drawn(0).expand(len(federation.participants), -1)
    settings = RunSettings(rounds=rounds, seed=0)
    return run(method, federation, coalition, initial, settings, callbacks)


def assert_same_training(masked, plain):
    assert masked.failures == plain.failures == []
    assert len(masked.rows) == len(plain.rows) > 0
    for one, other in zip(masked.rows, plain.rows, strict=True):
        assert (one.participant, one.round, one.split, one.metric) == (
            other.participant,
            other.round,
            other.split,
            other.metric,
        )
        assert one.value == pytest.approx(other.value, rel=1e-3, abs=1e-4)


def tensors_of(message):
    """All tensors in a message, as rows of 32-bit numbers."""
    (length,) = struct.unpack("<Q", message[:8])
    json.loads(message[8 : 8 + length])
    return [tensor.reshape(-1) for tensor in load(message).values()]


def nearest(vector, messages):
    """The smallest distance of a message's numbers, read as both kinds, from a vector."""
    smallest = np.inf
    ring = encode(vector, 1.0).view(np.int32).astype(float) / 2.0**24
    for message in messages:
        for tensor in tensors_of(message):
            if tensor.dtype == torch.float32:
                numbers = tensor.numpy().astype(float)
            else:
                numbers = as_ring(tensor).view(np.int32).astype(float) / 2.0**24
            for first in range(0, len(numbers) - len(ring) + 1, len(ring)):
                smallest = min(smallest, np.abs(numbers[first : first + len(ring)] - ring).mean())
    return smallest


def upload(participant):
    """How the wire records what a silo sends to a masked sum."""
    return "from", SITES[participant.name], "masked_train"


@pytest.mark.parametrize("name", MASKED)
def test_training_under_masks_is_training_in_the_clear(kits, name):
    wire = MaskedWire(kits)
    plain = witness(kits, wire.agreements.as_agreed)
    masked = trained(name, wire.federation())
    expected = trained(name, plain)
    assert_same_training(masked, expected)
    if name in ("egomix", "ditto"):
        assert set(masked.at_home) == set(map(Participant, NAMES))
    else:
        assert (masked.best - expected.best).abs().max() < 1e-4
    received = [message for way, _, _, message in wire.record if way == "from"]
    for participant, sent in masked.spent["bytes_sent"].items():
        # What a method says that a silo sends are the numbers in its messages.
        uploads = [m for way, *one, m in wire.record if (way, *one) == upload(participant)]
        assert len(uploads) == ROUNDS
        assert sent < sum(map(len, uploads)) < sent + 6000 * ROUNDS
    whole = b"|".join(received)
    assert len(plain.models) >= ROUNDS * len(NAMES)
    for model in plain.models:
        content, ring = model.numpy().tobytes(), encode(model, 1.0).tobytes()
        assert content not in whole
        assert ring not in whole
        # Nor anything near a model, whatever its last bits: models of the last rounds are alike.
        assert nearest(model, received) > 1e-3


def test_a_run_that_was_stopped_continues_to_the_same_result(kits, tmp_path):
    for name in ("fedavg", "egomix"):
        wire = MaskedWire(kits)
        whole = trained(name, wire.federation())
        checkpoint = tmp_path / name
        asked = iter([False, True])
        stopping = Callbacks(checkpoint, stop=lambda asked=asked: next(asked))
        with pytest.raises(StoppedError):
            trained(name, wire.federation(), callbacks=stopping)
        wire.restart()
        again = trained(name, wire.federation(), callbacks=Callbacks(checkpoint))
        assert_same_training(again, whole)


def test_the_usual_methods_are_masked():
    assert {"fedavg", "fedprox", "egomix"} <= set(MASKED)
