"""Learning curves over the messages of a deployment: what they show to a silo."""

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.benefit import learn
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.federation import TrainSettings
from fedegoists.federation.flare.messages import Call
from fedegoists.federation.flare.wire import unpack
from tests.flare.masked_silos import NAMES
from tests.flare.poisoned_silos import PoisonedWire, write_like_minded

SETTINGS = LearnSettings(
    estimator="curves", repeats=1, local=TrainSettings(steps=20, learning_rate=0.05, batch_size=32)
)


def test_silos_train_from_the_common_start_alone(tmp_path):
    """From the average of a trial coalition, a silo would see who is not in it."""
    wire = PoisonedWire(write_like_minded(tmp_path, rows=60))
    apart = [(NAMES[0], name) for name in NAMES[1:]]
    values = learn(wire.five(), SETTINGS, apart=apart, secret="of the server").values
    assert values.participants == NAMES
    models = [
        one.request.parameters
        for way, _, operation, message in wire.record
        if (way, operation) == ("to", "train")
        for one in unpack(Call, message).asked
    ]
    assert len(models) == 4 * len(NAMES)  # of two quarters and two halves
    assert all(one.equal(models[0]) for one in models)
