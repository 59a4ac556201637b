"""The choice of learning rates, rounds and coalitions on validation data."""

import math
from dataclasses import replace

import pytest

from fedegoists.methods import METHODS
from reproduction.cell_store import CellStore
from reproduction.cells import Plan, cells_of
from reproduction.rate_choice import (
    ALL_FACTORS,
    CORRECTED_FACTORS,
    FACTORS,
    at_chosen_rates,
    chosen_rates,
    chosen_rounds,
    chosen_settings,
    deciding_cells,
    preferred_company,
)
from reproduction.reproduced_tables import TABLES
from reproduction.running import done_of, left_of
from reproduction.table_results import lines_of
from reproduction.table_writing import write_tables
from reproduction.tests.samples import curves, result, small, used
from reproduction.variants import (
    FAIR,
    FAIR_IMAGES,
    PARAMETERS,
    SCREENED,
    crossed_name,
    settings_tried,
    wide_name,
)


def preferred(table, plan, store):
    """The preferred rows alone, by data and method."""
    found = preferred_company(table, plan, store)
    return {where: {k: one.preferred for k, one in own.items()} for where, own in found.items()}


def deciding_part(name, rows):
    """Some rows of a table in the first scenario in which rates are chosen."""
    table = small(TABLES[name], rows)
    scenarios = TABLES[name].scenarios
    first = next((key, one) for key, one in scenarios if one == one.deciding)
    return replace(table, scenarios=(first,))


def test_learning_rates_are_chosen_on_validation_data_alone(tmp_path):
    rows = ("local", "fedavg", "fedavg+ft", "egomix")
    table, plan, store = small(TABLES["table1"], rows, scenarios=5), Plan(), CellStore(tmp_path)
    candidates = deciding_cells([table], plan, store)
    # Fine-tuning follows; the first repetition decides in the middle.
    assert len(candidates) == 3 * len(FACTORS)
    assert {cell.scenario.competition for cell in candidates} == {"", "0.2"}
    assert {cell.repetition for cell in candidates} == {0}
    # What happens to be there is not shown before anything is decided.
    store.put(candidates[0], result(test=0.5))
    assert candidates[0].factor == 1.0
    assert used(table, plan, store) == {name: {None} for name in rows}
    assert lines_of(table, plan, store) == []
    assert done_of(table, plan, store)[0] == 0
    assert left_of([table], plan, store) == candidates[1:]
    store.path(candidates[0]).unlink()
    store = CellStore(tmp_path)
    wanted, rounds = {"local": 1.0, "fedavg": 0.25, "egomix": 2.0}, 0
    while missing := store.missing(deciding_cells([table], plan, store)):
        rounds += 1
        for cell in missing:
            # The best on validation data is the worst on test data.
            worse = abs(cell.factor - wanted[cell.variant.name])
            store.put(cell, result(test=1 + worse, validation=4 - worse))
    # Half was the best of three, and a quarter is better than half and than an eighth.
    assert rounds == 3
    assert len(deciding_cells([table], plan, store)) == 3 * len(FACTORS) + 3
    rates = {"local": 1.0, "fedavg": 0.25, "fedavg+ft": 0.25, "egomix": 2.0}
    assert used(table, plan, store) == {name: {rate} for name, rate in rates.items()}
    assert chosen_rates(table, plan, store) == {"cifar10 pathological": rates}
    cells = {cell for _, _, cell in at_chosen_rates(table, plan, store)}
    left = {cell for cell in cells if store.get(cell) is None}
    assert set(left_of([table], plan, store)) == left
    assert done_of(table, plan, store) == (len(cells) - len(left), len(cells))
    # A part of a table decides in the same way, as does another β; other tables do not choose.
    part = replace(table, scenarios=table.scenarios[-1:])
    assert deciding_cells([part], plan, store) == deciding_cells([table], plan, store)
    fifth = small(TABLES["table5"], ("fedavg",), scenarios=2)
    other = {cell.scenario.options[-1] for cell in deciding_cells([fifth], plan, store)}
    assert other == {("beta", 0.5)}
    for kind in (Plan(choose=False), Plan(budget="published")):
        assert deciding_cells([table], kind, store) == []
        assert used(table, kind, store) == {name: {1.0} for name in rows}
    assert deciding_cells([TABLES["mixing"]], plan, store) == []


