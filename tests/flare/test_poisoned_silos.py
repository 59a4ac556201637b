"""One bad silo among five, over the messages of a deployment: masked sums, and gradients."""

import pytest

from fedegoists.federation import TrainSettings
from fedegoists.federation.robust_sums import RobustSettings
from fedegoists.methods import METHODS
from fedegoists.methods.method_run import RunSettings, run
from tests.flare.masked_silos import forget_uploads
from tests.flare.poisoned_silos import BAD, PoisonedWire, others, write_like_minded
from tests.poisons import POISONS

ROUNDS, STEPS, RATE = 12, 10, 0.05
QUICK = {("fedavg", "label flip"), ("fedavg", "times -10"), ("egomix", "garbage")}
COMBINATIONS = [
    pytest.param(name, poison, marks=() if (name, poison) in QUICK else pytest.mark.long)
    for name in ("fedavg", "egomix", "fedegoists")
    for poison in POISONS
]


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return {
        flipped: write_like_minded(
            tmp_path_factory.mktemp("kits"), flipped=(BAD,) if flipped else ()
        )
        for flipped in (False, True)
    }


def trained(name, kits, poison=None, *, absent=False, robust=None, seed=0):
    forget_uploads(kits[poison == "label flip"])  # each run is the first from its model
    wire = PoisonedWire(kits[poison == "label flip"], poison, absent=absent)
    silos = wire.five()
    start = silos.schema.drawn(seed).expand(len(silos.participants), -1)
    settings = TrainSettings(
        steps=STEPS, batch_size=32, learning_rate=RATE, total_steps=STEPS * ROUNDS
    )
    outcome = run(
        METHODS[name](settings=settings),
        silos,
        [tuple(silos.participants)],
        start,
        RunSettings(rounds=ROUNDS, seed=seed, evaluate_every=2, robust=robust),
    )
    return outcome, wire


@pytest.fixture(scope="module")
def without(kits):
    """The others' losses where the bad silo is absent, by method."""
    known = {}

    def loss(name):
        if name not in known:
            known[name] = others(trained(name, kits, absent=True)[0])
        return known[name]

    return loss


@pytest.mark.parametrize(("name", "poison"), COMBINATIONS)
def test_a_bad_silo_costs_the_others_at_most_a_tenth(kits, without, name, poison):
    outcome, wire = trained(name, kits, poison, robust=RobustSettings())
    assert others(outcome) < 1.1 * without(name)
    assert {one.participant for one in outcome.findings} <= {BAD}
    assert {failure.participant.name for _, failure in outcome.failures} <= {BAD}
    if name != "fedegoists":
        # Trials are masked sums like all others: no single model was asked for.
        assert "train" not in wire.operations()


def test_the_poison_works_where_nothing_is_done_against_it(kits, without):
    outcome, _ = trained("fedavg", kits, "times -10")
    assert others(outcome) > 1.3 * without("fedavg")


@pytest.mark.long
def test_a_bad_silo_is_found_although_another_trial_went_well_by_chance(kits):
    """Garbage is sometimes mild: in a trial without an honest silo, half of the others rose."""
    outcome, _ = trained("fedavg", kits, "garbage", robust=RobustSettings())
    assert [(one.participant, one.kind) for one in outcome.findings] == [(BAD, "left out")]


@pytest.mark.long
def test_a_bad_silo_is_found_although_it_throws_models_to_and_fro(kits):
    """After every second round models are at a good place again, in all but one of the trials."""
    outcome, _ = trained("egomix", kits, "times -10", robust=RobustSettings(), seed=1)
    assert [(one.participant, one.kind) for one in outcome.findings] == [(BAD, "left out")]
