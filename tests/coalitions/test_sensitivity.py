"""Which changes of a weight or a report change coalitions: exact, against deciding again."""

from itertools import permutations

import numpy as np
import pytest

from fedegoists import (
    BenefitGraph,
    CompetitionGraph,
    CurveValues,
    UncertainBenefits,
    form,
    sensitivity,
    verify,
)
from fedegoists.coalitions.sensitivity import unnamed_reach
from fedegoists.errors import SettingsError

STEP = 1e-4


def consortium(seed, n=5):
    random = np.random.default_rng(seed)
    weights = np.where(random.random((n, n)) < 0.5, random.uniform(0.1, 1, (n, n)), 0)
    np.fill_diagonal(weights, 0)
    rivals = np.triu(random.random((n, n)) < 0.2, 1)
    graph = BenefitGraph(weights)
    return graph, CompetitionGraph.from_numpy(rivals | rivals.T, graph.participants)


def passed(formation, j, i, weight):
    """Whether other coalitions are better than these, or these are invalid, with a weight."""
    weights = formation.benefit.to_numpy()
    names = formation.participants
    together = formation.coalition_of(names[j]) == formation.coalition_of(names[i])
    own = formation.welfare - (weights[j, i] - weight if together else 0.0)
    weights[j, i] = weight
    graph = BenefitGraph(weights, names)
    checked = verify(graph, formation.competition, formation.coalitions)
    if checked.free_riders:
        return True
    return form(graph, formation.competition).welfare > own + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_breakpoints_are_exact(seed):
    formation = form(*consortium(seed))
    found = sensitivity(formation, time_limit=60)
    assert found.exact
    assert found.examined == found.pairs == 20
    changes = {(one.source, one.target): one for one in found.weights}
    names, weights = formation.participants, formation.benefit.weights
    for j, i in permutations(range(5), 2):
        change = changes.get((names[j], names[i]))
        if change is None:
            assert not passed(formation, j, i, 0.0)
            assert not passed(formation, j, i, 50.0)
        elif change.becomes == 0 < change.weight:
            assert passed(formation, j, i, 0.0)
            assert not passed(formation, j, i, 1e-7)
        elif change.becomes < change.weight:
            assert passed(formation, j, i, change.becomes - STEP)
            assert not passed(formation, j, i, change.becomes + STEP)
        else:
            assert passed(formation, j, i, change.becomes + STEP)
            if change.becomes - STEP > weights[j, i]:
                assert not passed(formation, j, i, change.becomes - STEP)


@pytest.mark.parametrize("seed", range(6))
def test_reports_change_what_deciding_again_does(seed):
    graph, competition = consortium(seed)
    formation = form(graph, competition)
    found = {(one.a, one.b): one for one in sensitivity(formation, time_limit=60).reports}
    names = graph.participants
    for k, a in enumerate(names):
        for b in names[k + 1 :]:
            named = not competition.competes(a, b)
            if named and formation.coalition_of(a) != formation.coalition_of(b):
                continue
            changed = competition.changed([(a, b)] if named else [], [] if named else [(a, b)])
            change = form(graph, changed).welfare - formation.welfare
            if (a, b) in found:
                assert found[a, b].named == named
                assert found[a, b].welfare_change == pytest.approx(change, abs=1e-9)
            else:
                assert change == pytest.approx(0, abs=1e-9)


def test_a_search_finds_changes_for_other_methods():
    graph, competition = consortium(1)
    found = sensitivity(form(graph, competition, "stable"), time_limit=20)
    assert not found.exact
    for one in found.weights:
        assert not one.exact
        assert one.becomes < one.weight


def test_the_time_limit_ends_it_and_says_so():
    found = sensitivity(form(*consortium(1)), time_limit=1e-9)
    assert (found.examined, found.reports_examined) == (0, 0)
    assert found.reports_open > 0
    assert found.reach


def test_under_doubt_the_promised_benefits_change():
    graph, competition = consortium(3)
    doubt = UncertainBenefits(graph.weights, 0.2 * graph.weights, graph.participants)
    formation = form(doubt, competition)
    found = sensitivity(formation)
    for one in found.weights:
        assert one.weight == pytest.approx(formation.benefit.benefit(one.source, one.target))


def test_what_an_unnamed_competitor_would_reach():
    names = ["North", "South", "East", "West"]
    ring = [("North", "South", 1), ("South", "East", 1), ("East", "North", 1)]
    formation = form(BenefitGraph.from_edges(ring, names), CompetitionGraph([], names))
    reach = {one.participant: one for one in unnamed_reach(formation)}
    assert reach["North"].direct == ("East",)
    assert reach["North"].indirect == ("South",)
    assert "West" not in reach


def test_coalition_values_are_refused():
    curves = CurveValues([10, 10], [0.1, 0.1], [[0, 1], [1, 0]])
    with pytest.raises(SettingsError, match="coalition values"):
        sensitivity(form(curves, CompetitionGraph([], curves.participants)))
