"""The benefit graphs of repetitions."""

from dataclasses import replace

import pytest

from fedegoists.learning.datasets import load
from fedegoists.methods.method_run import StoppedError
from fedegoists.training import learning_in_cliques
from reproduction.batched_training import GroupSettings
from reproduction.benefit_graphs import Benefits, pack_graphs
from reproduction.cells import Plan, cells_of
from reproduction.folder_locks import claimed
from reproduction.packed_lines import read_packed
from reproduction.reproduced_tables import TABLES
from reproduction.running import reproduce
from reproduction.scenarios import competition_of
from reproduction.tests.samples import QUICK, small
from reproduction.variants import VARIANTS, crossed_name


def test_another_repetitions_benefits_are_those_that_the_next_repetition_learns(tmp_path):
    table, crossed = small(TABLES["table7"], ("egomix",)), VARIANTS[crossed_name("egomix")]
    table = replace(table, variants=(*table.variants, crossed))
    plan = Plan(repetitions=2, steps=2, choose=False)
    assert reproduce([table], plan, GroupSettings(tmp_path)) == []
    # The last one needs a repetition that is in no table.
    assert len(list((tmp_path / "graphs").glob("*.json"))) == 3
    data = {repetition: load("synthetic-strong", seed=repetition) for repetition in range(3)}
    cells = {(c.variant.name, c.repetition): c for _, c in cells_of(table, plan)}
    graphs = Benefits(tmp_path, steps=2).of(list(cells.values()), data)
    weights = {place: graphs[cell].to_json() for place, cell in cells.items()}
    assert weights[crossed.name, 0] == weights["egomix", 1]


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


def test_packed_graphs_are_not_learned_again(tmp_path, monkeypatch):
    cell = next(c for _, c in cells_of(TABLES["table7"], QUICK) if c.variant.method == "fedavg")
    data = {0: load("synthetic-strong", seed=0)}
    graph = Benefits(tmp_path, steps=1).of([cell], data)[cell]
    (path,) = pack_graphs(tmp_path)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    (record,) = read_packed(path)
    assert (record["data"], record["repetition"], record["kind"]) == (
        "synthetic-strong",
        0,
        "learned",
    )
    monkeypatch.setattr(Benefits, "_make", None)
    assert Benefits(tmp_path, steps=1).of([cell], data)[cell].to_json() == graph.to_json()
    assert pack_graphs(tmp_path / "empty") == []


def test_corrected_tables_learn_again_inside_each_clique(tmp_path, monkeypatch):
    """Of synthetic-strong's eight, cliques have four or fewer: thresholds mean less there."""
    plan = Plan(repetitions=1, steps=20, choose=False)
    names = ("fedavg", "fedavg, relative threshold")
    table = small(TABLES["table7-corrected"], names)
    cells = {cell.variant.name: cell for _, cell in cells_of(table, plan)}
    asked = []
    learn = learning_in_cliques.learn

    def noted(federation, *given, **more):
        asked.append(tuple(one.name for one in federation.participants))
        return learn(federation, *given, **more)

    monkeypatch.setattr(learning_in_cliques, "learn", noted)
    loaded = {0: load("synthetic-strong", seed=0)}
    graphs = Benefits(tmp_path, steps=20).of(list(cells.values()), loaded)
    assert asked[0] == loaded[0].participants
    assert all(len(group) < len(asked[0]) for group in asked[1:])
    assert len(set(asked)) == len(asked) > 1  # each set once, for both rows
    rivals = competition_of(cells["fedavg"].scenario, 0, loaded[0])
    for first in asked[1:]:
        assert not any(set(pair) <= set(first) for pair in rivals.pairs)
    monkeypatch.setattr(learning_in_cliques, "learn", None)  # what is there is not learned again
    again = Benefits(tmp_path, steps=20).of(list(cells.values()), loaded)
    assert [again[c].to_json() for c in again] == [graphs[c].to_json() for c in graphs]
    (packed,) = pack_graphs(tmp_path)
    kinds = {(one["kind"], one["threshold"], one["revision"]) for one in read_packed(packed)}
    assert kinds == {("learned", 0.095, 2), ("relative", 0.95, 2)}


def test_processes_learn_the_graphs_of_different_repetitions_inside_cliques(tmp_path):
    """A repetition that another process has claimed is waited for after all others are learned."""
    table = small(TABLES["table7-corrected"], ("fedavg",))
    first, second = [cell for _, cell in cells_of(table, replace(QUICK, repetitions=2))]
    data = {repetition: load("synthetic-strong", seed=repetition) for repetition in (0, 1)}
    asked = []
    benefits = Benefits(tmp_path, steps=1)
    stopping = replace(benefits, stop=lambda: bool(asked.append(1)) or len(asked) > 3)
    with claimed(tmp_path, benefits._lock(first)) as mine:
        assert mine
        with pytest.raises(StoppedError, match="before learned benefits were there"):
            stopping.of([first, second], data)
    assert benefits.known(first, data[0]) is None
    assert benefits.known(second, data[1]) is not None
    assert set(benefits.of([first, second], data)) == {first, second}
