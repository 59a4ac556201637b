"""Budgets: steps, rounds and phases."""

from fedegoists.learning.datasets import load
from fedegoists.methods import EgoMix
from fedegoists.training import repetitions as training
from reproduction.budgets import BUDGETS, budget
from reproduction.cell_store import CellStore
from reproduction.cells import Plan, cells_of
from reproduction.rate_choice import deciding_cells
from reproduction.reproduced_tables import TABLES
from reproduction.variants import VARIANTS


def test_budgets():
    data = load("synthetic-weak")
    own = budget("converged", data)
    twice = budget("converged", data, length=2, factor=0.5)
    assert (twice.rounds, twice.train.total_steps) == (2 * own.rounds, 2 * own.train.total_steps)
    assert twice.evaluate_every == own.evaluate_every
    assert twice.train.learning_rate == own.train.learning_rate / 2
    for name in ("published", "converged"):
        # As long alone as Local, as long together as any other method, then tuned as any other.
        once, best = budget(name, data), VARIANTS["egomix, alone first, 2.1 times"]
        method = EgoMix(budget(name, data, length=best.length).train, **dict(best.settings))
        phases = [method.phase(k)[0] for k in range(round(best.length * once.rounds))]
        assert phases.count("alone") == phases.count("mixing") == once.rounds
        assert phases.count("tuning") == once.tune_rounds
    short = budget("published", data)
    assert (short.train.batch_size, short.rounds * short.train.steps) == (256, 1000)
    assert short.train.augment is False


def test_without_augmentation_images_need_fewer_steps(data):
    images = training.load("cifar10", partition="dirichlet", beta=0.5)
    whole = budget("converged", images, "dirichlet")
    for partition, steps in (("pathological", 2000), ("dirichlet", 3000)):
        plain = budget("plain", images, partition)
        assert plain.rounds * plain.train.steps == steps
        assert whole.train.augment
        assert not plain.train.augment
        assert not plain.tune.augment
        same = plain.train.changed(augment=True, total_steps=whole.train.total_steps)
        assert same == whole.train
    assert budget("plain", images, "dirichlet", steps=10).rounds == 1
    # Its table has no other budget, whichever is asked for.
    for name in BUDGETS:
        cells = cells_of(TABLES["plain"], Plan(budget=name))
        assert {cell.budget for _, cell in cells} == {"plain"}
    assert deciding_cells([TABLES["plain"]], Plan(budget="published"), CellStore(data / "none"))


def test_pfllibs_settings_have_its_network_and_clients(data):
    table = TABLES["pfllib"]
    assert len(table.scenarios) == 6
    for _, scenario in table.scenarios:
        options = dict(scenario.options)
        assert (options["participants"], options["pooled"]) == (20, True)
        assert not scenario.competition
    cells = cells_of(table, Plan())
    assert {cell.budget for _, cell in cells} == {"pfllib"}
    assert {cell.revision for _, cell in cells} == {2}
    rows = {cell.variant.name for _, cell in cells}
    assert {"local", "egomix-0.8-wide", "fedavgm-wide+ft", "fedrep-wide", "ditto-wide"} <= rows
    images = training.load("cifar10", partition="dirichlet", beta=0.1, pooled=True)
    own, augmented = budget("pfllib", images), budget("pfllib-augmented", images)
    assert own.model == augmented.model == "pfllib-cnn"
    assert (own.train.batch_size, own.train.augment, own.rounds * own.train.steps) == (
        32,
        False,
        2000,
    )
    assert augmented.train.augment
    assert augmented.rounds * augmented.train.steps == 4000
