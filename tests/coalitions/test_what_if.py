"""What a change brings, with as few moves as possible."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import (
    BenefitGraph,
    ChangedWeight,
    CompetitionGraph,
    Newcomer,
    UncertainBenefits,
    form,
    verify,
    what_if,
)
from fedegoists.coalitions import FORMATION_METHODS
from fedegoists.coalitions.rearranging import moved_between
from fedegoists.errors import FedEgoistsError, GraphError, SettingsError
from tests.instances import (
    best_welfare,
    graphs,
    is_valid,
    partitions,
    random_graphs,
    welfare,
)


def complete(n: int, method: str = "best"):
    weights = np.ones((n, n)) - np.eye(n)
    return form(BenefitGraph(weights), CompetitionGraph([], n), method)


def test_a_new_competition_splits_and_says_who_gains_and_loses():
    result = what_if(complete(4), add=[("v0", "v3")])
    assert result.after.welfare == 6
    assert len(result.moved) == 1
    assert result.welfare_change == -6
    (alone,) = result.moved
    assert result.utility_changes == {
        name: -3 if name == alone else -1 for name in ("v0", "v1", "v2", "v3")
    }
    assert f"{alone} moves to a coalition of its own." in str(result)
    assert "The total benefit falls by 6 to 6." in str(result)


def test_an_ended_competition_brings_them_together():
    formation = what_if(complete(3), add=[("v0", "v1")]).after
    result = what_if(formation, remove=[("v1", "v0")])
    assert result.after.coalitions == (("v0", "v1", "v2"),)
    assert len(result.moved) == 1
    assert result.welfare_change == 4


def test_somebody_leaves_and_somebody_joins():
    newcomer = Newcomer("new", gives={"v0": 2.0}, receives={"v1": 0.5}, competes=["v2"])
    result = what_if(complete(3), leaves=["v1"], joins=[Newcomer("w", {"v0": 1.0}, {"v0": 1.0})])
    assert result.left == ("v1",)
    assert result.joined == ("w",)
    assert result.after.participants == ("v0", "v2", "w")
    assert result.after.coalitions == (("v0", "v2", "w"),)
    assert "v1 leaves." in str(result)
    assert "w joins the coalition of v0, v2." in str(result)
    other = what_if(complete(3), joins=[newcomer])
    assert other.after.competition.competes("new", "v2")
    assert other.after.benefit.benefit("new", "v0") == 2.0
    assert other.after.benefit.benefit("v1", "new") == 0.5


def test_newcomers_may_know_one_another():
    joins = [Newcomer("x", gives={"y": 1.0}), Newcomer("y", gives={"x": 1.0})]
    result = what_if(complete(2), joins=joins)
    assert result.after.coalition_of("x") == ("x", "y")


def test_nothing_changes():
    result = what_if(complete(4))
    assert result.moved == ()
    assert str(result) == "Nobody moves.\nThe total benefit stays 12."


def test_of_equally_good_outcomes_the_one_with_fewest_moves():
    """Brute force: the fewest moves to any partition of highest welfare, for 60 changes."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        # Equal weights make many equally good outcomes.
        weights = (rng.random((6, 6)) < 0.6).astype(float)
        np.fill_diagonal(weights, 0)
        rivals = np.triu(rng.random((6, 6)) < 0.2, 1)
        formation = form(BenefitGraph(weights), CompetitionGraph.from_numpy(rivals | rivals.T))
        free = [p for p in itertools.combinations(range(6), 2) if not rivals[p]]
        a, b = free[rng.integers(len(free))]
        result = what_if(formation, add=[(f"v{a}", f"v{b}")])
        after = result.after
        top = best_welfare(after.benefit, after.competition)
        assert after.welfare == pytest.approx(top)
        names = after.participants
        fewest = min(
            len(moved_between(formation.coalitions, [[names[i] for i in g] for g in partition]))
            for partition in partitions(list(range(6)))
            if welfare(partition, after.benefit) == pytest.approx(top)
            and all(is_valid(sorted(g), after.benefit, after.competition) for g in partition)
        )
        assert len(result.moved) == fewest, seed


