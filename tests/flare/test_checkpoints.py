"""What silos keep for a run is that run's alone, whatever ran before."""

import torch

from fedegoists.federation import TrainSettings
from fedegoists.federation.flare.federation import FlareFederation
from fedegoists.federation.flare.silo import SiloService
from tests.flare.test_silo import START, kit

TRAIN = {
    "parameters": START,
    "settings": TrainSettings(steps=5, batch_size=16, learning_rate=0.1),
    "seed": 0,
    "personal": ("output.",),
    "slot": "fedavg",
}
SCORE = {"parameters": START, "split": "test", "personal": ("output.",), "slot": "fedavg"}


class Wire:
    """Brings messages to silos in this process, as FLARE does to others."""

    run = "r"

    def __init__(self, silos):
        self.silos, self.told = silos, []
        self.tell = self.told.append

    def ask(self, messages, timeout=None):
        return {site: self.silos[site].answer("server", m) for site, m in messages.items()}


def federation(wire):
    options = {"features": 3, "outputs": 1}
    return FlareFederation(wire, {"South": "south"}, model="mlp", options=options, task="binary")


def loss(one):
    return one.call("evaluate", {"South": SCORE})["South"]["loss"]


def test_a_run_goes_back_to_its_own_checkpoint_after_a_longer_one(tmp_path):
    wire = Wire({"south": SiloService(kit(tmp_path))})
    earlier = federation(wire)
    for _ in range(5):
        earlier.call("train", {"South": TRAIN})
        earlier.memory("fedavg")
    one = federation(wire)
    one.call("keep", {"South": {"slot": "fedavg", "source": None}})
    one.call("train", {"South": TRAIN})
    checkpoint, then = one.memory("fedavg"), loss(one)
    one.call("train", {"South": TRAIN})
    assert loss(one) != then
    again = federation(wire)
    again.restore(checkpoint)
    assert loss(again) == then
    assert wire.told == []


def test_a_silo_that_has_not_kept_a_checkpoint_is_named(tmp_path):
    wire = Wire({"south": SiloService(kit(tmp_path))})
    federation(wire).restore({"fedavg\ncheckpoint": torch.tensor([7])})
    assert "South: refused (nothing was kept here at that checkpoint)" in wire.told[0]