def test_all_repetitions_of_small_data_decide_together(tmp_path):
    rows = ("local", "local-kept")
    table, plan, store = small(TABLES["table7"], rows), Plan(repetitions=3), CellStore(tmp_path)
    # All methods have the same choice, whatever comes of it.
    assert len(deciding_cells([table], plan, store)) == 2 * 3 * len(ALL_FACTORS)
    best = {"local": (8.0, 0.5, 0.5), "local-kept": (8.0, 8.0, 1.0)}
    for cell in deciding_cells([table], plan, store):
        assert used(table, plan, store)[cell.variant.name] == {None}
        # Far from the best in the logarithm, so that the repetitions' majority decides.
        error = abs(math.log2(cell.factor / best[cell.variant.name][cell.repetition]))
        store.put(cell, result(test=1.0, validation=1 + error, metric="mse"))
    rates = {"local": 0.5, "local-kept": 8.0}
    assert chosen_rates(table, plan, store) == {"synthetic-strong": rates}
    assert left_of([table], plan, store) == []


def test_hospitals_decide_about_rate_and_round_together(tmp_path):
    rows = ("local", "fedavg", "fedavg+ft")
    table, plan, store = small(TABLES["table4"], rows), Plan(repetitions=2), CellStore(tmp_path)
    nothing = (math.nan,) * 3  # as where all patients of one are alike
    known = {
        # Everybody's luckiest round has 0.9, but in the mean none has more than 0.64.
        1.0: [((0.9, 0.1, 0.6), nothing), ((0.1, 0.9, 0.5), (0.9, 0.1, 0.5))],
        # The second round has 0.65 in the mean.
        0.5: [((0.1, 0.7, 0.6), nothing), ((0.2, 0.7, 0.5), (0.2, 0.55, 0.1))],
        2.0: [((0.1, 0.2, 0.3), nothing), ((0.1, 0.2, 0.3), (0.1, 0.2, 0.3))],
        0.25: [((0.5, 0.5, 0.5), nothing), ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))],
    }
    while missing := store.missing(deciding_cells([table], plan, store)):
        assert used(table, plan, store)["fedavg"] == {None}
        for cell in missing:
            assert cell.until is None
            assert not cell.variant.tuned
            done = result(test=0.9, validation=0.9, metric="auc")
            store.put(cell, replace(done, curves=curves(known[cell.factor][cell.repetition])))
    store = CellStore(tmp_path)  # as it was written
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
    page = (tmp_path / "tables/table4.md").read_text(encoding="utf-8")
    assert "| fedavg+ft | 0.5, 2 rounds (0.700) |" in page
    assert "too few for each participant to choose" in page
    # Nothing is chosen under the published budget, and as few repetitions as elsewhere are enough.
    short = Plan(budget="published")
    assert {cell.until for _, _, cell in at_chosen_rates(table, short, store)} == {None}
    assert (short.repetitions_of(table), Plan().repetitions_of(table)) == (5, 20)


def test_hospitals_choose_company_by_benefits_of_another_repetition(tmp_path):
    crossed = crossed_name("egomix")
    rows = ("egomix", crossed, "egomix-wide")
    table, plan, store = small(TABLES["table4"], rows), Plan(repetitions=1), CellStore(tmp_path)
    values = {"egomix": ((0.5, 0.7, 0.7), (0.5, 0.8, 0.8)), "egomix-wide": ((0.6,) * 3, (0.8,) * 3)}
    while missing := store.missing(deciding_cells([table], plan, store)):
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
    table, plan, store = (
        small(TABLES["table4"], ("local",)),
        Plan(repetitions=1),
        CellStore(tmp_path),
    )
    nan = math.nan
    while missing := store.missing(deciding_cells([table], plan, store)):
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
    table, plan, store = (
        small(TABLES["table4"], ("local",)),
        Plan(repetitions=2),
        CellStore(tmp_path),
    )
    candidates = deciding_cells([table], plan, store)
    for cell in candidates:
        store.put(cell, result(test=0.5, metric="auc"))
    assert CellStore(tmp_path).missing(candidates) == candidates
    assert left_of([table], plan, CellStore(tmp_path)) == candidates
    short = [cell for _, cell in cells_of(table, Plan(repetitions=2, budget="published"))]
    for cell in short:
        store.put(cell, result(test=0.5, metric="auc"))
    assert CellStore(tmp_path).missing(short) == []