@pytest.mark.parametrize("method", FORMATION_METHODS)
@given(graphs(min_n=2, max_n=7), st.data())
@settings(max_examples=40, deadline=None)
def test_the_result_is_a_valid_formation_of_the_changed_graphs(method, instance, data):
    formation = form(*instance, method)
    names = formation.participants
    rivals = set(formation.competition.pairs)
    free = [pair for pair in itertools.combinations(names, 2) if pair not in rivals]
    add = data.draw(st.lists(st.sampled_from(free), unique=True, max_size=3)) if free else []
    drop = sorted(rivals)
    remove = data.draw(st.lists(st.sampled_from(drop), unique=True, max_size=2)) if drop else []
    result = what_if(formation, add=add, remove=remove)
    assert set(result.after.competition.pairs) == rivals - set(remove) | set(add)
    found = verify(result.after.benefit, result.after.competition, result.after.coalitions)
    assert not found.free_riders
    assert not found.conflicts
    assert method in ("cliques", "truthful") or found.ok
    assert result.moved == moved_between(formation.coalitions, result.after.coalitions)
    assert result.after.method == method


def test_a_large_consortium_keeps_most_in_place():
    formation = form(*random_graphs(60, 0.3, 0.15, seed=2), "stable")
    a, b = formation.coalitions[0][:2]
    result = what_if(formation, add=[(a, b)])
    assert result.after.coalition_of(a) != result.after.coalition_of(b)
    assert len(result.moved) <= 20


def test_errors():
    formation = complete(3)
    with pytest.raises(GraphError, match="unknown participant 'x'"):
        what_if(formation, leaves=["x"])
    with pytest.raises(SettingsError, match="'v0' and 'v1' do not compete; nothing to remove"):
        what_if(formation, remove=[("v0", "v1")])
    changed = what_if(formation, add=[("v0", "v1")]).after
    with pytest.raises(SettingsError, match="compete already"):
        what_if(changed, add=[("v1", "v0")])
    with pytest.raises(GraphError, match="unknown participant 'x'"):
        what_if(formation, add=[("v0", "x")])
    with pytest.raises(GraphError, match="'v0' is listed twice"):
        what_if(formation, joins=[Newcomer("v0")])
    with pytest.raises(FedEgoistsError, match="unknown participant 'nobody'"):
        what_if(formation, joins=[Newcomer("x", gives={"nobody": 1.0})])
    with pytest.raises(FedEgoistsError, match=r"'v0' is -1\.0"):
        what_if(formation, joins=[Newcomer("x", gives={"v0": -1.0})])
    with pytest.raises(SettingsError, match="'v0' is listed twice among the competitors of 'x'"):
        what_if(formation, joins=[Newcomer("x", competes=["v0", "v1", "v0"])])
    with pytest.raises(FedEgoistsError, match="cannot compete with itself"):
        what_if(formation, add=[("v0", "v0")])


def test_no_change_is_no_change_even_where_the_search_could_do_better():
    formation = form(*random_graphs(40, 0.3, 0.15, seed=2), "stable")
    result = what_if(formation)
    assert result.after is formation
    assert result.moved == ()


def test_what_may_be_due_to_the_search_is_said():
    formation = form(*random_graphs(40, 0.3, 0.15, seed=2))
    assert not formation.optimal
    assert "may be due to the search" in str(what_if(formation, leaves=["v3"]))
    assert "may be due to the search" not in str(what_if(complete(4), leaves=["v3"]))


def assert_agrees_with_the_formation_after(formation, add, remove):
    """Coalitions, welfare, moves and utilities are read first, without the new formation."""
    result = what_if(replace(formation, method="stable"), add=add, remove=remove)
    found = result.coalitions, result.welfare, result.moved, dict(result.utility_changes)
    assert "after" not in vars(result)
    after = result.after
    assert found[:2] == (after.coalitions, after.welfare)
    assert result.welfare_change == after.welfare - formation.welfare
    assert found[2] == moved_between(formation.coalitions, after.coalitions)
    for name, change in found[3].items():
        difference = after.utilities[name] - formation.utilities[name]
        assert change == pytest.approx(difference, abs=1e-11 * formation.benefit.weights.max())


@settings(max_examples=150, deadline=None)
@given(graphs(min_n=2), st.sampled_from([m for m in FORMATION_METHODS if m != "best"]), st.data())
def test_any_change_of_competition_is_answered_alike(both, method, data):
    benefit, competition = both
    formation = form(benefit, competition, method)
    names = st.sampled_from(benefit.participants)
    pair = st.lists(names, min_size=2, max_size=2, unique=True).map(tuple)
    changed = data.draw(st.lists(pair, max_size=4, unique_by=frozenset))
    add = [pair for pair in changed if not competition.competes(*pair)]
    remove = [pair for pair in changed if competition.competes(*pair)]
    assert_agrees_with_the_formation_after(formation, add, remove)
    assert_agrees_with_the_formation_after(formation, [*remove, *add], remove)  # and back again


