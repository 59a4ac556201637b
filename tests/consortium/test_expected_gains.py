"""Expected gains: from a consortium's file to its report."""

import pytest

from fedegoists import BenefitGraph, CompetitionGraph, CurveValues, form
from fedegoists.coalitions import Certificate
from fedegoists.consortium import Consortium
from fedegoists.consortium.example_files import init
from fedegoists.consortium.report.expected_gains import expected_gains
from fedegoists.errors import SettingsError
from tests.consortium.reports import Balance

NAMES = ["North", "South"]
QUICK = ["training.steps=40", "training.seeds=1", "benefit.estimator=curves"]


def formed(slope_error, rate=1.0):
    values = CurveValues(
        [100, 100],
        [0.02, 0.04],
        [[0, rate], [rate, 0]],
        NAMES,
        slope_errors=slope_error,
        unit="auc",
    )
    return form(values, CompetitionGraph([], NAMES))


def test_gains_have_intervals_and_probabilities():
    """One doubling: North gains 0.02 ± 1.645 · 0.01, two standard errors above zero."""
    found = expected_gains(formed(0.01))
    assert found.unit == "auc"
    north, south = found.rows
    assert (north.participant, north.gain) == ("North", "+0.0200")
    assert north.interval == "+0.0036 to +0.0364"
    assert north.probability == "98 %"
    assert (south.gain, south.probability) == ("+0.0400", "100 %")
    assert found.sentence == ""


def test_how_much_more_would_be_needed():
    """North's 0.02 ± 0.04: (1.28 · 2)² = 6.6 times the samples."""
    assert "about 7 times the samples" in expected_gains(formed(0.04)).sentence
    assert "far too little" in expected_gains(formed(1.0)).sentence


def test_where_nobody_gains_it_says_so():
    found = expected_gains(formed(0.01, rate=-0.2))
    assert found.rows == ()
    assert "more evidence would not help" in found.sentence


def test_benefits_have_no_units():
    benefit = BenefitGraph([[0, 1], [1, 0]], NAMES)
    assert expected_gains(form(benefit, CompetitionGraph([], NAMES))) is None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("curves")
    init(folder, "banks")
    return Consortium.read(folder / "consortium.toml", QUICK).run()


def test_a_consortium_decides_by_expected_gains(run):
    values = run.benefit.estimate.values
    assert run.formation.values == values
    assert values.unit == run.repetitions.federation.task.metric_words
    again = form(values, run.formation.competition)
    assert again.coalitions == run.formation.coalitions
    assert Certificate.load(run.folder / "certificate.json").check().ok


def test_the_report_tells_expected_gains(run):
    page = Balance((run.folder / "report.html").read_text(encoding="utf-8"))
    assert "Expected gains" in page.text
    assert f"total expected gain in {run.formation.values.unit}" in page.text
    for name in run.formation.probabilities:
        (row,) = (one for one in expected_gains(run.formation).rows if one.participant == name)
        assert f"{name} {row.gain} {row.interval} {row.probability}" in page.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("benefit.threshold=0.1", "a threshold is for benefits"),
        ("formation.method=stable", "only 'best' decides by expected gains"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_learned(tmp_path, change, message):
    init(tmp_path, "banks")
    with pytest.raises(SettingsError, match=message):
        Consortium.read(tmp_path / "consortium.toml", [*QUICK, change]).learn_benefit()
