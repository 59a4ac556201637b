"""`form` with coalition values: the exact optimum, invariances, and results beyond 20."""

import itertools

import numpy as np
import pytest

from fedegoists.coalitions import FORMATION_METHODS, form, verify
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import value_enumeration
from fedegoists.coalitions.exact.admissible import ValueProblem
from fedegoists.coalitions.exact.value_search import ValueSearch
from fedegoists.coalitions.value_partition_search import quick_value_bound, value_bound
from fedegoists.coalitions.welfare import total_gain
from fedegoists.errors import GraphError, SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph, CurveValues
from tests.coalitions.value_instances import best_total, random_competition, random_values

CONFIDENCES = (0.5, 0.7, 0.9)


@pytest.mark.parametrize("seed", range(300))
def test_the_optimum_is_that_of_all_partitions(seed):
    n = 2 + seed % 5 if seed % 20 else 8
    values, competition = random_values(n, seed), random_competition(n, seed)
    confidence, fewest = CONFIDENCES[seed % 3], 3 if seed % 7 == 0 else 1
    formation = form(values, competition, confidence=confidence, fewest_members=fewest)
    best = best_total(values, competition, confidence, fewest)
    assert formation.welfare == pytest.approx(best, abs=1e-9)
    assert formation.optimal
    assert formation.stable
    assert quick_value_bound(values, competition) >= best * (1 - 1e-9)
    checked = verify(
        values,
        competition,
        formation.coalitions,
        confidence=confidence,
        fewest_members=fewest,
        budget=None,
    )
    assert checked.ok, str(checked)


@pytest.mark.parametrize("seed", range(6))
def test_the_compiled_program_finds_the_same(seed, monkeypatch):
    values, competition = random_values(8, seed), random_competition(8, seed, 0.1 * seed)
    expected = form(values, competition)
    monkeypatch.setattr(value_enumeration, "is_small", lambda n: False)
    assert form(values, competition).coalitions == expected.coalitions


@pytest.mark.parametrize("seed", range(12))
def test_search_and_bound_beyond_enumeration(seed, monkeypatch):
    values, competition = random_values(9, seed), random_competition(9, seed)
    confidence = CONFIDENCES[seed % 3]
    best = form(values, competition, confidence=confidence)
    monkeypatch.setattr("fedegoists.coalitions.exact.value_enumeration.MOST_EXACT", 0)
    found = form(values, competition, confidence=confidence, time_limit=0.3)
    assert found.welfare <= best.welfare * (1 + 1e-9)
    assert found.upper_bound >= best.welfare * (1 - 1e-9)
    assert found.welfare >= 0.8 * best.welfare
    checked = verify(values, competition, found.coalitions, confidence=confidence, budget=None)
    assert not checked.violations
    # The bound that a certificate's check derives holds for any partition to start from.
    alone = [[k] for k in range(9)]
    _, bound = value_bound(
        values, competition, alone, confidence=confidence, seed=0, time_limit=0.2
    )
    assert bound >= best.welfare * (1 - 1e-9)


class OtherValues:
    """Values of a class of its own: those of curves, without their effects and slopes."""

    def __init__(self, values):
        self._values = values

    def __getattr__(self, name):
        if name in {"effects", "slopes", "rates"}:
            raise AttributeError(name)
        return getattr(self._values, name)

    def restricted_to(self, participants):
        return OtherValues(self._values.restricted_to(participants))


@pytest.mark.parametrize("exact", [True, False])
def test_any_class_that_keeps_the_protocol_will_do(exact, monkeypatch):
    values, competition = random_values(8, 5), random_competition(8, 5)
    best = form(values, competition)
    if not exact:
        monkeypatch.setattr("fedegoists.coalitions.exact.value_enumeration.MOST_EXACT", 0)
    found = form(OtherValues(values), competition, time_limit=0.3)
    assert found.upper_bound >= best.welfare * (1 - 1e-9)
    assert found.welfare >= 0.8 * best.welfare
    assert found.coalitions == best.coalitions or not exact


@pytest.mark.parametrize("seed", range(20))
def test_additive_values_decide_as_a_benefit_graph(seed):
    random = np.random.default_rng(seed)
    n = 6
    weights = np.where(random.random((n, n)) < 0.4, random.uniform(0.1, 1, (n, n)), 0.0)
    np.fill_diagonal(weights, 0.0)
    graph, competition = BenefitGraph(weights), random_competition(n, seed)
    values = CurveValues(np.ones(n), np.full(n, np.log(2)), weights, powers=1.0)
    by_graph, by_values = form(graph, competition), form(values, competition)
    assert by_values.welfare == pytest.approx(by_graph.welfare)
    # The principles are the same, coalition by coalition.
    for size in range(1, n + 1):
        for group in itertools.combinations(graph.participants, size):
            rest = [(name,) for name in graph.participants if name not in group]
            one, other = (verify(b, competition, [group, *rest], budget=0) for b in (graph, values))
            assert {(r.participant, r.missing) for r in one.free_riders} == {
                (r.participant, r.missing) for r in other.free_riders
            }
            assert one.conflicts == other.conflicts


@pytest.mark.parametrize("seed", range(10))
def test_relabelling_changes_nothing_but_names(seed):
    values, competition = random_values(7, seed), random_competition(7, seed)
    names = list(values.participants)
    np.random.default_rng(seed).shuffle(names)
    one = form(values, competition)
    other = form(values.restricted_to(names), competition.restricted_to(names))
    assert other.welfare == pytest.approx(one.welfare)
    assert {frozenset(group) for group in other.coalitions} == {
        frozenset(group) for group in one.coalitions
    }


