"""The smallest cell of every table, end to end; resuming; rerunning; and the statistics by hand."""

import csv
import io
import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedegoists.learning.datasets import load
from fedegoists.learning.datasets.cifar import siloed
from fedegoists.learning.datasets.cifar_files import CIFAR10, CIFAR100, Images
from fedegoists.methods import EgoMix
from fedegoists.methods.method_run import StoppedError
from fedegoists.training import trials as training
from reproduction import (
    TABLES,
    Plan,
    Progress,
    Settings,
    Store,
    left_of,
    lines_of,
    passes,
    reproduce,
    rerun,
    write_tables,
)
from reproduction.benefit_graphs import Benefits
from reproduction.budgets import BUDGETS, budget
from reproduction.cell_locks import claimed
from reproduction.cells import Cell, Result, cell_from, cells_of
from reproduction.rate_choice import (
    ALL_FACTORS,
    FACTORS,
    at_chosen_rates,
    chosen_rates,
    chosen_rounds,
    preferred_company,
    trial_cells,
)
from reproduction.running import done_of
from reproduction.scenarios import Scene, competition_of
from reproduction.table_results import (
    differences,
    interval,
    published_value,
    worst_cases,
)
from reproduction.variants import PAPER, VARIANTS, crossed_name, wide_name
from tests.learning.datasets.test_eicu import some, write

QUICK = Plan(trials=1, steps=2, choose=False)
FEW = ("local", "egomix", "egomix-wide", "fedavg", "fedavg+ft", "fedavg-wide+ft",
       "fedavg, four times+ft", "egomix, denser benefits, four times")  # fmt: skip


def small(table, methods=FEW, scenes=1, benefit=None):
    """The first scenes of a table, with some of its rows; learning nothing takes less time."""
    rows = tuple(
        replace(variant, benefit=benefit or variant.benefit)
        for variant in table.variants
        if variant.name in methods
    )
    return replace(table, scenes=table.scenes[:scenes], variants=rows or table.variants)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with made-up hospitals, and made-up images wherever CIFAR is asked for."""
    write(tmp_path, [stay for hospital in range(1, 5) for stay in some(hospital)])

    def made_up(name, *, data_dir=None, seed=0, **options):
        if not name.startswith("cifar"):
            return load(name, data_dir=data_dir, seed=seed, **options)
        release = CIFAR100 if name == "cifar100" else CIFAR10
        each = (20, 4) if release.classes == 10 else (10, 2)
        labels = np.concatenate([np.repeat(np.arange(release.classes), n) for n in each])
        rng = np.random.default_rng(1)
        pixels = rng.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
        images = Images(pixels, labels, each[0] * release.classes)
        return siloed(release, images, seed=seed, participants=4, **options)

    monkeypatch.setattr(training, "load", made_up)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TABLES if not TABLES[name].derived])
def test_the_smallest_cells_of_every_table(name, data):
    table = small(TABLES[name])
    settings = Settings(data / "out", data_dir=data)
    if name not in ("table4", "table6", "table7"):
        # A network for each of four participants, a hundred times as large as its model, is slow.
        rows = tuple(v for v in table.variants if v.method != "fedegoists")
        table = replace(table, variants=rows or TABLES[name].variants[:2])
    assert reproduce([table], QUICK, settings) == []
    lines = lines_of(table, QUICK, Store(data / "out"))
    assert {line.method for line in lines} == {variant.name for variant in table.variants}
    assert all(np.isfinite(line.mean) for line in lines)
    write_tables([table], QUICK, data / "out")
    text = (data / f"out/{name}.csv").read_text(encoding="utf-8")
    assert tuple(text.splitlines()[0].split(",")) == (*table.keys, "budget", "mean", "std", "n")
    page = (data / f"out/{name}.md").read_text(encoding="utf-8")
    assert "## Where it comes from" in page
    assert f"fedegoists reproduce {name} --trials 1" in page


@pytest.mark.slow
def test_rows_beyond_the_paper_differ_in_what_they_say(tmp_path):
    """On data with small networks, with everybody benefiting everybody."""
    names = ("fedegoists", "fedegoists, direct gradients", "fedegoists, best coalitions")
    more = ("fedegoists, measured benefit", "egomix, no competition")
    rows = tuple(
        variant if variant.benefit == "measured" else replace(variant, benefit="everybody")
        for variant in (VARIANTS[name] for name in (*names, *more))
    )
    table = replace(TABLES["table7"], variants=rows)
    plan = Plan(trials=1, steps=20, choose=False)
    assert reproduce([table], plan, Settings(tmp_path)) == []
    store = Store(tmp_path)
    found = {cell.variant.name: store.get(cell) for _, cell in cells_of(table, plan)}
    assert found["fedegoists"].test != found["fedegoists, direct gradients"].test
    sizes = {name: max(map(len, one.about["coalitions"])) for name, one in found.items()}
    # v1 and v2 compete with v3 and v4, and v5 and v6 with v7 and v8.
    assert sizes["fedegoists"] == sizes["fedegoists, best coalitions"] == 4
    assert sizes["egomix, no competition"] == 8
    assert found["egomix, no competition"].spent["sample_passes"] == 20 * 64


def test_a_stopped_pass_goes_on_to_the_same_numbers(tmp_path):
    table = small(TABLES["table7"], ("fedavg", "fedavg+ft"), benefit="everybody")
    plan = Plan(trials=2, steps=60, choose=False)
    assert reproduce([table], plan, Settings(tmp_path / "whole")) == []
    calls = 0

    def now_and_then():
        nonlocal calls
        calls += 1
        return calls % 3 == 0

    settings = Settings(tmp_path / "parts", stop=now_and_then)
    left, times = reproduce([table], plan, settings), 1
    assert left  # it was stopped in the middle
    assert list((tmp_path / "parts/checkpoint").rglob("*.safetensors"))
    while left:
        left, times = reproduce([table], plan, settings), times + 1
        assert times < 30
    whole, parts = Store(tmp_path / "whole"), Store(tmp_path / "parts")
    for _, cell in cells_of(table, plan):
        assert whole.get(cell).test == parts.get(cell).test
        assert whole.get(cell).spent == parts.get(cell).spent
    assert not list((tmp_path / "parts/checkpoint").rglob("*.safetensors"))


def test_one_cell_trained_again_gives_the_recorded_value(tmp_path):
    table = small(TABLES["table6"], ("egomix", "fedavg", "fedavg+ft"))
    settings = Settings(tmp_path)
    reproduce([table], Plan(trials=2, steps=20, choose=False), settings)
    for _, cell in cells_of(table, Plan(trials=2, steps=20, choose=False))[1::4]:
        record = Store(tmp_path).load(cell.digest)
        assert record["about"]["command"].startswith(f"fedegoists reproduce --cell {cell.digest}")
        assert cell_from(record["settings"]) == cell
        again = rerun(cell.digest, settings)
        assert again.again == record["test"]
        assert again.largest_difference == 0
    changed = {**record, "test": {**record["test"], "v1": 700.0}}
    Store(tmp_path).path(cell).write_text(json.dumps(changed))
    assert rerun(cell.digest, settings).largest_difference > 500


def test_stacked_or_one_by_one_it_is_the_same(tmp_path):
    """A trial's name, not its company, decides its batches."""
    table = small(TABLES["table7"], ("local", "fedavg"), benefit="everybody")
    plan = Plan(trials=2, steps=20, choose=False)
    reproduce([table], plan, Settings(tmp_path / "one", stack=8))
    reproduce([table], plan, Settings(tmp_path / "all", stack=500))
    one, everything = Store(tmp_path / "one"), Store(tmp_path / "all")
    for _, cell in cells_of(table, plan):
        assert len(one.get(cell).about["pass"]) == 1
        assert len(everything.get(cell).about["pass"]) == 2
        np.testing.assert_allclose(
            list(one.get(cell).test.values()), list(everything.get(cell).test.values()), rtol=1e-4
        )