def test_hospitals_do_not_choose_company_by_their_own_benefits(tmp_path):
    table = small(TABLES["table4"], ("egomix", "egomix-wide"))
    plan, store = Plan(repetitions=1), CellStore(tmp_path)
    while missing := left_of([table], plan, store):
        for cell in missing:
            done = result(test=0.5, metric="auc")
            store.put(cell, replace(done, curves=curves(((0.5,), (0.5,)))))
    assert preferred_company(table, plan, store) == {}
    # Another repetition's are there to choose by; under the published budget nothing is chosen.
    names = {cell.variant.name for _, cell in cells_of(TABLES["table4"], Plan())}
    fewer = {c.variant.name for _, c in cells_of(TABLES["table4"], Plan(budget="published"))}
    assert names - fewer == {crossed_name("egomix")}


def test_what_trains_longer_chooses_for_itself(tmp_path):
    rows = ("local", "local, four times")
    table, plan, store = small(TABLES["longer"], rows), Plan(repetitions=2), CellStore(tmp_path)
    wanted = {"local": 1.0, "local, four times": 0.5}
    while missing := store.missing(deciding_cells([table], plan, store)):
        for cell in missing:
            best = cell.factor == wanted[cell.variant.name]
            store.put(cell, result(test=1.0, validation=2.0 if best else 1.0))
    assert used(table, plan, store) == {name: {rate} for name, rate in wanted.items()}


def test_validation_data_tells_in_which_company_a_method_does_best(tmp_path):
    rows = ("egomix", "egomix-wide", "fedavg", "fedavg-wide", "local")
    whole = replace(
        TABLES["company-synthetic"], scenarios=TABLES["company-synthetic"].scenarios[1:]
    )
    table, plan, store = small(whole, rows), Plan(repetitions=2), CellStore(tmp_path)
    assert preferred_company(table, plan, store) == {}
    for cell in deciding_cells([table], plan, store):
        # The lower error on validation data is the higher one on test data.
        good = cell.variant.name in ("egomix-wide", "fedavg")
        values = {"test": 2.0, "validation": 1.0} if good else {"test": 1.0, "validation": 2.0}
        store.put(cell, result(metric="mse", **values))
    wanted = {"synthetic-strong": {"egomix": "egomix-wide", "fedavg": "fedavg"}}
    assert preferred(table, plan, store) == wanted
    company = preferred_company(table, plan, store)["synthetic-strong"]["egomix"]
    assert company.validation == {"egomix": 2.0, "egomix-wide": 1.0}
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "tables/company-synthetic.md").read_text(encoding="utf-8")
    assert "| egomix | widest (2.000, 1.000) |" in page
    assert "| fedavg | learned (1.000, 2.000) |" in page
    # Under the published budget nothing is chosen, but the page tells of both.
    assert preferred(table, replace(plan, budget="published"), store) == wanted
    assert preferred(small(whole, rows[:1]), plan, store) == {}
    assert preferred(table, replace(plan, choose=False), store) == {}


def test_the_first_repetition_of_images_decides_about_company_and_of_equals_it_is_learned(tmp_path):
    rows = ("egomix", "egomix-wide", "fedavg", "fedavg+ft", "fedavg-wide", "fedavg-wide+ft")
    table, plan, store = small(TABLES["company"], rows), Plan(repetitions=2), CellStore(tmp_path)
    while missing := store.missing(deciding_cells([table], plan, store)):
        for cell in missing:
            store.put(cell, result(test=0.5, validation=0.6 if cell.factor == 1 else 0.5))
    for _, _, cell in at_chosen_rates(table, plan, store):
        wide = "-wide" in cell.variant.name
        if cell.variant.tuned:
            # What is tuned has a preference of its own; the second repetition would have another.
            store.put(
                cell, result(test=0.5, validation=0.9 if wide == (cell.repetition == 0) else 0.1)
            )
        elif cell.repetition:
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
    table, plan = small(TABLES["table7"], ("egomix", "egomix-wide")), Plan(repetitions=1)
    store = CellStore(tmp_path)
    for cell in deciding_cells([table], plan, store):
        wide = cell.variant.name == "egomix-wide"
        error = 2.0 if wide == (best == "egomix-wide") else 1.0
        store.put(cell, result(test=error, metric="mse", failures=failures[wide]))
    assert preferred(table, plan, store) == {"synthetic-strong": {"egomix": best}}


