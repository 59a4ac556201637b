"""Learning benefits and writing them to a folder."""

from dataclasses import replace

import pytest

from fedegoists.coalitions import form
from fedegoists.graphs import CompetitionGraph, read_values
from fedegoists.training.benefit_learning import BenefitPlan, learn_benefits, write_benefits
from fedegoists.training.defaults import SCHEDULES


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    short = replace(SCHEDULES["table"], steps=40, benefit_steps=20)
    monkeypatch.setitem(SCHEDULES, "table", short)


def test_coalition_values_are_written_beside_the_graph(tmp_path):
    plan = BenefitPlan("synthetic-strong", ("curves",), settings={"repeats": 1})
    learned = learn_benefits(plan)
    write_benefits(learned, tmp_path)
    values = read_values(tmp_path / "values.json")
    assert values == learned.first.values
    groups = form(values, CompetitionGraph(learned.data.competition_pairs, values.participants))
    assert groups.participants == learned.data.participants


def test_other_estimators_leave_no_values(tmp_path):
    plan = BenefitPlan("synthetic-strong", ("transfer",))
    write_benefits(learn_benefits(plan), tmp_path)
    assert not (tmp_path / "values.json").exists()
    assert (tmp_path / "benefit.csv").exists()