@pytest.mark.parametrize("name", ["local", "fedavg+ft", "egomix", "fedegoists", "pfedhn", "fedora"])
def test_a_cell_gives_the_same_by_itself_and_beside_other_competition(tmp_path, name):
    """What several levels of competition have in common is trained once, for all of them."""
    variant = replace(VARIANTS[name], benefit="everybody")
    cells = [
        Cell(Scene("synthetic-weak", (), rivals), trial, variant, "converged", 40)
        for trial in (0, 1)
        for rivals in ("0.05", "0.2", "0.3")
    ]
    settings, benefits = Settings(tmp_path), Benefits(tmp_path)
    together = passes.train_pass(passes.Pass(tuple(cells)), settings, benefits, {})
    passes.forget(passes.Pass(tuple(cells)), tmp_path)
    assert {one.about["pass_silos"] for one in together.values()} < set(range(6 * 8))
    for cell in cells[2::2]:
        alone = passes.train_pass(passes.Pass((cell,)), settings, benefits, {})[cell]
        assert alone.about["pass_silos"] == 8
        assert alone.about["coalitions"] == together[cell].about["coalitions"]
        assert max(map(len, alone.about["coalitions"])) > (name != "local")
        for part in ("test", "validation"):
            one, other = getattr(alone, part), getattr(together[cell], part)
            assert list(one) == list(other) == [f"v{k}" for k in range(1, 9)]
            np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=1e-4)
        assert alone.rounds == together[cell].rounds
        assert alone.spent == together[cell].spent


# Planning --------------------------------------------------------------------------------------


def test_local_runs_once_for_all_competition():
    cells = cells_of(TABLES["table1"], Plan())
    local = {cell for _, cell in cells if cell.variant.name == "local"}
    assert len(local) == 2 * 5
    assert len({cell for _, cell in cells if cell.variant.name == "fedavg"}) == 2 * 5 * 5
    work = passes.passes(list(dict.fromkeys(cell for _, cell in cells)), stack=250)
    # Each split: all of a method in one pass, but FedEgoists in one for each trial.
    assert len(work) == 2 * (2 + 2 + 8 + 5)  # Local and EgoMix twice
    assert all(len({cell.label for cell in one.cells}) <= 25 for one in work)
    # The same data with the same method under another competition is in the same pass.
    fedavg = next(one for one in work if one.bases[0].variant.name == "fedavg")
    assert {cell.variant.name for cell in fedavg.cells} == {"fedavg", "fedavg+ft"}
    assert len(fedavg.bases) == 25


def test_tables_share_cells():
    """Table 5 at β = 0.5 and the tables beyond the paper need nothing that Table 1 has."""
    first = {cell for _, cell in cells_of(TABLES["table1"], Plan())}
    fifth = {c for key, c in cells_of(TABLES["table5"], Plan()) if key["beta"] == 0.5}
    assert {c for c in fifth if c.scene.data == "cifar10"} <= first
    beyond = {c for _, c in cells_of(TABLES["coalitions"], Plan())}
    assert len(beyond - first) == 2 * 2 * 5  # best coalitions: two splits, two methods, five trials


def test_competition_is_the_same_for_all_methods_and_grows_with_its_probability():
    data = load("synthetic-weak", seed=3)
    few, many = (
        set(competition_of(Scene("synthetic-weak", (), p), 3, data).pairs) for p in ("0.1", "0.4")
    )
    assert few < many
    assert set(competition_of(Scene("synthetic-weak", (), "published"), 3, data).pairs) == set(
        data.competition_pairs
    )


