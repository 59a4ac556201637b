"""What Principle 1 costs: partitions by brute force, planted riders, the page and the command."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedegoists import BenefitGraph, CompetitionGraph, CurveValues, verify
from fedegoists.coalitions.value_principles import Judge
from fedegoists.coalitions.welfare import welfare_by
from reproduction import RESULTS, principle_one_command, principle_one_study
from reproduction.__main__ import _application
from reproduction.principle_one import (
    RANDOM,
    GraphCost,
    best_with,
    best_without,
    cost_on,
    graph_costs_csv,
    learned_costs,
    positions,
    random_costs,
    read_graph_costs,
    roles,
)
from reproduction.principle_one_page import principle_page
from reproduction.principle_one_study import (
    METHODS,
    SOURCES,
    TASKS,
    MemberCost,
    costs_csv,
    costs_of,
    means,
    read_costs,
    test_ratio,
    welfare_lost,
)
from reproduction.real_data_commands import origins
from tests.benefit.consortia import TASK, regressions
from tests.instances import best_welfare, graphs, partitions

test_ratio.__test__ = False  # not a test, whatever its name

FOLDER = RESULTS / "principle-one"
NAMES = ["a", "b", "c"]
NOBODY = CompetitionGraph([], NAMES)


def apart(partition, competition):
    rivals = competition.matrix
    return not any(rivals[np.ix_(group, group)].any() for group in partition)


@settings(max_examples=60, deadline=None)
@given(graphs(min_n=1, max_n=6))
def test_partitions_of_graphs_are_the_best_by_brute_force(consortium):
    benefit, competition = consortium
    count = len(benefit.participants)
    free, proven = best_without(benefit, competition)
    places = positions(free, benefit.participants)
    highest = max(
        welfare_by(benefit, own)
        for own in partitions(list(range(count)))
        if apart(own, competition)
    )
    assert proven
    assert apart(places, competition)
    assert welfare_by(benefit, places) == pytest.approx(highest)
    kept, proven = best_with(benefit, competition)
    assert proven
    reached = welfare_by(benefit, positions(kept, benefit.participants))
    assert reached == pytest.approx(best_welfare(benefit, competition))
    # Whoever is in company has a tie to it, and who breaks the principle is named.
    kinds = roles(benefit, competition, free)
    riders = {(one.participant, one.missing) for one in verify(*consortium, free).free_riders}
    missing = {"rider": "outgoing", "donor": "incoming"}
    named = {(name, missing[kind]) for name, kind in kinds.items() if kind in missing}
    assert named == riders


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10**6))
def test_partitions_of_values_are_the_best_by_brute_force(count, seed):
    rng = np.random.default_rng(seed)
    names = [f"v{k}" for k in range(count)]
    rates = rng.normal(0.3, 0.6, (count, count)).clip(max=1)
    np.fill_diagonal(rates, 0)
    sizes, levels = rng.integers(20, 400, count), rng.uniform(0.1, 1, count)
    values = CurveValues(sizes, levels, rates, names, slope_errors=10 * levels)
    rivals = np.triu(rng.random((count, count)) < 0.2, 1)
    competition = CompetitionGraph.from_numpy(rivals | rivals.T, names)
    free, _ = best_without(values, competition)
    highest = max(
        welfare_by(values, own) for own in partitions(list(range(count))) if apart(own, competition)
    )
    places = positions(free, names)
    assert apart(places, competition)
    assert welfare_by(values, places) == pytest.approx(highest)
    # Under the principle, expected gains count and not how likely they are.
    judge = Judge(values, competition, 0.5)
    valid = max(
        welfare_by(values, own)
        for own in partitions(list(range(count)))
        if apart(own, competition)
        and not any(list(judge.free_riders(tuple(names[k] for k in group))) for group in own)
    )
    kept, _ = best_with(values, competition)
    assert not verify(values, competition, kept, confidence=0.5).violations
    assert welfare_by(values, positions(kept, names)) == pytest.approx(valid)


def test_nobody_is_in_company_for_what_rounding_may_add():
    rates = [[0, 0.5, 0], [0.5, 0, 0], [1e-13, 0, 0]]
    values = CurveValues([100, 100, 100], [1, 1, 1], rates, NAMES)
    assert best_without(values, NOBODY)[0] == (("a", "b"), ("c",))
    pair = BenefitGraph.from_edges([("a", "b", 1)], NAMES)
    assert best_without(pair, NOBODY)[0] == (("a", "b"), ("c",))


def test_in_a_chain_nobody_gives_back_and_all_is_lost():
    """A gives to b, and b to c: nobody gets into a coalition without giving and receiving."""
    chain = BenefitGraph.from_edges([("a", "b", 1), ("b", "c", 2)], NAMES)
    free, _ = best_without(chain, NOBODY)
    assert free == (("a", "b", "c"),)
    assert best_with(chain, NOBODY)[0] == (("a",), ("b",), ("c",))
    assert roles(chain, NOBODY, free) == {"a": "donor", "b": "member", "c": "rider"}
    cost = cost_on(chain, NOBODY, source="hand", number=0)
    assert (cost.welfare_with, cost.welfare_without, cost.lost) == (0, 3, 1)
    assert (cost.riders, cost.donors, cost.alone, cost.binds) == (1, 1, 3, True)
    assert cost.density == pytest.approx(2 / 6)


def test_a_rider_leaves_and_the_others_keep_what_they_have():
    edges = [("a", "b", 1), ("b", "a", 1), ("b", "c", 2)]
    cost = cost_on(BenefitGraph.from_edges(edges, NAMES), NOBODY, source="hand", number=0)
    assert (cost.welfare_with, cost.welfare_without, cost.alone) == (2, 4, 1)
    assert cost.lost == pytest.approx(0.5)
    empty = cost_on(BenefitGraph(np.zeros((3, 3)), NAMES), NOBODY, source="hand", number=0)
    assert np.isnan(empty.lost)
    assert not empty.binds


def test_competitors_in_company_are_refused():
    benefit = BenefitGraph.from_edges([("a", "b", 1), ("b", "a", 1)], NAMES)
    with pytest.raises(ValueError, match="not comparable"):
        roles(benefit, CompetitionGraph([("a", "b")], NAMES), (("a", "b"), ("c",)))
    with pytest.raises(ValueError, match="c is in company without any tie"):
        roles(benefit, NOBODY, (("a", "b", "c"),))


def test_random_graphs_share_their_draws():
    costs = random_costs([6], [0.2, 0.6, 1.0], [0.0, 0.5], 3)
    assert len(costs) == 18
    assert random_costs([6], [0.2, 0.6, 1.0], [0.0, 0.5], 3) == costs
    assert all(one.proven and one.source == RANDOM for one in costs)
    place = {(one.number, one.density, one.competition): one for one in costs}
    for number in range(3):
        for competition in (0.0, 0.5):
            free = [place[number, d, competition].welfare_without for d in (0.2, 0.6, 1.0)]
            assert free == sorted(free)  # more benefits
        # Where all benefit all and nobody competes, nobody can ride free.
        assert place[number, 1.0, 0.0].lost == 0
        everybody = place[number, 0.2, 0.0].welfare_without
        assert place[number, 0.2, 0.5].welfare_without <= everybody


def test_graphs_of_tables_have_their_competitors_and_no_chosen_repetitions():
    names = [f"v{k}" for k in range(1, 9)]
    record = {
        "data": "synthetic-weak",
        "options": {},
        "kind": "learned",
        "participants": names,
        "edges": [["v1", "v5", 1.0], ["v1", "v2", 0.25]],
    }
    (cost,) = learned_costs([{**record, "repetition": k} for k in (9, 10, 12)])
    assert (cost.number, cost.source) == (9, "synthetic-weak learned")
    assert (cost.welfare_without, cost.welfare_with) == (0.25, 0)  # v1 and v5 compete


def a_small_one(*, seed, data_dir=None):
    """Two participants with the same task, and one with so little data that it can give nothing."""
    data = regressions({"a": TASK, "b": TASK, "c": TASK}, train=60, noise=2.0, seed=seed)
    *others, small = data.silos
    return replace(data, silos=(*others, replace(small, train=small.train[:3])))


@pytest.fixture(scope="module")
def small_costs():
    return costs_of("synthetic-weak", "transfer", (0, 1), ("fedavg",), steps=40, load=a_small_one)


def test_a_planted_rider_is_left_out_and_loses(small_costs):
    rows = {(one.repetition, one.participant): one for one in small_costs}
    assert len(rows) == len(small_costs) == 6
    riders = [one for one in small_costs if one.role == "rider"]
    assert {one.participant for one in riders} == {"c"}
    for one in riders:
        assert (one.members_with, one.gain_with) == (1, 0)
        assert one.members_without > 1
        assert one.expected_without > one.expected_with == 0
        assert one.cost == one.gain_without > 0
    for one in small_costs:
        if one.members_with == 1:
            assert one.gain_with == 0
    assert all(one.train == (3 if one.participant == "c" else 60) for one in small_costs)


def test_a_coalition_of_both_partitions_is_trained_once(monkeypatch):
    trained = []

    def told(methods, *rest):
        trained.append(tuple(methods))
        return tested(methods, *rest)

    tested = principle_one_study._tested
    monkeypatch.setattr(principle_one_study, "_tested", told)
    rows = costs_of("synthetic-weak", "curves", (0,), ("fedavg",), steps=40, load=a_small_one)
    assert any(one.members_with > 1 for one in rows)
    same = [one for one in rows if one.expected_with == one.expected_without]
    assert same
    assert len(same) == len(rows) == 3
    assert all(one.cost == 0 for one in same)
    assert trained == [("local",), ("fedavg",)]


def cost(repetition, participant, role="member", free=0.0, kept=0.0, **changes):
    about = {"task": "heart", "source": "transfer", "method": "fedavg", "train": 60, "test": 20}
    about |= {"members_with": 1, "members_without": 2, "expected_with": 0.0}
    about |= {"expected_without": 1.0, "gain_with": kept, "gain_without": free}
    about |= {"repetition": repetition, "participant": participant, "role": role}
    return MemberCost(**{**about, **changes})


def test_costs_are_averaged_by_repetition_and_role(tmp_path):
    rows = [
        cost(0, "a", "rider", free=0.3),
        cost(0, "b", free=0.2, kept=0.1),
        cost(1, "a", free=np.nan),
        cost(1, "b", free=0.1, kept=0.3, expected_with=0.5),
    ]
    assert means(rows) == pytest.approx({0: 0.2, 1: -0.2})
    assert means(rows, "rider") == pytest.approx({0: 0.3})
    assert means(rows, "donor") == {}
    assert welfare_lost(rows) == pytest.approx({0: 1.0, 1: 0.75})
    assert test_ratio(rows) == pytest.approx(1 / 3)
    assert test_ratio([cost(0, "a", task="synthetic-weak")]) == 0
    path = tmp_path / "members.csv"
    path.write_bytes(costs_csv(rows))
    back = read_costs(path)
    assert back[0] == rows[0]
    assert np.isnan(back[2].gain_without)
    graph = GraphCost(RANDOM, 3, 0.2, 0.0, 0, 1.0, 4.0, 1, 0, 1, True)
    path.write_bytes(graph_costs_csv([graph]))
    assert read_graph_costs(path) == [graph]


def test_the_page_says_who_loses_what():
    rows = [
        cost(seed, name, "rider" if name == "a" else "member", free=free, **changes)
        for seed, gain in ((0, 0.1), (1, 0.3))
        for name, free, changes in (
            ("a", gain, {}),
            ("b", 0.0, {"members_with": 2, "expected_with": 1.0}),
        )
    ]
    made = [
        GraphCost(source, 8, 0.2, 0.0, k, free / 2, free, 1, 0, 1, True)
        for source in (RANDOM, "heart learned")
        for k, free in enumerate((0.0, 1.0, 2.0))
    ]
    page = principle_page(made, rows, "origin")
    # 0.2 ± 12.706 · 0.1414 · √(1/2 + 1/3)
    assert "| +0.200 (-1.440 to +1.840) | – | +0.000 (+0.000 to +0.000) |" in page
    assert "| heart | transfer | 2 of 2 | 0, 0 of 2 | 2 | 0 | 2 of 4 | +0.50 " in page
    assert "| heart learned | 3, 2 with benefits | 0.20 | 50% (50% to 50%) | 2 | 0 |" in page
    assert "| 8 | 50.0%, 50.0% to 50.0% [0%] |" in page
    assert "Proven for 6 of 6 graphs." in page


def test_a_part_of_the_study_is_measured_and_not_again(tmp_path, monkeypatch):
    asked = []

    def measured(task, source, tell):
        asked.append((task, source))
        return [cost(0, "a", task=task, source=source)]

    monkeypatch.setattr(principle_one_command, "costs_of", measured)
    monkeypatch.setattr(
        principle_one_command, "learned_costs", lambda _: asked.append("graphs") or []
    )
    monkeypatch.setattr(
        principle_one_command, "random_costs", lambda *_: random_costs([4], [0.5], [0.0], 2)
    )
    run = ["principle-one", "--out", str(tmp_path)]
    for arguments in (["heart"], ["heart", "tcga-brca"], ["welfare"], ["welfare"]):
        result = CliRunner().invoke(_application(), [run[0], *arguments, *run[1:]])
        assert result.exit_code == 0, result.output
    both = [(task, source) for task in ("heart", "tcga-brca") for source in SOURCES]
    assert asked == [*both, "graphs"]
    page = (tmp_path / "principle-one.md").read_text(encoding="utf-8")
    commands = [line.split("`")[1].split("principle-one ")[1] for line in origins(page)]
    assert commands == ["heart", "heart tcga-brca", "welfare"]
    assert CliRunner().invoke(_application(), [run[0], "nothing", *run[1:]]).exit_code == 2


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=str)
def test_a_committed_page_is_derived_from_its_rows(page):
    written = page.read_text(encoding="utf-8")
    made, rows = (
        read_graph_costs(page.with_name("graphs.csv")),
        read_costs(page.with_name("members.csv")),
    )
    assert {one.task for one in rows} <= set(TASKS)
    assert {one.method for one in rows} == set(METHODS)
    assert {one.repetition for one in rows} == set(range(10))
    assert principle_page(made, rows, "\n\n".join(origins(written))) == written


@pytest.mark.parametrize("table", sorted(FOLDER.glob("graphs.csv")), ids=str)
def test_committed_welfare_is_never_higher_under_the_principle(table):
    costs = read_graph_costs(table)
    assert all(one.proven for one in costs)
    assert all(one.welfare_with <= one.welfare_without * (1 + 1e-5) for one in costs)
    # Where nobody breaks the principle, the best partition without it is the best one with it.
    assert not any(one.binds for one in costs if one.riders == one.donors == 0)
