"""One bad silo among five processes, over a real server with mutual TLS, signatures and masks."""

import os
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.consortium.engine import SiloAccess
from fedegoists.deploy.flare_engine import FlareEngine
from fedegoists.federation import Participant, TrainSettings
from fedegoists.federation.flare.messages import Call
from fedegoists.federation.flare.silo_secret import SECRET_FILE
from fedegoists.federation.flare.wire import unpack
from fedegoists.federation.robust_sums import RobustSettings
from fedegoists.files import private_folder, write_bytes
from fedegoists.methods import METHODS
from fedegoists.methods.method_run import RunSettings, run
from tests.flare.loopback import Loopback
from tests.flare.masked_silos import NAMES, forget_uploads
from tests.flare.poisoned_silos import BAD, POISON_FILE, like_minded, others
from tests.flare.test_poisoned_silos import RATE, ROUNDS, STEPS
from tests.poisons import POISONS

# `test_poisoned_silos` has the same poisons over messages.
pytestmark = [pytest.mark.slow, pytest.mark.long]

CHANGED = Path(__file__).parent / "bad_silo"
"""Before all else on the path of the bad silo's processes."""


class Poisoned(Loopback):
    """Five silos that follow one rule, of which one has changed its software."""

    def __init__(self, folder):
        super().__init__(folder, NAMES)
        for k, name in enumerate(NAMES):
            self.write(name, like_minded(k))
            kit = self.silo(name)
            private_folder(kit / "state")  # the same batches in every run
            write_bytes(kit / "state" / SECRET_FILE, bytes([k] * 32), private=True)
        self.poison(None)

    def write(self, name, table):
        (self.place_of_data / f"{name}.csv").write_text(table)

    @property
    def place_of_data(self):
        return self.folder.parent / "data"

    def poison(self, name):
        """Choose how the silo is bad in the jobs to come."""
        (self.silo(BAD) / POISON_FILE).write_text(name or "")
        table = like_minded(NAMES.index(BAD), flipped=name == "label flip")
        self.write(BAD, table)

    def start(self, name):
        if name != BAD:
            return super().start(name)
        with pytest.MonkeyPatch.context() as patch:
            # It imports the tests' package, too.
            folders = [str(CHANGED), str(CHANGED.parents[2]), os.environ.get("PYTHONPATH", "")]
            patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
            process = super().start(name)
            self.wait_until(lambda: process.pid is not None)
        return process


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    with Poisoned(tmp_path_factory.mktemp("poisoned")) as running:
        yield running


def trained(five, name, poison=None, *, absent=False, robust=None):
    """Train once; where the bad silo is absent, it trains alone."""
    five.poison(poison)
    forget_uploads({one: five.silo(one) for one in NAMES})  # each run is the first from its model
    operations = set()

    def record(way, _, message):
        if way == "to":
            operations.add(unpack(Call, message).operation)

    engine = FlareEngine(five.settings, SiloAccess("poisoned", five.kit), record=record)
    try:
        silos = engine.federation("mlp")
        everybody = tuple(silos.participants)
        bad = Participant(BAD)
        without = tuple(one for one in everybody if one != bad)
        settings = TrainSettings(
            steps=STEPS, batch_size=32, learning_rate=RATE, total_steps=STEPS * ROUNDS
        )
        outcome = run(
            METHODS[name](settings=settings),
            silos,
            [without, (bad,)] if absent else [everybody],
            silos.schema.drawn(0).expand(len(everybody), -1),
            RunSettings(rounds=ROUNDS, seed=0, evaluate_every=2, robust=robust),
        )
    finally:
        engine.close()
    return outcome, operations


@pytest.fixture(scope="module")
def alone(five):
    """The others' losses where the bad silo is absent, by method."""
    known = {}

    def loss(name):
        if name not in known:
            known[name] = others(trained(five, name, absent=True)[0])
        return known[name]

    return loss


COMBINATIONS = [(name, poison) for name in ("fedavg", "egomix", "fedegoists") for poison in POISONS]


@pytest.mark.parametrize(("name", "poison"), COMBINATIONS)
def test_a_bad_silo_costs_the_others_at_most_a_tenth(five, alone, name, poison):
    outcome, operations = trained(five, name, poison, robust=RobustSettings())
    assert others(outcome) < 1.1 * alone(name)
    assert {one.participant for one in outcome.findings} <= {BAD}
    assert {failure.participant.name for _, failure in outcome.failures} <= {BAD}
    assert ("train" in operations) == (name == "fedegoists")


def test_the_poison_works_where_nothing_is_done_against_it(five, alone):
    outcome, _ = trained(five, "fedavg", "times -10")
    assert others(outcome) > 1.3 * alone("fedavg")