def test_budgets():
    data = load("synthetic-weak")
    own = budget("converged", data)
    twice = budget("converged", data, passes=2, factor=0.5)
    assert (twice.rounds, twice.train.total_steps) == (2 * own.rounds, 2 * own.train.total_steps)
    assert twice.evaluate_every == own.evaluate_every
    assert twice.train.learning_rate == own.train.learning_rate / 2
    for name in ("published", "converged"):
        # As long alone as Local, as long together as any other method, then tuned as any other.
        once, best = budget(name, data), VARIANTS["egomix, alone first, 2.1 times"]
        method = EgoMix(budget(name, data, passes=best.passes).train, **dict(best.settings))
        phases = [method.phase(k)[0] for k in range(round(best.passes * once.rounds))]
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
        same = replace(plain.train, augment=True, total_steps=whole.train.total_steps)
        assert same == whole.train
    assert budget("plain", images, "dirichlet", steps=10).rounds == 1
    # Its table has no other budget, whichever is asked for.
    for name in BUDGETS:
        cells = cells_of(TABLES["plain"], Plan(budget=name))
        assert {cell.budget for _, cell in cells} == {"plain"}
    assert trial_cells([TABLES["plain"]], Plan(budget="published"), Store(data / "none"))


# Choosing and counting -------------------------------------------------------------------------


def result(test, validation=None, metric="accuracy", failures=0):
    spent = dict.fromkeys(("sample_passes", "bytes_sent", "bytes_received"), 1.0)
    about = {"pass": ["x"], "pass_seconds": 1.0, "samples_per_second": 5, "commit": "abc",
             "device": "CPU", "torch": "2", "finished": "2000-01-01", "rounds": [100, 20],
             "failures": failures}  # fmt: skip
    values = {"v0": test - 0.1, "v1": test + 0.1}
    known = dict.fromkeys(values, validation or test)
    return Result(metric, values, known, {"v0": 1, "v1": 1}, spent, about)


def used(table, plan, store):
    """The rates at which the rows of a table are trained."""
    found = {}
    for _, cell, rated in at_chosen_rates(table, plan, store):
        found.setdefault(cell.variant.name, set()).add(None if rated is None else rated.factor)
    return found


def test_learning_rates_are_chosen_on_validation_data_alone(tmp_path):
    rows = ("local", "fedavg", "fedavg+ft", "egomix")
    table, plan, store = small(TABLES["table1"], rows, scenes=5), Plan(), Store(tmp_path)
    candidates = trial_cells([table], plan, store)
    # Fine-tuning follows; the first trial decides in the middle.
    assert len(candidates) == 3 * len(FACTORS)
    assert {cell.scene.competition for cell in candidates} == {"", "0.2"}
    assert {cell.trial for cell in candidates} == {0}
    # What happens to be there is not shown before anything is decided.
    store.put(candidates[0], result(test=0.5))
    assert candidates[0].factor == 1.0
    assert used(table, plan, store) == {name: {None} for name in rows}
    assert lines_of(table, plan, store) == []
    assert done_of(table, plan, store)[0] == 0
    assert left_of([table], plan, store) == candidates[1:]
    store.path(candidates[0]).unlink()
    store = Store(tmp_path)
    wanted, rounds = {"local": 1.0, "fedavg": 0.25, "egomix": 2.0}, 0
    while missing := store.missing(trial_cells([table], plan, store)):
        rounds += 1
        for cell in missing:
            # The best on validation data is the worst on test data.
            worse = abs(cell.factor - wanted[cell.variant.name])
            store.put(cell, result(test=1 + worse, validation=4 - worse))
    # Half was the best of three, and a quarter is better than half and than an eighth.
    assert rounds == 3
    assert len(trial_cells([table], plan, store)) == 3 * len(FACTORS) + 3
    rates = {"local": 1.0, "fedavg": 0.25, "fedavg+ft": 0.25, "egomix": 2.0}
    assert used(table, plan, store) == {name: {rate} for name, rate in rates.items()}
    assert chosen_rates(table, plan, store) == {"cifar10 pathological": rates}
    cells = {cell for _, _, cell in at_chosen_rates(table, plan, store)}
    left = {cell for cell in cells if store.get(cell) is None}
    assert set(left_of([table], plan, store)) == left
    assert done_of(table, plan, store) == (len(cells) - len(left), len(cells))
    # A part of a table decides in the same way, as does another β; other tables do not choose.
    part = replace(table, scenes=table.scenes[-1:])
    assert trial_cells([part], plan, store) == trial_cells([table], plan, store)
    fifth = small(TABLES["table5"], ("fedavg",), scenes=2)
    other = {cell.scene.options[-1] for cell in trial_cells([fifth], plan, store)}
    assert other == {("beta", 0.5)}
    for kind in (Plan(choose=False), Plan(budget="published")):
        assert trial_cells([table], kind, store) == []
        assert used(table, kind, store) == {name: {1.0} for name in rows}
    assert trial_cells([TABLES["mixing"]], plan, store) == []


def test_all_trials_of_small_data_decide_together(tmp_path):
    rows = ("local", "local-kept")
    table, plan, store = small(TABLES["table7"], rows), Plan(trials=3), Store(tmp_path)
    # All methods have the same choice, whatever comes of it.
    assert len(trial_cells([table], plan, store)) == 2 * 3 * len(ALL_FACTORS)
    best = {"local": (8.0, 0.5, 0.5), "local-kept": (8.0, 8.0, 1.0)}
    for cell in trial_cells([table], plan, store):
        assert used(table, plan, store)[cell.variant.name] == {None}
        # Far from the best in the logarithm, so that the trials' majority decides.
        error = abs(math.log2(cell.factor / best[cell.variant.name][cell.trial]))
        store.put(cell, result(test=1.0, validation=1 + error, metric="mse"))
    rates = {"local": 0.5, "local-kept": 8.0}
    assert chosen_rates(table, plan, store) == {"synthetic-strong": rates}
    assert left_of([table], plan, store) == []