@pytest.mark.parametrize(("sign", "best"), [(1, 16.0), (-1, 1 / 16)])
def test_learning_rates_end_somewhere(tmp_path, sign, best):
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), CellStore(tmp_path)
    while missing := store.missing(deciding_cells([table], plan, store)):
        assert left_of([table], plan, store)
        for cell in missing:
            store.put(cell, result(test=1.0, validation=20 + sign * cell.factor))
    assert used(table, plan, store)["local"] == {best}
    assert len(deciding_cells([table], plan, store)) == len(FACTORS) + 3


def test_a_learning_rate_that_gives_somebody_no_number_is_not_chosen(tmp_path):
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), CellStore(tmp_path)
    for cell in deciding_cells([table], plan, store):
        # Nobody knows v2; v1 has a number at other rates than twice.
        v1 = math.nan if cell.factor == 2 else 0.1 + (cell.factor == 1)
        known = {"v0": cell.factor, "v1": v1, "v2": math.nan}
        store.put(cell, replace(result(test=1.0), validation=known))
    assert used(table, plan, store)["local"] == {1.0}


@pytest.mark.parametrize(("failures", "best"), [(2, 1.0), (3, 0.5)])
def test_a_learning_rate_at_which_training_diverges_is_not_chosen(tmp_path, failures, best):
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), CellStore(tmp_path)
    while missing := store.missing(deciding_cells([table], plan, store)):
        for cell in missing:
            # Two participants and a hundred rounds: two failures are one in a hundred.
            failed = failures if cell.factor == 1 else 0
            values = {1.0: 3.0, 0.5: 2.0}.get(cell.factor, 1.0)
            store.put(cell, result(test=1.0, validation=values, failures=failed))
    assert used(table, plan, store)["local"] == {best}


def test_a_rate_that_diverges_in_one_of_many_repetitions_is_not_chosen(tmp_path):
    table, plan, store = (
        small(TABLES["table7"], ("local",)),
        Plan(repetitions=3),
        CellStore(tmp_path),
    )
    for cell in deciding_cells([table], plan, store):
        failed = 9 if (cell.factor, cell.repetition) == (1.0, 1) else 0
        error = {1.0: 1.0, 2.0: 2.0}.get(cell.factor, 3.0)
        store.put(cell, result(test=1.0, validation=error, metric="mse", failures=failed))
    assert used(table, plan, store)["local"] == {2.0}


def test_where_all_rates_diverge_smaller_ones_are_tried(tmp_path):
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), CellStore(tmp_path)
    while missing := store.missing(deciding_cells([table], plan, store)):
        for cell in missing:
            failed = 0 if cell.factor == 0.125 else 9
            store.put(cell, result(test=1.0, validation=cell.factor, failures=failed))
    assert used(table, plan, store)["local"] == {0.125}


@pytest.mark.parametrize("values", [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1)])
def test_of_equal_learning_rates_the_budgets_own_is_taken(tmp_path, values):
    # Added one by one, 0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1.
    table, plan, store = small(TABLES["table1"], ("local",)), Plan(), CellStore(tmp_path)
    for cell in deciding_cells([table], plan, store):
        given = {0.5: (0.0, 0.0, 0.0), 1.0: values, 2.0: values[::-1]}[cell.factor]
        known = dict(zip(("v0", "v1", "v2"), given, strict=True))
        store.put(cell, replace(result(test=1.0), validation=known))
    assert used(table, plan, store)["local"] == {1.0}


def finished(table, plan, store, score):
    """Train everything that decides, with a validation metric by factor and settings."""
    while missing := store.missing(deciding_cells([table], plan, store)):
        for cell in missing:
            settings = dict(cell.variant.settings)
            value = score(cell.variant.name, cell.factor, settings)
            store.put(cell, result(test=1.0, validation=value, metric="mse"))


def test_corrected_tables_choose_on_repetitions_that_no_table_shows(tmp_path):
    table, store = small(TABLES["table7-corrected"], ("local", "fedprox")), CellStore(tmp_path)
    plan = Plan()
    deciding = deciding_cells([table], plan, store)
    assert {cell.repetition for cell in deciding} == {10, 11, 12}
    assert {cell.revision for cell in deciding} == {2}
    assert plan.repetitions_of(table) == 10
    assert {cell.repetition for _, cell in cells_of(table, plan)} == set(range(10))


