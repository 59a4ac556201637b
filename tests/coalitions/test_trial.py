"""The short form of what-if answers as the long one does."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form, what_if
from fedegoists.coalitions import METHODS
from fedegoists.coalitions.trial import Trial
from fedegoists.errors import GraphError, SettingsError
from tests.instances import graphs, random_graphs


def same(trial, add, remove):
    answer = trial.changed(add, remove)
    long = what_if(replace(trial.formation, method="stable"), add=add, remove=remove)
    assert answer.coalitions == long.after.coalitions
    assert answer.welfare == long.after.welfare
    assert answer.welfare_change == long.welfare_change
    assert answer.moved == long.moved
    assert answer.utility_changes == dict(long.utility_changes)


@settings(max_examples=150, deadline=None)
@given(graphs(min_n=2), st.sampled_from([m for m in METHODS if m != "best"]), st.data())
def test_any_change_is_answered_alike(both, method, data):
    benefit, competition = both
    names = benefit.participants
    trial = Trial(form(benefit, competition, method))
    pair = st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True).map(tuple)
    changed = data.draw(st.lists(pair, max_size=4, unique_by=frozenset))
    add = [pair for pair in changed if not competition.competes(*pair)]
    remove = [pair for pair in changed if competition.competes(*pair)]
    same(trial, add, remove)
    same(trial, [*remove, *add], remove)  # away and back again


def test_a_large_consortium_is_answered_alike():
    benefit, competition = random_graphs(60, 0.7, 0.1, 3)
    trial = Trial(form(benefit, competition, "stable"))
    together = next(group for group in trial.formation.coalitions if len(group) > 3)
    same(trial, [(together[0], together[1]), (together[0], together[2])], [])
    same(trial, [], [competition.pairs[0]])
    same(trial, [], list(competition.pairs))


def test_what_does_not_fit_is_refused_in_the_same_words():
    names = ["a", "b", "c"]
    formation = form(
        BenefitGraph([[0, 1, 1]] + [[0, 0, 0]] * 2, names), CompetitionGraph([("a", "b")], names)
    )
    trial = Trial(formation)
    for add, remove, error in [
        ([("b", "a")], [], SettingsError),
        ([("a", "c"), ("c", "a")], [], SettingsError),
        ([], [("a", "c")], SettingsError),
        ([("a", "a")], [], GraphError),
        ([("a", "x")], [], GraphError),
        ([], [("x", "a")], GraphError),
    ]:
        with pytest.raises(error) as short:
            trial.changed(add, remove)
        with pytest.raises(error) as long:
            what_if(formation, add=add, remove=remove)
        assert str(short.value).split(": ")[-1] == str(long.value).split(": ")[-1]