def curves(values):
    """The validation curves of two participants: one value after every round, alike or each."""
    return {
        name: [(number, value) for number, value in enumerate(own, start=1)]
        for name, own in zip(("v0", "v1"), values, strict=True)
    }


def test_hospitals_decide_about_rate_and_round_together(tmp_path):
    rows = ("local", "fedavg", "fedavg+ft")
    table, plan, store = small(TABLES["table4"], rows), Plan(trials=2), Store(tmp_path)
    nothing = (math.nan,) * 3  # as where all patients of one are alike
    known = {
        # Everybody's luckiest round has 0.9, but in the mean none has more than 0.64.
        1.0: [((0.9, 0.1, 0.6), nothing), ((0.1, 0.9, 0.5), (0.9, 0.1, 0.5))],
        # The second round has 0.65 in the mean.
        0.5: [((0.1, 0.7, 0.6), nothing), ((0.2, 0.7, 0.5), (0.2, 0.55, 0.1))],
        2.0: [((0.1, 0.2, 0.3), nothing), ((0.1, 0.2, 0.3), (0.1, 0.2, 0.3))],
        0.25: [((0.5, 0.5, 0.5), nothing), ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))],
    }
    while missing := store.missing(trial_cells([table], plan, store)):
        assert used(table, plan, store)["fedavg"] == {None}
        for cell in missing:
            assert cell.until is None
            assert not cell.variant.tuned
            done = result(test=0.9, validation=0.9, metric="auc")
            store.put(cell, replace(done, curves=curves(known[cell.factor][cell.trial])))
    store = Store(tmp_path)  # as it was written
    cells = {cell for _, _, cell in at_chosen_rates(table, plan, store)}
    assert {(cell.factor, cell.until) for cell in cells} == {(0.5, 2)}
    assert {cell.variant.name for cell in cells} == set(rows)
    where = {"eicu-demo": dict.fromkeys(rows, 2)}
    assert chosen_rounds(table, plan, store) == where
    # What is shown is trained once more, until that round; nothing that decided is shown.
    assert set(left_of([table], plan, store)) == cells
    assert lines_of(table, plan, store) == []
    for cell in cells:
        store.put(cell, result(test=0.7, metric="auc"))
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "table4.md").read_text(encoding="utf-8")
    assert "| fedavg+ft | 0.5, 2 rounds (0.700) |" in page
    assert "too few for each to choose a round" in page
    # Nothing is chosen under the published budget, and as few trials as elsewhere are enough.
    short = Plan(budget="published")
    assert {cell.until for _, _, cell in at_chosen_rates(table, short, store)} == {None}
    assert (short.trials_of(table), Plan().trials_of(table)) == (5, 20)


def test_hospitals_choose_company_by_benefits_of_another_trial(tmp_path):
    crossed = crossed_name("egomix")
    rows = ("egomix", crossed, "egomix-wide")
    table, plan, store = small(TABLES["table4"], rows), Plan(trials=1), Store(tmp_path)
    values = {"egomix": ((0.5, 0.7, 0.7), (0.5, 0.8, 0.8)), "egomix-wide": ((0.6,) * 3, (0.8,) * 3)}
    while missing := store.missing(trial_cells([table], plan, store)):
        for cell in missing:
            own = values[cell.variant.name]
            if cell.factor != 1.0:
                own = ((0.1,) * 3, (0.1,) * 3)
            store.put(cell, replace(result(test=0.9, metric="auc"), curves=curves(own)))
    # Of equal rounds it is the first; what has another trial's benefits decides about nothing.
    rounds = {"egomix": 2, crossed: 2, "egomix-wide": 1}
    assert chosen_rounds(table, plan, store) == {"eicu-demo": rounds}
    # Along benefits that were learned from the same patients it looks better than it is.
    found = {"egomix": 0.75, "egomix-wide": 0.7, crossed: 0.65}
    for _, cell, rated in at_chosen_rates(table, plan, store):
        assert preferred_company(table, plan, store) == {}
        store.put(rated, result(test=0.5, validation=found[cell.variant.name], metric="auc"))
    company = preferred_company(table, plan, store)["eicu-demo"]["egomix"]
    assert company.preferred == "egomix-wide"
    assert company.validation == pytest.approx({"egomix": 0.65, "egomix-wide": 0.7})


def test_a_round_in_which_somebody_has_no_number_is_not_chosen(tmp_path):
    table, plan, store = small(TABLES["table4"], ("local",)), Plan(trials=1), Store(tmp_path)
    nan = math.nan
    while missing := store.missing(trial_cells([table], plan, store)):
        for cell in missing:
            # In the second round somebody diverged; nobody else is better than in the first.
            own = ((0.6, 0.9, 0.5), (0.6, nan, 0.5))
            if cell.factor != 1.0:
                own = ((0.1,) * 3, (0.1,) * 3)
            store.put(cell, replace(result(test=0.5, metric="auc"), curves=curves(own)))
    assert {(cell.factor, cell.until) for _, _, cell in at_chosen_rates(table, plan, store)} == {
        (1.0, 1)
    }


def test_cells_of_hospitals_without_all_rounds_are_trained_again(tmp_path):
    table, plan, store = small(TABLES["table4"], ("local",)), Plan(trials=2), Store(tmp_path)
    candidates = trial_cells([table], plan, store)
    for cell in candidates:
        store.put(cell, result(test=0.5, metric="auc"))
    assert Store(tmp_path).missing(candidates) == candidates
    assert left_of([table], plan, Store(tmp_path)) == candidates
    short = [cell for _, cell in cells_of(table, Plan(trials=2, budget="published"))]
    for cell in short:
        store.put(cell, result(test=0.5, metric="auc"))
    assert Store(tmp_path).missing(short) == []


