"""At least k members: small cases by hand, and everything against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import (
    BenefitGraph,
    CompetitionGraph,
    audit_core,
    explain,
    form,
    verify,
    what_if,
)
from fedegoists.coalitions.contraction import Budget, Contraction, bits
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import fairest_partition
from fedegoists.coalitions.exact.pricing import Pricing
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.merging import joinable_with, sustained
from fedegoists.coalitions.proof.exhaustive_check import exhaust, is_better
from fedegoists.coalitions.rearranging import repaired
from fedegoists.coalitions.upper_bound import quick_upper_bound
from fedegoists.errors import SettingsError
from tests.instances import (
    LAWS,
    as_positions,
    assert_sound,
    best_welfare,
    consortium,
    graphs,
    is_valid,
    mergeable,
    random_graphs,
    valid_partitions,
    welfare,
)

DEMANDS = st.integers(3, 5)


def instance(edges: str, rivals: str = "") -> tuple[BenefitGraph, CompetitionGraph]:
    """Edges like "ab ba2", rivals like "ab cd"."""
    names = sorted(set(edges + rivals) - set(" 0123456789."))
    benefit = BenefitGraph.from_edges(
        [(e[0], e[1], float(e[2:] or 1)) for e in edges.split()], names
    )
    return benefit, CompetitionGraph([tuple(pair) for pair in rivals.split()], names)


def sets(formation) -> str:
    return " ".join("".join(group) for group in formation.coalitions)


# By hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["best", "stable"])
@pytest.mark.parametrize(
    ("edges", "rivals", "free", "demanded", "reached"),
    [
        # A pair is not allowed, and there is nobody else.
        ("ab5 ba5", "", "ab", "a b", 0),
        # c gives a something and takes from b: the three are a coalition.
        ("ab5 ba5 bc1 ca1", "", "abc", "abc", 12),
        # b is worth most to a, but competes with c and d.
        ("ab5 ba5 ac cd da", "bc bd", "ab c d", "acd b", 3),
        # Two pairs that use nothing of each other are large enough together.
        ("ab2 ba2 cd3 dc3", "", "ab cd", "abcd", 10),
        # They cannot be together if two of them compete.
        ("ab2 ba2 cd3 dc3", "bc", "ab cd", "a b c d", 0),
        # A pair can join a coalition that it shares no benefit with.
        ("xy yz zx ab ba", "", "ab xyz", "abxyz", 5),
        # One competitor there, and it is alone instead.
        ("xy yz zx ab ba", "ax", "ab xyz", "a b xyz", 3),
    ],
)
def test_small_cases(method, edges, rivals, free, demanded, reached):
    both = instance(edges, rivals)
    assert sets(form(*both)) == free
    formation = form(*both, method, fewest_members=3)
    assert sets(formation) == demanded
    assert formation.welfare == reached
    assert formation.stable
    if method == "best":
        assert formation.optimal
    assert_sound(formation)


def test_the_demand_costs_welfare_but_not_always():
    """A circle of four is large enough for four, and not for five."""
    both = instance("ab bc cd da")
    assert form(*both, fewest_members=4).welfare == 4
    assert form(*both, fewest_members=5).welfare == 0


def test_one_and_two_demand_nothing():
    both = random_graphs(9, 0.5, 0.2, seed=3)
    for method in ("best", "stable", "published", "cliques", "truthful"):
        expected = form(*both, method).coalitions
        for demand in (1, 2):
            assert form(*both, method, fewest_members=demand).coalitions == expected


@pytest.mark.parametrize("method", ["published", "cliques", "truthful"])
def test_the_published_methods_refuse(method):
    with pytest.raises(SettingsError, match="use method 'best' or 'stable'"):
        form(*instance("ab ba"), method, fewest_members=3)


@pytest.mark.parametrize("demand", [0, -1, 2.0, True, "3"])
def test_what_is_no_number_of_members_is_refused(demand):
    with pytest.raises(SettingsError, match="whole number of 1 or more"):
        form(*instance("ab ba"), fewest_members=demand)


def test_a_demand_above_the_number_of_participants_is_said():
    formation = form(*instance("ab ba bc ca"), fewest_members=4)
    assert sets(formation) == "a b c"
    assert formation.notes == (
        "at least 4 members are demanded, but there are only 3 participants, so each is alone",
    )


def test_witnesses_of_a_coalition_that_is_too_small():
    both = instance("ab ba cd dc")
    found = verify(*both, [["a", "b"], ["c"], ["d"]], fewest_members=3)
    assert not found.ok
    assert str(found.too_small[0]) == (
        "{a, b} has 2 members; a coalition of two or more needs at least 3 here"
    )
    # The pair and the two singles should unite: c and d gain, and there are four of them.
    assert str(found.mergers[0]) == "{a, b} and {c} and {d} would gain 2 by merging"
    whole = verify(*both, [["a", "b", "c", "d"]], fewest_members=3)
    assert whole.ok
    assert str(whole) == (
        "no free riders, no conflicts of interest, at least 3 members, merge-stable"
    )


def test_explanations_name_the_demand():
    alone = form(*instance("ab5 ba5"), fewest_members=3)
    assert str(explain(alone, "a", "b")) == (
        "a and b are apart because a cannot pair up with b "
        "(a coalition of two is not allowed here: at least 3)."
    )
    # a could join x, y and z, but would leave b and c behind.
    both = instance("ab ba bc cb ca ac xy yz zx ax xa", "bx cx")
    assert str(explain(form(*both, fewest_members=3), "a", "x")) == (
        "a and x are apart because x cannot join a's coalition (b there competes with x), a cannot "
        "join x's coalition (a coalition of two would be left without a, which is not allowed "
        "here: at least 3) and the two coalitions cannot unite (b and x compete)."
    )


def test_what_if_respects_the_demand_and_can_change_it():
    before = form(*instance("ab5 ba5 bc1 ca1"), fewest_members=3)
    after = what_if(before, leaves=["c"])
    assert sets(after.after) == "a b"
    assert after.after.fewest_members == 3
    assert (after.welfare, after.welfare_change) == (0, -12)
    without = what_if(before, leaves=["c"], fewest_members=1)
    assert sets(without.after) == "ab"
    stricter = what_if(before, fewest_members=4)
    assert sets(stricter.after) == "a b c"
    assert len(stricter.moved) == 2
    with pytest.raises(SettingsError, match="use method 'best'"):
        what_if(form(*instance("ab ba"), "published"), fewest_members=3)


def test_a_blocking_group_has_to_be_large_enough():
    """a and b would rather be a pair, which is not allowed where three are demanded."""
    both = instance("ab3 ba3 ac1 ca1 cd dc1 da1", "bc bd")
    partition = [("a", "c", "d"), ("b",)]
    assert audit_core(*both, partition).blocking is not None
    assert audit_core(*both, partition, fewest_members=3).core_stable


# Against brute force ---------------------------------------------------------------------------


@given(graphs(min_n=2, max_n=6), DEMANDS)
@settings(max_examples=300, deadline=None)
def test_the_optimum_is_the_best_of_all_partitions(both, demand):
    formation = form(*both, fewest_members=demand)
    assert formation.optimal
    assert formation.welfare == pytest.approx(best_welfare(*both, demand), rel=1e-9)
    assert_sound(formation)
    assert (
        mergeable(as_positions(formation.coalitions, both[0].participants), *both, demand) is None
    )


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.usefixtures("way")
def test_both_ways_of_solving_agree_with_brute_force(law):
    for seed in range(25):
        both, demand = consortium(law, 5 + seed % 4, seed), 3 + seed % 3
        formation = form(*both, time_limit=20, fewest_members=demand)
        assert formation.optimal, seed
        expected = best_welfare(*both, demand)
        assert formation.welfare == pytest.approx(expected, rel=1e-9), seed
        assert quick_upper_bound(both[0].weights, both[1].matrix, demand) >= expected * (1 - 1e-12)
        assert_sound(formation)


@given(graphs(min_n=2, max_n=7), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_pricing_finds_every_coalition_that_is_large_enough(both, demand):
    weights, rivals, n = both[0].weights, both[1].matrix, both[0].n
    problem = Subproblem(weights, (weights > 0) & ~rivals, rivals, fewest_members=demand)
    pricing = Pricing(problem, Effort(1e6))
    rows = [pricing.all_above(root, -1.0, 10_000, 10**9) for root in range(n)]
    found = {tuple(np.flatnonzero(row).tolist()) for part in rows for row in part}
    assert found == {
        group
        for size in range(2, n + 1)
        for group in itertools.combinations(range(n), size)
        if is_valid(list(group), *both, demand)
    }


@pytest.mark.parametrize("objective", ["fair", "participation"])
@given(graphs(min_n=2, max_n=5), DEMANDS)
@settings(max_examples=60, deadline=None)
def test_other_objectives(objective, both, demand):
    names = both[0].participants
    valid = [
        [tuple(names[i] for i in group) for group in partition]
        for partition in valid_partitions(*both, demand)
    ]
    formation = form(*both, objective=objective, fewest_members=demand)
    assert formation.proven
    assert_sound(formation)
    assert not any(is_better(both[0], one, formation.coalitions, objective) for one in valid)
    assert formation.certificate.check(fewest_members=demand).ok
    for partition in valid[:4]:
        expected = any(is_better(both[0], one, partition, objective) for one in valid)
        tried = exhaust(*both, partition, objective, demand)
        assert tried.complete
        assert (tried.better is not None) == expected


@pytest.mark.parametrize("objective", ["fair", "participation"])
def test_the_check_of_an_objective_unites_unrelated_pairs(objective):
    """Two pairs that use nothing of each other are a coalition only together."""
    both = instance("ab2 ba2 cd3 dc3")
    alone, together = [("a",), ("b",), ("c",), ("d",)], [("a", "b", "c", "d")]
    assert exhaust(*both, alone, objective, 3).better == tuple(together)
    assert exhaust(*both, together, objective, 3).better is None


def test_moves_towards_fairness_keep_coalitions_large_enough(monkeypatch):
    """Where coalitions are too many to be listed, participants move and swap."""
    monkeypatch.setattr(fairest_partition, "MOST_LISTED", 0)
    for seed in range(12):
        both = random_graphs(9, 0.5, 0.2, seed=seed)
        assert_sound(form(*both, objective="fair", fewest_members=3, time_limit=20))


@given(graphs(min_n=2, max_n=7), DEMANDS)
@settings(max_examples=200, deadline=None)
def test_stable_leaves_no_merger(both, demand):
    formation = form(*both, "stable", fewest_members=demand)
    assert formation.stable
    assert_sound(formation)
    assert (
        mergeable(as_positions(formation.coalitions, both[0].participants), *both, demand) is None
    )


@given(graphs(min_n=2, max_n=7), DEMANDS)
@settings(max_examples=100, deadline=None)
def test_a_single_is_joinable_exactly_if_a_large_enough_set_with_it_is_valid(both, demand):
    n = both[0].n
    for single in range(n):
        z = Contraction(*both)
        others = [i for i in range(n) if i != single]
        expected = any(
            is_valid(sorted([single, *rest]), *both, demand)
            for size in range(1, n)
            for rest in itertools.combinations(others, size)
        )
        group = joinable_with(z, single, sustained(z, z.nodes), Budget(10**6), demand)
        assert (group is not None) == expected
        if group is not None:
            assert is_valid(list(bits(group)), *both, demand)


@given(graphs(min_n=2, max_n=5), DEMANDS)
@settings(max_examples=100, deadline=None)
def test_the_checker_finds_a_merger_exactly_where_there_is_one(both, demand):
    names = both[0].participants
    for partition in itertools.islice(valid_partitions(*both, demand), 8):
        groups = [[names[i] for i in group] for group in partition]
        found = verify(*both, groups, budget=None, fewest_members=demand)
        assert bool(found.mergers) == (mergeable(partition, *both, demand) is not None)
        for one in found.mergers:
            union = sorted(i for g in as_positions(one.coalitions, names) for i in g)
            assert is_valid(union, *both, demand)


@given(graphs(min_n=2, max_n=6), DEMANDS, st.data())
@settings(max_examples=100, deadline=None)
def test_blocking_groups(both, demand, data):
    names, weights = both[0].participants, both[0].weights
    partition = data.draw(st.sampled_from(list(valid_partitions(*both, demand))))
    now = {i: sum(weights[j, i] for j in group) for group in partition for i in group}
    expected = any(
        is_valid(list(group), *both, demand)
        and all(sum(weights[j, i] for j in group) > now[i] * (1 + 1e-12) for i in group)
        for size in range(2, both[0].n + 1)
        for group in itertools.combinations(range(both[0].n), size)
    )
    groups = [[names[i] for i in group] for group in partition]
    audit = audit_core(*both, groups, budget=None, fewest_members=demand)
    assert audit.core_stable is not expected


@given(graphs(min_n=2, max_n=7), st.integers(1, 5), st.data())
@settings(max_examples=100, deadline=None)
def test_repairing_leaves_valid_coalitions(both, demand, data):
    n = both[0].n
    labels = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    partition = [[i for i in range(n) if labels[i] == c] for c in sorted(set(labels))]
    result = repaired(partition, *both, Contraction(*both), demand)
    assert sorted(i for group in result for i in group) == list(range(n))
    assert all(is_valid(group, *both, demand) for group in result)


@pytest.mark.usefixtures("way")
def test_what_ifs_are_as_good_as_forming_again():
    for seed in range(12):
        both = random_graphs(8, 0.5, 0.15, seed=seed)
        before = form(*both, fewest_members=3, time_limit=20)
        after = what_if(before, leaves=["v0"], time_limit=20).after
        assert_sound(after)
        again = form(after.benefit, after.competition, fewest_members=3, time_limit=20)
        assert after.welfare == pytest.approx(again.welfare, rel=1e-9)


def test_a_larger_consortium_is_solved_by_the_compiled_search():
    for seed in range(3):
        both = random_graphs(18, 0.4, 0.3, seed=seed)
        formation = form(*both, fewest_members=4, time_limit=30)
        assert_sound(formation)
        assert min(len(g) for g in formation.coalitions if len(g) > 1) >= 4
        assert formation.welfare >= form(*both, "stable", fewest_members=4).welfare
        assert formation.upper_bound <= quick_upper_bound(both[0].weights, both[1].matrix) + 1e-9
        groups = as_positions(formation.coalitions, both[0].participants)
        assert formation.welfare == pytest.approx(welfare(groups, both[0]))
