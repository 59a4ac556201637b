"""The smallest cells of every table, from training to page; stopping; several processes."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedegoists.errors import FileError, SettingsError
from fedegoists.methods import METHODS
from reproduction.batched_training import GroupSettings, grouped
from reproduction.cell_store import CellStore
from reproduction.cells import Plan, cell_from, cells_of
from reproduction.folder_locks import claimed
from reproduction.rate_choice import ALL_FACTORS, deciding_cells
from reproduction.reproduced_tables import TABLES
from reproduction.running import GroupProgress, done_of, has_changed, reproduce, rerun
from reproduction.table_results import lines_of
from reproduction.table_writing import write_tables
from reproduction.tests.samples import QUICK, result, small, used
from reproduction.variants import VARIANTS


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, one in TABLES.items() if not one.derived and one.revision == 1]
)
def test_the_smallest_cells_of_every_table(name, data):
    table = small(TABLES[name])
    removed = METHODS["egomix"].removed
    rows = tuple(v for v in table.variants if not removed.keys() & dict(v.settings).keys())
    table = replace(table, variants=rows)
    settings = GroupSettings(data / "out", data_dir=data)
    if name not in ("table4", "table6", "table7"):
        # A network for each of four participants, a hundred times as large as its model, is slow.
        rows = tuple(v for v in table.variants if v.method != "fedegoists")
        table = replace(table, variants=rows or TABLES[name].variants[:2])
    assert reproduce([table], QUICK, settings) == []
    lines = lines_of(table, QUICK, CellStore(data / "out"))
    assert {line.method for line in lines} == {variant.name for variant in table.variants}
    assert all(np.isfinite(line.mean) for line in lines)
    write_tables([table], QUICK, data / "out")
    text = (data / f"out/tables/{name}.csv").read_text(encoding="utf-8")
    assert tuple(text.splitlines()[0].split(",")) == (*table.keys, "budget", "mean", "std", "n")
    page = (data / f"out/tables/{name}.md").read_text(encoding="utf-8")
    assert "## Origin" in page
    assert f"python -m reproduction {name} --repetitions 1" in page


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
    plan = Plan(repetitions=1, steps=20, choose=False)
    assert reproduce([table], plan, GroupSettings(tmp_path)) == []
    store = CellStore(tmp_path)
    found = {cell.variant.name: store.get(cell) for _, cell in cells_of(table, plan)}
    assert found["fedegoists"].test != found["fedegoists, direct gradients"].test
    sizes = {name: max(map(len, one.about["coalitions"])) for name, one in found.items()}
    # v1 and v2 compete with v3 and v4, and v5 and v6 with v7 and v8.
    assert sizes["fedegoists"] == sizes["fedegoists, best coalitions"] == 4
    assert sizes["egomix, no competition"] == 8
    assert found["egomix, no competition"].spent["sample_passes"] == 20 * 64


def test_a_stopped_pass_goes_on_to_the_same_numbers(tmp_path):
    table = small(TABLES["table7"], ("fedavg", "fedavg+ft"), benefit="everybody")
    plan = Plan(repetitions=2, steps=60, choose=False)
    assert reproduce([table], plan, GroupSettings(tmp_path / "whole")) == []
    calls = 0

    def now_and_then():
        nonlocal calls
        calls += 1
        return calls % 3 == 0

    settings = GroupSettings(tmp_path / "parts", stop=now_and_then)
    left, times = reproduce([table], plan, settings), 1
    assert left  # it was stopped in the middle
    assert list((tmp_path / "parts/checkpoint").rglob("*.safetensors"))
    while left:
        left, times = reproduce([table], plan, settings), times + 1
        assert times < 30
    whole, parts = CellStore(tmp_path / "whole"), CellStore(tmp_path / "parts")
    for _, cell in cells_of(table, plan):
        assert whole.get(cell).test == parts.get(cell).test
        assert whole.get(cell).spent == parts.get(cell).spent
    assert not list((tmp_path / "parts/checkpoint").rglob("*.safetensors"))


def test_one_cell_trained_again_gives_the_recorded_value(tmp_path):
    table = small(TABLES["table6"], ("egomix", "fedavg", "fedavg+ft"))
    settings = GroupSettings(tmp_path)
    reproduce([table], Plan(repetitions=2, steps=20, choose=False), settings)
    for _, cell in cells_of(table, Plan(repetitions=2, steps=20, choose=False))[1::4]:
        record = CellStore(tmp_path).load(cell.digest)
        assert record["about"]["command"].startswith(f"python -m reproduction --cell {cell.digest}")
        assert cell_from(record["settings"]) == cell
        again = rerun(cell.digest, settings)
        assert again.again == record["test"]
        assert again.largest_difference == 0
    changed = {**record, "test": {**record["test"], "v1": 700.0}}
    CellStore(tmp_path).path(cell).write_text(json.dumps(changed))
    assert rerun(cell.digest, settings).largest_difference > 500


def test_a_cell_of_a_method_that_was_corrected_since_is_not_compared(tmp_path):
    plan = Plan(repetitions=1, steps=2, choose=False)
    table, settings = small(TABLES["table6"], ("feddisco",)), GroupSettings(tmp_path)
    ((_, cell),) = cells_of(table, plan)
    CellStore(tmp_path).put(cell, result(test=1.0, metric="mse"))
    with pytest.raises(FileError, match=r"feddisco has changed since .*; commit abc trains it"):
        rerun(cell.digest, settings)


@pytest.mark.parametrize(
    ("name", "changed"), [("table1", True), ("table4", True), ("table1-corrected", False),
                          ("table6", False), ("table6-corrected", False)]
)  # fmt: skip
def test_egomix_was_simplified_where_samples_have_classes(name, changed):
    rows = (VARIANTS["egomix-0.8-wide"] if name == "table1-corrected" else VARIANTS["egomix"],)
    table = replace(TABLES[name], variants=rows, scenarios=TABLES[name].scenarios[:1])
    (_, cell), *_ = cells_of(table, Plan(repetitions=1))
    assert has_changed(cell) == changed


def test_rows_with_settings_that_are_gone_are_refused_with_the_commit_that_trains_them(tmp_path):
    plan = Plan(repetitions=1, steps=2)
    table = small(TABLES["mixing"], ("local", "egomix, by updates"))
    with pytest.raises(SettingsError, match=r"by updates: .* 'weighting' no longer; commit 2f0b05"):
        reproduce([table], plan, GroupSettings(tmp_path))
    for _, cell in cells_of(table, plan):
        CellStore(tmp_path).put(cell, result(test=1.0))
    assert reproduce([table], plan, GroupSettings(tmp_path)) == []


def test_corrected_tables_train_end_to_end(tmp_path):
    """Rows of all kinds: along benefits learned in cliques, in wide coalitions, and tuned."""
    rows = ("local", "feddisco", "fedavgm-wide", "fedavgm-wide+ft", "pfedme, own budget")
    table, plan = small(TABLES["table7-corrected"], rows), Plan(repetitions=1, steps=2)
    assert reproduce([table], plan, GroupSettings(tmp_path)) == []
    store = CellStore(tmp_path)
    lines = {one.method: one for one in lines_of(table, plan, store) if one.key[0][1] == "Avg"}
    assert set(lines) == set(rows)
    assert {list(one.values) == [0] for one in lines.values()} == {True}
    tried = {cell.repetition for cell in deciding_cells([table], plan, store)}
    assert tried == {10, 11, 12}


@pytest.mark.slow
def test_pfllibs_settings_train_end_to_end(data):
    table = small(TABLES["pfllib"], ("local", "fedrep-wide"))
    fewer = tuple(pair for pair in table.scenarios[0][1].options if pair[0] != "participants")
    own = replace(table.scenarios[0][1], options=(*fewer, ("participants", 3)))
    table = replace(table, scenarios=((table.scenarios[0][0], own),))
    settings = GroupSettings(data / "out", data_dir=data)
    assert reproduce([table], QUICK, settings) == []
    lines = lines_of(table, QUICK, CellStore(data / "out"))
    assert {line.method for line in lines} == {"local", "fedrep-wide"}
    assert all(len(result.test) == 3 for line in lines for result in line.results)


def test_a_table_at_chosen_learning_rates(tmp_path):
    table = small(TABLES["table7"], ("local", "fedavg", "fedavg+ft"))
    plan = Plan(repetitions=1, steps=2)
    assert reproduce([table], plan, GroupSettings(tmp_path)) == []
    store = CellStore(tmp_path)
    tried = deciding_cells([table], plan, store)
    for name in ("local", "fedavg"):
        errors = {c.factor: store.get(c).mean_validation for c in tried if c.variant.name == name}
        assert set(errors) == set(ALL_FACTORS)
        (factor,) = used(table, plan, store)[name]
        assert errors[factor] == min(errors.values())
    assert used(table, plan, store)["fedavg+ft"] == used(table, plan, store)["fedavg"]
    write_tables([table], plan, tmp_path)
    text = (tmp_path / "tables/table7.md").read_text(encoding="utf-8")
    assert "learning rate was chosen on validation data" in text
    (factor,) = used(table, plan, store)["local"]
    best = store.get(next(c for c in tried if (c.variant.name, c.factor) == ("local", factor)))
    assert f"| local | {factor:g} ({best.mean_validation:.3f}) |" in text
    assert not any((tmp_path / "checkpoint" / "claims").iterdir())


def test_images_choose_a_learning_rate_end_to_end(tmp_path, data):
    table = small(TABLES["table1"], ("local", "fedavg+ft"), benefit="everybody")
    plan, settings = Plan(repetitions=2, steps=1), GroupSettings(tmp_path / "out", data)
    assert reproduce([table], plan, settings) == []
    store = CellStore(tmp_path / "out")
    tried = deciding_cells([table], plan, store)
    assert {cell.variant.name for cell in tried} == {"local", "fedavg"}
    assert store.missing(tried) == []
    assert done_of(table, plan, store) == (4, 4)
    scores = {c.factor: store.get(c).mean_validation for c in tried if c.variant.name == "local"}
    (factor,) = used(table, plan, store)["local"]
    assert scores[factor] == max(scores.values())


def test_what_another_process_is_at_is_left_to_it(tmp_path):
    table = small(TABLES["table7"], ("local", "fedavg"))
    cells = [cell for _, cell in cells_of(table, QUICK)]
    local = next(one for one in grouped(cells, 250) if "local" in one.words())
    done = []
    settings = GroupSettings(tmp_path, stop=lambda: bool(done))
    progress = GroupProgress(ends=lambda work, results: done.append(results))
    with claimed(tmp_path, local.kind) as mine, claimed(tmp_path, local.kind) as again:
        assert (mine, again) == (True, False)
        left = reproduce([table], QUICK, settings, progress=progress)
        assert {cell.variant.method for cell in left} == {"local"}
    assert reproduce([table], QUICK, GroupSettings(tmp_path)) == []


def test_a_later_table_is_trained_where_others_are_at_all_that_is_left_of_the_first(tmp_path):
    first, second = small(TABLES["table7"], ("local",)), small(TABLES["table6"], ("local",))
    (only,) = grouped([cell for _, cell in cells_of(first, QUICK)], 250)
    began, waited = [], []
    settings = GroupSettings(tmp_path, stop=lambda: bool(waited))
    progress = GroupProgress(
        begins=lambda group, *_: began.append(group.words()), waits=lambda: waited.append(1)
    )
    with claimed(tmp_path, only.kind):
        left = reproduce([first, second], QUICK, settings, progress=progress)
    assert [cell.scenario.data for cell in left] == ["synthetic-strong"]
    assert [words.split(",")[0] for words in began] == ["synthetic-weak"]


def test_a_table_is_finished_before_rates_are_chosen_for_the_next(tmp_path):
    tables = [small(TABLES[f"table{number}-corrected"], ("local",)) for number in (7, 6)]
    began = []
    progress = GroupProgress(begins=lambda group, *_: began.append(group.words()))
    plan = Plan(repetitions=1, steps=2)
    assert reproduce(tables, plan, GroupSettings(tmp_path), progress=progress) == []
    data = [words.split(",")[0] for words in began]
    trained = 4 + 2 + 1  # rates, further trials, and the table's own repetition
    assert data == ["synthetic-strong"] * trained + ["synthetic-weak"] * trained


def test_waiting_for_others_ends_in_time(tmp_path):
    table = small(TABLES["table7"], ("local",))
    (only,) = grouped([cell for _, cell in cells_of(table, QUICK)], 250)
    waited = []
    settings = GroupSettings(tmp_path, stop=lambda: len(waited) > 1)
    with claimed(tmp_path, only.kind):
        left = reproduce(
            [table], QUICK, settings, progress=GroupProgress(waits=lambda: waited.append(1))
        )
    assert [cell.variant.method for cell in left] == ["local"]
    assert len(waited) == 2


def test_processes_share_a_table(tmp_path):
    alone, table = tmp_path / "alone", small(TABLES["table7"], ("local", "fedavg", "egomix"))
    plan = QUICK
    assert reproduce([table], plan, GroupSettings(alone)) == []
    wanted = [
        "--methods",
        "local,fedavg,egomix",
        "--repetitions",
        "1",
        "--steps",
        "2",
        "--no-choose",
    ]
    command = [sys.executable, "-m", "reproduction", "table7", *wanted]
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
    one, other = CellStore(alone), CellStore(together)
    for _, cell in cells_of(table, plan):
        assert one.get(cell).test == other.get(cell).test


def test_without_waiting_a_process_leaves_what_others_are_at(tmp_path):
    table = small(TABLES["table7"], ("local",))
    (only,) = grouped([cell for _, cell in cells_of(table, QUICK)], 250)
    waited = []
    progress = GroupProgress(waits=lambda: waited.append(1))
    with claimed(tmp_path, only.kind):
        left = reproduce([table], QUICK, GroupSettings(tmp_path, wait=False), progress=progress)
    assert [cell.variant.method for cell in left] == ["local"]
    assert waited == []