def test_hospitals_do_not_choose_company_by_their_own_benefits(tmp_path):
    table = small(TABLES["table4"], ("egomix", "egomix-wide"))
    plan, store = Plan(trials=1), Store(tmp_path)
    while missing := left_of([table], plan, store):
        for cell in missing:
            done = result(test=0.5, metric="auc")
            store.put(cell, replace(done, curves=curves(((0.5,), (0.5,)))))
    assert preferred_company(table, plan, store) == {}
    # Another trial's are there to choose by; under the published budget nothing is chosen.
    names = {cell.variant.name for _, cell in cells_of(TABLES["table4"], Plan())}
    fewer = {c.variant.name for _, c in cells_of(TABLES["table4"], Plan(budget="published"))}
    assert names - fewer == {crossed_name("egomix")}


def test_another_trials_benefits_are_those_that_the_next_trial_learns(tmp_path):
    table, crossed = small(TABLES["table7"], ("egomix",)), VARIANTS[crossed_name("egomix")]
    table = replace(table, variants=(*table.variants, crossed))
    plan = Plan(trials=2, steps=2, choose=False)
    assert reproduce([table], plan, Settings(tmp_path)) == []
    # The last one needs a trial that is in no table.
    assert len(list((tmp_path / "graphs").glob("*.json"))) == 3
    data = {trial: load("synthetic-strong", seed=trial) for trial in range(3)}
    cells = {(c.variant.name, c.trial): c for _, c in cells_of(table, plan)}
    graphs = Benefits(tmp_path, steps=2).of(list(cells.values()), data)
    weights = {place: graphs[cell].to_json() for place, cell in cells.items()}
    assert weights[crossed.name, 0] == weights["egomix", 1]


@pytest.mark.slow
def test_who_trains_until_a_round_has_the_models_of_that_round(data):
    table = small(TABLES["table4"], ("fedavg", "fedavg+ft"), benefit="everybody")
    plan, settings = Plan(trials=2, steps=60), Settings(data / "out", data)
    assert reproduce([table], plan, settings) == []
    store, seen = Store(data / "out"), set()
    for _, cell, rated in at_chosen_rates(table, plan, store):
        found, decided = store.get(rated), store.get(replace(rated.base, until=None))
        seen.add(rated.until)
        if cell.variant.tuned:
            assert found.about["rounds"] == [rated.until, 3]
            continue
        assert set(found.rounds.values()) == {rated.until}
        assert not found.curves
        for name, value in found.validation.items():
            there = dict(decided.curves[name])[rated.until]
            assert value == pytest.approx(there, abs=1e-4, nan_ok=True)
        assert [number for number, _ in decided.curves[name]] == [1, 2, 3]
    assert len(seen) == 1
    assert rerun(rated.digest, settings).largest_difference == 0


def test_what_trains_longer_chooses_for_itself(tmp_path):
    rows = ("local", "local, four times")
    table, plan, store = small(TABLES["longer"], rows), Plan(trials=2), Store(tmp_path)
    wanted = {"local": 1.0, "local, four times": 0.5}
    while missing := store.missing(trial_cells([table], plan, store)):
        for cell in missing:
            best = cell.factor == wanted[cell.variant.name]
            store.put(cell, result(test=1.0, validation=2.0 if best else 1.0))
    assert used(table, plan, store) == {name: {rate} for name, rate in wanted.items()}


def preferred(table, plan, store):
    """The preferred rows alone, by data and method."""
    found = preferred_company(table, plan, store)
    return {where: {k: one.preferred for k, one in own.items()} for where, own in found.items()}


def test_validation_data_tells_in_which_company_a_method_does_best(tmp_path):
    rows = ("egomix", "egomix-wide", "fedavg", "fedavg-wide", "local")
    whole = replace(TABLES["company-synthetic"], scenes=TABLES["company-synthetic"].scenes[1:])
    table, plan, store = small(whole, rows), Plan(trials=2), Store(tmp_path)
    assert preferred_company(table, plan, store) == {}
    for cell in trial_cells([table], plan, store):
        # The lower error on validation data is the higher one on test data.
        good = cell.variant.name in ("egomix-wide", "fedavg")
        values = {"test": 2.0, "validation": 1.0} if good else {"test": 1.0, "validation": 2.0}
        store.put(cell, result(metric="mse", **values))
    wanted = {"synthetic-strong": {"egomix": "egomix-wide", "fedavg": "fedavg"}}
    assert preferred(table, plan, store) == wanted
    company = preferred_company(table, plan, store)["synthetic-strong"]["egomix"]
    assert company.validation == {"egomix": 2.0, "egomix-wide": 1.0}
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "company-synthetic.md").read_text(encoding="utf-8")
    assert "| egomix | all (2.000, 1.000) |" in page
    assert "| fedavg | learned (1.000, 2.000) |" in page
    # Under the published budget nothing is chosen, but the page tells of both.
    assert preferred(table, replace(plan, budget="published"), store) == wanted
    assert preferred(small(whole, rows[:1]), plan, store) == {}
    assert preferred(table, replace(plan, choose=False), store) == {}


def test_the_first_trial_of_images_decides_about_company_and_of_equals_it_is_learned(tmp_path):
    rows = ("egomix", "egomix-wide", "fedavg", "fedavg+ft", "fedavg-wide", "fedavg-wide+ft")
    table, plan, store = small(TABLES["company"], rows), Plan(trials=2), Store(tmp_path)
    while missing := store.missing(trial_cells([table], plan, store)):
        for cell in missing:
            store.put(cell, result(test=0.5, validation=0.6 if cell.factor == 1 else 0.5))
    for _, _, cell in at_chosen_rates(table, plan, store):
        wide = "-wide" in cell.variant.name
        if cell.variant.tuned:
            # What is tuned has a preference of its own; the second trial would have another.
            store.put(cell, result(test=0.5, validation=0.9 if wide == (cell.trial == 0) else 0.1))
        elif cell.trial:
            store.put(cell, result(test=0.5, validation=0.9 if wide else 0.1))
    assert preferred(table, plan, store) == {
        "cifar10 pathological": {
            "egomix": "egomix",
            "fedavg": "fedavg",
            "fedavg+ft": "fedavg-wide+ft",
        }
    }


