"""Groups of cells: stacked training gives the results of training one by one."""

from dataclasses import replace

import numpy as np
import pytest

from reproduction.batched_training import CellGroup, GroupSettings, forget, grouped, train_group
from reproduction.benefit_graphs import Benefits
from reproduction.cell_store import CellStore
from reproduction.cells import Cell, Plan, cells_of, diverges
from reproduction.rate_choice import at_chosen_rates
from reproduction.reproduced_tables import TABLES
from reproduction.running import reproduce, rerun
from reproduction.scenarios import Scenario
from reproduction.tests.samples import small
from reproduction.variants import VARIANTS


def test_stacked_or_one_by_one_it_is_the_same(tmp_path):
    """A repetition's name, not its company, decides its batches."""
    table = small(TABLES["table7"], ("local", "fedavg"), benefit="everybody")
    plan = Plan(repetitions=2, steps=20, choose=False)
    reproduce([table], plan, GroupSettings(tmp_path / "one", stack=8))
    reproduce([table], plan, GroupSettings(tmp_path / "all", stack=500))
    one, everything = CellStore(tmp_path / "one"), CellStore(tmp_path / "all")
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
        Cell(Scenario("synthetic-weak", (), rivals), repetition, variant, "converged", 40)
        for repetition in (0, 1)
        for rivals in ("0.05", "0.2", "0.3")
    ]
    settings, benefits = GroupSettings(tmp_path), Benefits(tmp_path)
    together = train_group(CellGroup(tuple(cells)), settings, benefits, {})
    forget(CellGroup(tuple(cells)), tmp_path)
    assert {one.about["pass_silos"] for one in together.values()} < set(range(6 * 8))
    for cell in cells[2::2]:
        alone = train_group(CellGroup((cell,)), settings, benefits, {})[cell]
        assert alone.about["pass_silos"] == 8
        assert alone.about["coalitions"] == together[cell].about["coalitions"]
        assert max(map(len, alone.about["coalitions"])) > (name != "local")
        for part in ("test", "validation"):
            one, other = getattr(alone, part), getattr(together[cell], part)
            assert list(one) == list(other) == [f"v{k}" for k in range(1, 9)]
            np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=1e-4)
        assert alone.rounds == together[cell].rounds
        assert alone.spent == together[cell].spent


def test_a_rate_at_which_every_silo_diverges_has_a_result_with_failures(tmp_path):
    """It is one of those tried, so that nobody need wait for it, and it is not chosen."""
    rows = (VARIANTS["fedavgm-wide"], VARIANTS["fedavgm-wide+ft"])
    scenario = Scenario("synthetic-weak", (), "published")
    cells = [Cell(scenario, 10, row, "converged", 60, factor=1e9, revision=2) for row in rows]
    found = train_group(CellGroup(tuple(cells)), GroupSettings(tmp_path), Benefits(tmp_path), {})
    for cell in cells:
        rounds = found[cell].about["rounds"][0]
        assert found[cell].about["failures"] >= rounds * len(found[cell].test)
        assert set(found[cell].rounds.values()) == {0}


@pytest.mark.parametrize(("repetition", "ended"), [(12, True), (9, False)])
def test_a_trial_that_diverges_is_not_trained_to_its_end(tmp_path, repetition, ended):
    """Rates that would not be chosen cost little; what a table shows is trained as it is."""
    scenario, row = Scenario("synthetic-weak", (), ""), VARIANTS["local"]
    cell = Cell(scenario, repetition, row, "converged", 400, factor=800.0, revision=2)
    seen = []
    settings = GroupSettings(tmp_path, observers=(lambda _, done, *__: seen.append(done),))
    found = train_group(CellGroup((cell,)), settings, Benefits(tmp_path), {})[cell]
    assert diverges(found.about["failures"], found.about["rounds"][0], 8)
    tuned = replace(cell, variant=row.followed("+ft"), repetition=12)
    if ended:  # nor is it fine-tuned
        both = train_group(CellGroup((cell, tuned)), settings, Benefits(tmp_path), {})
        assert both[tuned].about["failures"] == both[cell].about["failures"]
        assert both[tuned].spent == both[cell].spent
    assert (len(seen) < found.about["rounds"][0]) == ended


def test_local_runs_once_for_all_competition():
    cells = cells_of(TABLES["table1"], Plan())
    local = {cell for _, cell in cells if cell.variant.name == "local"}
    assert len(local) == 2 * 5
    assert len({cell for _, cell in cells if cell.variant.name == "fedavg"}) == 2 * 5 * 5
    work = grouped(list(dict.fromkeys(cell for _, cell in cells)), stack=250)
    # Each split: all of a method in one pass, but FedEgoists in one for each repetition.
    assert len(work) == 2 * (2 + 2 + 8 + 5)  # Local and EgoMix twice
    assert all(len({cell.label for cell in one.cells}) <= 25 for one in work)
    # The same data with the same method under another competition is in the same pass.
    fedavg = next(one for one in work if one.bases[0].variant.name == "fedavg")
    assert {cell.variant.name for cell in fedavg.cells} == {"fedavg", "fedavg+ft"}
    assert len(fedavg.bases) == 25


@pytest.mark.slow
def test_who_trains_until_a_round_has_the_models_of_that_round(data):
    table = small(TABLES["table4"], ("fedavg", "fedavg+ft"), benefit="everybody")
    plan, settings = Plan(repetitions=2, steps=40), GroupSettings(data / "out", data)
    assert reproduce([table], plan, settings) == []
    store, seen = CellStore(data / "out"), set()
    for _, cell, rated in at_chosen_rates(table, plan, store):
        found, decided = store.get(rated), store.get(replace(rated.base, until=None))
        seen.add(rated.until)
        if cell.variant.tuned:
            assert found.about["rounds"] == [rated.until, 2]
            continue
        assert set(found.rounds.values()) == {rated.until}
        assert not found.curves
        for name, value in found.validation.items():
            there = dict(decided.curves[name])[rated.until]
            assert value == pytest.approx(there, abs=1e-4, nan_ok=True)
        assert [number for number, _ in decided.curves[name]] == [1, 2]
    assert len(seen) == 1
    assert rerun(rated.digest, settings).largest_difference == 0