def test_a_large_consortium_is_answered_alike():
    benefit, competition = random_graphs(60, 0.7, 0.1, 3)
    formation = form(benefit, competition, "stable")
    one, two, three, *_ = next(group for group in formation.coalitions if len(group) > 3)
    assert_agrees_with_the_formation_after(formation, [(one, two), (one, three)], [])
    assert_agrees_with_the_formation_after(formation, [], [competition.pairs[0]])
    assert_agrees_with_the_formation_after(formation, [], list(competition.pairs))


@pytest.mark.parametrize(
    ("add", "remove", "error"),
    [
        ([("b", "a")], [], SettingsError),
        ([("a", "c"), ("c", "a")], [], SettingsError),
        ([], [("a", "c")], SettingsError),
        ([("a", "a")], [], GraphError),
        ([("a", "x")], [], GraphError),
        ([], [("x", "a")], GraphError),
    ],
)
def test_a_change_that_does_not_fit_is_refused(add, remove, error):
    names = ["a", "b", "c"]
    weights = [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    formation = form(BenefitGraph(weights, names), CompetitionGraph([("a", "b")], names))
    with pytest.raises(error):
        what_if(formation, add=add, remove=remove)


def test_another_benefit_changes_who_is_together():
    names = ["North", "South", "East"]
    benefit = BenefitGraph([[0, 2, 1], [1, 0, 0], [1, 0, 0]], names)
    formation = form(benefit, CompetitionGraph([("South", "East")], names))
    assert formation.coalitions == (("North", "South"), ("East",))
    # South then receives 0.5 and gives 1, East receives 1 and gives 1.
    result = what_if(formation, weights=[ChangedWeight("North", "South", 0.5)])
    assert result.coalitions == (("North", "East"), ("South",))
    assert result.welfare == 2
    assert what_if(formation, weights=[ChangedWeight("North", "South", 2.0)]).after is formation
    with pytest.raises(SettingsError, match="without errors; leave it out"):
        what_if(formation, weights=[ChangedWeight("North", "South", 1.0, 0.1)])
    with pytest.raises(GraphError, match="South"):
        what_if(formation, weights=[ChangedWeight("South", "South", 1.0)])
    with pytest.raises(SettingsError, match="changed twice; keep one"):
        what_if(formation, weights=[ChangedWeight("North", "South", w) for w in (1.0, 5.0)])
    both = [ChangedWeight("North", "South", 0.5), ChangedWeight("South", "North", 0.25)]
    assert what_if(formation, weights=both).weights == tuple(both)


def test_another_error_of_an_uncertain_benefit():
    names = ["North", "South"]
    doubt = UncertainBenefits([[0, 0.4], [0.4, 0]], [[0, 0.1], [0.1, 0]], names)
    formation = form(doubt, CompetitionGraph([], names))
    assert formation.coalitions == (("North", "South"),)
    kept = what_if(formation, weights=[ChangedWeight("North", "South", 0.2)])
    assert kept.benefit.errors.tolist() == doubt.errors.tolist()
    assert kept.coalitions == (("North",), ("South",))  # two errors above zero: p = 0.73
    surer = what_if(formation, weights=[ChangedWeight("North", "South", 0.2, 0.01)])
    assert surer.coalitions == (("North", "South"),)
    assert str(surer).startswith(
        "The benefit of North to South becomes 0.2, with a standard error of 0.01.\n"
    )
    assert kept.weights == (ChangedWeight("North", "South", 0.2, 0.1),)


@given(graphs(2, 6), st.data())
def test_another_benefit_decides_like_the_graph_with_it(both, data):
    benefit, competition = both
    source, target = data.draw(st.permutations(range(benefit.n)))[:2]
    names = benefit.participants
    weight = data.draw(st.floats(0, 5))
    weights = benefit.to_numpy()
    weights[source, target] = weight
    result = what_if(
        form(benefit, competition), weights=[ChangedWeight(names[source], names[target], weight)]
    )
    expected = form(BenefitGraph(weights, names), competition)
    assert result.welfare == pytest.approx(expected.welfare, abs=1e-9)