def test_every_method_has_as_many_trials_and_one_parameter_is_chosen(tmp_path):
    rows = ("local", "fedprox", "fedprox+ft", "egomix", "fedegoists")
    table, plan, store = small(TABLES["table7-corrected"], rows), Plan(), CellStore(tmp_path)

    def error(name, factor, settings):
        if name == "local":  # has no parameter: rates beside the best one are tried
            return 1 + abs(factor - 4 * 2**0.5)
        wanted = {"fedprox": {"mu": 0.1}, "egomix": {"outer": 0.7}, "fedegoists": {"warm_up": 0.25}}
        return 1 + abs(factor - 2) + (0.0 if settings == wanted[name] else 0.5)

    finished(table, plan, store, error)
    tried = {}
    for cell in deciding_cells([table], plan, store):
        kind = (cell.factor, cell.variant.settings)
        tried.setdefault(cell.variant.name, set()).add(kind)
    assert {name: len(kinds) for name, kinds in tried.items()} == {
        name: len(CORRECTED_FACTORS) + 2 for name in ("local", "fedprox", "egomix", "fedegoists")
    }
    chosen = chosen_settings(table, plan, store)["synthetic-strong"]
    assert chosen == {
        "fedprox": "mu 0.1",
        "fedprox+ft": "mu 0.1",  # what is tuned has the choice of its method
        "egomix": "outer 0.7",
        "fedegoists": "warm_up 0.25",
    }
    rates = chosen_rates(table, plan, store)["synthetic-strong"]
    assert rates == pytest.approx({**dict.fromkeys(rows, 2.0), "local": 4 * 2**0.5})
    for cell in left_of([table], plan, store):
        store.put(cell, result(test=0.5, metric="mse"))
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "tables/table7-corrected.md").read_text(encoding="utf-8")
    assert "| fedprox | 2, mu 0.1 (1.000) |" in page
    assert "| local | 5.66 (1.000) |" in page
    assert "repetitions 10 to 12, which no table shows" in page
    assert "Trained before corrections" not in page


def test_a_setting_that_makes_training_diverge_is_not_chosen(tmp_path):
    table, plan, store = (
        small(TABLES["table7-corrected"], ("fedavgm",)),
        Plan(),
        CellStore(tmp_path),
    )
    while missing := store.missing(deciding_cells([table], plan, store)):
        for cell in missing:
            wild = dict(cell.variant.settings).get("beta") == 0.7
            done = result(test=1.0, validation=0.1 if wild else 1.0, metric="mse",
                          failures=1000 if wild else 0)  # fmt: skip
            store.put(cell, done)
    assert chosen_settings(table, plan, store) == {}


def test_every_parameter_that_is_tried_is_a_setting_of_its_method():
    rows = {variant.name: variant for variant in (*FAIR, *FAIR_IMAGES)}
    for name, trials in PARAMETERS.items():
        variant = rows.get(name) or rows[wide_name(name)]
        own = METHODS[variant.method](**dict(variant.settings))
        assert settings_tried(variant) == trials
        assert len(trials) == 2
        for trial in trials:
            changed = METHODS[variant.method](**{**dict(variant.settings), **dict([trial])})
            assert getattr(changed, trial[0]) == trial[1]
            assert getattr(own, trial[0]) != trial[1]
    assert settings_tried(rows["egomix-0.8-wide+wise"]) == PARAMETERS["egomix-0.8"]
    assert settings_tried(rows["fedavgm-kept-wide"]) == PARAMETERS["fedavgm"]
    used_methods = {variant.method for variant in FAIR}
    assert used_methods - PARAMETERS.keys() == {"local", "fedavg", "fedper", "fedbabu"}