def test_a_free_rider_is_left_alone_however_much_it_would_gain():
    # VA would gain from both, and nobody from VA.
    rates = [[0, 0.5, 1], [0.5, 0, 1], [0, 0, 0]]
    names = ["Cleveland", "Hungarian", "VA"]
    values = CurveValues([100, 100, 100], [0.01, 0.01, 0.1], rates, names)
    formation = form(values, CompetitionGraph([], names))
    assert formation.coalitions == (("Cleveland", "Hungarian"), ("VA",))


def test_who_harms_more_than_it_helps_is_a_free_rider():
    # All three would gain together, 0.042 in total, but without VA the other two gain more.
    rates = [[0, 0.5, 1], [0.5, 0, 1], [0.1, -0.2, 0]]
    values = CurveValues([100, 100, 100], [0.01, 0.01, 0.02], rates, ["C", "H", "VA"])
    competition = CompetitionGraph([], values.participants)
    (together,) = values.gains([[True, True, True]])
    assert (together > 0).all()
    (rider,) = verify(values, competition, [values.participants]).free_riders
    assert (rider.participant, rider.missing) == ("VA", "outgoing")
    formation = form(values, competition)
    assert formation.coalitions == (("C", "VA"), ("H",))
    assert formation.welfare < together.sum()


def test_harm_divides_two_groups():
    same, other = 0.6, -0.4
    rates = np.array([[same if a // 3 == b // 3 else other for b in range(6)] for a in range(6)])
    np.fill_diagonal(rates, 0.0)
    values = CurveValues(np.full(6, 50), np.full(6, 0.02), rates)
    formation = form(values, CompetitionGraph([], values.participants))
    assert formation.coalitions == (("v0", "v1", "v2"), ("v3", "v4", "v5"))


def test_the_confidence_decides_between_hope_and_safety():
    # Each gains 0.02 log2(2) = 0.02 with a standard error of 0.02: probability 0.84.
    values = CurveValues([10, 10], [0.02, 0.02], [[0, 1], [1, 0]], slope_errors=0.02)
    competition = CompetitionGraph([], values.participants)
    together, alone = (("v0", "v1"),), (("v0",), ("v1",))
    assert form(values, competition).coalitions == together
    assert form(values, competition, confidence=0.84).coalitions == together
    assert form(values, competition, confidence=0.85).coalitions == alone
    probabilities = form(values, competition).probabilities
    assert probabilities == pytest.approx({"v0": 0.8413, "v1": 0.8413}, abs=1e-4)


def test_the_result_carries_gains_errors_and_probabilities():
    values = CurveValues([10, 10, 5], [0.02, 0.02, 0], [[0, 1, 0], [1, 0, 0], [0, 0, 0]], unit="C")
    formation = form(values, CompetitionGraph([], values.participants))
    assert formation.utilities == pytest.approx({"v0": 0.02, "v1": 0.02, "v2": 0.0})
    assert formation.standard_errors == {"v0": 0.0, "v1": 0.0, "v2": 0.0}
    assert formation.probabilities == {"v0": 1.0, "v1": 1.0}
    assert formation.values is values
    frame = formation.to_frame()
    assert frame.columns.tolist()[-2:] == ["standard error", "probability of gaining"]
    assert frame["utility"].tolist() == pytest.approx([0.02, 0.02, 0.0])
    assert "probability of gaining" in formation._repr_html_()
    assert formation.benefit.benefit("v0", "v1") == pytest.approx(0.02)


def test_the_same_seed_gives_the_same_result_beyond_twenty():
    values, competition = random_values(24, 1), random_competition(24, 1, 0.4)
    problem = ValueProblem(values, competition.matrix, 0.7)
    found = []
    for _ in range(2):
        search = ValueSearch(problem, [], seed=3)
        search.run(Effort(0.05))
        found.append(search.partition)
        assert search.total == pytest.approx(total_gain(values, search.partition))
        assert search.total > 0
    assert found[0] == found[1]


def test_beyond_twenty_the_result_is_valid_and_says_what_is_proven():
    values, competition = random_values(24, 1), random_competition(24, 1, 0.4)
    formation = form(values, competition, confidence=0.8, time_limit=0.3)
    checked = verify(values, competition, formation.coalitions, confidence=0.8)
    assert not checked.violations
    assert formation.stable == checked.stable
    assert 0 < formation.welfare <= formation.upper_bound
    assert formation.certificate.check(time_limit=5).ok == (checked.stable is True)


def test_no_participants_and_one():
    for n in (0, 1):
        values = CurveValues(np.ones(n), np.ones(n), np.zeros((n, n)))
        formation = form(values, CompetitionGraph([], values.participants))
        assert formation.welfare == 0.0
        assert formation.optimal
        assert len(formation.coalitions) == n


@pytest.mark.parametrize("method", [m for m in FORMATION_METHODS if m != "best"])
def test_the_papers_methods_need_a_benefit_graph(method):
    values = random_values(3, 0)
    with pytest.raises(SettingsError, match="with coalition values use method 'best'"):
        form(values, CompetitionGraph([], values.participants), method)


def test_options_that_do_not_fit_are_refused():
    values, graph = random_values(3, 0), BenefitGraph(np.zeros((3, 3)))
    competition = CompetitionGraph([], values.participants)
    with pytest.raises(SettingsError, match="the objective 'fair' works on benefit graphs"):
        form(values, competition, objective="fair")
    with pytest.raises(SettingsError, match="a benefit graph has no standard errors"):
        form(graph, competition, confidence=0.9)
    for wrong in (0.4, 1.0, "high", True, float("nan")):
        with pytest.raises(SettingsError, match=r"must be a number from 0\.5 to below 1"):
            form(values, competition, confidence=wrong)
    with pytest.raises(GraphError, match="'v2' is in the coalition values only"):
        form(values, CompetitionGraph([], ["v0", "v1"]))