@pytest.mark.parametrize(
    ("failures", "best"), [((0, 1000), "egomix"), ((1000, 0), "egomix-wide"), ((1000, 1000), None)]
)
def test_company_that_makes_training_diverge_is_not_preferred(tmp_path, failures, best):
    table, plan = small(TABLES["table7"], ("egomix", "egomix-wide")), Plan(trials=1)
    store = Store(tmp_path)
    for cell in trial_cells([table], plan, store):
        wide = cell.variant.name == "egomix-wide"
        error = 2.0 if wide == (best == "egomix-wide") else 1.0
        store.put(cell, result(test=error, metric="mse", failures=failures[wide]))
    assert preferred(table, plan, store) == {"synthetic-strong": {"egomix": best}}


def test_wide_rows_have_all_company_and_nothing_else_of_their_own():
    for name in ("egomix", "fedavg", "fedavg+ft"):
        row = VARIANTS[wide_name(name)]
        assert (row.where, row.benefit) == ("best", "everybody")
        assert row == replace(VARIANTS[name], name=row.name, where="best", benefit="everybody")
    assert VARIANTS["fedavg-wide+ft"].base == VARIANTS["fedavg-wide"]


def test_a_page_compares_what_is_alike(tmp_path):
    rows = {"local": 0.5, "egomix": 0.8, "egomix-wide": 0.9, "fedavg": 0.6, "fedprox": 0.55,
            "fedavg-wide": 0.3, "fedprox-wide": 0.4, "fedavg-wide+ft": 0.7}  # fmt: skip
    table, plan, store = (
        small(TABLES["company"], rows, 4),
        Plan(trials=2, choose=False),
        Store(tmp_path),
    )
    for _, cell in cells_of(table, plan):
        store.put(cell, result(rows[cell.variant.name]))
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "company.md").read_text(encoding="utf-8")
    for one, other, gap in (
        ("egomix-wide", "local", 40), ("egomix-wide", "egomix", 10), ("egomix", "fedavg", 20),
        ("egomix-wide", "fedprox-wide", 50), ("egomix", "fedprox-wide", 40),
        ("egomix-wide", "fedavg-wide+ft", 20),
    ):  # fmt: skip
        assert f"- {one} minus {other}: +{gap}.0, 95 % interval" in page
    assert "fedavg-wide:" not in page  # not the best of those
    values = {
        "egomix": 0.5, "egomix-wide, four times": 0.9, "fedavg, four times": 0.6,
        "egomix-wide, sixteen times": 0.8, "fedavg-wide, sixteen times": 0.7,
    }  # fmt: skip
    longer = small(TABLES["longer"], tuple(values))
    for _, cell in cells_of(longer, plan):
        store.put(cell, result(values[cell.variant.name]))
    write_tables([longer], plan, tmp_path)
    page = (tmp_path / "longer.md").read_text(encoding="utf-8")
    assert "- egomix-wide, four times minus fedavg, four times: +30.0" in page
    assert "- egomix-wide, sixteen times minus fedavg-wide, sixteen times: +10.0" in page
    assert "- egomix-wide, four times minus fedavg-wide" not in page
    assert "- egomix minus fedavg, four times" not in page


@pytest.mark.parametrize(("sign", "best"), [(1, 16.0), (-1, 1 / 16)])
def test_learning_rates_end_somewhere(tmp_path, sign, best):
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), Store(tmp_path)
    while missing := store.missing(trial_cells([table], plan, store)):
        assert left_of([table], plan, store)
        for cell in missing:
            store.put(cell, result(test=1.0, validation=20 + sign * cell.factor))
    assert used(table, plan, store)["local"] == {best}
    assert len(trial_cells([table], plan, store)) == len(FACTORS) + 3


def test_a_learning_rate_that_gives_somebody_no_number_is_not_chosen(tmp_path):
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), Store(tmp_path)
    for cell in trial_cells([table], plan, store):
        # Nobody knows v2; v1 has a number at other rates than twice.
        v1 = math.nan if cell.factor == 2 else 0.1 + (cell.factor == 1)
        known = {"v0": cell.factor, "v1": v1, "v2": math.nan}
        store.put(cell, replace(result(test=1.0), validation=known))
    assert used(table, plan, store)["local"] == {1.0}


@pytest.mark.parametrize(("failures", "best"), [(2, 1.0), (3, 0.5)])
def test_a_learning_rate_at_which_training_diverges_is_not_chosen(tmp_path, failures, best):
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), Store(tmp_path)
    while missing := store.missing(trial_cells([table], plan, store)):
        for cell in missing:
            # Two participants and a hundred rounds: two failures are one in a hundred.
            failed = failures if cell.factor == 1 else 0
            values = {1.0: 3.0, 0.5: 2.0}.get(cell.factor, 1.0)
            store.put(cell, result(test=1.0, validation=values, failures=failed))
    assert used(table, plan, store)["local"] == {best}


def test_a_rate_that_diverges_in_one_of_many_trials_is_not_chosen(tmp_path):
    table, plan, store = small(TABLES["table7"], ("local",)), Plan(trials=3), Store(tmp_path)
    for cell in trial_cells([table], plan, store):
        failed = 9 if (cell.factor, cell.trial) == (1.0, 1) else 0
        error = {1.0: 1.0, 2.0: 2.0}.get(cell.factor, 3.0)
        store.put(cell, result(test=1.0, validation=error, metric="mse", failures=failed))
    assert used(table, plan, store)["local"] == {2.0}


