"""The report on all participants, from graphs, formations and certificates."""

import json

import pytest

from fedegoists import BenefitGraph, CompetitionGraph, form, incentives
from fedegoists.coalitions.incentives.inspection_rates import inspection_probability
from fedegoists.coalitions.incentives.reporting import LIES
from fedegoists.errors import GraphError, SettingsError
from fedegoists.graphs import UncertainBenefits
from tests.coalitions.value_instances import random_competition, random_values
from tests.instances import consortium, uniform

NAMES = ["North", "South", "East"]


def banks():
    benefit = BenefitGraph([[0, 0.4, 0.2], [0.1, 0, 0], [0.6, 0, 0]], NAMES)
    return benefit, CompetitionGraph([("South", "East")], NAMES)


def test_a_report_by_hand():
    report = incentives(*banks())
    assert report.welfare == pytest.approx(0.8)
    assert report.tempted("misreport") == ("South",)
    north, south, east = report.participants
    assert [one.utility for one in (north, south, east)] == [0.6, 0.0, 0.2]
    assert south.inspection_probability == report.inspection_probability == 1.0
    assert north.inspection_probability == 0.0
    assert (report.notes, [found.lie for found in north.temptations]) == ((), list(LIES))
    # With South and East together, North receives 0.7 and the three 1.3.
    assert south.price_of_names == pytest.approx((1.3 - 0.4) - 0.8)
    assert east.price_of_names == pytest.approx((1.3 - 0.2) - 0.6)
    assert north.price_of_names == 0


def test_a_deposit_makes_rare_inspections_enough():
    report = incentives(*banks(), deposit=1.6)
    assert report.inspection_probability == pytest.approx(0.4 / (0.4 + 1.6))


@pytest.mark.parametrize(("utility", "gain"), [(2.0, 1.0), (0.5, 3.0), (0.0, 1.0)])
@pytest.mark.parametrize("deposit", [0.0, 0.7])
def test_at_the_inspection_probability_a_lie_is_worth_nothing(utility, gain, deposit):
    p = inspection_probability(utility, gain, deposit)
    assert (1 - p) * (utility + gain) - p * deposit == pytest.approx(utility)
    less = p - 0.01
    assert (1 - less) * (utility + gain) - less * deposit > utility


def test_a_formation_brings_its_own_method_and_graphs():
    formation = form(*banks(), "truthful")
    report = incentives(formation)
    assert (report.method, report.tempted("misreport")) == ("truthful", ())
    assert report.participants[1].price_of_names is None


def test_the_report_as_json_and_as_a_table():
    report = incentives(*banks())
    found = json.loads(json.dumps(report.to_dict()))
    lies = {one["lie"]: one for one in found["participants"][1]["lies"]}
    assert lies["misreport"] == {
        "lie": "misreport",
        "gain": 0.4,
        "bound": 0.4,
        "exact": True,
        "report": "a large benefit from North, nothing from the others",
        "others_lose": pytest.approx(0.7),
    }
    assert "South" in report._repr_html_()
    assert list(report.to_frame()["misreport"]) == [0.0, 0.4, 0.0]


def test_a_short_time_limit_leaves_bounds_and_says_so():
    graphs = consortium(uniform, 9, 1)
    short, whole = incentives(*graphs, time_limit=1e-9), incentives(*graphs, time_limit=600)
    assert any("time limit" in note for note in short.notes)
    assert whole.notes == ()
    for some, exact in zip(short.participants, whole.participants, strict=True):
        for lie in LIES:
            assert some.by(lie).gain <= exact.by(lie).gain <= some.by(lie).bound + 1e-12
            assert exact.by(lie).exact


def test_more_than_ten_participants_are_searched_and_it_says_so():
    report = incentives(*consortium(uniform, 11, 1), "stable", time_limit=600)
    assert any("more than 10 participants" in note for note in report.notes)


def test_progress_counts_participants():
    seen = []
    incentives(*banks(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_nobody_and_one():
    for names in ([], ["a"]):
        benefit = BenefitGraph.from_edges([], names)
        report = incentives(benefit, CompetitionGraph([], names))
        assert len(report.participants) == len(names)
        assert report.inspection_probability == 0.0


def test_what_cannot_be_computed_is_refused():
    benefit, competition = banks()
    with pytest.raises(SettingsError, match="objective"):
        incentives(form(benefit, competition, objective="fair"))
    with pytest.raises(SettingsError, match="benefit graphs"):
        incentives(random_values(4, 0), random_competition(4, 0))
    doubtful = UncertainBenefits(benefit.weights, benefit.weights / 4, NAMES)
    with pytest.raises(SettingsError, match="without standard errors"):
        incentives(doubtful, competition)
    with pytest.raises(SettingsError, match="leave the second one out"):
        incentives(form(benefit, competition), competition)
    with pytest.raises(SettingsError, match="or a formation"):
        incentives(benefit)
    with pytest.raises(SettingsError, match="time limit"):
        incentives(benefit, competition, time_limit=0)
    with pytest.raises(SettingsError, match="deposit"):
        incentives(benefit, competition, deposit=-1)
    with pytest.raises(SettingsError, match="unknown method"):
        incentives(benefit, competition, "magic")
    with pytest.raises(GraphError, match="different participants"):
        incentives(benefit, CompetitionGraph([], ["North"]))


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_gains_are_in_the_unit_of_the_benefits(scale):
    benefit, competition = consortium(uniform, 6, 3)
    scaled = BenefitGraph(benefit.weights * scale, benefit.participants)
    plain, other = incentives(benefit, competition), incentives(scaled, competition)
    assert any(one.by("misreport").gain > 0 for one in plain.participants)
    for one, same in zip(plain.participants, other.participants, strict=True):
        for lie in LIES:
            assert same.by(lie).gain == pytest.approx(one.by(lie).gain * scale, rel=1e-9)
        assert same.inspection_probability == pytest.approx(one.inspection_probability)