def test_images_decide_with_and_without_fine_tuning(tmp_path):
    """What is best untuned is not best tuned; one choice is made for both, by the better row."""
    rows = ("local", "fedavg-wide", "fedavg-wide+ft", "ditto-wide", "ditto-wide+ft")
    table, plan, store = deciding_part("table1-corrected", rows), Plan(), CellStore(tmp_path)
    known = {
        ("fedavg-wide", 1.0): 0.6,
        ("fedavg-wide+ft", 0.5): 0.8,
        ("ditto-wide", 2.0): 0.9,
        ("ditto-wide+ft", 1.0): 0.7,
    }
    while missing := store.missing(deciding_cells([table], plan, store)):
        for cell in missing:
            score = known.get((cell.variant.name, cell.factor), 0.5)
            store.put(cell, result(test=0.1, validation=score))
    decided = {(c.variant.name, c.repetition) for c in deciding_cells([table], plan, store)}
    assert decided == {(name, repetition) for name in rows for repetition in (10, 11, 12)}
    chosen = {"local": 1.0, **dict.fromkeys(rows[1:3], 0.5), **dict.fromkeys(rows[3:], 2.0)}
    assert chosen_rates(table, plan, store) == {"cifar10 pathological": chosen}


def test_only_the_deciding_scenarios_have_all_rows():
    for name in ("table1-corrected", "table2-corrected", "table5-corrected"):
        rows = {}
        for key, cell in cells_of(TABLES[name], Plan()):
            rows.setdefault(tuple(key.values()), set()).add(cell.variant.name)
        whole = {row.name for row in FAIR_IMAGES}
        some = {row.name for row in FAIR_IMAGES if row.base.name in SCREENED}
        assert "fedavg-wide+wise" in some
        assert "fedprox-wide+ft" not in some
        for key, found in rows.items():
            assert found == (whole if key[0] == 0.2 or key[-1] == 0.5 else some), key


def by_beta(tmp_path, fails, scenarios=slice(3)):
    """The rates of FedAvg at some β, where training fails as a function of the cell says."""
    table = TABLES["table5-corrected"]
    rows = tuple(row for row in table.variants if row.base.name == "fedavg-wide")
    table = replace(table, scenarios=table.scenarios[scenarios], variants=rows)
    plan, store = Plan(), CellStore(tmp_path)
    while missing := store.missing(deciding_cells([table], plan, store)):
        for cell in missing:
            # The highest rate is the best.
            score = 0.5 + cell.factor / 100
            store.put(cell, result(0.1, score, failures=1000 * fails(cell)))
    tried = {}
    for cell in deciding_cells([table], plan, store):
        tried.setdefault(cell.scenario.beta, set()).add(cell.factor)
    rates = chosen_rates(table, plan, store)
    assert all(len(set(own.values())) == 1 for own in rates.values())  # all rows alike
    return {where: own["fedavg-wide"] for where, own in rates.items()}, tried


def test_a_choice_holds_for_all_beta(tmp_path):
    rates, tried = by_beta(tmp_path, lambda cell: cell.factor > 4)
    assert rates == {f"cifar10 dirichlet{beta}": 4.0 for beta in ("", " β = 0.1", " β = 0.01")}
    # At other β nothing is tried but what was chosen.
    assert tried[0.01] == tried[0.1] == {4.0} < tried[0.5]


def test_one_repetition_that_diverges_at_a_beta_makes_the_choice_again(tmp_path):
    def fails(cell):
        few = cell.scenario.beta == 0.01 and cell.repetition == 11
        return cell.factor > (0.6 if few else 4)

    rates, tried = by_beta(tmp_path, fails)
    assert rates == {
        "cifar10 dirichlet": 4.0,
        "cifar10 dirichlet β = 0.1": 4.0,
        "cifar10 dirichlet β = 0.01": 0.5,
    }
    # Half is the best rate that does not diverge; what was carried over is tried as well.
    assert {0.25, 0.5, 1.0, 2.0, 4.0} < tried[0.01]
    assert tried[0.1] == {4.0}


def test_fine_tuning_that_fails_at_a_beta_does_not_make_the_choice_again(tmp_path):
    def fails(cell):
        return cell.factor > 4 or (cell.scenario.beta == 0.1 and cell.variant.tuned)

    rates, tried = by_beta(tmp_path, fails)
    assert rates["cifar10 dirichlet β = 0.1"] == 4.0
    assert tried[0.1] == {4.0}


def test_a_part_of_the_table_decides_at_the_usual_beta_first(tmp_path):
    rates, tried = by_beta(tmp_path, lambda cell: cell.factor > 4, slice(1))
    assert rates == {"cifar10 dirichlet β = 0.01": 4.0}
    assert set(tried) == {0.01, 0.5}