def test_where_all_rates_diverge_smaller_ones_are_tried(tmp_path):
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), Store(tmp_path)
    while missing := store.missing(trial_cells([table], plan, store)):
        for cell in missing:
            failed = 0 if cell.factor == 0.125 else 9
            store.put(cell, result(test=1.0, validation=cell.factor, failures=failed))
    assert used(table, plan, store)["local"] == {0.125}


def test_a_table_leaves_out_a_budget_under_which_it_has_no_row_of_its_own(tmp_path):
    table, store = TABLES["contributors"], Store(tmp_path)
    for budget_ in ("published", "converged"):
        for _, cell in cells_of(table, Plan(budget=budget_)):
            if budget_ == "converged" or cell.variant.name != "fedegoists, whole coalition":
                store.put(cell, result(test=0.5))
    write_tables([table], Plan(), tmp_path)
    assert "published" not in (tmp_path / "contributors.csv").read_text()
    assert "## Budget published" not in (tmp_path / "contributors.md").read_text()


@pytest.mark.parametrize("values", [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1)])
def test_of_equal_learning_rates_the_budgets_own_is_taken(tmp_path, values):
    # Added one by one, 0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1.
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), Store(tmp_path)
    for cell in trial_cells([table], plan, store):
        given = {0.5: (0.0, 0.0, 0.0), 1.0: values, 2.0: values[::-1]}[cell.factor]
        known = dict(zip(("v0", "v1", "v2"), given, strict=True))
        store.put(cell, replace(result(test=1.0), validation=known))
    assert used(table, plan, store)["local"] == {1.0}


def test_a_table_at_chosen_learning_rates(tmp_path):
    table = small(TABLES["table7"], ("local", "fedavg", "fedavg+ft"))
    plan = Plan(trials=1, steps=2)
    assert reproduce([table], plan, Settings(tmp_path)) == []
    store = Store(tmp_path)
    tried = trial_cells([table], plan, store)
    for name in ("local", "fedavg"):
        errors = {c.factor: store.get(c).mean_validation for c in tried if c.variant.name == name}
        assert set(errors) == set(ALL_FACTORS)
        (factor,) = used(table, plan, store)[name]
        assert errors[factor] == min(errors.values())
    assert used(table, plan, store)["fedavg+ft"] == used(table, plan, store)["fedavg"]
    write_tables([table], plan, tmp_path)
    text = (tmp_path / "table7.md").read_text(encoding="utf-8")
    assert "learning rate was chosen on validation data" in text
    (factor,) = used(table, plan, store)["local"]
    best = store.get(next(c for c in tried if (c.variant.name, c.factor) == ("local", factor)))
    assert f"| local | {factor:g} ({best.mean_validation:.3f}) |" in text
    assert not any((tmp_path / "checkpoint" / "claims").iterdir())


def test_images_choose_a_learning_rate_end_to_end(tmp_path, data):
    table = small(TABLES["table1"], ("local", "fedavg+ft"), benefit="everybody")
    plan, settings = Plan(trials=2, steps=1), Settings(tmp_path / "out", data)
    assert reproduce([table], plan, settings) == []
    store = Store(tmp_path / "out")
    tried = trial_cells([table], plan, store)
    assert {cell.variant.name for cell in tried} == {"local", "fedavg"}
    assert store.missing(tried) == []
    assert done_of(table, plan, store) == (4, 4)
    scores = {c.factor: store.get(c).mean_validation for c in tried if c.variant.name == "local"}
    (factor,) = used(table, plan, store)["local"]
    assert scores[factor] == max(scores.values())


# Several processes -----------------------------------------------------------------------------


def test_what_another_process_is_at_is_left_to_it(tmp_path):
    table = small(TABLES["table7"], ("local", "fedavg"))
    cells = [cell for _, cell in cells_of(table, QUICK)]
    local = next(one for one in passes.passes(cells, 250) if "local" in one.words())
    done = []
    settings = Settings(tmp_path, stop=lambda: bool(done))
    progress = Progress(ends=lambda work, results: done.append(results))
    with claimed(tmp_path, local.kind) as mine, claimed(tmp_path, local.kind) as again:
        assert (mine, again) == (True, False)
        left = reproduce([table], QUICK, settings, progress=progress)
        assert {cell.variant.method for cell in left} == {"local"}
    assert reproduce([table], QUICK, Settings(tmp_path)) == []


def test_waiting_for_others_ends_in_time(tmp_path):
    table = small(TABLES["table7"], ("local",))
    (only,) = passes.passes([cell for _, cell in cells_of(table, QUICK)], 250)
    waited = []
    settings = Settings(tmp_path, stop=lambda: len(waited) > 1)
    with claimed(tmp_path, only.kind):
        left = reproduce(
            [table], QUICK, settings, progress=Progress(waits=lambda: waited.append(1))
        )
    assert [cell.variant.method for cell in left] == ["local"]
    assert len(waited) == 2


def test_a_graph_that_another_process_learns_is_waited_for(tmp_path, monkeypatch):
    cell = next(c for _, c in cells_of(TABLES["table7"], QUICK) if c.variant.method == "fedavg")
    loaded = {0: load("synthetic-strong", seed=0)}
    asked = []
    benefits = Benefits(tmp_path, steps=1, stop=lambda: bool(asked.append(1)) or len(asked) > 2)
    with claimed(tmp_path, benefits._lock(cell)) as mine:
        assert mine
        with pytest.raises(StoppedError, match="before learned benefits were there"):
            benefits.of([cell], loaded)
    assert len(asked) == 3
    graph = benefits.of([cell], loaded)[cell]
    monkeypatch.setattr(Benefits, "_make", None)  # what is there is not learned again
    assert benefits.of([cell], loaded)[cell].to_json() == graph.to_json()


