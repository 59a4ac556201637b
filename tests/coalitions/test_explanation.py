"""Every kind of answer, worked out by hand, and that explanations never contradict the checker."""

import itertools

import pytest
from hypothesis import given, settings

from fedegoists import BenefitGraph, CompetitionGraph, explain, form
from fedegoists.coalitions import FORMATION_METHODS, Formation
from fedegoists.coalitions.principles import check_partition
from fedegoists.errors import GraphError, SettingsError
from tests.instances import as_positions, graphs, is_valid, welfare


def consortium(edges: str, rivals: str = "", coalitions: str = "", method="stable") -> Formation:
    """Edges like "ab ba2", rivals like "ab cd", coalitions like "ab c"."""
    names = sorted(set(edges + rivals + coalitions) - set(" 0123456789."))
    benefit = BenefitGraph.from_edges(
        [(e[0], e[1], float(e[2:] or 1)) for e in edges.split()], names
    )
    competition = CompetitionGraph([tuple(pair) for pair in rivals.split()], names)
    formed = form(benefit, competition, method)
    if not coalitions:
        return formed
    return Formation(
        benefit=benefit,
        competition=competition,
        method=method,
        coalitions=check_partition([list(group) for group in coalitions.split()], names),
        welfare=0.0,
        upper_bound=formed.upper_bound,
        stable=None,
    )


def test_competitors():
    text = str(explain(consortium("ab ba", "ab"), "a", "b"))
    assert text == "a and b compete, so nothing of one may reach the other."


def test_together_with_both_directions_one_and_none():
    formation = consortium("ab2 ba bc ca", coalitions="abc")
    assert str(explain(formation, "a", "b")) == (
        "a and b train together: a benefits b (2) and b benefits a (1)."
    )
    assert str(explain(formation, "c", "b")) == (
        "b and c train together: b benefits c (1), and b is benefited by a."
    )
    ring = consortium("ab bc cd da", coalitions="abcd")
    assert str(explain(ring, "a", "c")) == (
        "a and c are in one coalition without using each other's data: "
        "a is benefited by d and benefits b, c is benefited by b and benefits d."
    )


def test_a_competitor_in_the_other_coalition():
    found = explain(consortium("ab ba cb bc", "ac", "ab c"), "b", "c")
    assert found.alternatives[0].obstacle == "a there competes with c"
    assert str(found) == (
        "b and c are apart because c cannot join b's coalition (a there competes with c) and "
        "b pairing up with c instead would not raise the total benefit."
    )


def test_nobody_would_benefit():
    found = explain(consortium("ab ba ac", coalitions="ab c"), "a", "c")
    assert str(found) == (
        "a and c are apart because c cannot join a's coalition (no benefit of c to anybody there "
        "is known) and a cannot pair up with c (no benefit of c to a is known)."
    )


def test_nothing_to_get():
    found = explain(consortium("ab ba ca", coalitions="ab c"), "c", "b")
    assert "c cannot join b's coalition (no benefit of anybody there to c is known)" in str(found)


def test_two_singles_of_which_one_gives_nothing():
    assert str(explain(consortium("ab", coalitions="a b"), "a", "b")) == (
        "a and b are apart because a cannot pair up with b (no benefit of b to a is known)."
    )
    assert str(explain(consortium("ba", coalitions="a b"), "a", "b")) == (
        "a and b are apart because a cannot pair up with b (no benefit of a to b is known)."
    )


def test_somebody_would_be_left_without_support():
    """In the triangle a → b → c → a nobody can leave; d is mutual with a."""
    found = explain(consortium("ab bc ca ad da", "cd bd", "abc d"), "a", "d")
    assert found.alternatives[1].obstacle == (
        "b would be left with nobody to benefit from in its coalition without a"
    )


def test_a_loss():
    found = explain(consortium("ab5 ba ac ca", "bc", "ab c"), "a", "c")
    assert "a pairing up with c instead would lower the total benefit by 4" in str(found)


def test_a_gain_that_the_method_does_not_look_for():
    found = explain(consortium("ab ba ac3 ca3", "bc", "ab c"), "a", "c")
    assert str(found) == (
        "a and c are apart because c cannot join a's coalition (b there competes with c), although "
        "a pairing up with c instead would raise the total benefit by 4 "
        "(method 'stable' does not look for this; method 'best' does)."
    )


def test_two_big_coalitions():
    found = explain(consortium("ab ba cd dc bc", "ad", "ab cd"), "b", "c")
    assert "the two coalitions cannot unite (a and d compete)" in str(found)


def test_bad_names():
    formation = consortium("ab ba")
    with pytest.raises(GraphError, match="unknown participant 'x'"):
        explain(formation, "a", "x")
    with pytest.raises(SettingsError, match="'a' was given twice"):
        explain(formation, "a", "a")


@pytest.mark.parametrize("method", FORMATION_METHODS)
@given(graphs(min_n=2, max_n=6))
@settings(max_examples=60, deadline=None)
def test_alternatives_are_what_the_definitions_say(method, instance):
    """An obstacle is named exactly if the move is invalid, and its value is the true difference."""
    formation = form(*instance, method)
    for a, b in itertools.permutations(formation.participants, 2):
        found = explain(formation, a, b)
        assert found.together == (formation.coalition_of(a) == formation.coalition_of(b))
        if not found.alternatives:
            continue
        mover, host = (a, b) if len(found.alternatives) == 1 else (b, a)
        groups = [
            [name for name in group if name != mover] + ([mover] if host in group else [])
            for group in formation.coalitions
        ]
        changed = as_positions([g for g in groups if g], formation.participants)
        first = found.alternatives[0]
        assert (first.obstacle is None) == all(is_valid(group, *instance) for group in changed)
        before = as_positions(formation.coalitions, formation.participants)
        difference = welfare(changed, formation.benefit) - welfare(before, formation.benefit)
        assert first.welfare_change == pytest.approx(difference, abs=1e-12)
        if formation.optimal:
            assert " although " not in found.sentence


def test_what_rounding_leaves_of_equal_sums_is_no_gain():
    """0.1 + 0.4 is not exactly 0.3 + 0.2 for a computer, but it is for a manager."""
    found = explain(consortium("ab0.4 ba0.1 ca0.3 ac0.2", "bc", "ac b"), "a", "b")
    assert found.alternatives[1].welfare_change == 0
    assert "a pairing up with b instead would not raise the total benefit" in str(found)


def test_names_are_found_however_they_are_typed():
    names = ["Zürich", "Bern"]
    benefit = BenefitGraph([[0, 1], [1, 0]], names)
    formation = form(benefit, CompetitionGraph([], names))
    assert explain(formation, "Zu\u0308rich", "Bern").together
