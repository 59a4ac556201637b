"""Results in notebooks: tables that cannot be markup, and data frames."""

import sys

import pytest

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.errors import MissingDependencyError
from fedegoists.notebooks import data_frame, html_table
from tests.consortium.reports import NASTY, circle, make


@pytest.fixture(scope="module")
def formation():
    names = [NASTY, "South", "East"]
    benefit = BenefitGraph([[0, 2, 0], [1, 0, 0], [0, 0, 0]], names)
    return form(benefit, CompetitionGraph([], names))


def test_a_formation_and_its_certificate_are_tables(formation):
    pytest.importorskip("pandas")
    frame = formation.to_frame()
    assert frame.set_index("participant")["utility"].to_dict() == {NASTY: 1, "South": 2, "East": 0}
    assert frame["coalition"].nunique() == 2
    assert formation._repr_html_().count("<tr>") == 1 + 3
    claims = formation.certificate.to_frame().set_index("claim")
    assert claims.loc["welfare", "value"] == 3
    assert "proven to be the highest" in formation._repr_html_()
    assert "merge-stable" in formation.certificate._repr_html_()


def test_names_are_no_markup(formation):
    assert "<img" not in formation._repr_html_()
    assert "&lt;img" in formation._repr_html_()
    assert "<b>" not in html_table("<b>", ["<b>"], [["<b>"]])


def test_a_run_and_its_summary_are_tables(tmp_path):
    pytest.importorskip("pandas")
    names = ["North", "South", "East"]
    run = make(tmp_path, names, circle(names[:2]), seeds=1, rows=24)
    frame = run.to_frame().set_index(["participant", "method"])
    assert len(frame) == 3 * 2
    gain = next(one for one in run.gains if one.participant == "North")
    assert frame.loc[("North", "fedavg"), "gain"] == pytest.approx(gain.gain)
    judged = run.evaluations.methods["fedavg", "North"]
    assert frame.loc[("North", "fedavg"), "low"] == pytest.approx(judged.gain.low, nan_ok=True)
    assert frame.loc[("East", "fedavg"), "gain"] != frame.loc[("East", "fedavg"), "gain"]  # none
    page = run._repr_html_()
    assert "North †" in page
    assert "too few test samples" in page
    assert set(run.summary.to_frame()["participant"]) == {*names, "all"}
    assert "Test auc over repetitions" in run.summary._repr_html_()


def test_a_missing_pandas_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match="pip install pandas"):
        data_frame(["a"], [])