def test_a_lower_threshold_gives_a_denser_graph_of_the_same_preferences(tmp_path):
    cell = next(c for _, c in cells_of(TABLES["table7"], QUICK) if c.variant.method == "fedavg")
    denser = replace(cell, variant=replace(cell.variant, benefit="denser"))
    graphs = Benefits(tmp_path, steps=30).of([cell, denser], {0: load("synthetic-strong", seed=0)})
    few, more = ({(j, i): x for j, i, x in graphs[one].edges()} for one in (cell, denser))
    assert 0 < len(few) < len(more)
    assert few == {pair: x for pair, x in more.items() if x > 0.095}
    assert min(more.values()) > 0.05


def test_processes_share_a_table(tmp_path):
    alone, table = tmp_path / "alone", small(TABLES["table7"], ("local", "fedavg", "egomix"))
    plan = QUICK
    assert reproduce([table], plan, Settings(alone)) == []
    wanted = ["--methods", "local,fedavg,egomix", "--trials", "1", "--steps", "2", "--no-choose"]
    command = [sys.executable, "-m", "fedegoists", "reproduce", "table7", *wanted]
    together = tmp_path / "together"
    running = [
        subprocess.Popen([*command, "--out", str(together), "--resume"], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[0].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    # Nothing is trained twice, and nothing left out.
    trained = [line for text in said for line in text.splitlines() if ": mean " in line]
    assert len(trained) == len(set(trained)) == 3
    one, other = Store(alone), Store(together)
    for _, cell in cells_of(table, plan):
        assert one.get(cell).test == other.get(cell).test


def test_means_differences_and_published_numbers(tmp_path):
    table = small(TABLES["table1"], ("local", "fedegoists"))
    store = Store(tmp_path)
    values = {"local": [0.80, 0.82, 0.84], "fedegoists": [0.81, 0.85, 0.86]}
    for _, cell in cells_of(table, Plan(trials=3, choose=False)):
        store.put(cell, result(values[cell.variant.name][cell.trial]))
    lines = lines_of(table, Plan(trials=3, choose=False), Store(tmp_path))
    local = next(line for line in lines if line.method == "local")
    assert local.mean == pytest.approx(82)
    assert local.std == pytest.approx(2)
    assert published_value(table, local) == 80.47
    (gap,) = (d for d in differences(lines) if d.against == "fedegoists")
    # Differences −1, −3, −2: mean −2, standard error 1/√3, t = 4.303 with two degrees of freedom.
    assert gap.mean == pytest.approx(-2)
    assert gap.high == pytest.approx(-2 + 4.3027 / 3**0.5, abs=1e-3)
    assert interval([1.0])[0] == 1.0
    assert np.isnan(interval([1.0])[1])
    write_tables([table], Plan(trials=3, choose=False), tmp_path)
    page = (tmp_path / "table1.md").read_text(encoding="utf-8")
    assert "| local | 82.0 ± 2.0 (80.5, +1.5) |" in page
    assert "- fedegoists minus local: +2.0, 95 % interval -0.5 to +4.5 (3 trials)." in page
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table1.csv").read_text())))
    numbers = {"budget": "converged", "mean": "82.0000", "std": "2.0000", "n": "3"}
    assert rows[0] == {"alpha": "0.05", "distribution": "pathological", "method": "local"} | numbers


def test_the_worst_case_is_that_of_the_trial_that_suits_baselines_best(tmp_path):
    store = Store(tmp_path)
    table = small(TABLES["table1"], tuple(variant.name for variant in PAPER))
    for _, cell in cells_of(table, Plan(trials=2, choose=False)):
        name = cell.variant.name
        value = {"fedegoists": (0.9, 0.6)[cell.trial], "pfedhn": (0.7, 0.8)[cell.trial]}.get(
            name, 0.99 if "+ft" in name or name.startswith(("egomix", "local-")) else 0.5
        )
        store.put(cell, result(value))
    cases = {case.method: case for case in worst_cases(Plan(trials=2, choose=False), store)}
    # Baselines are best in the second trial, by pFedHN; tuned ones and our own do not count.
    assert (cases["fedegoists"].baseline, cases["fedegoists"].trial) == ("pfedhn", 1)
    assert cases["fedegoists"].value == pytest.approx(0.8 - 0.6)
    assert cases["egomix"].value == cases["egomix-wide"].value == pytest.approx(0.8 - 0.99)
    write_tables([TABLES["table3"]], Plan(trials=2, choose=False), tmp_path)
    page = (tmp_path / "table3.md").read_text(encoding="utf-8")
    assert "| fedegoists | published | best baseline | egomix | egomix-wide |" in page
    assert (
        "| cifar10 | 0.05 | pathological | converged | +0.2000 | +0.0110 | pfedhn (trial 1) | "
        "-0.1900 | -0.1900 |" in page
    )


def test_published_numbers_are_all_there():
    """Every line of the published tables is one of ours: the same methods, scenes and numbers."""
    from reproduction.table_results import Line, _published

    for name in ("table1", "table2", "table5"):
        table = TABLES[name]
        lines = [Line(tuple(k.items()), v.name, "", {}, ()) for k, _ in table.scenes for v in PAPER]
        found = [published_value(table, line) for line in lines]
        assert sum(value is not None for value in found) == len(_published(name)) > 50


def test_a_cells_name_depends_on_everything_but_where_it_runs():
    cell = cells_of(TABLES["table1"], Plan())[0][1]
    changes = [{"trial": 1}, {"budget": "published"}, {"steps": 7}, {"factor": 2.0}]
    others = [replace(cell, **change) for change in changes]
    assert len({one.digest for one in (cell, *others)}) == 5
    assert isinstance(cell, Cell)
